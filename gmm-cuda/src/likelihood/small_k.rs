//! `small_k`: a total for K ≤ 8 and D ≤ 16. The components are part of the kernel's argument, which saves a copy to the
//! device, except for the triangles of full and tied covariances.
use super::launch::{LikelihoodKernels, Sets, Work};
use super::layout;
use crate::device::gpu::{Gpu, Limits};
use crate::device::kernel::{Grid, Kernel};
use crate::device::launch::launch;
use crate::device::memory::Numbers;
use crate::device::samples::Columns;
use crate::device::stream::{Running, Stream};
use crate::device::workspace::{Output, Workspace};
use crate::device::{mismatch, require};
use crate::plan::family::{Facts, Family, Variant, at_most, fitting};
use crate::plan::task::{Covariance, Operation, Shape, Task};
use gmm_core::backends::device_parameters::DeviceParameters;
use gmm_core::error::Result;
use gmm_kernels::data::QUAD;
use gmm_kernels::entries;
use gmm_kernels::likelihood::small_k::{COMPONENTS, Kind, MAX_FEATURES, SmallKArgs};
use std::sync::Arc;

/// `small_k`: totals of few components of few features.
pub static SMALL_K: SmallKFamily = SmallKFamily;
pub struct SmallKFamily;

impl Family for SmallKFamily {
    fn facts(&self) -> Facts {
        let about = "totals of one read of the data, with the components in the argument";
        let complete = Facts::complete("small_k", about, &[Operation::Total]);
        Facts { gaps: true, exp2_bias: true, timed_with_all_samples: true, ..complete }
    }

    fn sizes(&self) -> String {
        format!("K ≤ {COMPONENTS}, D ≤ {MAX_FEATURES}")
    }

    fn limit(&self, task: &Task, _: &Limits) -> Option<String> {
        at_most("features", MAX_FEATURES, task.d).or_else(|| at_most("components", COMPONENTS, task.k))
    }

    fn shapes(&self, task: &Task, limits: &Limits) -> Vec<Shape> {
        // So few samples that each thread has at most a quad: the shape makes no difference.
        let all = if task.n <= limits.multiprocessors as usize * 128 * QUAD {
            vec![(128, 1)]
        } else {
            vec![(128, 4), (128, 3), (192, 2), (96, 4), (256, 2), (160, 3), (128, 8), (256, 4)]
        };
        let all = all.into_iter().map(|(block, per)| Shape::new(1, block, per)).collect();
        fitting(self, all, task, limits)
    }

    fn cached(&self, task: &Task, limits: &Limits) -> Vec<Option<u32>> {
        let bytes = task.n * task.d * size_of::<f32>();
        if bytes > limits.l2 / 2 { vec![Some(0), Some(28), Some(40)] } else { vec![None] }
    }

    fn samples_of_block(&self, shape: Shape) -> usize {
        shape.block as usize * QUAD
    }

    fn shared_bytes(&self, task: &Task, shape: Shape) -> usize {
        kind(task).shared_bytes(task.d, task.k, shape.block)
    }

    fn likelihoods(&self, gpu: &Gpu, variant: Variant, task: &Task) -> Result<Arc<dyn LikelihoodKernels>> {
        // With missing values it holds a mark of observation for each feature.
        let max_registers = if task.gaps { 168 } else { 120 };
        let kernels = Kernels::new(gpu, task.d, kind(task), max_registers)?;
        let grid = variant.grid(task, gpu.limits.multiprocessors);
        Ok(Arc::new(Ready { kernels, variant, task: *task, grid }))
    }
}

#[derive(Debug)]
struct Ready {
    kernels: Kernels,
    variant: Variant,
    task: Task,
    grid: Grid,
}

