use crate::normal;
use anyhow::{Context, ensure};
use clap::Args;
use gaussmix::device::Device;
use gaussmix::pairwise::{GaussianKernel as Kernel, InnerProducts as Products, RowPairs};
use gaussmix::program::whole_number;
use gaussmix::{Error, memory};
use gaussmix_cli::bench::{
    LIKELIHOOD, Missing, Named, OutputOptions, ProgressLine, Row, Workload, ascending, report, seconds, text, time,
};
use std::path::PathBuf;
use std::time::Duration;

/// Time the products of N vectors with a resident matrix of K rows, beside published times
///
/// Each time is the median of repeated calls, from vectors on the host to products on the host.
#[derive(Debug, Args)]
pub struct InnerProducts {
    #[command(flatten)]
    common: Common,
    /// Numbers of vectors
    #[arg(long, value_delimiter = ',', value_parser = whole_number, default_value = "1,10,100,1e3,1e4,5e4")]
    n: Vec<usize>,
    /// Number of rows of the matrix
    #[arg(short, value_parser = whole_number, default_value = "1000")]
    k: usize,
    /// Length of a vector
    #[arg(short, value_parser = whole_number, default_value = "1000")]
    d: usize,
    /// Also time the shape of the published times, which takes 1.3 GB
    #[arg(long)]
    published: bool,
}

/// Time exp(−γ‖a − b‖²) of N resident pairs of rows, beside published times
///
/// Each time is the median of repeated calls, until the values are on the host.
#[derive(Debug, Args)]
pub struct GaussianKernel {
    #[command(flatten)]
    common: Common,
    /// Numbers of pairs
    #[arg(long, value_delimiter = ',', value_parser = whole_number, default_value = "10,100,1e3,1e4,1e5,1e6")]
    n: Vec<usize>,
    /// Number of features
    #[arg(short, value_parser = whole_number, default_value = "20")]
    d: usize,
}

/// Report and draw times printed by --json, of this program or of `gmm bench likelihood`
#[derive(Debug, Args)]
pub struct Report {
    /// The rows, from this machine or another
    #[arg(value_name = "ROWS.json")]
    rows: PathBuf,
    #[command(flatten)]
    output: OutputOptions,
}

#[derive(Debug, Args)]
struct Common {
    /// Devices to compare: reference, cpu, cuda, cuda:N or auto
    #[arg(long, value_name = "DEVICES", value_delimiter = ',', default_value = "cpu,cuda")]
    device: Vec<Named>,
    /// Seconds to spend on each measurement
    #[arg(long, value_parser = seconds, default_value = "0.5")]
    seconds: Duration,
    #[command(flatten)]
    output: OutputOptions,
}

/// A workload and its published times.
struct Comparison {
    /// The kernel's name in its rows.
    name: &'static str,
    workload: Workload,
    /// Name, N, D and K, seconds.
    published: &'static [(&'static str, [usize; 3], f64)],
    /// The median time of N, D and K.
    time: fn(Device, [usize; 3], Duration) -> Result<f64, Error>,
}

/// N, D and K of a product of a matrix with a matrix.
const LARGE_PRODUCT: [usize; 3] = [2000, 40_000, 2000];
const INNER_PRODUCTS: Comparison = Comparison {
    name: "inner-products",
    workload: Workload {
        title: |Row { d, k, .. }| format!("Products of N vectors with {k} rows of a matrix, D = {d}"),
        items: "vectors",
        header: ["device", "matrix", "N", "products", "per vector"],
        about: |row| format!("{} × {}", text::grouped(row.k as u64), text::grouped(row.d as u64)),
    },
    published: &[
        // The page only gives the total of five minutes, and the length of the matrix's rows, 1000.
        ("the page that took five minutes", [50_000, 1000, 1000], 300.0),
        ("NumPy without MKL", LARGE_PRODUCT, 7.18),
        ("NumPy with MKL", LARGE_PRODUCT, 4.06),
        ("cudamat", LARGE_PRODUCT, 0.29),
    ],
    time: |device, [n, d, k], budget| {
        memory::check("the products and their copy", &[n, k], 2 * size_of::<f32>(), "use fewer vectors or rows")?;
        let (matrix, vectors) = (normal(k, d)?, normal(n, d)?);
        let mut resident = Products::load(device, matrix.view())?;
        let mut out = vec![0.0; n * k];
        time(budget, |_| resident.products_into(vectors.view(), &mut out)).map(|timing| timing.median)
    },
};
const GAUSSIAN_KERNEL: Comparison = Comparison {
    name: "gaussian-kernel",
    workload: Workload {
        title: |row| format!("The Gaussian kernel of N pairs of rows, D = {}", row.d),
        items: "pairs",
        header: ["device", "rows", "N", "values", "per pair"],
        about: |row| format!("D = {}", row.d),
    },
    published: &[
        ("NumPy, first version", [1000, 20, 1], 26.5e-3),
        ("NumPy, second version", [1000, 20, 1], 17.5e-3),
        ("GPU", [1000, 20, 1], 5.4e-3),
    ],
    time: |device, [n, d, _], budget| {
        let (a, b) = (normal(n, d)?, normal(n, d)? + 0.01);
        let kernel = Kernel::new(0.5 / d as f64)?;
        let mut pairs = RowPairs::load(device, a.view(), b.view())?;
        let mut out = vec![0.0; n];
        time(budget, |_| pairs.gaussian_into(&kernel, &mut out)).map(|timing| timing.median)
    },
};

