//! A block's shared memory, from its start to the sums that the block leaves.
use super::*;
use crate::likelihood::batch_mma::kernel::sum_of_eight;
use crate::math::LogProduct;

/// Reads the product at a place of shared memory: its mantissa, then its exponent's bits.
/// Safety: [`keep_product`] has written it.
#[inline(always)]
pub(super) unsafe fn product_at(products: Shared<f32>, place: usize) -> LogProduct {
    let [mantissa, exponent] = products.get_some::<2>(2 * place);
    LogProduct::from_near(exponent.to_bits() as i32, mantissa)
}

/// Writes a product without far samples to a place of shared memory.
/// Safety: only this thread uses the place.
#[inline(always)]
pub(super) unsafe fn keep_product(products: Shared<f32>, place: usize, product: LogProduct) {
    let (exponent, mantissa) = product.near();
    products.cast::<Halves>().set2(2 * place, [mantissa.to_bits(), exponent as u32]);
}

/// Splits the coefficients of a group's bundles into shared memory. For each tile of a step, a lane takes a row's two
/// numbers of both halves of the step. All threads of the block call it.
/// Safety: the bundles exist, and there is room for `room` of them.
#[inline(always)]
pub(super) unsafe fn write_coefficients<const S: usize>(
    from: *const f32,
    coefficients: Shared<Halves>,
    octets: usize,
    room: usize,
    (first_bundle, bundles): (usize, usize),
) {
    let (warps, warp) = ((block_dim() / WARP) as usize, (thread_idx() / WARP) as usize);
    let lane = (thread_idx() % WARP) as usize;
    let mut octet = 0;
    while octet < octets {
        // Columns of four pairs of components at a time, so that the reads overlap.
        const AT_ONCE: usize = 4;
        let mut tile = warp;
        while tile < room * SETS * S {
            let mut v = [[0.0; 4]; AT_ONCE];
            counted!(for u in 0..AT_ONCE {
                let tile = tile + u * warps;
                let (bundle, i, s) = (tile / (4 * S), tile / S % 4, tile % S);
                if bundle < bundles {
                    let of_bundle = (first_bundle + bundle) * octets + octet;
                    let place = of_bundle * S * STEP_SIZE + s * STEP_SIZE + 128 * i + 4 * lane;
                    // SAFETY: the group's sets are within the array.
                    v[u] = load4(from.add(place), policy_keep());
                }
            });
            counted!(for u in 0..AT_ONCE {
                let ([a, a_low], [b, b_low]) = (split_halves(v[u][0], v[u][1]), split_halves(v[u][2], v[u][3]));
                let tile = tile + u * warps;
                let to = coefficients.offset((octet * room * SETS * S + tile) * 4 * WORDS + lane);
                if tile < room * SETS * S {
                    // SAFETY: the shared memory has room for a group.
                    to.set(0, a);
                    to.set(WORDS, b);
                    to.set(2 * WORDS, a_low);
                    to.set(3 * WORDS, b_low);
                }
            });
            tile += AT_ONCE * warps;
        }
        octet += 1;
    }
}

/// Copies the weights and scales (`size` numbers) of a group's bundles, with zeros behind. All threads call it.
/// Safety: the bundles exist, and there is room for `room` of them.
#[inline(always)]
pub(super) unsafe fn write_weights(
    from: *const f32,
    weights: Shared<f32>,
    size: usize,
    room: usize,
    (first_bundle, bundles): (usize, usize),
) {
    counted!(for c in (thread_idx() as usize..room * size).step_by(block_dim() as usize) {
        weights.set(c, if c < bundles * size { load(from.add(first_bundle * size + c)) } else { 0.0 });
    });
}

/// Fills the shared memory of a block with the reference and the parameters of its bundles, and sets products to one
/// and powers to zero. All threads of the block call it.
/// Safety: the shared memory is not in use; the bundles exist.
#[inline(always)]
pub(super) unsafe fn fill<const S: usize>(
    args: &BatchMmaArgs,
    layout: &Layout,
    octets: usize,
    bundles: (usize, usize),
) {
    let threads = block_dim() as usize;
    let reference = Shared::<f32>::at(layout.reference);
    counted!(for c in (thread_idx() as usize..octets * COMPONENTS * reference_row(FEATURES * S)).step_by(threads) {
        // SAFETY: all components of the reference.
        reference.set(c, load(args.reference.add(c)));
    });
    // SAFETY: the shared memory has room for a group.
    write_coefficients::<S>(args.coefficients, Shared::at(layout.coefficients), octets, layout.room, bundles);
    write_weights(args.weights, Shared::at(layout.weights), weights_size(octets), layout.room, bundles);
    counted!(for c in (thread_idx() as usize..layout.room * threads).step_by(threads) {
        // SAFETY: a place for each thread and four sets.
        keep_product(Shared::at(layout.products), c, LogProduct::new());
    });
    counted!(for c in (thread_idx() as usize..bundles.1 * (threads / WARP as usize) * SETS).step_by(threads) {
        // SAFETY: a place for each warp and set.
        Shared::<f64>::at(layout.far).set(c, 0.0);
    });
}

/// Writes the block's sum of each set: each warp takes other sets, over all threads. All threads of the block call it.
/// Safety: all products and `far` are in shared memory.
#[inline(always)]
pub(super) unsafe fn write_totals(
    args: &BatchMmaArgs,
    products: Shared<f32>,
    far: Shared<f64>,
    (first_bundle, bundles): (usize, usize),
) {
    let (threads, lane) = (block_dim() as usize, (thread_idx() % WARP) as usize);
    let (warps, warp) = (threads / WARP as usize, (thread_idx() / WARP) as usize);
    counted!(for f in (warp..bundles).step_by(warps) {
        let mut sum = 0.0;
        counted!(for t in (lane..threads).step_by(WARP as usize) {
            // SAFETY: written before the barrier.
            let (exponent, mantissa) = product_at(products, f * threads + t).near();
            // SAFETY: of each warp's eight lanes with the same sets, one adds `far`.
            let far = if lane < SETS { far.get((f * warps + t / WARP as usize) * SETS + lane) } else { 0.0 };
            sum += sum_of_eight((far + exponent as f64, mantissa));
        });
        if lane < SETS {
            let set = SETS * (first_bundle + f) + lane;
            // SAFETY: a place for each set and block.
            store(args.partials.add(set * grid_dim() as usize + block_idx() as usize), sum);
        }
    });
}
