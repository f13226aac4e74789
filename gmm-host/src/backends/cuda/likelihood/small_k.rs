//! `small_k`: a total for K ≤ 8 and D ≤ 16. The components are part of the kernel's argument, so that no copy to the device is
//! needed, but for the triangle of tied covariances.
use super::layout;
use crate::Result;
use crate::backends::cuda::device::gpu::Gpu;
use crate::backends::cuda::device::kernel::{Grid, Kernel, Launch};
use crate::backends::cuda::device::memory::{Numbers, Output};
use crate::backends::cuda::device::mismatch;
use crate::backends::cuda::device::samples::Columns;
use crate::backends::cuda::device::stream::{Running, Stream};
use crate::backends::cuda::plan::even;
use crate::backends::device_parameters::DeviceParameters;
use gmm_kernels::entries;
use gmm_kernels::likelihood::small_k::{COMPONENTS, SmallKArgs, row, shared_bytes, triangle};
use std::ptr;

/// What a launch reads and writes besides the components.
#[derive(Clone, Copy)]
pub struct Memory<'a> {
    pub columns: Columns<'a>,
    pub cached_quads: u32,
    /// The components' common triangle, if they have one.
    pub triangle: Option<Numbers<'a, f32>>,
    pub output: Output<'a>,
}

/// A launch over components of `ROW` numbers.
#[derive(Clone, Copy)]
struct SmallK<'a, const ROW: usize> {
    components: [[f32; ROW]; COMPONENTS],
    k: usize,
    /// Whether values are missing.
    gaps: bool,
    memory: Memory<'a>,
}

// SAFETY: the columns' lengths were checked when they were made, and `Output` checks its own; D is the one whose components
// have `ROW` numbers, and the shared memory is what the kernel asks for.
unsafe impl<const ROW: usize> Launch for SmallK<'_, ROW> {
    type Argument = SmallKArgs<ROW>;

    fn argument(&self, grid: &Grid) -> Result<SmallKArgs<ROW>> {
        let Memory { columns, cached_quads, triangle: a, output } = self.memory;
        let d = columns.d();
        let of_triangle = a.map_or(triangle(d), |a| a.len());
        let (row, shared) = (row(d, self.gaps), shared_bytes(d, a.is_some(), self.gaps, grid.threads));
        if row != ROW || self.k > COMPONENTS || of_triangle < triangle(d) || grid.shared < shared {
            let (needed, got) =
                (vec![ROW, COMPONENTS, triangle(d), shared], vec![row, self.k, of_triangle, grid.shared]);
            return Err(mismatch("a launch of `small_k`", needed, got));
        }
        Ok(SmallKArgs {
            components: self.components,
            k: even(self.k) as u32,
            triangle: a.map_or(ptr::null(), |a| a.pointer()),
            columns: columns.argument(cached_quads),
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
            /// The kernel for D features, of diagonal or tied covariances, or of diagonal ones for samples with missing values.
            pub fn new(gpu: &Gpu, d: usize, tied: bool, gaps: bool, max_registers: Option<u32>) -> Result<Self> {
                $(
                    if let Some(entry) = entries::small_k::<$row>(d, tied, gaps) {
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
                parameters: &DeviceParameters<f32>,
                memory: Memory<'a>,
            ) -> Result<Running<'a, ()>> {
                let (k, gaps) = (parameters.n_components, parameters.gaps.is_some());
                match self {
                    $(Self::$name(kernel) => {
                        let components = layout::small_k_components::<$row>(parameters);
                        Ok(stream.launch(*kernel, grid, SmallK { components, k, gaps, memory })?.borrowed())
                    })*
                }
            }
        }
    };
}
instances!(
    Row4 4, Row8 8, Row12 12, Row16 16, Row20 20, Row24 24, Row28 28, Row32 32, Row36 36, Row40 40, Row44 44, Row48 48, Row52 52
);
