//! Home 3: the host. A block runs as real threads with real barriers, blocks one after the other, so that tests
//! execute the code of every kernel, tails and reductions included. It is slow, and waits exactly where the device would.
//!
//! Every access to shared memory and to global memory ([`Memory`]) is checked. A thread that fails ends the launch: the
//! others leave at their next barrier, and the launch fails with the first one's message.
pub mod lane;
mod memory;
#[cfg(test)]
mod tests;

pub use memory::Memory;

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::string::{String, ToString};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::vec::Vec;

/// The state that all threads of a launch share.
struct Launch<'a> {
    memory: &'a Memory<'a>,
    grid: (u32, u32),
    block_dim: u32,
    shared_bytes: usize,
    failed: AtomicBool,
    /// Why the first thread failed.
    failure: Mutex<Option<String>>,
}

/// The panic payload of a thread that ends because another one has failed.
struct Left;

impl Launch<'_> {
    fn leave_if_failed(&self) {
        if self.failed.load(Ordering::Relaxed) {
            // Unlike `panic!`, this prints nothing.
            resume_unwind(std::boxed::Box::new(Left));
        }
    }

    /// Runs `work` of one thread, and notes if it fails.
    fn attempt(&self, thread: u32, work: impl FnOnce()) {
        let Err(reason) = catch_unwind(AssertUnwindSafe(work)) else { return };
        if !reason.is::<Left>() {
            let (x, y) = here().index;
            let message = std::format!("thread {thread} of block ({x}, {y}) failed: {}", text(&*reason));
            lock(&self.failure).get_or_insert(message);
            self.failed.store(true, Ordering::Relaxed);
        }
    }

    /// # Panics
    /// If a thread has failed.
    fn end(&self) {
        if let Some(failure) = lock(&self.failure).take() {
            panic!("{failure}");
        }
    }
}

/// The message of a panic.
fn text(reason: &(dyn Any + Send)) -> String {
    let text = reason.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| reason.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// Locks a mutex, even if a thread panicked: no code that panics runs under a lock, so that the value is consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A barrier. Unlike std's, it lets threads leave when another one has failed.
struct Meeting {
    threads: u32,
    state: Mutex<MeetingState>,
    all_are_here: Condvar,
}

struct MeetingState {
    waiting: u32,
    /// How often all threads have met.
    met: u64,
}

impl Meeting {
    fn of(threads: u32) -> Self {
        Self { threads, state: Mutex::new(MeetingState { waiting: 0, met: 0 }), all_are_here: Condvar::new() }
    }

    /// Waits for the others, and returns whether this thread was the last one.
    fn wait(&self, launch: &Launch) -> bool {
        /// How soon a waiting thread sees that another one has failed.
        const PATIENCE: Duration = Duration::from_millis(50);
        let mut state = lock(&self.state);
        state.waiting += 1;
        if state.waiting == self.threads {
            state.waiting = 0;
            state.met += 1;
            self.all_are_here.notify_all();
            return true;
        }
        let met = state.met;
        while state.met == met && !launch.failed.load(Ordering::Relaxed) {
            let woken = self.all_are_here.wait_timeout(state, PATIENCE).unwrap_or_else(PoisonError::into_inner);
            state = woken.0;
        }
        let all_came = state.met != met;
        drop(state);
        if !all_came {
            launch.leave_if_failed();
        }
        false
    }
}

struct Warp {
    meeting: Meeting,
    slots: [AtomicU32; 32],
    /// For exchanges of several numbers of each lane.
    wide: [[AtomicU32; 6]; 32],
}

struct Block<'a> {
    launch: &'a Launch<'a>,
    meeting: Meeting,
    warps: Vec<Warp>,
    shared: *mut u128,
}

#[derive(Clone, Copy)]
struct Here {
    block: *const Block<'static>,
    thread: u32,
    index: (u32, u32),
}

std::thread_local!(static HERE: Cell<Option<Here>> = const { Cell::new(None) });

fn here() -> Here {
    HERE.get().expect("kernels run under `launch` only")
}

fn block() -> &'static Block<'static> {
    // SAFETY: the block lives in `launch` until all its threads have ended, and only they come here.
    unsafe { &*here().block }
}

