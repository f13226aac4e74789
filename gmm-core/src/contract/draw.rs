//! Samples drawn for the start of a fit: far from all centres, as in k-means++, but in one pass.
use crate::model::mixture::Mixture;
use crate::reproducible::Functions;
use ndarray::{Array1, ArrayView1};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use std::f64::consts::PI;

/// The samples a thread takes at a time; it does not depend on the threads.
const AT_ONCE: usize = 1 << 15;
/// The squared distance, in the centres' variances, that counts as at a centre: scores are off by up to 10⁻³.
const AT_A_CENTRE: f64 = 0.02;

/// A request to draw samples; see [`Evaluator::draw`](crate::contract::evaluator::Evaluator::draw).
#[derive(Debug, Clone, Copy)]
pub struct Draw<'a> {
    centres: &'a Mixture,
    seed: u64,
    first_row: usize,
    size: usize,
}

/// A drawn sample.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Drawn {
    /// The row of the sample.
    pub row: usize,
    /// The random key: an exponential random number over `far`. The samples with the least keys are drawn.
    pub key: f64,
    /// The squared distance to the nearest centre, in units of the centres' variance, times the weight.
    pub far: f64,
}

impl Drawn {
    /// Combines the parts of a sample that another process has drawn.
    pub fn new(row: usize, key: f64, far: f64) -> Self {
        Self { row, key, far }
    }
}

impl<'a> Draw<'a> {
    /// Requests `size` samples, or all that are not at a centre. `centres` is a mixture of equal weights and equal
    /// spherical covariances, much narrower than the samples' distances from them.
    pub fn new(centres: &'a Mixture, seed: u64, size: usize) -> Self {
        Self { centres, seed, first_row: 0, size }
    }

    /// Returns the request for a part of the samples that begins `row` rows later.
    #[must_use]
    pub fn from_row(self, row: usize) -> Self {
        Self { first_row: self.first_row + row, ..self }
    }

    /// Returns the centres.
    pub fn centres(&self) -> &'a Mixture {
        self.centres
    }

    /// Returns the seed. Each row of the whole has its own random numbers.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the number, in the whole, of the first row here.
    pub fn first_row(&self) -> usize {
        self.first_row
    }

    /// Returns the largest number of samples drawn.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the function from a sample's score under the centres to its squared distance from the nearest one, in
    /// units of their variance; 0 at a centre.
    pub fn distance(&self) -> impl Fn(f64) -> f64 + Sync + use<> {
        let (k, d) = self.centres.means().dim();
        let at_centre = -(k as f64).log_e() - 0.5 * d as f64 * (2.0 * PI * self.centres.variance(0, 0)).log_e();
        // A score of −∞ means a sample too far away for the evaluator's number type.
        move |score| Self::beyond_a_centre(2.0 * (at_centre - score))
    }

    /// Replaces a squared distance, in units of the centres' variance, by 0 if an evaluator cannot tell it from 0.
    pub fn beyond_a_centre(distance: f64) -> f64 {
        if distance > AT_A_CENTRE { distance } else { 0.0 }
    }

    pub(crate) fn with_scores(&self, scores: &Array1<f64>, weights: Option<ArrayView1<'_, f64>>) -> Vec<Drawn> {
        let distance = self.distance();
        let piece = |start: usize| {
            let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
            // A random number takes two words of the generator's stream, so it depends on the row alone.
            rng.set_word_pos(2 * (self.first_row + start) as u128);
            let mut least = Least::new(self.size);
            for row in start..scores.len().min(start + AT_ONCE) {
                let uniform = rng.random::<f64>();
                let far = distance(scores[row]) * weights.map_or(1.0, |weights| weights[row]);
                // −ln(1 − u) ≥ u saves most samples the logarithm.
                if far > 0.0 && uniform <= least.limit * far {
                    least.offer(Drawn { row: self.first_row + row, key: -(-uniform).log_e_1p() / far, far });
                }
            }
            least.drawn
        };
        let starts: Vec<usize> = (0..scores.len()).step_by(AT_ONCE).collect();
        let pieces: Vec<Vec<Drawn>> = starts.into_par_iter().map(piece).collect();
        self.least(pieces.concat())
    }

    /// Merges the draws from parts of the samples into the draw from all.
    pub fn least(&self, mut drawn: Vec<Drawn>) -> Vec<Drawn> {
        drawn.sort_unstable_by(|a, b| a.key.total_cmp(&b.key).then(a.row.cmp(&b.row)));
        drawn.truncate(self.size);
        drawn
    }
}

