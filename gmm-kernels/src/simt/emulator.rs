//! Home 3: the host. The threads of a block are coroutines that one host thread resumes in turn: each runs up to the
//! next barrier that others have not reached. Blocks run one after the other. So tests execute the code of every
//! kernel, including tails and reductions.
//!
//! Every access to shared memory and to global memory ([`Memory`]) is checked. A thread that fails ends the launch: the
//! others leave at their next barrier, and the launch fails with the first one's message. It also fails if all threads
//! wait for each other.
//!
//! Every other launch of a host thread resumes the threads from the last to the first: if two threads race because a
//! barrier is missing, each is first in one of two launches.
pub mod driver;
pub mod lane;
mod memory;
mod registry;
#[cfg(test)]
mod tests;

pub use memory::Memory;
pub use registry::{KERNELS, LaunchShape, Registered, run};

use corosensei::{Coroutine, Yielder};
use std::any::Any;
use std::boxed::Box;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::string::{String, ToString};
use std::vec::Vec;

std::thread_local! {
    /// Whether this host thread's next launch runs backwards.
    static BACKWARDS: Cell<bool> = const { Cell::new(false) };
}

/// The state that all threads of a launch share.
#[cfg_attr(feature = "rust-cuda", allow(dead_code))]
pub(super) struct Launch<'a> {
    memory: &'a Memory<'a>,
    pub(super) grid: (u32, u32),
    pub(super) block_dim: u32,
    shared_bytes: usize,
    /// The first thread's failure.
    failure: RefCell<Option<String>>,
    /// Whether a thread has progressed since this was cleared.
    progress: Cell<bool>,
}

/// The panic payload of a thread that ends because another has failed.
struct Left;

impl Launch<'_> {
    fn leave_if_failed(&self) {
        if self.failure.borrow().is_some() {
            // Unlike `panic!`, this prints nothing.
            resume_unwind(Box::new(Left));
        }
    }

    /// Runs the `work` of one thread, and records a failure.
    fn attempt(&self, thread: u32, work: impl FnOnce()) {
        let Err(reason) = catch_unwind(AssertUnwindSafe(work)) else { return };
        if !reason.is::<Left>() {
            let (x, y) = here().index;
            self.fail(std::format!("thread {thread} of block ({x}, {y}) failed: {}", text(&*reason)));
        }
    }

    /// Makes the launch fail, unless it has failed before.
    fn fail(&self, message: String) {
        self.failure.borrow_mut().get_or_insert(message);
    }

    /// Resumes the threads in turn until all have ended.
    ///
    /// # Panics
    /// If a thread has failed.
    fn run(&self, threads: Vec<Box<dyn FnOnce() + '_>>) {
        let start = |thread: Box<dyn FnOnce() + '_>| {
            // SAFETY: the coroutine ends before this function returns, which borrows all that the thread borrows.
            let thread: Box<dyn FnOnce() + 'static> = unsafe { std::mem::transmute(thread) };
            Coroutine::new(move |yielder: &Yielder<(), ()>, ()| {
                YIELDER.set(yielder);
                thread();
            })
        };
        let mut running: Vec<_> = threads.into_iter().map(start).collect();
        if BACKWARDS.replace(!BACKWARDS.get()) {
            running.reverse();
        }
        while !running.is_empty() {
            self.progress.set(false);
            let before = running.len();
            running.retain_mut(|thread| thread.resume(()).as_yield().is_some());
            if running.len() == before && !self.progress.get() {
                self.fail("all threads wait for others at a barrier".into());
            }
        }
        if let Some(failure) = self.failure.take() {
            panic!("{failure}");
        }
    }
}

/// The message of a panic.
fn text(reason: &(dyn Any + Send)) -> String {
    let text = reason.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| reason.downcast_ref::<String>().cloned()).unwrap_or_default()
}

struct Meeting {
    threads: Cell<u32>,
    waiting: Cell<u32>,
    /// The number of times that all threads have met.
    met: Cell<u64>,
}

impl Meeting {
    fn of(threads: u32) -> Self {
        Self { threads: Cell::new(threads), waiting: Cell::new(0), met: Cell::new(0) }
    }

    /// Waits for the others, and returns whether this thread came last.
    fn wait(&self, launch: &Launch) -> bool {
        launch.progress.set(true);
        self.waiting.set(self.waiting.get() + 1);
        let met = self.met.get();
        if self.waiting.get() == self.threads.get() {
            self.waiting.set(0);
            self.met.set(met + 1);
            return true;
        }
        while self.met.get() == met {
            launch.leave_if_failed();
            suspend();
        }
        launch.progress.set(true);
        false
    }
}

struct Warp {
    meeting: Meeting,
    /// The numbers of each lane in an exchange.
    slots: [[Cell<u32>; 6]; 32],
}

pub(super) struct Block<'a> {
    pub(super) launch: &'a Launch<'a>,
    meeting: Meeting,
    /// The barriers 1 to 15, of some warps.
    of_warps: [Meeting; 15],
    warps: Vec<Warp>,
    shared: *mut u128,
}

#[derive(Clone, Copy)]
pub(super) struct Here {
    block: *const Block<'static>,
    pub(super) thread: u32,
    pub(super) index: (u32, u32),
}

std::thread_local! {
    /// The current thread.
    static HERE: Cell<Option<Here>> = const { Cell::new(None) };
    /// Suspends the current thread.
    static YIELDER: Cell<*const Yielder<(), ()>> = const { Cell::new(std::ptr::null()) };
}

