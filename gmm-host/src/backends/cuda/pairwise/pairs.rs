//! `gaussian_pairs`: the Gaussian kernel of pairs of rows.
use super::{Columns, Rows, factor, staging};
use crate::backends::cuda::device::gpu::Gpu;
use crate::backends::cuda::device::kernel::{Grid, Kernel};
use crate::backends::cuda::device::launch::launch;
use crate::backends::cuda::device::memory::{Numbers, allocate};
use crate::backends::cuda::device::staging::Staging;
use crate::backends::cuda::device::stream::{Running, Stream};
use crate::backends::cuda::device::{layout, require};
use crate::error::Result;
use cust::memory::DeviceBuffer;
use gmm_kernels::data::QUAD;
use gmm_kernels::entries;
use gmm_kernels::pairwise::pairs::PairsArgs;
use ndarray::ArrayView2;

/// Threads of a block.
const THREADS: u32 = 256;

/// Pairs of rows on the device, and room for their values.
pub struct Pairs {
    gpu: &'static Gpu,
    stream: Stream,
    staging: Staging<f32>,
    kernel: Kernel<PairsArgs>,
    rows: [Rows; 2],
    values: DeviceBuffer<f32>,
}

impl Pairs {
    /// Takes two arrays of the same shape, of at least one row and one column, to the device of
    /// this number.
    pub fn open(ordinal: usize, arrays: [ArrayView2<'_, f32>; 2]) -> Result<Self> {
        let gpu = Gpu::open(ordinal)?;
        gpu.enter()?;
        let (n, d) = arrays[0].dim();
        let (stream, staging) = (Stream::new()?, staging());
        let mut rows = [Rows::none(d)?, Rows::none(d)?];
        for (rows, array) in rows.iter_mut().zip(arrays) {
            rows.replace(&stream, &staging, array)?;
        }
        let kernel = gpu.kernel(&entries::gaussian_pairs(), None)?;
        Ok(Self { gpu, stream, staging, kernel, rows, values: allocate(layout::stride(n))? })
    }

    /// The values of all pairs.
    pub fn gaussian(&mut self, gamma: f64, out: &mut [f32]) -> Result<()> {
        self.gpu.enter()?;
        let work = self.start(gamma)?;
        self.staging.download(&self.stream, &self.values, out)?;
        work.wait().map(drop)
    }

    pub fn seconds(&mut self, gamma: f64, repeats: u32) -> Result<f64> {
        self.gpu.enter()?;
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

    fn start(&self, gamma: f64) -> Result<Running<'_, PairsLaunch<'_>>> {
        let [a, b] = [self.rows[0].columns(), self.rows[1].columns()];
        let blocks = a.n.div_ceil(QUAD * THREADS as usize).min(1 << 20);
        let launch = PairsLaunch { a, b, factor: factor(gamma), values: Numbers::of(&self.values) };
        self.stream.launch(self.kernel, Grid::new(blocks as u32, THREADS, 0), launch)
    }
}

#[derive(Clone, Copy)]
struct PairsLaunch<'a> {
    a: Columns<'a>,
    b: Columns<'a>,
    factor: f32,
    values: Numbers<'a, f32>,
}

launch!(PairsLaunch<'_>, PairsArgs, "gaussian_pairs", |launch, _grid, what| {
    let (a, b) = (launch.a, launch.b);
    require(what, (a.n, a.d) == (b.n, b.d) && a.fit() && b.fit())?;
    Ok(PairsArgs {
        a: a.argument()?,
        b: b.argument()?,
        d: a.d as u32,
        factor: launch.factor,
        values: launch.values.write(a.n.next_multiple_of(QUAD), what)?,
    })
});
