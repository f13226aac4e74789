//! The code of `products_few`.
use super::*;
use crate::pairwise::split::{CHUNK, CHUNK_ELEMENTS, LARGEST};
use crate::simt::*;

/// Pairs of numbers of the matrix that a lane reads at a time, so that enough bytes are on their way.
const TOGETHER: usize = 8;
/// Chunks that a warp reads at a time: half a warp takes a chunk, a lane two neighbours of it.
const CHUNKS: u32 = 2 * TOGETHER as u32;

/// The numbers h and l of [`CHUNKS`] chunks, of which this lane takes every second from `chunk` on. Reads are without condition,
/// so that none waits for another: past the end, it is the last chunk that is read.
///
/// # Safety
/// `row` is a row of `chunks` chunks.
#[inline(always)]
unsafe fn read_chunks(row: *const u32, [chunk, chunks]: [u32; 2], element: u32) -> [[Halves; 2]; TOGETHER] {
    let mut halves = [[0; 2]; TOGETHER];
    let mut t = 0;
    while t < TOGETHER {
        let chunk = (chunk + 2 * t as u32).min(chunks - 1);
        let from = row.wrapping_add((chunk * CHUNK_ELEMENTS as u32 + element) as usize);
        // SAFETY: the chunk exists.
        halves[t] = unsafe { [load(from), load(from.add(CHUNK_ELEMENTS / 2))] };
        t += 1;
    }
    halves
}

/// Adds the products of the chunks that [`read_chunks`] has read; those past the end count as zeros.
///
/// # Safety
/// The pointers of `args` are valid for the sizes given.
#[inline(always)]
unsafe fn add_chunks(
    sums: &mut [f32; MOST_VECTORS],
    args: &ProductsFewArgs,
    halves: &[[Halves; 2]; TOGETHER],
    scale: f32,
    [chunk, chunks]: [u32; 2],
    element: u32,
) {
    let mut numbers = [[0.0f32; 2]; TOGETHER];
    let mut t = 0;
    while t < TOGETHER {
        let scale = if chunk + 2 * (t as u32) < chunks { scale } else { 0.0 };
        let [high, low] = [widen_halves(halves[t][0]), widen_halves(halves[t][1])];
        numbers[t] = [(high[0] + low[0]) * scale, (high[1] + low[1]) * scale];
        t += 1;
    }
    let mut v = 0;
    while v < MOST_VECTORS {
        if (v as u32) < args.n {
            let vector = args.vectors.wrapping_add(v * args.d as usize);
            let mut x = [0.0f32; 2 * TOGETHER];
            let mut t = 0;
            while t < 2 * TOGETHER {
                let j = (chunk + 2 * (t / 2) as u32) * CHUNK as u32 + 2 * element + (t % 2) as u32;
                // SAFETY: below D.
                x[t] = unsafe { load(vector.add(j.min(args.d - 1) as usize)) };
                t += 1;
            }
            let mut t = 0;
            while t < 2 * TOGETHER {
                sums[v] = fma(numbers[t / 2][t % 2], x[t], sums[v]);
                t += 1;
            }
        }
        v += 1;
    }
}

kernel! {
    /// Products of few vectors with all rows.
    ///
    /// # Safety
    /// The pointers of `args` are valid for the sizes given; launched as the module says.
    pub unsafe fn products_few(args: ProductsFewArgs) {
        let chunks = args.d.div_ceil(CHUNK as u32);
        let (lane, warps) = (thread_idx() % WARP, block_dim() / WARP);
        let (first, element) = (lane / (WARP / 2), lane % (WARP / 2));
        let mut row = block_idx() * warps + thread_idx() / WARP;
        while row < args.matrix.rows {
            let halves = args.matrix.halves.wrapping_add(row as usize * chunks as usize * CHUNK_ELEMENTS);
            // SAFETY: the row exists.
            let scale = unsafe { load(args.matrix.scales.add(row as usize)) } * (1.0 / LARGEST);
            let mut sums = [0.0f32; MOST_VECTORS];
            let mut chunk = first;
            // SAFETY: the row exists, here and below.
            let mut next = unsafe { read_chunks(halves, [chunk, chunks], element) };
            while chunk < chunks + first {
                let now = next;
                // SAFETY: see above.
                unsafe {
                    // On their way while those before them are multiplied.
                    next = read_chunks(halves, [chunk + CHUNKS, chunks], element);
                    add_chunks(&mut sums, &args, &now, scale, [chunk, chunks], element);
                }
                chunk += CHUNKS;
            }
            let mut v = 0;
            while v < MOST_VECTORS {
                let mut mask = WARP / 2;
                while mask > 0 {
                    sums[v] += f32::from_bits(shuffle_xor_u32(sums[v].to_bits(), mask));
                    mask /= 2;
                }
                if (v as u32) < args.n && lane == v as u32 {
                    // SAFETY: the vector and the row exist.
                    unsafe { store(args.products.add(v * args.matrix.rows as usize + row as usize), sums[v]) };
                }
                v += 1;
            }
            row += grid_dim() * warps;
        }
    }
}
