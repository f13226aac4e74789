//! The macro that implements launches, with their safety argument.

/// Implements [`Launch`](super::kernel::Launch): `launch!(Copy<'_>, CopyArgs, "copy", |launch, grid, what| ...)`, from
/// the launch's type, its argument's type, the kernel's name, and a function that makes the argument for a grid; `what`
/// names the launch in errors. Types of elements, if any, come first in brackets.
///
/// The safety of all launches rests on one rule for this function. It requests each pointer with the length that the
/// kernel's documentation requires ([`Numbers::read`](super::memory::Numbers::read) and its like), takes one from a
/// type that has checked its own ([`Columns`](super::samples::Columns), [`Output`](super::workspace::Output),
/// `Exponents`), or passes null if the kernel takes it; and it refuses a grid or shape that the kernel does not take.
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
        // SAFETY: by the rule above no pointer is longer than the memory requested for it, which the launch borrows or
        // owns, as `Numbers`, `Columns` and `Slots` do. Memory begins at a multiple of 256 bytes, where the driver
        // allocates it, or at an element, quad or section behind, as the kernels require. Memory that a kernel writes
        // belongs to one stream: the host reads it only by a copy in that stream, or atomically.
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
