//! `small_k`: a total for K ≤ 8 and D ≤ 16. The components are part of the kernel's argument, so
//! that no copy to the device is needed, but for the triangles of full and tied covariances.
use super::layout;
use crate::Result;
use crate::backends::cuda::device::gpu::Gpu;
use crate::backends::cuda::device::kernel::{Grid, Kernel, Launch};
use crate::backends::cuda::device::memory::{Numbers, Output};
use crate::backends::cuda::device::mismatch;
use crate::backends::cuda::device::samples::Columns;
use crate::backends::cuda::device::stream::{Running, Stream};
use crate::backends::cuda::plan::Task;
use crate::backends::device_parameters::DeviceParameters;
use gmm_kernels::entries;
use gmm_kernels::likelihood::small_k::{COMPONENTS, Kind, SmallKArgs};

/// The kind of kernel for a task.
pub fn kind(task: &Task) -> Kind {
    match task {
        Task { tied: true, .. } => Kind::Tied,
        Task { full: true, .. } => Kind::Full,
        Task { gaps: true, .. } => Kind::Observed,
        _ => Kind::Diagonal,
    }
}

/// What a launch reads and writes besides the components.
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

// SAFETY: the columns' lengths were checked when they were made, and `Output` checks its own; D is
// the one whose components have `ROW` numbers, and the shared memory is what the kernel asks for.
unsafe impl<const ROW: usize> Launch for SmallK<'_, ROW> {
    type Argument = SmallKArgs<ROW>;

    fn argument(&self, grid: &Grid) -> Result<SmallKArgs<ROW>> {
        let Memory { columns, cached_quads, triangles, output } = self.memory;
        let d = columns.d();
        let (row, of_triangles) = (self.kind.row(d), self.kind.triangles(d, self.k));
        let shared = self.kind.shared_bytes(d, self.k, grid.threads);
        if row != ROW || self.k > COMPONENTS || of_triangles > triangles.len() || grid.shared < shared {
            let (needed, got) =
                (vec![ROW, COMPONENTS, of_triangles, shared], vec![row, self.k, triangles.len(), grid.shared]);
            return Err(mismatch("a launch of `small_k`", needed, got));
        }
        Ok(SmallKArgs {
            components: self.components,
            k: self.kind.count(self.k) as u32,
            triangles: triangles.pointer(),
            columns: columns.argument(cached_quads),
            sample_weights: columns.weights(),
            output: output.argument(grid.blocks.0)?,
        })
    }
}

/// One instance for each size that the numbers of a component can have.
macro_rules! instances {
    ($($name:ident $row:literal),*) => {
        /// A compiled kernel, by the size of a component.
        #[derive(Debug, Clone, Copy)]
        pub enum Kernels {
            $(
                /// Components of so many numbers.
                $name(Kernel<SmallKArgs<$row>>)
            ),*
        }

        impl Kernels {
            /// The kernel for D features.
            pub fn new(gpu: &Gpu, d: usize, kind: Kind, max_registers: Option<u32>) -> Result<Self> {
                $(
                    if let Some(entry) = entries::small_k::<$row>(d, kind) {
                        return Ok(Self::$name(gpu.kernel(&entry, max_registers)?));
                    }
                )*
                Err(mismatch("the features of `small_k`", vec![16], vec![d]))
            }

            /// Starts the evaluation of one parameter set.
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
