use super::*;
use crate::pairwise::split::LARGEST;
use crate::pairwise::split::kernel::square_roots;
use crate::simt::*;

/// Tiles of `mma` along the matrix's rows that are computed side by side, so that several products overlap.
const SIDE_BY_SIDE: usize = 2;
/// 16-byte pieces of a row's segment, of four elements each.
const PIECES: u32 = (SEGMENT_ELEMENTS / 4) as u32;
const SEGMENT_BYTES: u32 = SEGMENT_ELEMENTS as u32 * size_of::<u32>() as u32;
/// Elements from the numbers h of a segment to the numbers l.
const LOW: usize = SEGMENT_ELEMENTS / 2;
/// Elements of 16 numbers, which one `mma` multiplies.
const STEP: usize = 8;
/// Shares of a tile whose sums are read at a time.
const AT_ONCE: usize = 4;

/// Starts to copy segment `segment` of `count` rows, from row `first` on, to a stage; the block has `threads` threads.
/// Rows past the end stay as they are: their products are not written.
/// Safety: the stage has room; `rows` are as documented, with `segments` segments each.
#[inline(always)]
unsafe fn fetch(
    rows: &SplitRows,
    [first, count, threads]: [u32; 3],
    segments: u32,
    segment: u32,
    to: Shared<f32>,
    policy: CachePolicy,
) {
    let (row, piece) = (thread_idx() / PIECES, thread_idx() % PIECES);
    let rows_at_once = threads / PIECES;
    let row_bytes = segments * SEGMENT_BYTES;
    let of_segment = rows.halves.cast::<u8>().wrapping_add((segment * SEGMENT_BYTES + 16 * piece) as usize);
    counted!(for i in 0..count / rows_at_once {
        // `opaque` keeps the addresses of all rows out of the registers.
        let row = first + i * rows_at_once + opaque(row);
        if row < rows.rows {
            let from = of_segment.wrapping_add(row as usize * row_bytes as usize);
            // SAFETY: the row and the segment exist; each thread has its own place in the stage.
            to.copy4((i * rows_at_once) as usize * PITCH, from.cast(), policy);
        }
    });
}

/// Adds the products of 16 numbers of the warp's vectors and rows to `sums`. All lanes of the warp take part.
/// Safety: `vectors` and `matrix` are the places from which this lane reads for `matrices`.
#[inline(always)]
unsafe fn add_step<const DOWN: usize, const ACROSS: usize>(
    sums: &mut [[[f32; 4]; ACROSS]; DOWN],
    vectors: Shared<Halves>,
    matrix: Shared<Halves>,
) {
    let mut v = [[[0u32; 4]; 2]; DOWN];
    counted!(for down in 0..DOWN {
        v[down] = [vectors.matrices(16 * down * PITCH), vectors.matrices(16 * down * PITCH + LOW)];
    });
    written_out!(for pair in 0..(ACROSS / SIDE_BY_SIDE) {
        let [high, low] = [matrix.matrices(16 * pair * PITCH), matrix.matrices(16 * pair * PITCH + LOW)];
        let mut added = [[[0.0f32; 4]; SIDE_BY_SIDE]; DOWN];
        // Small products first.
        counted!(for product in 0..3 {
            counted!(for down in 0..DOWN {
                counted!(for side in 0..SIDE_BY_SIDE {
                    let of_vectors = if product == 0 { v[down][1] } else { v[down][0] };
                    let of_matrix = if product == 1 { low } else { high };
                    let of_matrix = [of_matrix[2 * side], of_matrix[2 * side + 1]];
                    added[down][side] = mma(added[down][side], of_vectors, of_matrix);
                });
            });
        });
        counted!(for down in 0..DOWN {
            counted!(for side in 0..SIDE_BY_SIDE {
                counted!(for i in 0..4 {
                    sums[down][SIDE_BY_SIDE * pair + side][i] += added[down][side][i];
                });
            });
        });
    });
}

