//! `small_k`: a total for K ≤ 8 and D ≤ 16. The parameters are part of the kernel's argument, so that no copy to the device is
//! needed.
use super::layout;
use crate::Result;
use crate::backends::cuda::device::gpu::Gpu;
use crate::backends::cuda::device::kernel::{Grid, Kernel, Launch};
use crate::backends::cuda::device::memory::Output;
use crate::backends::cuda::device::mismatch;
use crate::backends::cuda::device::samples::Columns;
use crate::backends::cuda::device::stream::{Running, Stream};
use crate::backends::cuda::plan::even;
use crate::backends::device_parameters::DeviceParameters;
use gmm_kernels::entries;
use gmm_kernels::likelihood::small_k::{COMPONENTS, SmallKArgs, row, shared_bytes};

/// A launch over components of `ROW` numbers.
#[derive(Clone, Copy)]
struct SmallK<'a, const ROW: usize> {
    components: [[f32; ROW]; COMPONENTS],
    k: usize,
    columns: Columns<'a>,
    cached_quads: u32,
    output: Output<'a>,
}

// SAFETY: the columns' lengths were checked when they were made, and `Output` checks its own; D is the one whose components
// have `ROW` numbers, and the shared memory is what the kernel asks for.
unsafe impl<const ROW: usize> Launch for SmallK<'_, ROW> {
    type Argument = SmallKArgs<ROW>;

    fn argument(&self, grid: &Grid) -> Result<SmallKArgs<ROW>> {
        let d = self.columns.d();
        if row(d) != ROW || self.k > COMPONENTS || grid.shared < shared_bytes(d, grid.threads) {
            return Err(mismatch("a launch of `small_k`", vec![ROW, COMPONENTS], vec![row(d), self.k]));
        }
        Ok(SmallKArgs {
            components: self.components,
            k: even(self.k) as u32,
            columns: self.columns.argument(self.cached_quads),
            output: self.output.argument(grid.blocks.0)?,
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
            pub fn new(gpu: &Gpu, d: usize, max_registers: Option<u32>) -> Result<Self> {
                $(
                    if let Some(entry) = entries::small_k::<$row>(d) {
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
                columns: Columns<'a>,
                cached_quads: u32,
                output: Output<'a>,
            ) -> Result<Running<'a, ()>> {
                let k = parameters.n_components;
                match self {
                    $(Self::$name(kernel) => {
                        let components = layout::small_k_components::<$row>(parameters);
                        let launch = SmallK { components, k, columns, cached_quads, output };
                        Ok(stream.launch(*kernel, grid, launch)?.borrowed())
                    })*
                }
            }
        }
    };
}
instances!(Row4 4, Row8 8, Row12 12, Row16 16, Row20 20, Row24 24, Row28 28, Row32 32, Row36 36);
