//! `gaussian_centres`: the Gaussian kernel of rows with centres.
use super::launch::launch;
use super::{Columns, Rows, factor, rows_at_once, seconds};
use gmm_host::cuda::{Grid, Kernel, Memory, Numbers, Queue, Work, require};
use gmm_host::{Interrupt, Result};
use gmm_kernels::entries;
use gmm_kernels::pairwise::centres::{CentresArgs, THREADS, TILE_CENTRES, TILE_ROWS};
use ndarray::{ArrayView2, Axis};

pub struct Centres {
    queue: Queue,
    kernel: Kernel<CentresArgs>,
    centres: Rows,
    x: Rows,
    values: Memory<f32>,
}

impl Centres {
    /// Prepares the device of this number for centres of `d` features.
    pub fn open(ordinal: usize, d: usize) -> Result<Self> {
        let queue = Queue::open(ordinal)?;
        let kernel = queue.kernel(&entries::gaussian_centres())?;
        let (centres, x) = (Rows::none(&queue, d)?, Rows::none(&queue, d)?);
        let values = queue.memory(1)?;
        Ok(Self { queue, kernel, centres, x, values })
    }

    /// Computes the values of the rows of `x` (N, D) with all `centres` (M, D), (N, M). Centres are only ever added, so
    /// a new number of them means that the device's copy must be replaced.
    pub fn gaussian(
        &mut self,
        gamma: f64,
        x: ArrayView2<'_, f32>,
        centres: ArrayView2<'_, f32>,
        out: &mut [f32],
    ) -> Result<()> {
        let m = centres.nrows();
        let rows = rows_at_once(x.ncols(), m).min(Grid::MOST_SLICES as usize * TILE_ROWS);
        for (x, out) in x.axis_chunks_iter(Axis(0), rows).zip(out.chunks_mut(rows * m)) {
            Interrupt::current().check()?;
            self.take(x, centres)?;
            self.queue.run(|work| {
                self.start(work, gamma)?;
                work.download(&self.values, out)
            })?;
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
        seconds(&self.queue, repeats, |work| self.start(work, gamma))
    }

    /// Copies rows to the device, and makes room for their values.
    fn take(&mut self, x: ArrayView2<'_, f32>, centres: ArrayView2<'_, f32>) -> Result<()> {
        if self.centres.n != centres.nrows() {
            self.centres.replace(&self.queue, centres)?;
        }
        self.x.replace(&self.queue, x)?;
        self.values.reserve(x.nrows() * centres.nrows())
    }

    fn start<'a>(&'a self, work: &Work<'a>, gamma: f64) -> Result<()> {
        let (x, centres) = (self.x.columns(), self.centres.columns());
        let blocks = (centres.n.div_ceil(TILE_CENTRES) as u32, x.n.div_ceil(TILE_ROWS) as u32);
        let launch = CentresLaunch { x, centres, factor: factor(gamma), values: self.values.numbers() };
        work.launch(self.kernel, Grid { blocks, threads: THREADS, shared: 0, cooperative: false }, launch)
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
    require(what, x.d == centres.d && grid.threads == THREADS)?;
    Ok(CentresArgs {
        x: x.argument(what)?,
        centres: centres.argument(what)?,
        d: x.d as u32,
        factor: launch.factor,
        values: launch.values.write(x.n * centres.n, what)?,
    })
});