/// Writes the warp's products: those from `warp` on, in the block's tile, which begins at `first` (vector, row).
/// Safety: the pointers of `args` are valid for the sizes given; `scales` are the tile's.
#[inline(always)]
unsafe fn write<const DOWN: usize, const ACROSS: usize>(
    args: &ProductsArgs,
    sums: &[[[f32; 4]; ACROSS]; DOWN],
    scales: Scales,
    first: [u32; 2],
    warp: [u32; 2],
) {
    /// The scales of both splits.
    const UNSCALE: f32 = 1.0 / (LARGEST * LARGEST);
    let lane = thread_idx() % WARP;
    let (n, m) = (args.vectors.rows, args.matrix.rows);
    written_out!(for down in 0..(2 * DOWN) {
        let in_tile = warp[0] + 8 * down as u32 + lane / 4;
        let vector = first[0] + in_tile;
        if vector < n {
            // SAFETY: a vector of the tile.
            let of_vector = square_roots(scales.of_vectors.get(in_tile as usize));
            let to = args.products.wrapping_add(vector as usize * m as usize);
            counted!(for across in 0..ACROSS {
                let in_tile = warp[1] + 8 * across as u32 + 2 * (lane % 4);
                let row = first[1] + in_tile;
                let mut values = [0.0f32; 2];
                counted!(for i in 0..2 {
                    // SAFETY: a row of the tile.
                    let of_row = square_roots(scales.of_rows.get(in_tile as usize + i));
                    let sum = sums[down / 2][across][2 * (down % 2) + i] * UNSCALE;
                    values[i] = sum * (of_vector[0] * of_row[0]) * (of_vector[1] * of_row[1]);
                });
                // SAFETY: vector and row exist; if M is even, so is the place's distance from the start.
                if m.is_multiple_of(2) && row < m {
                    store2(to.add(row as usize), values);
                } else {
                    if row < m {
                        store(to.add(row as usize), values[0]);
                    }
                    if row + 1 < m {
                        store(to.add(row as usize + 1), values[1]);
                    }
                }
            });
        }
    });
}

/// The scales of a tile's vectors and rows in shared memory.
#[derive(Clone, Copy)]
struct Scales {
    of_vectors: Shared<f32>,
    of_rows: Shared<f32>,
}

impl Scales {
    /// Copies them there, behind the stages. The block's threads can read them after the next barrier.
    /// Safety: as for [`body`].
    #[inline(always)]
    unsafe fn read(args: &ProductsArgs, tiling: Tiling, first: [u32; 2]) -> Self {
        let of_vectors = Shared::at(tiling.stages * tiling.stage_bytes());
        let this = Self { of_vectors, of_rows: of_vectors.offset(tiling.vectors) };
        counted!(for i in (thread_idx()..(tiling.vectors + tiling.rows) as u32).step_by(tiling.threads) {
            let (rows, scales, row) = if i < tiling.vectors as u32 {
                (args.vectors.rows, args.vectors.scales, first[0] + i)
            } else {
                (args.matrix.rows, args.matrix.scales, first[1] + i - tiling.vectors as u32)
            };
            // SAFETY: an existing row, the last one for rows past the end; a place for each.
            this.of_vectors.set(i as usize, load(scales.add(row.min(rows - 1) as usize)));
        });
        this
    }
}

/// The place of this thread's sums of a share of a tile: its `four`-th four.
#[inline(always)]
fn place_of_sums(args: &ProductsArgs, tiling: Tiling, tile: u32, share: u32, four: usize) -> *mut f32 {
    let of_share = (tile * args.shares + share) as usize * tiling.products();
    args.sums.wrapping_add(of_share + 4 * (four * tiling.threads as usize + thread_idx() as usize))
}