/// The samples with the least keys so far, and some more.
struct Least {
    drawn: Vec<Drawn>,
    size: usize,
    /// Samples with larger keys are not among the least.
    limit: f64,
}

impl Least {
    fn new(size: usize) -> Self {
        Self { drawn: Vec::new(), size, limit: f64::INFINITY }
    }

    fn offer(&mut self, drawn: Drawn) {
        if drawn.key > self.limit {
            return;
        }
        self.drawn.push(drawn);
        if self.drawn.len() >= 2 * self.size.max(1) {
            let at = self.size.max(1) - 1;
            let (_, last, _) =
                self.drawn.select_nth_unstable_by(at, |a, b| a.key.total_cmp(&b.key).then(a.row.cmp(&b.row)));
            self.limit = last.key;
            self.drawn.truncate(self.size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::covariances::Covariances;
    use ndarray::array;

    /// Two centres of variance 2 on a line.
    fn centres() -> Mixture {
        Mixture::new(array![0.5, 0.5], array![[0.0], [1000.0]], Covariances::Spherical(array![2.0, 2.0])).unwrap()
    }

    /// Returns the score of a sample at this squared distance from the nearest centre.
    fn score(distance: f64) -> f64 {
        0.5f64.ln() - 0.5 * (4.0 * PI).ln() - distance / 4.0
    }

    #[test]
    fn distances_come_from_scores() {
        let centres = centres();
        let distance = Draw::new(&centres, 0, 1).distance();
        assert_eq!(
            (distance(score(0.0)), distance(score(0.01)), distance(f64::NEG_INFINITY)),
            (0.0, 0.0, f64::INFINITY)
        );
        assert!((distance(score(6.0)) - 3.0).abs() < 1e-14);
    }

    /// A part draws with the random numbers of its rows in the whole, so the division makes no difference.
    #[test]
    fn parts_draw_what_the_whole_draws() {
        let centres = centres();
        let scores: Array1<f64> = (0..100_000).map(|i| score(f64::from(i % 1000))).collect();
        let weights: Array1<f64> = (0..100_000).map(|i| f64::from(i % 3)).collect();
        let draw = Draw::new(&centres, 7, 50);
        let whole = draw.with_scores(&scores, Some(weights.view()));
        assert!(whole.len() == 50 && whole.iter().all(|drawn| drawn.row % 3 > 0 && drawn.row % 1000 > 0));
        assert!(whole.is_sorted_by_key(|drawn| drawn.key));
        let parts = [0..1, 1..40_000, 40_000..100_000].map(|rows: std::ops::Range<usize>| {
            let slice = ndarray::Slice::from(rows.clone());
            let scores = scores.slice_axis(ndarray::Axis(0), slice).to_owned();
            let weights = weights.slice_axis(ndarray::Axis(0), slice);
            draw.from_row(rows.start).with_scores(&scores, Some(weights))
        });
        assert_eq!(draw.least(parts.concat()), whole);
    }

    /// A sample at nine times the squared distance is drawn first in nine of ten seeds; 0.017 are 3.6 standard
    /// deviations of a binomial count over 4,000 seeds.
    #[test]
    fn draws_are_in_proportion_to_the_squared_distance() {
        let centres = centres();
        let scores = array![score(1.0), score(0.0), score(9.0)];
        let first = |seed| Draw::new(&centres, seed, 1).with_scores(&scores, None)[0].row;
        let share = (0..4000).filter(|&seed| first(seed) == 2).count() as f64 / 4000.0;
        assert!((share - 0.9).abs() < 0.017, "{share}");
    }
}
