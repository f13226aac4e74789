use super::*;
use crate::pairwise::split::kernel::{max_magnitude, power_of_two, split_pair, square_roots};
use crate::pairwise::split::{LARGEST, SEGMENT, SEGMENT_ELEMENTS};
use crate::simt::*;

/// Numbers of a segment that a lane reads of a row or of a vector.
const NUMBERS: u32 = 8;
/// Vectors of a tile of `mma`, and half of its rows.
const OCTET: u32 = 8;

/// A lane's numbers h and l of a segment of a row or a vector, in pairs.
type Pieces = [[Halves; 4]; 2];

/// Reads a lane's numbers of segment `segment` of a split row.
/// Safety: `row` is a split row, aligned to 16 bytes, that has this segment.
#[inline(always)]
unsafe fn read_row(row: *const Halves, segment: u32) -> Pieces {
    let from = row.wrapping_add(segment as usize * SEGMENT_ELEMENTS).cast::<f32>();
    // SAFETY: the segment's numbers h, then the numbers l; a lane's piece of either has 16 bytes.
    [load_f32x4(from).map(f32::to_bits), load_f32x4(from.add(SEGMENT_ELEMENTS / 2)).map(f32::to_bits)]
}

/// Reads a lane's numbers of a vector from `first` on, with zeros past its end; unconditionally, so that none waits.
/// Safety: `vector` has `d` numbers; it is aligned to 16 bytes if `d` is a multiple of four.
#[inline(always)]
unsafe fn read_vector(vector: *const f32, d: u32, first: u32) -> [f32; NUMBERS as usize] {
    let mut numbers = [0.0f32; NUMBERS as usize];
    if d.is_multiple_of(4) {
        counted!(for i in (0..NUMBERS).step_by(4) {
            let at = first + i;
            // SAFETY: four numbers, the last of which is below D.
            let four = load_f32x4(vector.add(if at < d { at } else { d - 4 } as usize));
            counted!(for j in 0..4 {
                numbers[i as usize + j] = if at < d { four[j] } else { 0.0 };
            });
        });
    } else {
        counted!(for i in 0..NUMBERS {
            // SAFETY: below D.
            let number = load(vector.add((first + i).min(d - 1) as usize));
            numbers[i as usize] = if first + i < d { number } else { 0.0 };
        });
    }
    numbers
}

/// Splits a vector's numbers of a segment, which four neighbouring lanes hold. Returns their power of two as well.
#[inline(always)]
fn split_vector(numbers: &[f32; NUMBERS as usize]) -> (Pieces, f32) {
    let mut largest = 0;
    counted!(for i in 0..NUMBERS as usize {
        largest = max_magnitude(largest, numbers[i]);
    });
    largest = largest.max(shuffle_xor_u32(largest, 1));
    largest = largest.max(shuffle_xor_u32(largest, 2));
    let [scale, inverse] = power_of_two(largest);
    let mut pieces = [[0; 4]; 2];
    counted!(for i in 0..4 {
        [pieces[0][i], pieces[1][i]] = split_pair([numbers[2 * i], numbers[2 * i + 1]], inverse);
    });
    (pieces, scale)
}

/// The products of a segment of 16 rows with one of eight vectors: each half from zero, small products first.
#[inline(always)]
fn multiply(rows: &[Pieces; 2], vectors: &Pieces) -> [f32; 4] {
    let mut halves = [[0.0f32; 4]; 2];
    counted!(for product in 0..3 {
        let of_rows = if product == 0 { 1 } else { 0 };
        let of_vectors = if product == 1 { 1 } else { 0 };
        counted!(for i in 0..2 {
            let [above, below] = [&rows[0][of_rows], &rows[1][of_rows]];
            let a = [above[2 * i], below[2 * i], above[2 * i + 1], below[2 * i + 1]];
            halves[i] = mma(halves[i], a, [vectors[of_vectors][2 * i], vectors[of_vectors][2 * i + 1]]);
        });
    });
    let mut sums = [0.0f32; 4];
    counted!(for i in 0..4 {
        sums[i] = halves[0][i] + halves[1][i];
    });
    sums
}

