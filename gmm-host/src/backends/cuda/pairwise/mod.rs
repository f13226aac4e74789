//! Inner products with a resident matrix, and the Gaussian kernel, for [`crate::pairwise`].
mod centres;
mod pairs;
mod products;

pub use centres::Centres;
pub use pairs::Pairs;
pub use products::Products;

use super::device::gpu::Gpu;
use super::device::layout::{self, STRIDE};
use super::device::memory::{Numbers, allocate, enlarge};
use super::device::staging::{BUFFER_BYTES, Staging};
use super::device::stream::Stream;
use crate::error::Result;
use cust::memory::DeviceBuffer;
use gmm_kernels::data;
use gmm_kernels::entries;
use gmm_kernels::pairwise::products::TILINGS;
use ndarray::ArrayView2;
use std::f64::consts::LOG2_E;

/// Numbers that pass through the device at a time, of the rows and of the results: 256 MiB.
const MOST_AT_ONCE: usize = 1 << 26;

/// Makes the first device ready, and compiles the kernels.
pub fn start() -> Result<()> {
    let gpu = Gpu::open(0)?;
    gpu.enter()?;
    gpu.kernel(&entries::split_rows(), None)?;
    for tiling in TILINGS {
        gpu.kernel(&entries::products(tiling), None)?;
    }
    gpu.kernel(&entries::products_few(), None)?;
    gpu.kernel(&entries::gaussian_pairs(), None)?;
    gpu.kernel(&entries::gaussian_centres(), None)?;
    Ok(())
}

/// Rows that are taken at a time, with so many results each.
fn rows_at_once(d: usize, results: usize) -> usize {
    (MOST_AT_ONCE / d.max(results)).max(1)
}

/// What rows and results pass through.
fn staging() -> Staging<f32> {
    Staging::new(BUFFER_BYTES / size_of::<f32>())
}

/// The exponents' factor: exp(−γs) = 2^(factor · s).
pub fn factor(gamma: f64) -> f32 {
    (-gamma * LOG2_E) as f32
}

/// Rows that lie on the device column by column, with the stride of [`layout::stride`].
#[derive(Debug)]
struct Rows {
    x: DeviceBuffer<f32>,
    n: usize,
    d: usize,
}

impl Rows {
    fn none(d: usize) -> Result<Self> {
        Ok(Self { x: allocate(d * STRIDE)?, n: 0, d })
    }

    /// Puts rows of D numbers in the place of those that were there.
    fn replace(&mut self, stream: &Stream, staging: &Staging<f32>, rows: ArrayView2<'_, f32>) -> Result<()> {
        let mut columns = vec![0.0; self.d * layout::stride(rows.nrows())];
        layout::transpose(rows, &mut columns);
        enlarge(&mut self.x, columns.len())?;
        staging.upload(stream, &self.x, &columns)?.wait()?;
        self.n = rows.nrows();
        Ok(())
    }

    fn columns(&self) -> Columns<'_> {
        Columns { x: Numbers::of(&self.x), n: self.n, d: self.d }
    }
}

/// [`Rows`], borrowed for a launch.
#[derive(Clone, Copy)]
struct Columns<'a> {
    x: Numbers<'a, f32>,
    n: usize,
    d: usize,
}

impl Columns<'_> {
    /// Whether the memory has all the columns of at least one row.
    fn fit(&self) -> bool {
        self.n > 0 && self.x.len() >= self.d * layout::stride(self.n)
    }

    fn argument(&self) -> Result<data::Columns> {
        let stride = layout::stride(self.n);
        let x = self.x.read(self.d * stride, "rows on the device")?;
        Ok(data::Columns { x, stride: stride as u64, n: self.n as u64, cached_quads: 0 })
    }
}
