//! The code of `split_rows`.
use super::*;
use crate::simt::*;

/// The power of two not above a magnitude, within 2^-126 to 2^126, and one over it.
#[inline(always)]
fn power_of_two(magnitude: u32) -> [f32; 2] {
    let exponent = (magnitude >> 23).clamp(1, 253);
    [f32::from_bits(exponent << 23), f32::from_bits((254 - exponent) << 23)]
}

kernel! {
    /// Splits rows into float16 numbers.
    ///
    /// # Safety
    /// The arrays have the documented lengths.
    pub unsafe fn split_rows(args: SplitArgs) {
        let lane = thread_idx() % WARP;
        let warps = (block_dim() / WARP) as u64;
        let chunks = args.d.div_ceil(CHUNK as u32);
        let mut row = block_idx() as u64 * warps + (thread_idx() / WARP) as u64;
        while row < args.rows {
            let x = args.x.wrapping_add(row as usize * args.d as usize);
            let to = args.halves.wrapping_add(row as usize * chunks as usize * CHUNK_ELEMENTS);
            // The bits of magnitudes are ordered as the magnitudes are.
            let mut largest = 0u32;
            let mut j = lane;
            while j < args.d {
                // SAFETY: j < D.
                largest = largest.max(unsafe { load(x.add(j as usize)) }.to_bits() & 0x7fff_ffff);
                j += WARP;
            }
            let mut mask = WARP / 2;
            while mask > 0 {
                largest = largest.max(shuffle_xor_u32(largest, mask));
                mask /= 2;
            }
            let [scale, inverse] = power_of_two(largest);
            // Half a warp takes a chunk, a lane two neighbours.
            let (mut chunk, element) = (lane / (WARP / 2), lane % (WARP / 2));
            while chunk < chunks {
                let first = chunk * CHUNK as u32 + 2 * element;
                let mut pair = [0.0f32; 2];
                let mut i = 0;
                while i < 2 {
                    if first + (i as u32) < args.d {
                        // SAFETY: below D.
                        pair[i] = unsafe { load(x.add(first as usize + i)) } * inverse * LARGEST;
                    }
                    i += 1;
                }
                let [high, low] = split_halves(pair[0], pair[1]);
                let to = to.wrapping_add((chunk * CHUNK_ELEMENTS as u32 + element) as usize);
                // SAFETY: the row's chunk has 16 elements of either kind.
                unsafe {
                    store(to, high);
                    store(to.add(CHUNK_ELEMENTS / 2), low);
                }
                chunk += 2;
            }
            if lane == 0 {
                // SAFETY: below the number of rows.
                unsafe { store(args.scales.add(row as usize), scale) };
            }
            row += grid_dim() as u64 * warps;
        }
    }
}