kernel! {
    /// Multiplies all vectors by all rows.
    pub unsafe fn products_few(args: ProductsFewArgs) {
        /// Undoes the splits' factors, half with a row's, half with a vector's power of two.
        const UNSCALE: f32 = 1.0 / LARGEST;
        let (warps, warp, lane) = (block_dim() / WARP, thread_idx() / WARP, thread_idx() % WARP);
        let segments = args.d.div_ceil(SEGMENT as u32);
        // Neighbouring tiles along the matrix's rows have the same vectors.
        let tiles_of_rows = args.matrix.rows.div_ceil(ROWS as u32);
        let first_vector = block_idx() / tiles_of_rows * VECTORS as u32;
        let first_row = block_idx() % tiles_of_rows * ROWS as u32;
        // Rows and vectors past the end are replaced by the last one, and their products are not written.
        let vector = (first_vector + lane / 4).min(args.n - 1) as usize;
        let vector = args.vectors.wrapping_add(vector * args.d as usize);
        let of_row = |half: u32| (first_row + OCTET * half + lane / 4).min(args.matrix.rows - 1) as usize;
        let row_at = |half: u32| {
            let elements = of_row(half) * segments as usize * SEGMENT_ELEMENTS;
            args.matrix.halves.wrapping_add(elements + (lane % 4 * NUMBERS / 2) as usize)
        };
        let rows = [row_at(0), row_at(1)];
        // SAFETY: the rows and the segment exist.
        let read_rows = |segment: u32| [read_row(rows[0], segment), read_row(rows[1], segment)];
        // SAFETY: the vector exists.
        let read_vector =
            |segment: u32| read_vector(vector, args.d, segment * SEGMENT as u32 + lane % 4 * NUMBERS);
        let mut segment = warp;
        let first = segment.min(segments - 1);
        let (mut next_rows, mut next_vector) = (read_rows(first), read_vector(first));
        // SAFETY: the rows exist.
        let row_scales = [load(args.matrix.scales.add(of_row(0))), load(args.matrix.scales.add(of_row(1)))];
        let row_scales = row_scales.map(|scale| square_roots(scale).map(|root| root * UNSCALE));
        let mut sums = [0.0f32; 4];
        while segment < segments {
            let (of_rows, of_vector) = (next_rows, next_vector);
            // Read while the previous ones are multiplied; after the last, it is read again from the cache.
            let next = if segment + warps < segments { segment + warps } else { segment };
            (next_rows, next_vector) = (read_rows(next), read_vector(next));
            let (pieces, scale) = split_vector(&of_vector);
            let products = multiply(&of_rows, &pieces);
            // Vector `lane / 4` was split; the products are with vectors 2·(`lane % 4`) and the next.
            let of = 8 * (lane % 4);
            let scales = [shuffle_u32(scale.to_bits(), of), shuffle_u32(scale.to_bits(), of + 4)];
            let scales = scales.map(|scale| square_roots(f32::from_bits(scale)));
            counted!(for i in 0..4 {
                let (row, vector) = (row_scales[i / 2], scales[i % 2]);
                sums[i] = fma(products[i] * (row[0] * vector[0]), row[1] * vector[1], sums[i]);
            });
            segment += warps;
        }
        let of_warps = Shared::<f32>::at(0);
        counted!(for i in 0..4 {
            let vector = 2 * (lane as usize % 4) + i % 2;
            let row = OCTET as usize * (i / 2) + lane as usize / 4;
            // SAFETY: a place for each warp, vector and row.
            of_warps.set((warp as usize * VECTORS + vector) * PITCH + row, sums[i]);
        });
        barrier!();
        counted!(for product in (thread_idx()..(VECTORS * ROWS) as u32).step_by(block_dim()) {
            let (vector, row) = (product / ROWS as u32, product % ROWS as u32);
            let mut sum = 0.0;
            counted!(for warp in 0..MOST_WARPS {
                // The constant bound keeps reads from waiting for each other.
                if warp < warps as usize {
                    sum += of_warps.get((warp * VECTORS + vector as usize) * PITCH + row as usize);
                }
            });
            let (vector, row) = (first_vector + vector, first_row + row);
            if vector < args.n && row < args.matrix.rows {
                // SAFETY: the vector and the row exist.
                store(args.products.add(vector as usize * args.matrix.rows as usize + row as usize), sum);
            }
        });
    }
}