/// Writes this share's sums of a tile; the tile's last block replaces them by those of all shares, and returns true.
/// Safety: as for [`body`]; no thread of the block uses shared memory any more.
#[inline(always)]
unsafe fn add_parts<const DOWN: usize, const ACROSS: usize>(
    args: &ProductsArgs,
    tiling: Tiling,
    [tile, share]: [u32; 2],
    sums: &mut [[[f32; 4]; ACROSS]; DOWN],
) -> bool {
    counted!(for i in 0..DOWN * ACROSS {
        // SAFETY: a place for each four sums of each thread, share and tile.
        store4(place_of_sums(args, tiling, tile, share, i), sums[i / ACROSS][i % ACROSS]);
    });
    let before = Shared::<Halves>::at(0);
    barrier!();
    if thread_idx() == 0 {
        // SAFETY: a number for each tile. Blocks that count later see this block's writes before the barrier.
        before.set(0, count_up(args.ready.add(tile as usize), 1));
    }
    barrier!();
    // SAFETY: set before the barrier.
    if before.get(0) + 1 < args.shares {
        return false;
    }
    let mut total = [[[0.0f32; 4]; ACROSS]; DOWN];
    let mut share = 0;
    while share < args.shares {
        // All reads of a batch overlap.
        let mut of_shares = [[[0u128; ACROSS]; DOWN]; AT_ONCE];
        counted!(for p in 0..AT_ONCE {
            let share = (share + p as u32).min(args.shares - 1);
            counted!(for i in 0..DOWN * ACROSS {
                // SAFETY: all shares have been written.
                of_shares[p][i / ACROSS][i % ACROSS] = load(place_of_sums(args, tiling, tile, share, i).cast::<u128>());
            });
        });
        counted!(for p in 0..AT_ONCE {
            if share + (p as u32) < args.shares {
                counted!(for i in 0..4 * DOWN * ACROSS {
                    let four = of_shares[p][i / 4 / ACROSS][i / 4 % ACROSS];
                    total[i / 4 / ACROSS][i / 4 % ACROSS][i % 4] += f32::from_bits((four >> (32 * (i % 4))) as u32);
                });
            }
        });
        share += AT_ONCE as u32;
    }
    *sums = total;
    if thread_idx() == 0 {
        // SAFETY: no other block counts for this tile any more.
        store(args.ready.add(tile as usize), 0);
    }
    true
}

