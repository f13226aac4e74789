//! `warpgroup_coefficients` and `warpgroup_products`: operands as the tensor cores read them.
use super::*;
use crate::data::QUAD;
use crate::estep::products_mma::PRODUCT_SCALE;
use crate::estep::products_mma::kernel::{Feature, one, product, split_feature};

/// Writes a row of eight numbers.
/// Safety: the place is valid for 16 bytes and aligned to them; no other thread accesses it.
#[inline(always)]
pub(crate) unsafe fn store_row(to: *mut u32, row: [Halves; ROW]) {
    let [a, b, c, d] = row.map(f32::from_bits);
    store4(to.cast(), [a, b, c, d]);
}

/// An element for sample `s` of a quad: a feature and its square; high parts if `part` is 0.
#[inline(always)]
pub(crate) fn element(feature: Feature, square: Feature, part: usize, s: usize) -> Halves {
    let (a, b) = (feature[2 * part + s / 2], square[2 * part + s / 2]);
    if s.is_multiple_of(2) { a & 0xffff | b << 16 } else { a >> 16 | b & 0xffff_0000 }
}

kernel! {
    /// Splits the coefficients into two float16 numbers each, as an operand.
    pub unsafe fn warpgroup_coefficients(args: CoefficientsArgs) {
        let shape = args.shape;
        let octets = shape.octets();
        let mut i = (block_idx() * block_dim() + thread_idx()) as usize;
        while i < shape.rows() * octets {
            let (row, octet) = (i / octets, i % octets);
            i += (grid_dim() * block_dim()) as usize;
            if octet >= shape.steps() * (STEP / 8) {
                continue;
            }
            let from = args.coefficients.wrapping_add(row * shape.products() + 8 * octet);
            let (mut high, mut low) = ([0; ROW], [0; ROW]);
            counted!(for p in 0..ROW {
                let [h, l] = split_halves(load(from.add(2 * p)), load(from.add(2 * p + 1)));
                (high[p], low[p]) = (h, l);
            });
            let step = row / GROUP * shape.steps() + octet / (STEP / 8);
            let matrix = row % GROUP / 8 * (STEP / 8) + octet % (STEP / 8);
            let to = args.halves.wrapping_add((step * COEFFICIENTS + matrix * MATRIX) / size_of::<u32>() + ROW * (row % 8));
            // SAFETY: only this thread writes the places.
            store_row(to, high);
            store_row(to.add(COEFFICIENTS / 2 / size_of::<u32>()), low);
        }
    }
}

kernel! {
    /// Forms the products of the samples, as an operand.
    pub unsafe fn warpgroup_products(args: ProductsArgs) {
        let (shape, columns) = (args.shape, &args.columns);
        let octets = shape.octets() as u32;
        let policy = policy_stream();
        // Neighbouring threads take the two quads of eight samples, then neighbouring features.
        let quads = columns.n.div_ceil(SAMPLES as u64) as u32 * (SAMPLES / QUAD) as u32;
        counted!(for i in (block_idx() * block_dim() + thread_idx()..quads * octets).step_by(grid_dim() * block_dim()) {
            let (eight, octet) = (i / 2 / octets, i / 2 % octets);
            let quad = 2 * eight + i % 2;
            let (mut high, mut low) = ([[0; ROW]; QUAD], [[0; ROW]; QUAD]);
            counted!(for f in 0..ROW {
                let (pair, d) = (ROW * octet as usize + f, shape.d as usize);
                // SAFETY: the features exist.
                let (first, second) = if pair < d {
                    let x = split_feature(zeros_for_missing(quad_or_zeros(columns, quad, pair, policy)));
                    (product(x, one()), product(x, x))
                } else if shape.gaps && 2 * (pair - d) < d {
                    let feature = 2 * (pair - d);
                    let next = if feature + 1 < d { observed(columns, quad, feature + 1, policy) } else { NOTHING };
                    (observed(columns, quad, feature, policy), next)
                } else {
                    (NOTHING, NOTHING)
                };
                counted!(for s in 0..QUAD {
                    high[s][f] = element(first, second, 0, s);
                    low[s][f] = element(first, second, 1, s);
                });
            });
            let tile = eight as usize / (SAMPLES / 8);
            let bytes = 2 * tile * shape.part() + eight as usize % (SAMPLES / 8) * shape.pitch() + octet as usize * MATRIX;
            let odd = i % 2;
            let to = args.products.wrapping_add(bytes / size_of::<u32>() + ROW * odd as usize);
            // SAFETY: only this thread writes the places.
            store_quad(to, shape.part(), high, low, odd);
        });
    }
}

