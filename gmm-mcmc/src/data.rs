//! Facts about the data that a model needs besides their likelihood: shape, moments and a hash.
use gmm_host::{Samples, View};
use ndarray::{ArrayView1, ArrayView2, Axis};
use sha2::{Digest, Sha256};

/// The shape of a data set, its moments for default priors, and its hash, so that a run is resumed only with its own
/// data. All of them count sample weights.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct DataSummary {
    /// N.
    pub n_samples: usize,
    /// D.
    pub n_features: usize,
    /// Σᵢ wᵢ, or N without weights.
    pub total_weight: f64,
    /// Mean of the observed values of each column (D,); 0 if none is observed.
    pub mean: Vec<f64>,
    /// Standard deviation of the observed values of each column (D,), with divisor Σᵢ wᵢ over these values.
    pub std: Vec<f64>,
    /// The samples' [`fingerprint`].
    pub hash: String,
}

impl DataSummary {
    /// Summarises samples. Reads them three times: for the mean, for the deviations from it, both in float64, and for
    /// the hash.
    pub fn new(samples: &Samples<'_>) -> Self {
        match samples.view() {
            View::F32(x) => Self::from_rows(x, samples.weights(), f64::from, fingerprint(samples)),
            View::F64(x) => Self::from_rows(x, samples.weights(), |v| v, fingerprint(samples)),
        }
    }

    fn from_rows<T: Copy>(
        x: ArrayView2<'_, T>,
        weights: Option<ArrayView1<'_, f64>>,
        to_f64: impl Fn(T) -> f64,
        hash: String,
    ) -> Self {
        let (n, d) = x.dim();
        let weight = |i: usize| weights.map_or(1.0, |w| w[i]);
        let total_weight: f64 = (0..n).map(weight).sum();
        // The weight of the samples that have a value in each column.
        let mut observed = vec![0.0; d];
        for (i, row) in x.outer_iter().enumerate() {
            let seen = row.iter().zip(&mut observed).filter(|(v, _)| !to_f64(**v).is_nan());
            seen.for_each(|(_, observed)| *observed += weight(i));
        }
        // Terms are divided by the total weight before they are added, so that the largest finite values do not
        // overflow.
        let weighted_mean = |term: &dyn Fn(usize, f64) -> f64| -> Vec<f64> {
            let mut sums = vec![0.0; d];
            for (i, row) in x.outer_iter().enumerate() {
                for (j, v) in row.iter().map(|&v| to_f64(v)).enumerate().filter(|(_, v)| !v.is_nan()) {
                    sums[j] += term(j, v) * (weight(i) / observed[j]);
                }
            }
            sums
        };
        let mean = weighted_mean(&|_, v| v);
        let variances = weighted_mean(&|j, v| (v - mean[j]).powi(2));
        // The mean of equal values may be rounded.
        let is_constant = |j: usize| {
            let column = x.column(j).into_iter().map(|&v| to_f64(v)).enumerate();
            let mut seen = column.filter(|(i, v)| weight(*i) > 0.0 && !v.is_nan()).map(|(_, v)| v);
            seen.next().is_none_or(|first| seen.all(|v| v == first))
        };
        let std = variances.iter().enumerate().map(|(j, v)| if is_constant(j) { 0.0 } else { v.sqrt() }).collect();
        Self { n_samples: n, n_features: d, total_weight, mean, std, hash }
    }

    /// Returns the regularisation of the fit that starts the chains: 10⁻⁶, the default, but at most a millionth of the
    /// least variance of a column, so that the chains start as wide as the data.
    pub fn reg_covar(&self) -> f64 {
        self.std.iter().map(|s| s * s).filter(|v| *v > 0.0).fold(1.0, f64::min) * 1e-6
    }
}

/// Returns the SHA-256, in hexadecimal, of the samples' element type, shape, values in row order, noise and weights, if
/// any.
/// Numbers are hashed as little-endian bytes.
pub fn fingerprint(samples: &Samples<'_>) -> String {
    let mut fingerprint = Fingerprint::new(samples.n_samples());
    fingerprint.add(samples);
    let noise = samples.noise().map(|noise| noise.numbers());
    noise.into_iter().flatten().for_each(|v| fingerprint.hash.update(v.to_le_bytes()));
    fingerprint.finish(samples.weights())
}

/// Computes the [`fingerprint`] of samples that come in parts.
#[derive(Debug, Clone)]
pub struct Fingerprint {
    hash: Sha256,
    n_samples: usize,
    begun: bool,
}

impl Fingerprint {
    /// Begins the fingerprint of a data set of `n_samples` samples.
    pub fn new(n_samples: usize) -> Self {
        Self { hash: Sha256::new(), n_samples, begun: false }
    }

