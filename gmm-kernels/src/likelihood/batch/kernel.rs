use super::*;
use crate::data::QUAD;
use crate::likelihood::small_k::kernel::{far_likelihoods, likelihoods, multiply_quad};
use crate::math::LogProduct;
use crate::simt::*;

#[inline(always)]
unsafe fn body<const D: usize, const ROW4: usize>(args: &BatchArgs) {
    let columns = &args.columns;
    let (cached, streamed) = (policy_keep(), policy_stream());
    let first_set = block_idx_y() * args.group;
    let sets = if args.sets - first_set < args.group { args.sets - first_set } else { args.group };
    let set_size = args.k as usize * 4 * ROW4;
    let parameters = Shared::<f32>::at(0);
    let powers = Shared::<f64>::at(args.group as usize * set_size * size_of::<f32>());
    let threads = block_dim() as usize;
    let mantissas = Shared::<f32>::at(args.group as usize * (set_size * size_of::<f32>() + threads * size_of::<f64>()));
    counted!(for f in (thread_idx() as usize..sets as usize * set_size).step_by(block_dim() as usize) {
        // SAFETY: the group's sets are within the array, and the shared memory holds a group.
        parameters.set(f, load(args.parameters.add(first_set as usize * set_size + f)));
    });
    counted!(for set in 0..sets as usize {
        let mine = set * threads + thread_idx() as usize;
        // SAFETY: a place for each thread and set.
        powers.set(mine, 0.0);
        mantissas.set(mine, 1.0);
    });
    barrier!();
    let step = grid_dim() * block_dim() * QUADS as u32;
    // The bound is the same for all threads of a block, so that all lanes take part in the shuffles.
    counted!(for base in (block_idx() * block_dim() * QUADS as u32..columns.quads()).step_by(step) {
        let mut x = [[[0.0; QUAD]; D]; QUADS];
        let mut quad = [0; QUADS];
        counted!(for r in 0..QUADS {
            quad[r] = base + r as u32 * block_dim() + thread_idx();
            // Past the end the last quad is read again, and not counted.
            let i = if quad[r] < columns.quads() { quad[r] } else { columns.quads() - 1 };
            counted!(for j in 0..D {
                // SAFETY: quad i exists.
                x[r][j] = load4(columns.quad(i, j), if i < columns.cached_quads { cached } else { streamed });
            });
        });
        counted!(for set in 0..sets {
            let components = parameters.offset(set as usize * set_size);
            // SAFETY: the group's parameters are in shared memory since the barrier.
            let likelihoods = likelihoods::<false, D, ROW4, QUADS>(&x, &x, components, args.k);
            let mine = set as usize * threads + thread_idx() as usize;
            // SAFETY: only this thread uses the place.
            let mut product = LogProduct::from_parts(powers.get(mine), mantissas.get(mine));
            counted!(for r in 0..QUADS {
                if quad[r] < columns.quads() {
                    let place = (quad[r], columns.n);
                    let scaled = || far_likelihoods::<false, D, ROW4>(&x[r], &x[r], components, args.k);
                    multiply_quad(&mut product, likelihoods[r], place, None, scaled);
                }
            });
            let (power, mantissa) = product.parts();
            powers.set(mine, power);
            mantissas.set(mine, mantissa);
        });
    });
    barrier!();
    // Each warp takes other sets, and adds up their products over the block's threads.
    let (warp, lane) = (thread_idx() / WARP, thread_idx() % WARP);
    counted!(for set in (warp..sets).step_by(block_dim() / WARP) {
        let mut sum = 0.0;
        counted!(for t in (lane as usize..threads).step_by(WARP as usize) {
            let at = set as usize * threads + t;
            // SAFETY: written before the barrier.
            sum += LogProduct::from_parts(powers.get(at), mantissas.get(at)).warp_sum();
        });
        if lane == 0 {
            // SAFETY: a place for each set and block.
            store(args.partials.add((first_set + set) as usize * grid_dim() as usize + block_idx() as usize), sum);
        }
    });
}

kernels! {
    /// Computes each block's sum for each set.
    batch_d01: BatchArgs = body::<1, { row(1, false) / 4 }>;
    batch_d02: BatchArgs = body::<2, { row(2, false) / 4 }>;
    batch_d03: BatchArgs = body::<3, { row(3, false) / 4 }>;
    batch_d04: BatchArgs = body::<4, { row(4, false) / 4 }>;
    batch_d05: BatchArgs = body::<5, { row(5, false) / 4 }>;
    batch_d06: BatchArgs = body::<6, { row(6, false) / 4 }>;
    batch_d07: BatchArgs = body::<7, { row(7, false) / 4 }>;
    batch_d08: BatchArgs = body::<8, { row(8, false) / 4 }>;
    batch_d09: BatchArgs = body::<9, { row(9, false) / 4 }>;
    batch_d10: BatchArgs = body::<10, { row(10, false) / 4 }>;
    batch_d11: BatchArgs = body::<11, { row(11, false) / 4 }>;
    batch_d12: BatchArgs = body::<12, { row(12, false) / 4 }>;
    batch_d13: BatchArgs = body::<13, { row(13, false) / 4 }>;
    batch_d14: BatchArgs = body::<14, { row(14, false) / 4 }>;
    batch_d15: BatchArgs = body::<15, { row(15, false) / 4 }>;
    batch_d16: BatchArgs = body::<16, { row(16, false) / 4 }>;
}
