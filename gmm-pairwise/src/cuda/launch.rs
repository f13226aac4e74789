//! The macro that implements launches, with their safety argument.

/// Implements [`Launch`](gmm_host::cuda::Launch):
/// `launch!(Copy<'_>, CopyArgs, "copy", |launch, grid, what| ...)`, from the launch's type, its
/// argument's, the kernel's name, and what makes the argument for a grid, where `what` is the launch
/// in errors.
///
/// What makes an argument asks for each pointer with the length that the kernel's documentation asks
/// for ([`Numbers::read`](gmm_host::cuda::Numbers::read) and its like), and refuses a grid or shape
/// that the kernel does not take: to this the safety of all launches comes down.
macro_rules! launch {
    ($launch:ty, $argument:ty, $kernel:literal, |$this:ident, $grid:ident, $what:ident| $make:expr) => {
        // SAFETY: no pointer is longer than the memory that was asked for it, by the rule above;
        // the launch borrows that memory, since `Numbers` do. Memory begins at a multiple of 256
        // bytes, and parts of it at a row, as the kernels ask for. What a kernel writes belongs to
        // the one queue of a resident set.
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
