//! `gaussian_pairs`: the Gaussian kernel of pairs of rows.
use super::launch::launch;
use super::{Columns, Rows, factor, seconds};
use gmm_host::Result;
use gmm_host::cuda::{Grid, Kernel, Memory, Numbers, Queue, Work, require, stride};
use gmm_kernels::data::QUAD;
use gmm_kernels::entries;
use gmm_kernels::pairwise::pairs::PairsArgs;
use ndarray::ArrayView2;

const THREADS: u32 = 256;

pub struct Pairs {
    queue: Queue,
    kernel: Kernel<PairsArgs>,
    rows: [Rows; 2],
    values: Memory<f32>,
}

impl Pairs {
    /// Copies two non-empty arrays of the same shape to the device of this number.
    pub fn open(ordinal: usize, arrays: [ArrayView2<'_, f32>; 2]) -> Result<Self> {
        let queue = Queue::open(ordinal)?;
        let (n, d) = arrays[0].dim();
        let mut rows = [Rows::none(&queue, d)?, Rows::none(&queue, d)?];
        for (rows, array) in rows.iter_mut().zip(arrays) {
            rows.replace(&queue, array)?;
        }
        let kernel = queue.kernel(&entries::gaussian_pairs())?;
        let values = queue.memory(stride(n))?;
        Ok(Self { queue, kernel, rows, values })
    }

    pub fn gaussian(&mut self, gamma: f64, out: &mut [f32]) -> Result<()> {
        self.queue.run(|work| {
            self.start(work, gamma)?;
            work.download(&self.values, out)
        })
    }

    pub fn seconds(&mut self, gamma: f64, repeats: u32) -> Result<f64> {
        seconds(&self.queue, repeats, |work| self.start(work, gamma))
    }

    fn start<'a>(&'a self, work: &Work<'a>, gamma: f64) -> Result<()> {
        let [a, b] = [self.rows[0].columns(), self.rows[1].columns()];
        let blocks = a.n.div_ceil(QUAD * THREADS as usize).min(1 << 20);
        let launch = PairsLaunch { a, b, factor: factor(gamma), values: self.values.numbers() };
        work.launch(self.kernel, Grid::new(blocks as u32, THREADS, 0), launch)
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
    require(what, (a.n, a.d) == (b.n, b.d))?;
    Ok(PairsArgs {
        a: a.argument(what)?,
        b: b.argument(what)?,
        d: a.d as u32,
        factor: launch.factor,
        values: launch.values.write(a.n.next_multiple_of(QUAD), what)?,
    })
});
