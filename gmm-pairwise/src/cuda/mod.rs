//! Comparisons on a GPU, by the kernels of `gmm_kernels::pairwise`.
mod centres;
#[cfg(test)]
mod emulator;
mod launch;
mod pairs;
mod products;

pub use centres::Centres;
pub use pairs::Pairs;
pub use products::Products;

use gmm_host::Result;
use gmm_host::cuda::{Memory, Numbers, Queue, Work, require, stride, transposed};
use gmm_kernels::data;
use gmm_kernels::entries;
use gmm_kernels::pairwise::products::TILINGS;
use ndarray::ArrayView2;
use std::f64::consts::LOG2_E;

/// The most numbers on the device at a time, of the rows and of the results: 256 MiB.
const MOST_AT_ONCE: usize = 1 << 26;

/// Prepares the first device, and compiles the kernels.
pub fn start() -> Result<()> {
    let queue = Queue::open(0)?;
    queue.kernel(&entries::split_rows())?;
    for tiling in TILINGS {
        queue.kernel(&entries::products(tiling))?;
    }
    queue.kernel(&entries::products_few())?;
    queue.kernel(&entries::gaussian_pairs())?;
    queue.kernel(&entries::gaussian_centres())?;
    Ok(())
}

/// Returns the rows taken at a time, with `results` results each.
fn rows_at_once(d: usize, results: usize) -> usize {
    (MOST_AT_ONCE / d.max(results)).max(1)
}

/// The factor of the exponents: exp(−γs) = 2^(factor · s).
fn factor(gamma: f64) -> f32 {
    (-gamma * LOG2_E) as f32
}

/// Returns the mean seconds of the work that `start` enqueues, over `repeats` consecutive runs after an untimed one.
fn seconds<'env>(queue: &'env Queue, repeats: u32, start: impl Fn(&Work<'env>) -> Result<()>) -> Result<f64> {
    let repeats = repeats.max(1);
    queue.run(&start)?;
    let all = queue.seconds(|work| (0..repeats).try_for_each(|_| start(work)))?;
    Ok(all / f64::from(repeats))
}

/// Rows on the device, stored by columns with the stride of [`stride`].
#[derive(Debug)]
struct Rows {
    x: Memory<f32>,
    n: usize,
    d: usize,
}

impl Rows {
    fn none(queue: &Queue, d: usize) -> Result<Self> {
        Ok(Self { x: queue.memory(d)?, n: 0, d })
    }

    fn replace(&mut self, queue: &Queue, rows: ArrayView2<'_, f32>) -> Result<()> {
        let columns = transposed(rows);
        self.x.reserve(columns.len())?;
        queue.run(|work| work.upload(&self.x, &columns))?;
        self.n = rows.nrows();
        Ok(())
    }

    fn columns(&self) -> Columns<'_> {
        Columns { x: self.x.numbers(), n: self.n, d: self.d }
    }
}

#[derive(Clone, Copy)]
struct Columns<'a> {
    x: Numbers<'a, f32>,
    n: usize,
    d: usize,
}

impl Columns<'_> {
    /// Returns the columns of at least one row, for `what`.
    fn argument(&self, what: &'static str) -> Result<data::Columns> {
        let stride = stride(self.n);
        require(what, self.n > 0)?;
        let x = self.x.read(self.d * stride, what)?;
        Ok(data::Columns { x, stride: stride as u64, n: self.n as u64, cached_quads: 0 })
    }
}
