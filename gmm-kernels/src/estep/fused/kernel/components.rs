//! A lane's parameters, and the exponents that it computes from them.
use super::*;

/// The parameters of a lane's components: component c·LANES + l of lane l among those that share a sample.
///
/// A diagonal A and its b are in registers; a triangle has too many numbers for them.
pub(super) struct Components<const LANES: usize, const COMPONENTS: usize, const D: usize, const MATRIX: usize> {
    pub(super) diagonal: [[f32; MATRIX]; COMPONENTS],
    pub(super) shifts: [[f32; D]; COMPONENTS],
    pub(super) weights: [f32; COMPONENTS],
    pub(super) seeds: [f32; COMPONENTS],
    /// The numbers of the lane's component, `LANES` apart, where A is a triangle.
    pub(super) triangle: Shared<f32>,
}

impl<const LANES: usize, const COMPONENTS: usize, const D: usize, const MATRIX: usize>
    Components<LANES, COMPONENTS, D, MATRIX>
{
    /// Reads what is in registers. `first`: the lane's first component.
    ///
    /// # Safety
    /// The parameters have the documented size.
    #[inline(always)]
    pub(super) unsafe fn load<M: Moments>(args: &FusedArgs, first: usize, triangle: Shared<f32>) -> Self {
        let capacity = LANES * COMPONENTS;
        let mut components = Self {
            diagonal: [[0.0; MATRIX]; COMPONENTS],
            shifts: [[0.0; D]; COMPONENTS],
            weights: [0.0; COMPONENTS],
            seeds: [0.0; COMPONENTS],
            triangle,
        };
        let mut c = 0;
        while c < COMPONENTS {
            let numbers = args.parameters.wrapping_add(c * LANES + first);
            let mut j = 0;
            while !M::FULL && j < D {
                // SAFETY: numbers of a component.
                unsafe {
                    components.diagonal[c][j] = load(numbers.add(j * capacity));
                    components.shifts[c][j] = load(numbers.add((MATRIX + j) * capacity));
                }
                j += 1;
            }
            // SAFETY: as above.
            unsafe {
                components.weights[c] = load(numbers.add((MATRIX + D) * capacity));
                components.seeds[c] = load(numbers.add((MATRIX + D + 1) * capacity));
            }
            c += 1;
        }
        components
    }

    /// z and q of samples `x`.
    ///
    /// # Safety
    /// A triangle is in shared memory.
    #[inline(always)]
    pub(super) unsafe fn exponents<M: Moments, const SAMPLES: usize>(
        &self,
        x: &[[f32; SAMPLES]; D],
    ) -> Exponents<COMPONENTS, D, SAMPLES> {
        let mut e = Exponents { z: [[[0.0; SAMPLES]; D]; COMPONENTS], q: [[0.0; SAMPLES]; COMPONENTS] };
        let mut c = 0;
        while c < COMPONENTS {
            e.q[c] = [self.seeds[c]; SAMPLES];
            let mut i = 0;
            while i < D {
                if M::FULL {
                    // SAFETY: numbers of the component.
                    e.z[c][i] = [unsafe { self.triangle.get((MATRIX + i) * LANES) }; SAMPLES];
                    let mut j = 0;
                    while j <= i {
                        // SAFETY: as above.
                        let a = unsafe { self.triangle.get((i * (i + 1) / 2 + j) * LANES) };
                        let mut p = 0;
                        while p < SAMPLES {
                            e.z[c][i][p] = fma(a, x[j][p], e.z[c][i][p]);
                            p += 1;
                        }
                        j += 1;
                    }
                } else {
                    let mut p = 0;
                    while p < SAMPLES {
                        e.z[c][i][p] = fma(self.diagonal[c][i], x[i][p], self.shifts[c][i]);
                        p += 1;
                    }
                }
                i += 1;
            }
            let mut j = 0;
            while j < D {
                let mut p = 0;
                while p < SAMPLES {
                    e.q[c][p] = fma(-e.z[c][j][p], e.z[c][j][p], e.q[c][p]);
                    p += 1;
                }
                j += 1;
            }
            c += 1;
        }
        e
    }
}

/// z = A·x + b and q = seed − |z|² of a lane's components and samples.
pub(super) struct Exponents<const COMPONENTS: usize, const D: usize, const SAMPLES: usize> {
    pub(super) z: [[[f32; SAMPLES]; D]; COMPONENTS],
    pub(super) q: [[f32; SAMPLES]; COMPONENTS],
}