    /// Returns the fingerprint of numbers (N,): that of samples with one feature in float64.
    pub fn of_numbers(numbers: ArrayView1<'_, f64>) -> String {
        let mut fingerprint = Self::new(numbers.len());
        fingerprint.add_rows("f64", numbers.insert_axis(Axis(1)), |v, out| out.extend(v.to_le_bytes()));
        fingerprint.finish(None)
    }

    /// Adds the next samples, in order. All must have the same element type and number of features. Their weights are
    /// ignored: [`finish`](Self::finish) takes the weights of all samples.
    pub fn add(&mut self, samples: &Samples<'_>) {
        match samples.view() {
            View::F32(x) => self.add_rows("f32", x, |v, out| out.extend(v.to_le_bytes())),
            View::F64(x) => self.add_rows("f64", x, |v, out| out.extend(v.to_le_bytes())),
        }
    }

    fn add_rows<T: Copy>(&mut self, name: &str, x: ArrayView2<'_, T>, bytes: impl Fn(T, &mut Vec<u8>)) {
        let d = x.ncols();
        if !std::mem::replace(&mut self.begun, true) {
            self.hash.update(name);
            self.hash.update((self.n_samples as u64).to_le_bytes());
            self.hash.update((d as u64).to_le_bytes());
        }
        let mut buffer = Vec::with_capacity(d * 8);
        for row in x.outer_iter() {
            buffer.clear();
            row.iter().for_each(|&v| bytes(v, &mut buffer));
            self.hash.update(&buffer);
        }
    }

    /// Returns the fingerprint. `weights` are those of all samples (N,), if any.
    pub fn finish(mut self, weights: Option<ArrayView1<'_, f64>>) -> String {
        for w in weights.iter().flatten() {
            self.hash.update(w.to_le_bytes());
        }
        self.hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{ShapeBuilder, arr1, arr2};

    #[test]
    fn fingerprints_depend_on_type_shape_values_and_weights() {
        let x = arr2(&[[1.0f64, 2.0], [3.0, 4.0]]);
        let x32 = x.mapv(|v| v as f32);
        let of = |x: &ndarray::Array2<f64>| fingerprint(&Samples::from_f64(x.view()).unwrap());
        let all = [
            of(&x),
            fingerprint(&Samples::from_f32(x32.view()).unwrap()),
            Fingerprint::of_numbers(arr1(&[1.0, 2.0, 3.0, 4.0]).view()),
            of(&(&x + 1e-15)),
            fingerprint(&Samples::from_f64(x.view()).unwrap().with_weights(arr1(&[1.0, 1.0]).view()).unwrap()),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|b| a != b) && a.len() == 64, "{all:?}");
        }
        // Python: hashlib.sha256(b"f32" + struct.pack("<QQ", 2, 2) + x.astype("<f4").tobytes()).hexdigest()
        assert_eq!(all[1], "95afe8b24e26a5203b8b6930595330844cee1ce8f1424b0c7f16339cda33eb6d");
        let mut parts = Fingerprint::new(2);
        (0..2).for_each(|i| parts.add(&Samples::from_f64(x.slice(ndarray::s![i..i + 1, ..])).unwrap()));
        assert_eq!(parts.finish(None), all[0]);
        assert_eq!(of(&x.clone().into_shape_with_order((4, 1)).unwrap()), all[2]);
        // The order of the values in memory does not matter.
        let fortran = ndarray::Array2::from_shape_vec((2, 2).f(), vec![1.0, 3.0, 2.0, 4.0]).unwrap();
        assert_eq!(of(&fortran), all[0]);
    }

    #[test]
    fn moments_are_those_of_observed_values() {
        let nan = f64::NAN;
        let x = arr2(&[[1.0, nan, 5.0], [3.0, 2.0, nan], [nan, 4.0, nan]]);
        let weights = arr1(&[1.0, 3.0, 1.0]);
        let samples = Samples::with_missing(x.view()).unwrap().with_weights(weights.view()).unwrap();
        let summary = DataSummary::new(&samples);
        // Columns 1, 3 with weights 1, 3; 2, 4 with weights 3, 1; 5.
        let want = [([2.5, 2.5, 5.0], &summary.mean), ([0.75f64.sqrt(), 0.75f64.sqrt(), 0.0], &summary.std)];
        for (want, got) in want {
            assert!(want.iter().zip(got).all(|(a, b)| (a - b).abs() < 1e-15), "{want:?} {got:?}");
        }
        assert_eq!(summary.total_weight, 5.0);
    }
}
