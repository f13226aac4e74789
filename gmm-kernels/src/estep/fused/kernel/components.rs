//! A lane's parameters, and the exponents computed from them.
use super::*;

/// The parameters of a lane's components: COMPONENTS neighbours, from l·COMPONENTS on in lane l of a group.
///
/// Registers hold a diagonal A and its b of a single component; more components, or a triangle, stay in shared memory.
pub(crate) struct Components<const COMPONENTS: usize, const CAPACITY: usize, const D: usize, const MATRIX: usize> {
    diagonal: [f32; D],
    shifts: [f32; D],
    pub(crate) weights: [f32; COMPONENTS],
    seeds: [f32; COMPONENTS],
    /// The first number of the lane's first component; a component's numbers are `CAPACITY` apart.
    numbers: Shared<f32>,
}

impl<const COMPONENTS: usize, const CAPACITY: usize, const D: usize, const MATRIX: usize>
    Components<COMPONENTS, CAPACITY, D, MATRIX>
{
    /// Reads the numbers that registers hold.
    /// Safety: the parameters are in shared memory.
    #[inline(always)]
    pub(crate) unsafe fn load<const FULL: bool>(numbers: Shared<f32>) -> Self {
        let mut components = Self {
            diagonal: [0.0; D],
            shifts: [0.0; D],
            weights: [0.0; COMPONENTS],
            seeds: [0.0; COMPONENTS],
            numbers,
        };
        let mut j = 0;
        while !FULL && COMPONENTS == 1 && j < D {
            // SAFETY: numbers of the component.
            components.diagonal[j] = numbers.get(j * CAPACITY);
            components.shifts[j] = numbers.get((MATRIX + j) * CAPACITY);
            j += 1;
        }
        components.weights = numbers.get_some((MATRIX + D) * CAPACITY);
        components.seeds = numbers.get_some((MATRIX + D + 1) * CAPACITY);
        components
    }

    /// z and q of samples `x`.
    /// Safety: the parameters are in shared memory.
    #[inline(always)]
    pub(crate) unsafe fn exponents<const FULL: bool, const SAMPLES: usize>(
        &self,
        x: &[[f32; SAMPLES]; D],
    ) -> Exponents<COMPONENTS, D, SAMPLES> {
        let mut e = Exponents { z: [[[0.0; SAMPLES]; D]; COMPONENTS], q: [[0.0; SAMPLES]; COMPONENTS] };
        counted!(for c in 0..COMPONENTS {
            e.q[c] = [self.seeds[c]; SAMPLES];
        });
        // From the last row to the first, so that a row of z takes the register of a feature that no other row needs.
        written_out!(for i in (0..D).rev() {
            if FULL {
                // SAFETY: numbers of the component.
                e.z[0][i] = [self.numbers.get((MATRIX + i) * CAPACITY); SAMPLES];
                counted!(for j in 0..=i {
                    let a = self.numbers.get((i * (i + 1) / 2 + j) * CAPACITY);
                    counted!(for p in 0..SAMPLES {
                        e.z[0][i][p] = fma(a, x[j][p], e.z[0][i][p]);
                    });
                });
            } else {
                let (a, b) = if COMPONENTS == 1 {
                    ([self.diagonal[i]; COMPONENTS], [self.shifts[i]; COMPONENTS])
                } else {
                    // SAFETY: numbers of the components.
                    (self.numbers.get_some(i * CAPACITY), self.numbers.get_some((MATRIX + i) * CAPACITY))
                };
                counted!(for c in 0..COMPONENTS {
                    counted!(for p in 0..SAMPLES {
                        e.z[c][i][p] = fma(a[c], x[i][p], b[c]);
                    });
                });
            }
            counted!(for c in 0..COMPONENTS {
                counted!(for p in 0..SAMPLES {
                    e.q[c][p] = fma(-e.z[c][i][p], e.z[c][i][p], e.q[c][p]);
                });
            });
        });
        e
    }
}

/// z = A·x + b and q = seed − |z|² for a lane's components and samples.
pub(crate) struct Exponents<const COMPONENTS: usize, const D: usize, const SAMPLES: usize> {
    pub(crate) z: [[[f32; SAMPLES]; D]; COMPONENTS],
    pub(crate) q: [[f32; SAMPLES]; COMPONENTS],
}
