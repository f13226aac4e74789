mod block;
mod memory;
mod samples;

use super::*;
use crate::data::Columns;
use crate::likelihood::batch_mma::{BatchMmaArgs, FEATURE_SCALE, FEATURES, ONE, SQUARE_SCALE};
use crate::likelihood::small_k::THRESHOLD;
use crate::math::smaller;
use crate::simt::*;
use block::*;
use memory::*;
use samples::*;

/// Samples of a thread: two rows of the products.
const ROWS: usize = 2;
/// Bytes of a matrix of (8, 8) float16 numbers.
const MATRIX: usize = 128;
/// Its elements (two numbers each).
const WORDS: usize = MATRIX / size_of::<Halves>();

/// A thread's features of its samples: for each step, those of both halves.
type Features<const S: usize> = [[[f32; ROWS]; 2]; S];
/// The reference's exponents of a thread's samples, two components behind each other in each element.
type Reference = [[f32; 4]; COMPONENTS / 2];

/// The kernel. `ONE_OCTET`: K ≤ 8; the reference's exponents of a thread's samples are then in registers.
#[inline(always)]
unsafe fn body<const S: usize, const ONE_OCTET: bool>(args: &BatchMmaArgs) {
    let columns = &args.columns;
    let (threads, lane) = (block_dim() as usize, (thread_idx() % WARP) as usize);
    let warp = (thread_idx() / WARP) as usize;
    let (first_bundle, group) = ((block_idx_y() * args.group) as usize, args.group as usize);
    let left = args.bundles - first_bundle as u32;
    let bundles = smaller(left, args.group);
    let octets = if ONE_OCTET { 1 } else { args.octets as usize };
    let layout = Layout::new(S, octets, group, threads);
    let (room, components) = (layout.room, octets * COMPONENTS);
    let reference = Shared::<f32>::at(layout.reference);
    // A product for each bundle and thread: see `product_at`.
    let products = Shared::<f32>::at(layout.products);
    let far = Shared::<f64>::at(layout.far);
    // SAFETY: at the start the shared memory is free.
    fill::<S>(args, &layout, octets, (first_bundle, bundles as usize));
    operands_ready();
    barrier!();
    let block = SetsBlock::<S>::new(&layout, octets);
    let operand = Operand::new(block.coefficients(0, 0), 4 * S * MATRIX, MATRIX);
    let start = |samples: &Samples<S>, octet: u32, bundle: u32| {
        let place = (octet * room as u32 + bundle) as usize * S * STEP_SIZE * size_of::<Halves>();
        // SAFETY: the group's coefficients are there since the barrier; the whole warpgroup calls it.
        warpgroup_start(&samples.high, &samples.low, operand.offset(place))
    };
    // Samples of a warpgroup's four warps.
    const ROUND: u64 = 4 * SAMPLES as u64;
    let groups = u64::from(block_dim() / WARPGROUP);
    let step = u64::from(grid_dim()) * groups * ROUND;
    // The same bound for the whole block: all warps take part in the products, and uniform values are in uniform
    // registers.
    let mut first = u64::from(block_idx()) * groups * ROUND;
    let mine = (warp * SAMPLES + lane / 4 * ROWS) as u64;
    // SAFETY: the columns are valid.
    let mut next = fetch::<S>(columns, args.d as usize, first + mine);
    while first < columns.n {
        let sample = first + mine;
        let exists = [sample < columns.n, sample + 1 < columns.n];
        let features = take(next, exists[1]);
        warp_sync();
        // SAFETY: no lane reads the previous round's exponents any more.
        write_exponents(&features, (reference, components), exists, block.exponents);
        warp_sync();
        let samples = Samples::<S>::new(&features);
        // Arrives while this round is computed.
        next = fetch(columns, args.d as usize, first + step + mine);
        // SAFETY: in shared memory since the warp met.
        let reference = block.reference(0);
        // Two bits for each bundle: whether each of the thread's samples is far.
        let mut is_far = 0u32;
        let mut multiply = |[mut a, mut b]: [f32; ROWS], f: u32| {
            let place = f as usize * threads + thread_idx() as usize;
            // SAFETY: only this thread uses the place.
            let mut product = product_at(products, place);
            if warp_any(min(a, b) < THRESHOLD) {
                let bit = 1 << (2 * f);
                is_far |= if a < THRESHOLD { bit } else { 0 } | if b < THRESHOLD { 2 * bit } else { 0 };
                a = if a < THRESHOLD { 1.0 } else { a };
                b = if b < THRESHOLD { 1.0 } else { b };
            }
            product.multiply(a * b);
            keep_product(products, place, product);
        };
        counted!(for f in (0..bundles).step_by(BUNDLES_AT_ONCE as u32) {
            let mut e = [[0.0; ROWS]; BUNDLES_AT_ONCE];
            counted!(for octet in 0..octets as u32 {
                // The second bundle is multiplied while the first one's exponentials are computed.
                let mut first = start(&samples, octet, f);
                let mut second = start(&samples, octet, f + 1);
                // SAFETY: in shared memory.
                let reference = if ONE_OCTET { reference } else { block.reference(octet as usize) };
                // While the tensor cores multiply.
                let scales = [block.scale(f as usize), block.scale(f as usize + 1)];
                warpgroup_finish::<1>(&mut first);
                block.add(&mut e[0], &first, scales[0], &reference, (octet as usize, f as usize));
                warpgroup_finish::<0>(&mut second);
                block.add(&mut e[1], &second, scales[1], &reference, (octet as usize, f as usize + 1));
            });
            multiply(e[0], f);
            multiply(e[1], f + 1);
        });
        // Missing bundles come out as far: their bits are cleared.
        is_far &= u32::MAX >> (32 - 2 * bundles);
        // SAFETY: all lanes of the warp call it; only this warp uses the places.
        block.multiply_all_far(&samples, is_far, exists, bundles, (products, far));
        first += step;
    }
    barrier!();
    // SAFETY: written before the barrier.
    write_totals(args, products, far, (first_bundle, bundles as usize));
}

kernels! {
    /// Computes each block's sum for each set.
    batch_wgmma_k08_s1: BatchMmaArgs = body::<1, true>;
    batch_wgmma_k08_s2: BatchMmaArgs = body::<2, true>;
    batch_wgmma_k08_s3: BatchMmaArgs = body::<3, true>;
    batch_wgmma_k08_s4: BatchMmaArgs = body::<4, true>;
    batch_wgmma_s1: BatchMmaArgs = body::<1, false>;
    batch_wgmma_s2: BatchMmaArgs = body::<2, false>;
    batch_wgmma_s3: BatchMmaArgs = body::<3, false>;
    batch_wgmma_s4: BatchMmaArgs = body::<4, false>;
}