impl LikelihoodKernels for Ready {
    fn prepare(&self, workspace: &mut Workspace, sets: Sets<'_>) -> Result<()> {
        workspace.blocks.enlarge(self.grid.blocks.0 as usize)?;
        let Task { k, d, .. } = self.task;
        // The other parameters are part of the kernel's argument.
        let len = kind(&self.task).triangles(d, k);
        workspace.parameters.fill(len, |to| layout::small_k_triangles(&sets.apart()[0], to))
    }

    fn start<'a>(&self, work: Work<'a>, sets: Sets<'_>) -> Result<Running<'a, ()>> {
        let Work { stream, workspace, columns, .. } = work;
        let cached_quads = self.variant.cached_quads(self.task.d);
        let (triangles, output) = (workspace.parameters.device(), workspace.output());
        let memory = Memory { columns, cached_quads, triangles, output };
        self.kernels.start(stream, self.grid, kind(&self.task), &sets.apart()[0], memory)
    }
}

pub fn kind(task: &Task) -> Kind {
    match task.covariance {
        Covariance::Tied => Kind::Tied,
        Covariance::Full => Kind::Full,
        _ if task.gaps => Kind::Observed,
        _ => Kind::Diagonal,
    }
}

/// The memory of a launch besides the components.
#[derive(Clone, Copy)]
pub struct Memory<'a> {
    pub columns: Columns<'a>,
    pub cached_quads: u32,
    /// The triangles of the components, as [`layout::small_k_triangles`] writes them.
    pub triangles: Numbers<'a, f32>,
    pub output: Output<'a>,
}

/// A launch over components of `ROW` numbers.
#[derive(Clone, Copy)]
struct SmallK<'a, const ROW: usize> {
    components: [[f32; ROW]; COMPONENTS],
    k: usize,
    kind: Kind,
    memory: Memory<'a>,
}

// D is the one whose components have `ROW` numbers.
launch!([const ROW: usize], SmallK<'_, ROW>, SmallKArgs<ROW>, "small_k", |launch, grid, what| {
    let (k, kind, Memory { columns, cached_quads, triangles, output }) = (launch.k, launch.kind, launch.memory);
    let d = columns.d();
    require(what, kind.row(d) == ROW && k <= COMPONENTS)?;
    grid.require_shared(what, kind.shared_bytes(d, k, grid.threads))?;
    Ok(SmallKArgs {
        components: launch.components,
        k: kind.count(k) as u32,
        triangles: triangles.read(kind.triangles(d, k), what)?,
        columns: columns.argument(cached_quads),
        sample_weights: columns.weights(),
        output: output.argument(grid.blocks.0)?,
    })
});

/// Makes one instance for each size of a component.
macro_rules! instances {
    ($($name:ident $row:literal),*) => {
        #[derive(Debug, Clone, Copy)]
        pub enum Kernels {
            $(
                /// Components of this many numbers.
                $name(Kernel<SmallKArgs<$row>>)
            ),*
        }

        impl Kernels {
            pub fn new(gpu: &Gpu, d: usize, kind: Kind, max_registers: u32) -> Result<Self> {
                $(
                    if let Some(entry) = entries::small_k::<$row>(d, kind) {
                        return Ok(Self::$name(gpu.kernel(&entry, Some(max_registers))?));
                    }
                )*
                Err(mismatch("the features of `small_k`", vec![16], vec![d]))
            }

            pub fn start<'a>(
                &self,
                stream: &'a Stream,
                grid: Grid,
                kind: Kind,
                parameters: &DeviceParameters<f32>,
                memory: Memory<'a>,
            ) -> Result<Running<'a, ()>> {
                let k = parameters.n_components;
                match self {
                    $(Self::$name(kernel) => {
                        let components = layout::small_k_components::<$row>(parameters);
                        Ok(stream.launch(*kernel, grid, SmallK { components, k, kind, memory })?.borrowed())
                    })*
                }
            }
        }
    };
}
instances!(
    Row4 4, Row8 8, Row12 12, Row16 16, Row20 20, Row24 24, Row28 28, Row32 32, Row36 36, Row40 40, Row44 44, Row48 48, Row52 52
);
