//! `gaussian_centres`: the Gaussian kernel of rows with centres.
use super::{Columns, Rows, factor, rows_at_once, staging};
use crate::backends::cuda::device::gpu::Gpu;
use crate::backends::cuda::device::kernel::{Grid, Kernel};
use crate::backends::cuda::device::launch::launch;
use crate::backends::cuda::device::memory::{Numbers, allocate, enlarge};
use crate::backends::cuda::device::require;
use crate::backends::cuda::device::staging::Staging;
use crate::backends::cuda::device::stream::{Running, Stream};
use crate::error::Result;
use cust::memory::DeviceBuffer;
use gmm_kernels::entries;
use gmm_kernels::pairwise::centres::{CentresArgs, THREADS, TILE_CENTRES, TILE_ROWS};
use ndarray::{ArrayView2, Axis};

/// Centres on the device, and room for rows and values.
pub struct Centres {
    gpu: &'static Gpu,
    stream: Stream,
    staging: Staging<f32>,
    kernel: Kernel<CentresArgs>,
    centres: Rows,
    x: Rows,
    values: DeviceBuffer<f32>,
}

impl Centres {
    /// Makes the device of this number ready for centres of `d` features.
    pub fn open(ordinal: usize, d: usize) -> Result<Self> {
        let gpu = Gpu::open(ordinal)?;
        gpu.enter()?;
        let kernel = gpu.kernel(&entries::gaussian_centres(), None)?;
        let (centres, x) = (Rows::none(d)?, Rows::none(d)?);
        Ok(Self { gpu, stream: Stream::new()?, staging: staging(), kernel, centres, x, values: allocate(1)? })
    }

    /// The values of the rows of `x` (N, D) with all `centres` (M, D), (N, M). Centres are never
    /// changed, only added; those on the device are replaced if their number has changed.
    pub fn gaussian(
        &mut self,
        gamma: f64,
        x: ArrayView2<'_, f32>,
        centres: ArrayView2<'_, f32>,
        out: &mut [f32],
    ) -> Result<()> {
        let m = centres.nrows();
        let rows = rows_at_once(x.ncols(), m);
        for (x, out) in x.axis_chunks_iter(Axis(0), rows).zip(out.chunks_mut(rows * m)) {
            self.take(x, centres)?;
            let work = self.start(gamma)?;
            self.staging.download(&self.stream, &self.values, out)?;
            work.wait()?;
        }
        Ok(())
    }

    pub fn seconds(
        &mut self,
        gamma: f64,
        x: ArrayView2<'_, f32>,
        centres: ArrayView2<'_, f32>,
        repeats: u32,
    ) -> Result<f64> {
        self.take(x, centres)?;
        self.start(gamma)?.wait()?;
        let seconds = self.stream.seconds(|| {
            let mut work = self.start(gamma)?;
            for _ in 1..repeats {
                work = work.followed_by(self.start(gamma)?);
            }
            Ok(work)
        })?;
        Ok(seconds / f64::from(repeats.max(1)))
    }

    /// Takes rows to the device, and makes room for their values.
    fn take(&mut self, x: ArrayView2<'_, f32>, centres: ArrayView2<'_, f32>) -> Result<()> {
        self.gpu.enter()?;
        if self.centres.n != centres.nrows() {
            self.centres.replace(&self.stream, &self.staging, centres)?;
        }
        self.x.replace(&self.stream, &self.staging, x)?;
        enlarge(&mut self.values, x.nrows() * centres.nrows())
    }

    fn start(&self, gamma: f64) -> Result<Running<'_, CentresLaunch<'_>>> {
        let (x, centres) = (self.x.columns(), self.centres.columns());
        let blocks = (centres.n.div_ceil(TILE_CENTRES) as u32, x.n.div_ceil(TILE_ROWS) as u32);
        let launch = CentresLaunch { x, centres, factor: factor(gamma), values: Numbers::of(&self.values) };
        self.stream.launch(self.kernel, Grid { blocks, threads: THREADS, shared: 0, cooperative: false }, launch)
    }
}

#[derive(Clone, Copy)]
struct CentresLaunch<'a> {
    x: Columns<'a>,
    centres: Columns<'a>,
    factor: f32,
    values: Numbers<'a, f32>,
}

launch!(CentresLaunch<'_>, CentresArgs, "gaussian_centres", |launch, grid, what| {
    let (x, centres) = (launch.x, launch.centres);
    require(what, x.d == centres.d && x.fit() && centres.fit() && grid.threads == THREADS)?;
    Ok(CentresArgs {
        x: x.argument()?,
        centres: centres.argument()?,
        d: x.d as u32,
        factor: launch.factor,
        values: launch.values.write(x.n * centres.n, what)?,
    })
});
