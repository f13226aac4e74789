//! The macro that implements launches, with their safety argument.

/// Implements [`Launch`](super::kernel::Launch):
/// `launch!(Copy<'_>, CopyArgs, "copy", |launch, grid, what| ...)`, from the launch's type, its
/// argument's, the kernel's name, and what makes the argument for a grid, where `what` is the launch
/// in errors. Types of elements, if there are, stand before these in brackets.
///
/// What makes an argument follows one rule, to which the safety of all launches comes down: it asks
/// for each pointer with the length that the kernel's documentation asks for
/// ([`Numbers::read`](super::memory::Numbers::read) and its like), takes one from what has checked
/// its own ([`Columns`](super::samples::Columns), [`Output`](super::workspace::Output), `Exponents`),
/// or gives null where the kernel takes it; and it refuses a grid or shape that the kernel does not
/// take.
macro_rules! launch {
    ([const $row:ident: usize], $launch:ty, $($rest:tt)*) => {
        $crate::device::launch::launch!(@ [const $row: usize], $launch, $($rest)*);
    };
    ([$($element:ident),*], $launch:ty, $($rest:tt)*) => {
        $crate::device::launch::launch!(
            @ [$($element: $crate::device::place::Element),*], $launch, $($rest)*
        );
    };
    (
        @ [$($generics:tt)*], $launch:ty, $argument:ty, $kernel:literal,
        |$this:ident, $grid:ident, $what:ident| $make:expr
    ) => {
        // SAFETY: no pointer is longer than the memory that was asked for it, by the rule above;
        // the launch borrows or owns that memory, since `Numbers`, `Columns` and `Slots` do. Memory
        // begins where the driver allocates it, at a multiple of 256 bytes, or at an element, quad
        // or section behind, as the kernels ask for. What a kernel writes belongs to one stream:
        // the host reads it only by a copy in that stream, or atomically.
        unsafe impl<$($generics)*> $crate::device::kernel::Launch for $launch {
            type Argument = $argument;

            fn argument(
                &self,
                grid: &$crate::device::kernel::Grid,
            ) -> gmm_core::error::Result<$argument> {
                let ($this, $grid, $what) = (self, grid, concat!("a launch of `", $kernel, "`"));
                $make
            }
        }
    };
    ($launch:ty, $($rest:tt)*) => {
        $crate::device::launch::launch!(@ [], $launch, $($rest)*);
    };
}
pub(crate) use launch;
