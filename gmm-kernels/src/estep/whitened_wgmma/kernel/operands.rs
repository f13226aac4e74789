//! `warpgroup_triangles` and `warpgroup_features`: operands as the tensor cores read them.
use super::*;
use crate::data::QUAD;
use crate::estep::products_mma::kernel::split_feature;
use crate::estep::products_wgmma::kernel::{element, quad_or_zeros, store_quad, store_row};

/// Elements (two numbers each) of a row of a matrix.
const ROW: usize = 4;

kernel! {
    /// Splits the triangles into two float16 numbers each, as an operand.
    pub unsafe fn warpgroup_triangles(args: TrianglesArgs) {
        let shape = args.shape;
        let d = shape.d as usize;
        // Rows of eight numbers: in a step of a band, and in one part of a unit.
        const OF_STEP: usize = STEP_OF_BAND / 16;
        let of_part = shape.unit_part() / 16;
        counted!(for i in ((block_idx() * block_dim() + thread_idx()) as usize..shape.units() * of_part).step_by((grid_dim() * block_dim()) as usize) {
            let (unit, mut step, mut band) = (i / of_part, i % of_part / OF_STEP, 0);
            while step >= shape.steps(band) {
                step -= shape.steps(band);
                band += 1;
            }
            let (matrix, row_of_matrix) = (i % OF_STEP / 8, i % 8);
            let (of_unit, row) = shape.of_row(UNIT_BAND * band + matrix / 2 * 8 + row_of_matrix);
            let component = shape.of_unit() * unit + of_unit;
            let first = STEP * step + matrix % 2 * 8;
            let from = args.matrices.wrapping_add(component * (d * (d + 1) / 2) + row * (row + 1) / 2 + first);
            let (mut high, mut low) = ([0; ROW], [0; ROW]);
            counted!(for p in 0..ROW {
                let mut v = [0.0; 2];
                counted!(for n in 0..2 {
                    if component < shape.k as usize && row < d && first + 2 * p + n <= row {
                        // SAFETY: a number of the component's triangle.
                        v[n] = load(from.add(2 * p + n));
                    }
                });
                [high[p], low[p]] = split_halves(v[0], v[1]);
            });
            let to = args.triangles.wrapping_add((2 * unit * of_part + i % of_part) * ROW);
            // SAFETY: only this thread writes the places.
            store_row(to, high);
            store_row(to.wrapping_add(of_part * ROW), low);
        });
    }
}

kernel! {
    /// Splits the features of the samples into two float16 numbers each, as an operand.
    pub unsafe fn warpgroup_features(args: FeaturesArgs) {
        let (shape, columns) = (args.shape, &args.columns);
        let octets = shape.octets() as u32;
        let policy = policy_stream();
        // Neighbouring threads take the two quads of eight samples, then neighbouring features.
        let quads = columns.n.div_ceil(TILE as u64) as u32 * (TILE / QUAD) as u32;
        counted!(for i in (block_idx() * block_dim() + thread_idx()..quads * octets).step_by(grid_dim() * block_dim()) {
            let (eight, octet) = (i / 2 / octets, i / 2 % octets);
            let quad = 2 * eight + i % 2;
            let (mut high, mut low) = ([[0; ROW]; QUAD], [[0; ROW]; QUAD]);
            counted!(for f in 0..ROW {
                let mut features = [[0; QUAD]; 2];
                counted!(for p in 0..2 {
                    let feature = 8 * octet as usize + 2 * f + p;
                    if feature < shape.d as usize {
                        // SAFETY: the feature exists.
                        features[p] = split_feature(quad_or_zeros(columns, quad, feature, policy));
                    }
                });
                counted!(for s in 0..QUAD {
                    high[s][f] = element(features[0], features[1], 0, s);
                    low[s][f] = element(features[0], features[1], 1, s);
                });
            });
            const OF_STAGE: usize = STAGE / 8;
            let (stage, of_stage) = (eight as usize / OF_STAGE, eight as usize % OF_STAGE);
            let bytes = 2 * stage * shape.stage_part() + of_stage * shape.pitch() + octet as usize * MATRIX;
            let odd = i % 2;
            let to = args.features.wrapping_add(bytes / size_of::<u32>() + ROW * odd as usize);
            // SAFETY: only this thread writes the places.
            store_quad(to, shape.stage_part(), high, low, odd);
        });
    }
}
