//! A projection of data of many dimensions to a plane, for a plot.
use gaussmix::model::{Covariances, Mixture};
use nalgebra::{DMatrix, SymmetricEigen};
use ndarray::{Array1, Array2, ArrayView1, Axis};

/// The weight of the data's spread relative to the means' spread: just enough to decide where the means leave the
/// direction open.
const TIE_BREAK: f64 = 1e-3;
/// The label of an axis names at most this many columns.
const TERMS: usize = 3;

/// The plane in which the command `gmm` and the Python package draw a mixture: a projection y = A·(x − origin).
#[derive(Debug)]
pub struct Plane {
    /// A (2, D).
    pub axes: Array2<f64>,
    /// The point (D,) projected to (0, 0).
    pub origin: Array1<f64>,
    /// The labels of the axes.
    pub labels: [String; 2],
}

impl Plane {
    /// Chooses the plane. For D = 2 it is the plane of the two columns. For D > 2 each column is divided by its
    /// standard deviation under the mixture, and the plane is that of the first two principal axes of the means, which
    /// spread most there. An axis that the means leave open (K < 3) is a principal axis of the data. `names` are those
    /// of the columns, if any.
    pub fn of(mixture: &Mixture, names: &[String]) -> Self {
        let (k, d) = mixture.means().dim();
        if d == 2 {
            let labels = match names {
                [x, y] => [x.clone(), y.clone()],
                _ => ["column 0".into(), "column 1".into()],
            };
            return Self { axes: Array2::eye(2), origin: Array1::zeros(2), labels };
        }
        let (weights, means) = (mixture.weights(), mixture.means());
        let origin = weights.dot(&means);
        let mut between = Array2::<f64>::zeros((d, d));
        let mut within = Array2::<f64>::zeros((d, d));
        for c in 0..k {
            let delta = (&means.row(c) - &origin).insert_axis(Axis(1));
            between.scaled_add(weights[c], &delta.dot(&delta.t()));
            within.scaled_add(weights[c], &covariance(mixture, c));
        }
        let total = &between + &within;
        let std = total.diag().mapv(f64::sqrt);
        let standard = DMatrix::from_fn(d, d, |i, j| (between[[i, j]] + TIE_BREAK * total[[i, j]]) / (std[i] * std[j]));
        let eigen = SymmetricEigen::new(standard);
        let mut order: Vec<usize> = (0..d).collect();
        order.sort_by(|&a, &b| eigen.eigenvalues[b].total_cmp(&eigen.eigenvalues[a]));
        let direction = |rank: usize| {
            let v = Array1::from_iter(eigen.eigenvectors.column(order[rank]).iter().copied());
            // The sign of an eigenvector is arbitrary; here its largest entry is positive.
            let largest = v.iter().copied().fold(0.0, |a: f64, b| if b.abs() > a.abs() { b } else { a });
            v * largest.signum()
        };
        let directions = [direction(0), direction(1)];
        let axes = Array2::from_shape_fn((2, d), |(i, j)| directions[i][j] / std[j]);
        let named = names.len() == d;
        let name = |j: usize| if named { names[j].clone() } else { format!("z{j}") };
        let [mut x, y] = directions.each_ref().map(|v| in_words(v.view(), name));
        x += if named { "   (columns in standard deviations)" } else { "   (z: columns in standard deviations)" };
        Self { axes, origin, labels: [x, y] }
    }

    /// Projects a point (D,) to the plane.
    pub fn project(&self, x: ArrayView1<'_, f64>) -> (f64, f64) {
        let y = self.axes.dot(&(&x - &self.origin));
        (y[0], y[1])
    }

    /// Returns the mean of component `c`, and [a, b, d] such that the points one standard deviation from it are mean +
    /// A·(cos t, sin t) with A = [[a, 0], [b, d]].
    pub fn ellipse(&self, mixture: &Mixture, c: usize) -> ((f64, f64), [f64; 3]) {
        let s = self.axes.dot(&covariance(mixture, c)).dot(&self.axes.t());
        // A is the Cholesky factor of the covariance Σ = A·Aᵀ in the plane: it maps the unit circle to the ellipse.
        let a = s[[0, 0]].max(0.0).sqrt();
        let b = if a > 0.0 { s[[1, 0]] / a } else { 0.0 };
        let d = (s[[1, 1]] - b * b).max(0.0).sqrt();
        (self.project(mixture.means().row(c)), [a, b, d])
    }
}

