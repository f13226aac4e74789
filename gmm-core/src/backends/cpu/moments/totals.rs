//! Sums in the element type, and the float64 totals they are moved to.
use crate::backends::cpu::buffer::Zeros;
use crate::backends::cpu::real::Real;
use crate::simd::isa::Isa;
use pulp::{Simd, WithSimd};

/// Samples whose moments are summed in the element type before they are added in float64.
pub(crate) const MAX_PENDING: usize = 4096;

pub(super) struct Flush<'a, T> {
    pub sums: &'a mut [T],
    pub totals: &'a mut [f64],
}

impl<T: Real> WithSimd for Flush<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (total, sum) in self.totals.iter_mut().zip(self.sums) {
            let v: f64 = (*sum).into();
            *total += v;
            *sum = T::from_f64(0.0);
        }
    }
}

/// The matrices' sums in the layout's order: the latest, and the totals of earlier ones, if any were moved.
#[derive(Debug)]
pub(super) struct MatrixSums<T> {
    pub latest: Zeros<T>,
    pub totals: Option<Zeros<f64>>,
}

impl<T: Real> MatrixSums<T> {
    pub fn new(length: usize) -> Self {
        Self { latest: Zeros::new(length), totals: None }
    }

    pub fn with_totals(&mut self) -> (&mut [T], &mut [f64]) {
        let totals = self.totals.get_or_insert_with(|| Zeros::new(self.latest.len()));
        (&mut self.latest, totals)
    }

    pub fn clear(&mut self) {
        self.latest.fill(T::from_f64(0.0));
        self.totals.iter_mut().for_each(|totals| totals.fill(0.0));
    }
}

/// The sums of a segment: the spread ones, (`spread`,), and the matrices in the layout's order, as totals and latest
/// sums. Moving the latest sums would take as long as adding them to other segments.
#[derive(Debug)]
pub(crate) struct SegmentSums<T> {
    pub spread: Vec<f64>,
    pub(super) matrices: MatrixSums<T>,
}

impl<T: Real> SegmentSums<T> {
    pub fn add_matrices(&self, isa: Isa, from: usize, out: &mut [f64]) {
        let range = from..from + out.len();
        let MatrixSums { latest, totals } = &self.matrices;
        let totals = totals.as_ref().map(|totals| &totals[range.clone()]);
        isa.run(Add { totals, sums: &latest[range], out });
    }
}

struct Add<'a, T> {
    totals: Option<&'a [f64]>,
    sums: &'a [T],
    out: &'a mut [f64],
}

impl<T: Real> WithSimd for Add<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        match self.totals {
            Some(totals) => {
                for ((out, &sum), &total) in self.out.iter_mut().zip(self.sums).zip(totals) {
                    let sum: f64 = sum.into();
                    *out += total + sum;
                }
            }
            None => {
                for (out, &sum) in self.out.iter_mut().zip(self.sums) {
                    let sum: f64 = sum.into();
                    *out += sum;
                }
            }
        }
    }
}

/// float64 totals: of the spread sums, (`spread`,), and of the matrices in the layout's order.
#[derive(Debug)]
pub(crate) struct Totals {
    pub spread: Vec<f64>,
    pub matrices: Zeros<f64>,
}