impl InnerProducts {
    pub fn run(self) -> anyhow::Result<()> {
        let own = ascending(self.n).into_iter().map(|n| [n, self.d, self.k]);
        let published = self.published.then_some(LARGE_PRODUCT);
        self.common.run(&INNER_PRODUCTS, &own.chain(published).collect::<Vec<_>>())
    }
}

impl GaussianKernel {
    pub fn run(self) -> anyhow::Result<()> {
        let shapes: Vec<_> = ascending(self.n).into_iter().map(|n| [n, self.d, 1]).collect();
        self.common.run(&GAUSSIAN_KERNEL, &shapes)
    }
}

impl Common {
    /// Times the work for each shape (N, D, K) on each device.
    fn run(self, of: &Comparison, shapes: &[[usize; 3]]) -> anyhow::Result<()> {
        let plot = self.output.create()?;
        let (mut rows, mut missing) = (Vec::new(), Vec::new());
        let mut line = ProgressLine::start("measuring");
        for Named { name, device } in &self.device {
            for &[n, d, k] in shapes {
                line.show(format!("measuring {name} with {} {}", text::grouped(n as u64), of.workload.items));
                match (of.time)(*device, [n, d, k], self.seconds) {
                    Ok(seconds) => rows.push(Row { device: name.clone(), kernel: of.name.into(), n, k, d, seconds }),
                    Err(reason) => {
                        missing.push(Missing { device: name.clone(), kernel: String::new(), reason });
                        break;
                    }
                }
            }
        }
        drop(line);
        report(&of.workload, &rows, missing, Some(of.history(&rows)), self.output.json, plot)
    }
}

impl Comparison {
    /// A table of published times, each with its ratio to the best measured time of the same shape.
    fn history(&self, rows: &[Row]) -> String {
        let table = self.published.iter().map(|&(name, shape, seconds)| {
            let same = |r: &&Row| [r.n, r.d, r.k] == shape;
            let best = rows.iter().filter(same).map(|r| r.seconds).min_by(f64::total_cmp);
            let [n, d, k] = shape.map(|size| text::grouped(size as u64));
            let ratio = best.map_or("–".into(), |best| text::count(seconds / best));
            vec![name.into(), n, d, k, text::seconds(seconds), ratio]
        });
        text::table(&["published", "N", "D", "K", "time", "× the best here"], table, 1)
    }
}

impl Report {
    pub fn run(self) -> anyhow::Result<()> {
        let plot = self.output.create()?;
        let place = self.rows.display();
        let rows = gaussmix::io::read_text(&self.rows)?;
        let rows: Vec<Row> = serde_json::from_str(&rows).with_context(|| format!("{place}: not rows of gmm bench"))?;
        for (i, row) in rows.iter().enumerate() {
            let usable = row.n > 0 && row.seconds.is_finite() && row.seconds > 0.0;
            ensure!(usable, "{place}: row {i} (counted from 0): `n` and `seconds` must be above 0");
        }
        let is = |of: &&Comparison| rows.first().is_some_and(|row| row.kernel == of.name);
        let of = [&INNER_PRODUCTS, &GAUSSIAN_KERNEL].into_iter().find(is);
        let workload = of.map_or(&LIKELIHOOD, |of| &of.workload);
        report(workload, &rows, Vec::new(), of.map(|of| of.history(&rows)), self.output.json, plot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_times_are_compared_with_the_best_of_the_same_shape() {
        let row = |[n, d, k]: [usize; 3], seconds| Row { device: "cpu".into(), kernel: "x".into(), n, k, d, seconds };
        let rows = [row(LARGE_PRODUCT, 0.5), row(LARGE_PRODUCT, 0.29), row([50_000, 1000, 10], 1e-9)];
        let text = INNER_PRODUCTS.history(&rows);
        let last = |name: &str| text.lines().find(|l| l.starts_with(name)).unwrap().split_whitespace().last().unwrap();
        assert_eq!(last("cudamat"), "1.00");
        assert_eq!(last("NumPy with MKL"), "14.0");
        assert_eq!(last("the page"), "–");
    }
}