fn covariance(mixture: &Mixture, c: usize) -> Array2<f64> {
    let d = mixture.n_features();
    match mixture.covariances() {
        Covariances::Full(v) => v.index_axis(Axis(0), c).to_owned(),
        Covariances::Tied(v) => v.clone(),
        Covariances::Diag(v) => Array2::from_diag(&v.row(c)),
        Covariances::Spherical(v) => Array2::from_diag_elem(d, v[c]),
    }
}

/// Writes the largest terms of a direction: `0.61 z3 − 0.58 z0 + 0.44 z2 …`.
fn in_words(direction: ArrayView1<'_, f64>, name: impl Fn(usize) -> String) -> String {
    let mut order: Vec<usize> = (0..direction.len()).collect();
    order.sort_by(|&a, &b| direction[b].abs().total_cmp(&direction[a].abs()));
    let mut text = String::new();
    for (i, &j) in order.iter().take(TERMS).enumerate() {
        let sign = match (i, direction[j] < 0.0) {
            (0, false) => "",
            (0, true) => "−",
            (_, false) => " + ",
            (_, true) => " − ",
        };
        text += &format!("{sign}{:.2} {}", direction[j].abs(), name(j));
    }
    if direction.len() > TERMS { text + " …" } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{arr1, arr2};

    #[test]
    fn the_means_of_three_components_span_the_plane() {
        let means = arr2(&[[0.0, 0.0, 0.0, 5.0], [10.0, 0.0, 0.0, 5.0], [0.0, 0.0, 300.0, 5.0]]);
        let variances = arr2(&[[1.0, 1e6, 900.0, 1.0], [1.0, 1e6, 900.0, 1.0], [1.0, 1e6, 900.0, 1.0]]);
        let m = Mixture::new(arr1(&[0.25, 0.25, 0.5]), means, Covariances::Diag(variances)).unwrap();
        let plane = Plane::of(&m, &[]);
        // The means are equal in columns 1 and 3.
        assert!(plane.labels.iter().all(|l| l.contains("z0") && l.contains("z2")), "{:?}", plane.labels);
        let far = |a: (f64, f64), b: (f64, f64)| ((a.0 - b.0).powi(2) + (a.1 - b.1).powi(2)).sqrt();
        let at: Vec<_> = (0..3).map(|c| plane.project(m.means().row(c))).collect();
        // Distances in the standardised columns are kept: 10 of √(1 + ¾·¼·100), 300 of √(900 + ¼·90000).
        approx::assert_relative_eq!(far(at[0], at[1]), 10.0 / 19.75f64.sqrt(), max_relative = 1e-6);
        approx::assert_relative_eq!(far(at[0], at[2]), 300.0 / 23400f64.sqrt(), max_relative = 1e-6);
    }

    #[test]
    fn names_stand_in_the_labels() {
        let means = arr2(&[[0.0, 0.0, 1.0], [10.0, 0.0, 1.0], [0.0, 10.0, 1.0]]);
        let m = Mixture::new(Array1::from_elem(3, 1.0 / 3.0), means, Covariances::Spherical(Array1::ones(3))).unwrap();
        let names = ["width", "height", "depth"].map(String::from);
        let plane = Plane::of(&m, &names);
        assert!(plane.labels.iter().all(|l| l.contains("width") && l.contains("height")), "{:?}", plane.labels);
        assert!(!plane.labels[0].contains("z0"), "{:?}", plane.labels);
    }

    #[test]
    fn ellipses_are_at_their_distance() {
        let covariance = ndarray::arr3(&[[[2.0, 0.9], [0.9, 1.0]]]);
        let m = Mixture::new(arr1(&[1.0]), arr2(&[[3.0, -1.0]]), Covariances::Full(covariance)).unwrap();
        let inverse = DMatrix::from_row_slice(2, 2, &[2.0, 0.9, 0.9, 1.0]).try_inverse().unwrap();
        let (centre, [a, b, d]) = Plane::of(&m, &[]).ellipse(&m, 0);
        assert_eq!(centre, (3.0, -1.0));
        for i in 0..12 {
            let (sin, cos) = (i as f64).sin_cos();
            let delta = DMatrix::from_column_slice(2, 1, &[a * cos, b * cos + d * sin]);
            approx::assert_relative_eq!((delta.transpose() * &inverse * delta)[0], 1.0, max_relative = 1e-12);
        }
    }
}