/// Lets the other threads run.
fn suspend() {
    let (here, yielder) = (HERE.get(), YIELDER.get());
    assert!(!yielder.is_null(), "kernels run under `launch` only");
    // SAFETY: the current coroutine has set it, here or when it started.
    unsafe { (*yielder).suspend(()) };
    HERE.set(here);
    YIELDER.set(yielder);
}

pub(super) fn here() -> Here {
    HERE.get().expect("kernels run under `launch` only")
}

pub(super) fn block() -> &'static Block<'static> {
    // SAFETY: the block lives in `launch` until all its threads have ended, and only they call this.
    unsafe { &*here().block }
}

pub(crate) fn barrier() {
    block().meeting.wait(block().launch);
}

/// Waits for `threads` threads at one of the barriers 1 to 15.
pub(crate) fn barrier_of(id: u32, threads: u32) {
    let block = block();
    let meeting = &block.of_warps[id as usize - 1];
    let others = meeting.threads.replace(threads);
    assert!(meeting.waiting.get() == 0 || others == threads, "barrier {id} is for {others} threads and for {threads}");
    assert!(threads > 0 && threads.is_multiple_of(super::WARP), "a barrier is for whole warps");
    meeting.wait(block.launch);
}

const POISON: u128 = u128::MAX;

/// Shared memory of a block, full of NaN.
fn poisoned(bytes: usize) -> Vec<u128> {
    std::vec![POISON; bytes.div_ceil(16).max(1)]
}

impl<'a> Block<'a> {
    fn new(launch: &'a Launch<'a>, shared: &mut [u128]) -> Self {
        let threads = launch.block_dim;
        assert!(threads > 0 && threads.is_multiple_of(super::WARP), "a block has whole warps");
        let warp = |_| Warp { meeting: Meeting::of(super::WARP), slots: [const { [const { Cell::new(0) }; 6] }; 32] };
        let warps = (0..threads / super::WARP).map(warp).collect();
        let of_warps = std::array::from_fn(|_| Meeting::of(0));
        Self { launch, meeting: Meeting::of(threads), of_warps, warps, shared: shared.as_mut_ptr() }
    }

    /// Makes the caller a thread of this block.
    fn enter(&self, thread: u32, index: (u32, u32)) {
        HERE.set(Some(Here { block: std::ptr::from_ref(self).cast(), thread, index }));
    }
}

/// Runs `kernel` for every thread of a grid of `grid` (x, y) blocks of `block_dim` threads with `shared_bytes` of
/// dynamic shared memory, which holds NaN at the start of every block. Blocks run one after the other.
///
/// # Panics
/// If `block_dim` is not a positive multiple of the warp's 32 threads; if a thread of the kernel panics, or accesses
/// memory outside of the block's shared memory and the arrays of `memory`.
///
/// # Safety
/// As for the kernel with these arguments, except the bounds of arrays, which are checked.
pub unsafe fn launch<A: Copy>(
    grid: (u32, u32),
    block_dim: u32,
    shared_bytes: usize,
    memory: &Memory,
    kernel: unsafe fn(A),
    args: A,
) {
    let launch = &new_launch(grid, block_dim, shared_bytes, memory);
    let mut shared = poisoned(shared_bytes);
    let words = shared.len();
    let block = &Block::new(launch, &mut shared);
    let run = move |thread| {
        for index in (0..grid.1).flat_map(|y| (0..grid.0).map(move |x| (x, y))) {
            block.enter(thread, index);
            // SAFETY: the caller guarantees it.
            unsafe { kernel(args) };
            if block.meeting.wait(launch) {
                // SAFETY: all other threads wait at the next barrier; the length is the allocation's.
                unsafe { std::slice::from_raw_parts_mut(block.shared, words).fill(POISON) };
            }
            block.meeting.wait(launch);
        }
    };
    launch.run((0..block_dim).map(|thread| Box::new(move || launch.attempt(thread, || run(thread))) as _).collect());
}

/// As [`launch`], with all `grid` blocks at the same time: a cooperative launch.
///
/// # Panics
/// As [`launch`].
///
/// # Safety
/// As [`launch`].
pub unsafe fn launch_together<A: Copy>(
    grid: u32,
    block_dim: u32,
    shared_bytes: usize,
    memory: &Memory,
    kernel: unsafe fn(A),
    args: A,
) {
    let launch = &new_launch((grid, 1), block_dim, shared_bytes, memory);
    let mut shared: Vec<_> = (0..grid).map(|_| poisoned(shared_bytes)).collect();
    let blocks: Vec<_> = shared.iter_mut().map(|shared| Block::new(launch, shared)).collect();
    let mut threads: Vec<Box<dyn FnOnce() + '_>> = Vec::new();
    for (x, block) in (0..).zip(&blocks) {
        for thread in 0..block_dim {
            let run = move || {
                block.enter(thread, (x, 0));
                // SAFETY: the caller guarantees it.
                unsafe { kernel(args) }
            };
            threads.push(Box::new(move || launch.attempt(thread, run)));
        }
    }
    launch.run(threads);
}

fn new_launch<'a>(grid: (u32, u32), block_dim: u32, shared_bytes: usize, memory: &'a Memory<'a>) -> Launch<'a> {
    let (failure, progress) = (RefCell::new(None), Cell::new(false));
    Launch { memory, grid, block_dim, shared_bytes, failure, progress }
}
