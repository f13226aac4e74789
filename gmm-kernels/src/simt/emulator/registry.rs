//! The kernels of this crate by name, like a module of PTX, for launches by name.
use super::{BACKWARDS, Memory, launch, launch_together};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The shape of a launch.
#[derive(Debug, Clone, Copy)]
pub struct LaunchShape {
    /// Blocks along x and y.
    pub grid: (u32, u32),
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared_bytes: usize,
    /// Whether all blocks run at the same time: a cooperative launch, along x.
    pub together: bool,
}

/// A kernel that takes its one argument through a pointer.
pub struct Registered {
    /// The name of its entry.
    pub name: &'static str,
    /// The size of its argument in bytes.
    pub argument_bytes: usize,
    run: unsafe fn(LaunchShape, &Memory<'_>, *const u8),
}

/// All kernels, each added by `kernel!`.
#[linkme::distributed_slice]
pub static KERNELS: [Registered];

impl Registered {
    /// Takes a kernel and the function that launches it by [`run`].
    pub const fn new(
        name: &'static str,
        argument_bytes: usize,
        run: unsafe fn(LaunchShape, &Memory<'_>, *const u8),
    ) -> Self {
        Self { name, argument_bytes, run }
    }

    /// Launches the kernel, backwards in every other launch of this host thread.
    ///
    /// # Panics
    /// As [`launch`](super::launch()).
    ///
    /// # Safety
    /// As [`launch`](super::launch()); `argument` points to the kernel's argument.
    pub unsafe fn launch(&self, shape: LaunchShape, memory: &Memory<'_>, argument: *const u8) {
        std::thread_local! {
            static NEXT: RefCell<BTreeMap<&'static str, bool>> = const { RefCell::new(BTreeMap::new()) };
        }
        NEXT.with_borrow_mut(|next| {
            let backwards = next.entry(self.name).or_default();
            BACKWARDS.set(*backwards);
            *backwards = !*backwards;
        });
        // SAFETY: the caller guarantees it.
        unsafe { (self.run)(shape, memory, argument) }
    }
}

/// Launches a kernel with the argument that `argument` points to.
///
/// # Panics
/// As [`launch`](super::launch()).
///
/// # Safety
/// As [`launch`](super::launch()); `argument` points to an `A`.
pub unsafe fn run<A: Copy>(shape: LaunchShape, memory: &Memory<'_>, argument: *const u8, kernel: unsafe fn(A)) {
    let LaunchShape { grid, threads, shared_bytes, together } = shape;
    // SAFETY: the caller guarantees it.
    unsafe {
        let argument = argument.cast::<A>().read_unaligned();
        if together {
            launch_together(grid.0, threads, shared_bytes, memory, kernel, argument);
        } else {
            launch(grid, threads, shared_bytes, memory, kernel, argument);
        }
    }
}
