//! What `gmm bench` times over several sizes, and the figures of those who timed it before.
use super::rows::Row;
use crate::terminal::text;
use gaussmix::device::Device;
use gaussmix::pairwise::{GaussianKernel, InnerProducts, RowPairs};
use gaussmix::{Error, memory};
use ndarray::Array2;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use std::time::Duration;

use super::super::timing;

/// What is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// The log-likelihood of N samples under a mixture of K components.
    Likelihood,
    /// The products of N vectors with a resident matrix of K rows.
    InnerProducts,
    /// exp(−γ‖a − b‖²) of N pairs of rows.
    GaussianKernel,
}

/// A time that was published, for the work of a shape.
struct Historic {
    name: &'static str,
    /// N, D and K.
    shape: [usize; 3],
    seconds: f64,
}

const fn historic(name: &'static str, shape: [usize; 3], seconds: f64) -> Historic {
    Historic { name, shape, seconds }
}

/// The shape (N, D, K) of the product of a matrix with a matrix.
pub const LARGE_PRODUCT: [usize; 3] = [2000, 40_000, 2000];

/// The talk's figures of one evaluation.
const LIKELIHOOD: [Historic; 3] = [
    historic("NumPy, 2018", [1_000_000, 13, 8], 36.0),
    historic("scikit-learn, 2018", [1_000_000, 13, 8], 0.5),
    historic("CUDA C on a GTX 970, 2018", [1_000_000, 13, 8], 0.01),
];
/// Of the page only the whole of five minutes is known, and of the matrix only that its rows have
/// 1000 numbers.
const INNER_PRODUCTS: [Historic; 4] = [
    historic("the page that took five minutes", [50_000, 1000, 1000], 300.0),
    historic("NumPy without MKL", LARGE_PRODUCT, 7.18),
    historic("NumPy with MKL", LARGE_PRODUCT, 4.06),
    historic("cudamat", LARGE_PRODUCT, 0.29),
];
const GAUSSIAN_KERNEL: [Historic; 3] = [
    historic("NumPy, first version", [1000, 20, 1], 26.5e-3),
    historic("NumPy, second version", [1000, 20, 1], 17.5e-3),
    historic("GPU", [1000, 20, 1], 5.4e-3),
];

impl Workload {
    /// That of rows which are reported again.
    pub fn of(rows: &[Row]) -> Self {
        let is = |workload: &Self| rows.first().is_some_and(|row| row.kernel == workload.name());
        [Self::InnerProducts, Self::GaussianKernel].into_iter().find(is).unwrap_or(Self::Likelihood)
    }

    /// Its name, which the kernel of its rows has.
    pub fn name(self) -> &'static str {
        match self {
            Self::Likelihood => "likelihood",
            Self::InnerProducts => "inner-products",
            Self::GaussianKernel => "gaussian-kernel",
        }
    }

    /// The title of its plot.
    pub fn title(self, row: &Row) -> String {
        let Row { d, k, .. } = row;
        match self {
            Self::Likelihood => format!("One evaluation of the log-likelihood, K = {k}, D = {d}"),
            Self::InnerProducts => format!("Products of N vectors with {k} rows of a matrix, D = {d}"),
            Self::GaussianKernel => format!("The Gaussian kernel of N pairs of rows, D = {d}"),
        }
    }

    /// What there are N of.
    pub fn items(self) -> (&'static str, &'static str) {
        match self {
            Self::Likelihood => ("samples", "sample"),
            Self::InnerProducts => ("vectors", "vector"),
            Self::GaussianKernel => ("pairs", "pair"),
        }
    }

    fn historic(self) -> &'static [Historic] {
        match self {
            Self::Likelihood => &LIKELIHOOD,
            Self::InnerProducts => &INNER_PRODUCTS,
            Self::GaussianKernel => &GAUSSIAN_KERNEL,
        }
    }

    /// A table of published times, each with how many times the best measured one of the same shape
    /// it is.
    pub fn history(self, rows: &[Row]) -> String {
        let table = self.historic().iter().map(|h| {
            let same = |r: &&Row| [r.n, r.d, r.k] == h.shape;
            let best = rows.iter().filter(same).map(|r| r.seconds).min_by(f64::total_cmp);
            let shape = h.shape.map(|v| text::grouped(v as u64));
            let ratio = best.map_or("–".into(), |best| text::count(h.seconds / best));
            let [n, d, k] = shape;
            vec![h.name.into(), n, d, k, text::seconds(h.seconds), ratio]
        });
        text::table(&["published", "N", "D", "K", "time", "× the best here"], table, 1)
    }
}

/// The median time of the work of a shape on a device.
pub fn time(workload: Workload, device: Device, [n, d, k]: [usize; 3], budget: Duration) -> Result<f64, Error> {
    let (a, b) = (n.saturating_mul(d), k.saturating_mul(d));
    let (what, numbers) = match workload {
        Workload::InnerProducts => (
            "the vectors, the matrix, the products and their copies",
            a.saturating_add(b).saturating_add(n.saturating_mul(k)),
        ),
        _ => ("the rows, their values and their copies", a.saturating_mul(2).saturating_add(n)),
    };
    memory::check(what, &[numbers], 2 * size_of::<f32>(), "use fewer or shorter rows")?;
    let timing = match workload {
        Workload::InnerProducts => {
            let (matrix, vectors) = (normal(1, k, d), normal(2, n, d));
            let mut resident = InnerProducts::load(device, matrix.view())?;
            let mut out = vec![0.0; n * k];
            timing::time(budget, |_| resident.products_into(vectors.view(), &mut out))?
        }
        Workload::GaussianKernel | Workload::Likelihood => {
            let (a, b) = (normal(1, n, d), normal(2, n, d));
            let kernel = GaussianKernel::new(0.5 / d as f64)?;
            let mut pairs = RowPairs::load(device, a.view(), b.view())?;
            let mut out = vec![0.0; n];
            timing::time(budget, |_| pairs.gaussian_into(&kernel, &mut out))?
        }
    };
    Ok(timing.median)
}

fn normal(seed: u64, n: usize, d: usize) -> Array2<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    Array2::from_shape_simple_fn((n, d), || rng.sample(StandardNormal))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(n: usize, d: usize, k: usize, seconds: f64) -> Row {
        Row { device: "cpu".into(), kernel: "x".into(), n, k, d, seconds }
    }

    #[test]
    fn published_times_are_compared_with_the_best_of_the_same_shape() {
        let rows = [row(2000, 40_000, 2000, 0.5), row(2000, 40_000, 2000, 0.29), row(50_000, 1000, 10, 1e-9)];
        let text = Workload::InnerProducts.history(&rows);
        let last = |name: &str| {
            text.lines().find(|l| l.starts_with(name)).unwrap().split_whitespace().last().unwrap().to_string()
        };
        assert_eq!(last("cudamat"), "1.00");
        assert_eq!(last("NumPy with MKL"), "14.0");
        assert_eq!(last("the page"), "–");
    }
}
