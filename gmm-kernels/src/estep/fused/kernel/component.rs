//! A lane's component, and the exponents computed from them.
use super::*;

/// The parameters of a lane's component. Registers hold a diagonal A and its b; a triangle stays in shared memory.
pub(crate) struct Component<const CAPACITY: usize, const D: usize, const MATRIX: usize> {
    diagonal: [f32; D],
    shifts: [f32; D],
    pub(crate) weight: f32,
    seed: f32,
    /// The component's first number; its others are `CAPACITY` apart.
    numbers: Shared<f32>,
}

impl<const CAPACITY: usize, const D: usize, const MATRIX: usize> Component<CAPACITY, D, MATRIX> {
    /// Reads the numbers that registers hold.
    /// Safety: the parameters are in shared memory.
    #[inline(always)]
    pub(crate) unsafe fn load<const FULL: bool>(numbers: Shared<f32>) -> Self {
        let weight = numbers.get((MATRIX + D) * CAPACITY);
        let seed = numbers.get((MATRIX + D + 1) * CAPACITY);
        let mut component = Self { diagonal: [0.0; D], shifts: [0.0; D], weight, seed, numbers };
        let mut j = 0;
        while !FULL && j < D {
            // SAFETY: numbers of the component.
            component.diagonal[j] = numbers.get(j * CAPACITY);
            component.shifts[j] = numbers.get((MATRIX + j) * CAPACITY);
            j += 1;
        }
        component
    }

    /// z and q of samples `x`.
    /// Safety: the parameters are in shared memory.
    #[inline(always)]
    pub(crate) unsafe fn exponents<const FULL: bool, const SAMPLES: usize>(
        &self,
        x: &[[f32; SAMPLES]; D],
    ) -> Exponents<D, SAMPLES> {
        let mut e = Exponents { z: [[0.0; SAMPLES]; D], q: [self.seed; SAMPLES] };
        // From the last row to the first, so that a row of z takes the register of a feature that no other row needs.
        written_out!(for i in (0..D).rev() {
            if FULL {
                // SAFETY: numbers of the component.
                e.z[i] = [self.numbers.get((MATRIX + i) * CAPACITY); SAMPLES];
                counted!(for j in 0..=i {
                    let a = self.numbers.get((i * (i + 1) / 2 + j) * CAPACITY);
                    counted!(for p in 0..SAMPLES {
                        e.z[i][p] = fma(a, x[j][p], e.z[i][p]);
                    });
                });
            } else {
                counted!(for p in 0..SAMPLES {
                    e.z[i][p] = fma(self.diagonal[i], x[i][p], self.shifts[i]);
                });
            }
            counted!(for p in 0..SAMPLES {
                e.q[p] = fma(-e.z[i][p], e.z[i][p], e.q[p]);
            });
        });
        e
    }
}

/// z = A·x + b and q = seed − |z|² for a lane's component and samples.
pub(crate) struct Exponents<const D: usize, const SAMPLES: usize> {
    pub(crate) z: [[f32; SAMPLES]; D],
    pub(crate) q: [f32; SAMPLES],
}