const NOTHING: Feature = [0; QUAD];

/// Replaces missing values of a quad's feature by zeros.
#[inline(always)]
fn zeros_for_missing(mut x: [f32; QUAD]) -> [f32; QUAD] {
    counted!(for s in 0..QUAD {
        x[s] = if x[s].is_nan() { 0.0 } else { x[s] };
    });
    x
}

/// The products of a quad of samples that say whether a feature is observed.
/// Safety: the feature exists.
#[inline(always)]
unsafe fn observed(columns: &Columns, quad: u32, feature: usize, policy: CachePolicy) -> Feature {
    let mut x = quad_or_zeros(columns, quad, feature, policy);
    counted!(for s in 0..QUAD {
        x[s] = if x[s].is_nan() { 0.0 } else { PRODUCT_SCALE };
    });
    [round_halves(x[0], x[1]), round_halves(x[2], x[3]), 0, 0]
}

/// A feature of a quad of samples; zeros behind the last sample.
/// Safety: the feature exists.
#[inline(always)]
pub(crate) unsafe fn quad_or_zeros(columns: &Columns, quad: u32, feature: usize, policy: CachePolicy) -> [f32; QUAD] {
    // SAFETY: the quad exists.
    let mut x = load4(columns.quad(smaller(quad, columns.quads() - 1), feature), policy);
    counted!(for s in 0..QUAD {
        let sample = QUAD as u64 * u64::from(quad) + s as u64;
        x[s] = if sample < columns.n { x[s] } else { 0.0 };
    });
    x
}

/// Writes the rows of a quad (two neighbouring threads hold eight rows): high parts, and `part` bytes behind them low
/// parts. They write two neighbouring rows at once: 32 bytes, which memory takes whole. All lanes of the warp call it.
/// Safety: `to`, a row apart in the two threads, and its part are valid; no other thread accesses the rows.
#[inline(always)]
pub(crate) unsafe fn store_quad(
    to: *mut u32,
    part: usize,
    high: [[Halves; ROW]; QUAD],
    low: [[Halves; ROW]; QUAD],
    odd: u32,
) {
    let (high, low) = (interleave(high, odd), interleave(low, odd));
    counted!(for s in 0..QUAD {
        store_row(to.wrapping_add(2 * ROW * s), high[s]);
        store_row(to.wrapping_add(part / size_of::<u32>() + 2 * ROW * s), low[s]);
    });
}

/// Returns the even or the odd rows of two neighbouring threads, the first four of which the even thread holds.
#[inline(always)]
fn interleave(rows: [[Halves; ROW]; QUAD], odd: u32) -> [[Halves; ROW]; QUAD] {
    let mut mine = rows;
    counted!(for p in 0..ROW {
        let is_odd = odd == 1;
        let first = shuffle_xor_u32(if is_odd { rows[0][p] } else { rows[1][p] }, 1);
        let second = shuffle_xor_u32(if is_odd { rows[2][p] } else { rows[3][p] }, 1);
        let four =
            if is_odd { [first, second, rows[1][p], rows[3][p]] } else { [rows[0][p], rows[2][p], first, second] };
        counted!(for s in 0..QUAD {
            mine[s][p] = four[s];
        });
    });
    mine
}