pub(crate) fn barrier() {
    block().meeting.wait(block().launch);
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
        let warp = |_| Warp {
            meeting: Meeting::of(super::WARP),
            slots: [const { AtomicU32::new(0) }; 32],
            wide: [const { [const { AtomicU32::new(0) }; 6] }; 32],
        };
        let warps = (0..threads / super::WARP).map(warp).collect();
        Self { launch, meeting: Meeting::of(threads), warps, shared: shared.as_mut_ptr() }
    }

    /// Makes the calling thread one of its threads.
    fn enter(&self, thread: u32, index: (u32, u32)) {
        HERE.set(Some(Here { block: std::ptr::from_ref(self).cast(), thread, index }));
    }
}

// SAFETY: all parts are synchronised except the shared memory, where the kernel must avoid races.
unsafe impl Sync for Block<'_> {}

/// A kernel with its arguments, as its threads share them.
struct Call<A> {
    kernel: unsafe fn(A),
    args: A,
}
// SAFETY: the arguments are copied to each thread; the kernel must synchronise what it accesses through their pointers.
unsafe impl<A: Copy> Sync for Call<A> {}

impl<A: Copy> Call<A> {
    /// # Safety
    /// Those of the kernel with these arguments.
    unsafe fn run(&self) {
        // SAFETY: the caller guarantees it.
        unsafe { (self.kernel)(self.args) }
    }
}

/// Runs `kernel` for every thread of a grid of `grid` (x, y) blocks of `block_dim` threads with `shared_bytes` of
/// dynamic shared memory, which holds NaN at the start of every block. One block runs after the other.
///
/// # Panics
/// If `block_dim` is not a positive multiple of the warp's 32 threads; if a thread of the kernel panics, or accesses memory
/// that is neither the block's shared memory nor an array of `memory`.
///
/// # Safety
/// Those of the kernel with these arguments, except the bounds of arrays, which are checked.
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
    let block = &Block::new(launch, &mut shared);
    let (call, words) = (&Call { kernel, args }, shared.len());
    let run = move |thread| {
        for index in (0..grid.1).flat_map(|y| (0..grid.0).map(move |x| (x, y))) {
            block.enter(thread, index);
            // SAFETY: the caller guarantees it.
            unsafe { call.run() };
            if block.meeting.wait(launch) {
                // SAFETY: all other threads wait at the next barrier; the length is the allocation's.
                unsafe { std::slice::from_raw_parts_mut(block.shared, words).fill(POISON) };
            }
            block.meeting.wait(launch);
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..block_dim {
            scope.spawn(move || launch.attempt(thread, || run(thread)));
        }
    });
    launch.end();
}

/// As [`launch`], with all of the `grid` blocks at the same time: a cooperative launch.
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
    let call = &Call { kernel, args };
    std::thread::scope(|scope| {
        for (x, block) in (0..).zip(&blocks) {
            for thread in 0..block_dim {
                let run = move || {
                    block.enter(thread, (x, 0));
                    // SAFETY: the caller guarantees it.
                    unsafe { call.run() }
                };
                scope.spawn(move || launch.attempt(thread, run));
            }
        }
    });
    launch.end();
}

fn new_launch<'a>(grid: (u32, u32), block_dim: u32, shared_bytes: usize, memory: &'a Memory<'a>) -> Launch<'a> {
    Launch { memory, grid, block_dim, shared_bytes, failed: AtomicBool::new(false), failure: Mutex::new(None) }
}

/// Index and size of the emulated block.
#[cfg_attr(feature = "rust-cuda", allow(dead_code))]
pub mod block {
    /// Index of the thread in its block.
    pub fn thread_idx() -> u32 {
        super::here().thread
    }
    /// Index of the block along x.
    pub fn block_idx() -> u32 {
        super::here().index.0
    }
    /// Index of the block along y.
    pub fn block_idx_y() -> u32 {
        super::here().index.1
    }
    /// Number of threads of a block.
    pub fn block_dim() -> u32 {
        super::block().launch.block_dim
    }
    /// Number of blocks along x.
    pub fn grid_dim() -> u32 {
        super::block().launch.grid.0
    }
    /// Number of blocks along y.
    pub fn grid_dim_y() -> u32 {
        super::block().launch.grid.1
    }
}