/// Computes a tile of products, or a share of it. It has `ALONG` warps along the vectors and `OVER` along the matrix's
/// rows, each with `DOWN` tiles of `mma` of 16 vectors and `ACROSS` of 8 rows.
/// Safety: the pointers of `args` are valid for the sizes given; all threads of a block of this tiling take part.
#[inline(always)]
unsafe fn body<const ALONG: usize, const OVER: usize, const DOWN: usize, const ACROSS: usize>(
    args: &ProductsArgs,
    tiling: Tiling,
) {
    let policy = policy_keep();
    // Neighbouring tiles along the matrix's rows have the same vectors.
    let tiles_of_rows = args.matrix.rows.div_ceil(tiling.rows as u32);
    // Blocks that run at the same time have the same share of their tiles, and so the same segments.
    let (tile, share) = if tiling.most_shares == 1 {
        (block_idx(), 0)
    } else {
        let tiles = tiles_of_rows * args.vectors.rows.div_ceil(tiling.vectors as u32);
        (block_idx() % tiles, block_idx() / tiles)
    };
    let segments_of_share = args.segments.div_ceil(args.shares);
    let (mut segment, end) = if tiling.most_shares == 1 {
        (0, args.segments)
    } else {
        (share * segments_of_share, args.segments.min((share + 1) * segments_of_share))
    };
    let first_vector = tile / tiles_of_rows * tiling.vectors as u32;
    let first_row = tile % tiles_of_rows * tiling.rows as u32;
    let (warp, lane) = (thread_idx() / WARP, (thread_idx() % WARP) as usize);
    let (along, over) = (warp as usize % ALONG, warp as usize / ALONG);
    let (of_vectors, of_rows) = (16 * DOWN * along, 8 * ACROSS * over);
    // The places to which this thread copies, and from which it reads, in the first stage.
    let (row, piece) = (thread_idx() / PIECES, thread_idx() % PIECES);
    let to = Shared::<f32>::at(0).offset(row as usize * PITCH + 4 * piece as usize);
    // The matrices of `mma`'s A: rows 0 to 7 and 8 to 15 of numbers 0 to 7, then of numbers 8 to 15.
    let vectors = Shared::<Halves>::at(0).offset((of_vectors + lane % 16) * PITCH + 4 * (lane / 16));
    // The matrices of two of its B: rows 0 to 7 of numbers 0 to 7 and 8 to 15, then rows 8 to 15.
    let of_matrix = tiling.vectors + of_rows + lane % 8 + 8 * (lane / 16);
    let matrix = Shared::<Halves>::at(0).offset(of_matrix * PITCH + 4 * (lane / 8 % 2));
    let elements = (tiling.vectors + tiling.rows) * PITCH;
    let ahead = tiling.stages as u32 - 1;
    let fetch_segment = |segment: u32, stage: u32| {
        if segment < end {
            // In a register of each thread, although all threads share the stage: see `in_thread_register`.
            let to = to.offset(stage as usize * elements).in_thread_register();
            // SAFETY: the arguments are the caller's; a stage has room for the rows of a tile.
            let vectors = [first_vector, tiling.vectors as u32, tiling.threads];
            fetch(&args.vectors, vectors, args.segments, segment, to, policy);
            let to = to.offset(tiling.vectors * PITCH);
            fetch(&args.matrix, [first_row, tiling.rows as u32, tiling.threads], args.segments, segment, to, policy);
        }
        copies_commit();
    };
    let mut stage = 0;
    while stage < ahead {
        fetch_segment(segment + stage, stage);
        stage += 1;
    }
    let scales = Scales::read(args, tiling, [first_vector, first_row]);
    let mut sums = [[[0.0f32; 4]; ACROSS]; DOWN];
    stage = 0;
    while segment < end {
        match tiling.stages {
            3 => copies_wait_but_one(),
            _ => copies_wait_but_two(),
        }
        // All copies of this segment have arrived, and no thread uses the previous segment any more.
        barrier!();
        fetch_segment(segment + ahead, if stage == 0 { ahead } else { stage - 1 });
        let mut step = 0;
        // Opaque in large tiles: the second step's reads, moved ahead of the first products, would need more registers.
        while step < if tiling.vectors == LARGE.vectors { opaque(2) } else { 2 } {
            let at = stage as usize * elements + step as usize * STEP;
            // SAFETY: places of this stage; every lane comes here.
            add_step(&mut sums, vectors.offset(at), matrix.offset(at));
            step += 1;
        }
        segment += 1;
        stage = if stage == ahead { 0 } else { stage + 1 };
    }
    if tiling.most_shares > 1 && args.shares > 1 {
        // SAFETY: all copies have arrived, and no thread reads them now.
        let last = add_parts(args, tiling, [tile, share], &mut sums);
        if !last {
            return;
        }
    }
    write(args, &sums, scales, [first_vector, first_row], [of_vectors as u32, of_rows as u32]);
}

kernel! {
    /// Multiplies all vectors by all rows, in tiles of 256 × 128.
    pub unsafe fn products_large(args: ProductsArgs) {
        body::<4, 2, 4, 8>(&args, LARGE);
    }
}

kernel! {
    /// Multiplies all vectors by all rows, in tiles of 64 × 64.
    pub unsafe fn products_medium(args: ProductsArgs) {
        body::<2, 2, 2, 4>(&args, MEDIUM);
    }
}

kernel! {
    /// Multiplies all vectors by all rows, in tiles of 32 × 32.
    pub unsafe fn products_small(args: ProductsArgs) {
        body::<2, 2, 1, 2>(&args, SMALL);
    }
}
