//! The inner work of a thread: responsibilities times values.
use super::*;

/// A thread's sums: the components of a tile times the values of a patch.
pub(super) struct PatchTask {
    /// Whether this thread has work; otherwise it repeats the block's first task, without effect.
    pub(super) works: bool,
    /// Its tile and patch, counted from the block's first.
    pub(super) tile: u32,
    pub(super) patch: u32,
    /// Row of its first feature y in a stage; the next three are `quads` rows apart.
    pub(super) row: usize,
    /// Row of the first of the two features that multiply the y of a full matrix; the second is `quads` rows on.
    pub(super) pair_row: usize,
    pub(super) quads: usize,
}

impl PatchTask {
    /// The task of this thread.
    /// Safety: the launch has a pair for each patch.
    #[inline(always)]
    pub(super) unsafe fn of_thread<const FULL: bool>(block: &PatchBlock) -> Self {
        let shape = block.shape;
        let (tile, patch) = (thread_idx() / shape.block_patches, thread_idx() % shape.block_patches);
        let works = tile < block.tiles() && block.patch + patch < shape.patches;
        let (tile, patch) = if works { (tile, patch) } else { (0, 0) };
        let quads = shape.quads() as usize;
        let (pair, quad) = if FULL {
            let pairs = block.args.pairs.wrapping_add(2 * (block.patch + patch) as usize);
            (load(pairs), load(pairs.add(1)))
        } else {
            (0, patch)
        };
        let pair_row = block.row(if FULL { 2 * pair } else { block.first_feature() });
        Self { works, tile, patch, row: quad as usize, pair_row, quads }
    }

    /// Adds quad `quad` of the stage `samples`: for each component, responsibilities `r` times values.
    /// Safety: responsibilities and features have arrived; `centres` are the tile's, `features` apart.
    #[inline(always)]
    pub(super) unsafe fn add_quad<const FULL: bool, const CENTRAL: bool>(
        &self,
        sums: &mut [[f32; VALUES]; COMPONENTS],
        samples: Shared<f32>,
        r: Shared<f32>,
        quad: usize,
        (centres, features): (Shared<f32>, usize),
    ) {
        let x = samples.offset(self.row * PITCH + QUAD * quad);
        let mut y = [[0.0f32; QUAD]; 4];
        counted!(for f in 0..4 {
            y[f] = x.get4(f * self.quads * PITCH);
        });
        let mut z = [[0.0f32; QUAD]; 2];
        if FULL {
            let x = samples.offset(self.pair_row * PITCH + QUAD * quad);
            z = [x.get4(0), x.get4(self.quads * PITCH)];
        }
        let r = r.offset(QUAD * quad);
        if CENTRAL {
            self.add_central::<FULL>(sums, r, &y, &z, centres, features);
        } else {
            add_raw::<FULL>(sums, r, &y, &z);
        }
    }

    /// [`Self::add_quad`] for moments around each component's centre.
    /// Safety: as for [`Self::add_quad`].
    #[inline(always)]
    pub(super) unsafe fn add_central<const FULL: bool>(
        &self,
        sums: &mut [[f32; VALUES]; COMPONENTS],
        r: Shared<f32>,
        y: &[[f32; QUAD]; 4],
        z: &[[f32; QUAD]; 2],
        centres: Shared<f32>,
        features: usize,
    ) {
        let features = opaque(features as u32) as usize;
        written_out!(for k in 0..COMPONENTS {
            let r = r.get4(k * PITCH);
            let c = centres.offset(k * features);
            let (mut c0, mut c1) = (0.0, 0.0);
            if FULL {
                (c0, c1) = (c.get(self.pair_row), c.get(self.pair_row + self.quads));
            }
            counted!(for f in 0..4 {
                let centre = c.get(self.row + f * self.quads);
                counted!(for p in 0..QUAD {
                    let y = y[f][p] - centre;
                    if FULL {
                        sums[k][f] = fma(r[p] * (z[0][p] - c0), y, sums[k][f]);
                        sums[k][4 + f] = fma(r[p] * (z[1][p] - c1), y, sums[k][4 + f]);
                    } else {
                        let ry = r[p] * y;
                        sums[k][f] += ry;
                        sums[k][4 + f] = fma(ry, y, sums[k][4 + f]);
                    }
                });
            });
        });
    }
}

/// [`PatchTask::add_quad`] for moments around the data's centre.
/// Safety: as for [`PatchTask::add_quad`].
#[inline(always)]
pub(super) unsafe fn add_raw<const FULL: bool>(
    sums: &mut [[f32; VALUES]; COMPONENTS],
    r: Shared<f32>,
    y: &[[f32; QUAD]; 4],
    z: &[[f32; QUAD]; 2],
) {
    let mut values = [[0.0f32; QUAD]; VALUES];
    counted!(for f in 0..4 {
        counted!(for p in 0..QUAD {
            values[f][p] = if FULL { z[0][p] * y[f][p] } else { y[f][p] };
            values[4 + f][p] = if FULL { z[1][p] * y[f][p] } else { y[f][p] * y[f][p] };
        });
    });
    counted!(for k in 0..COMPONENTS {
        let r = r.get4(k * PITCH);
        counted!(for v in 0..VALUES {
            counted!(for p in 0..QUAD {
                sums[k][v] = fma(r[p], values[v][p], sums[k][v]);
            });
        });
    });
}
