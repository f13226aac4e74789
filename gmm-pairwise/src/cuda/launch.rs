//! The macro that implements launches, with their safety argument.

/// Implements [`Launch`](gmm_host::cuda::Launch): `launch!(Copy<'_>, CopyArgs, "copy", |launch, grid, what| ...)`, from
/// the type of the launch, the type of its argument, the kernel's name, and a closure that makes the argument for a
/// grid. `what` names the launch in errors.
///
/// The closure requests each pointer with the length that the kernel's documentation requires
/// ([`Numbers::read`](gmm_host::cuda::Numbers::read) and similar), and refuses a grid or shape that the kernel does not
/// take. The safety of all launches rests on this.
macro_rules! launch {
    ($launch:ty, $argument:ty, $kernel:literal, |$this:ident, $grid:ident, $what:ident| $make:expr) => {
        // SAFETY: by the rule above, no pointer is longer than its memory, which the launch borrows, as `Numbers` do.
        // Memory begins at a multiple of 256 bytes, and parts of it at a row, as the kernels require. A kernel writes
        // only memory of the one queue of a resident set.
        unsafe impl gmm_host::cuda::Launch for $launch {
            type Argument = $argument;

            fn argument(&self, grid: &gmm_host::cuda::Grid) -> gmm_host::Result<$argument> {
                let ($this, $grid, $what) = (self, grid, concat!("a launch of `", $kernel, "`"));
                $make
            }
        }
    };
}
pub(super) use launch;
