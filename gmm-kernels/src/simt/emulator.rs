//! Home 3: the host. A block runs as real threads with real barriers, blocks one after the other, so that tests
//! execute every kernel's own code, tails and reductions included. Slow, and exact about who waits for whom.
use std::cell::Cell;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::vec::Vec;

struct Warp {
    barrier: Barrier,
    slots: [AtomicU32; 32],
}

struct Block {
    barrier: Barrier,
    warps: Vec<Warp>,
    shared: *mut u128,
    shared_bytes: usize,
    block_dim: u32,
    grid: (u32, u32),
}

#[derive(Clone, Copy)]
struct Here {
    block: *const Block,
    thread: u32,
    index: (u32, u32),
}

std::thread_local!(static HERE: Cell<Option<Here>> = const { Cell::new(None) });

fn here() -> Here {
    HERE.get().expect("kernels run under `launch` only")
}

fn block() -> &'static Block {
    // SAFETY: `launch` keeps the block alive until all its threads have ended, and only they come here.
    unsafe { &*here().block }
}

pub(crate) fn barrier() {
    block().barrier.wait();
}

const POISON: u128 = u128::MAX;

/// Shared memory of a block, full of NaN.
fn poisoned(bytes: usize) -> Vec<u128> {
    std::vec![POISON; bytes.div_ceil(16).max(1)]
}

impl Block {
    fn new(grid: (u32, u32), block_dim: u32, shared: &mut [u128], shared_bytes: usize) -> Self {
        assert!(block_dim > 0 && block_dim.is_multiple_of(super::WARP), "a block has whole warps");
        let warp = |_| Warp { barrier: Barrier::new(32), slots: [const { AtomicU32::new(0) }; 32] };
        let warps = (0..block_dim / super::WARP).map(warp).collect();
        let barrier = Barrier::new(block_dim as usize);
        Self { barrier, warps, shared: shared.as_mut_ptr(), shared_bytes, block_dim, grid }
    }

    /// Runs the kernel as one of its threads.
    fn run(&self, thread: u32, index: (u32, u32), kernel: &(impl Fn() + Sync)) {
        HERE.set(Some(Here { block: self, thread, index }));
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(kernel)).is_err() {
            std::eprintln!("thread {thread} of block {index:?} panicked");
            std::process::abort();
        }
    }
}

// SAFETY: the parts are synchronised, but for the shared memory, whose races are the kernel's to avoid.
unsafe impl Sync for Block {}

/// Runs `kernel` for every thread of a grid of `grid` (x, y) blocks of `block_dim` threads with `shared_bytes` of
/// dynamic shared memory, which holds NaN at the start of every block. One block runs after the other.
///
/// # Panics
/// If `block_dim` is not a positive multiple of the warp's 32 threads. A panic inside the kernel ends the process: the
/// other threads of the block would wait for the one that is gone.
pub fn launch(grid: (u32, u32), block_dim: u32, shared_bytes: usize, kernel: impl Fn() + Sync) {
    let mut shared = poisoned(shared_bytes);
    let block = Block::new(grid, block_dim, &mut shared, shared_bytes);
    let (block, kernel, words) = (&block, &kernel, shared.len());
    std::thread::scope(|scope| {
        for thread in 0..block_dim {
            scope.spawn(move || {
                for index in (0..grid.1).flat_map(|y| (0..grid.0).map(move |x| (x, y))) {
                    block.run(thread, index, kernel);
                    if block.barrier.wait().is_leader() {
                        // SAFETY: all other threads wait at the next barrier; the length is the allocation's.
                        unsafe { std::slice::from_raw_parts_mut(block.shared, words).fill(POISON) };
                    }
                    block.barrier.wait();
                }
            });
        }
    });
}

/// As [`launch`], with all of the `grid` blocks at the same time: a cooperative launch.
///
/// # Panics
/// As [`launch`].
pub fn launch_together(grid: u32, block_dim: u32, shared_bytes: usize, kernel: impl Fn() + Sync) {
    let mut shared: Vec<_> = (0..grid).map(|_| poisoned(shared_bytes)).collect();
    let blocks: Vec<_> = shared.iter_mut().map(|s| Block::new((grid, 1), block_dim, s, shared_bytes)).collect();
    let kernel = &kernel;
    std::thread::scope(|scope| {
        for (x, block) in (0..).zip(&blocks) {
            for thread in 0..block_dim {
                scope.spawn(move || block.run(thread, (x, 0), kernel));
            }
        }
    });
}

/// Index, size and shared memory of the emulated block.
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
        super::block().block_dim
    }
    /// Number of blocks along x.
    pub fn grid_dim() -> u32 {
        super::block().grid.0
    }
    /// Number of blocks along y.
    pub fn grid_dim_y() -> u32 {
        super::block().grid.1
    }
}

/// Arithmetic, loads, shuffles and atomics of one thread.
pub mod lane {
    use super::*;

    /// a·b + c, rounded once.
    pub fn fma(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
    /// a·b + c in float64, rounded once.
    pub fn fma64(a: f64, b: f64, c: f64) -> f64 {
        a.mul_add(b, c)
    }
    /// 2^x, 0 below 2^-126 as on the device.
    pub fn exp2(x: f32) -> f32 {
        if x < -126.0 { 0.0 } else { x.exp2() }
    }
    /// log₂ x.
    pub fn log2(x: f32) -> f32 {
        x.log2()
    }
    /// The larger of two numbers.
    pub fn max(a: f32, b: f32) -> f32 {
        a.max(b)
    }
    /// The smaller of two numbers.
    pub fn min(a: f32, b: f32) -> f32 {
        a.min(b)
    }
    /// The largest integer not above x, as a number.
    pub fn floor(x: f32) -> f32 {
        x.floor()
    }
    /// `x`.
    pub fn opaque(x: u32) -> u32 {
        x
    }
    /// The host has no such policy.
    #[derive(Clone, Copy)]
    pub struct CachePolicy;
    /// Keep: the next launch reads it again.
    pub fn policy_keep() -> CachePolicy {
        CachePolicy
    }
    /// Stream: let it go first.
    pub fn policy_stream() -> CachePolicy {
        CachePolicy
    }
    /// Four numbers in one 16-byte read of global memory.
    ///
    /// # Safety
    /// `p` is aligned to 16 bytes and readable for 16 bytes.
    pub unsafe fn load4(p: *const f32, _policy: CachePolicy) -> [f32; 4] {
        // SAFETY: the caller's.
        unsafe { load_f32x4(p) }
    }
    /// Reads, with their alignment checked.
    unsafe fn read<T: Copy>(p: *const u8, align: usize) -> T {
        assert!((p as usize).is_multiple_of(align), "a load must be aligned");
        // SAFETY: the caller's.
        unsafe { p.cast::<T>().read() }
    }
    /// Four bytes.
    ///
    /// # Safety
    /// `p` is readable.
    pub unsafe fn load_u32(p: *const u32) -> u32 {
        // SAFETY: the caller's.
        unsafe { read(p.cast(), 4) }
    }
    /// Eight bytes.
    ///
    /// # Safety
    /// `p` is readable.
    pub unsafe fn load_u64(p: *const u64) -> u64 {
        // SAFETY: the caller's.
        unsafe { read(p.cast(), 8) }
    }
    /// Four float32 numbers in one 16-byte read of global memory.
    ///
    /// # Safety
    /// `p` is readable for 16 bytes.
    pub unsafe fn load_f32x4(p: *const f32) -> [f32; 4] {
        // SAFETY: the caller's.
        unsafe { read(p.cast(), 16) }
    }
    /// Two float64 numbers in one 16-byte read of global memory.
    ///
    /// # Safety
    /// `p` is readable for 16 bytes.
    pub unsafe fn load_f64x2(p: *const f64) -> [f64; 2] {
        // SAFETY: the caller's.
        unsafe { read(p.cast(), 16) }
    }
    /// Writes four numbers to global memory at once.
    ///
    /// # Safety
    /// `p` is aligned to 16 bytes and writable for 16 bytes.
    pub unsafe fn store4(p: *mut f32, v: [f32; 4]) {
        assert!((p as usize).is_multiple_of(16), "a wide store must be aligned");
        // SAFETY: the caller's.
        unsafe { p.cast::<[f32; 4]>().write(v) }
    }
    /// A place in the block's dynamic shared memory, as numbers of type `T`. Every access is checked.
    #[derive(Clone, Copy)]
    pub struct Shared<T> {
        bytes: usize,
        element: std::marker::PhantomData<T>,
    }
    impl<T: Copy> Shared<T> {
        /// The place `bytes` behind the start.
        pub fn at(bytes: usize) -> Self {
            Self { bytes, element: std::marker::PhantomData }
        }
        /// The place `count` elements further on.
        pub fn offset(self, count: usize) -> Self {
            Self::at(self.bytes + count * size_of::<T>())
        }
        fn pointer<U>(self, i: usize) -> *mut U {
            let start = self.offset(i).bytes;
            assert!(start + size_of::<U>() <= block().shared_bytes, "past the end of the shared memory");
            assert!(start.is_multiple_of(size_of::<U>()), "a shared access must be aligned");
            // SAFETY: inside the block's allocation.
            unsafe { block().shared.cast::<u8>().add(start).cast() }
        }
        /// Element `i`.
        ///
        /// # Safety
        /// No other thread writes it at the same time.
        pub unsafe fn get(self, i: usize) -> T {
            // SAFETY: inside and aligned; races are the caller's.
            unsafe { self.pointer::<T>(i).read() }
        }
        /// Writes element `i`.
        ///
        /// # Safety
        /// No other thread accesses it at the same time.
        pub unsafe fn set(self, i: usize, v: T) {
            // SAFETY: inside and aligned; races are the caller's.
            unsafe { self.pointer::<T>(i).write(v) }
        }
    }
    impl Shared<f32> {
        /// The same place.
        pub fn in_thread_register(self) -> Self {
            self
        }
        /// Elements `i` to `i + 3`.
        ///
        /// # Safety
        /// No other thread writes them at the same time.
        pub unsafe fn get4(self, i: usize) -> [f32; 4] {
            // SAFETY: inside and aligned; races are the caller's.
            unsafe { self.pointer::<[f32; 4]>(i).read() }
        }
        /// P elements from `i` on.
        ///
        /// # Safety
        /// No other thread writes them at the same time.
        pub unsafe fn get_some<const P: usize>(self, i: usize) -> [f32; P] {
            // SAFETY: the caller's.
            std::array::from_fn(|p| unsafe { self.get(i + p) })
        }
        /// Writes elements `i` to `i + 3`.
        ///
        /// # Safety
        /// No other thread accesses them at the same time.
        pub unsafe fn set4(self, i: usize, v: [f32; 4]) {
            // SAFETY: inside and aligned; races are the caller's.
            unsafe { self.pointer::<[f32; 4]>(i).write(v) }
        }
        /// Copies four numbers of global memory to elements `i` to `i + 3`, at once.
        ///
        /// # Safety
        /// `from` is aligned to 16 bytes and readable for 16 bytes; no other thread accesses the elements.
        pub unsafe fn copy4(self, i: usize, from: *const f32, policy: CachePolicy) {
            // SAFETY: the caller's.
            unsafe { self.pointer::<[f32; 4]>(i).write(load4(from, policy)) }
        }
    }
    /// Ends a group of the thread's copies.
    pub fn copies_commit() {}
    /// Waits until all of the thread's copies have arrived.
    pub fn copies_wait() {}
    /// Waits until all but the latest group of the thread's copies have arrived.
    pub fn copies_wait_but_one() {}
    /// Waits until all but the latest two groups of the thread's copies have arrived.
    pub fn copies_wait_but_two() {}
    /// What each lane of the warp has for `x`.
    fn exchange(x: u32) -> [u32; 32] {
        let (warp, lane) = (here().thread / 32, here().thread % 32);
        let warp = &block().warps[warp as usize];
        warp.slots[lane as usize].store(x, Ordering::Relaxed);
        warp.barrier.wait();
        let all = std::array::from_fn(|l| warp.slots[l].load(Ordering::Relaxed));
        warp.barrier.wait();
        all
    }
    /// The sum of `x` over the lanes of the warp.
    pub fn warp_add(x: i32) -> i32 {
        exchange(x as u32).iter().fold(0, |sum, &v| sum.wrapping_add(v as i32))
    }
    /// Whether `x` holds in any lane of the warp.
    pub fn warp_any(x: bool) -> bool {
        exchange(x as u32).contains(&1)
    }
    /// The value of `x` in the lane `by` above (the own one past the end).
    pub fn shuffle_down_u32(x: u32, by: u32) -> u32 {
        let lane = here().thread % 32;
        exchange(x)[if lane + by < 32 { lane + by } else { lane } as usize]
    }
    /// The value of `x` in the lane whose number differs in the bits `mask`.
    pub fn shuffle_xor_u32(x: u32, mask: u32) -> u32 {
        exchange(x)[((here().thread % 32) ^ mask) as usize]
    }
    /// Waits for all lanes of the warp.
    pub fn warp_sync() {
        exchange(0);
    }
    /// 1 / x.
    pub fn reciprocal(x: f32) -> f32 {
        1.0 / x
    }
    /// Adds `v` to the counter at `p`, and returns its former value.
    ///
    /// # Safety
    /// `p` is an aligned counter that is only accessed atomically.
    pub unsafe fn count_up(p: *mut u32, v: u32) -> u32 {
        // SAFETY: the caller's.
        unsafe { AtomicU32::from_ptr(p) }.fetch_add(v, Ordering::AcqRel)
    }
    /// Writes a value that the host may poll.
    ///
    /// # Safety
    /// `p` is aligned and writable.
    pub unsafe fn publish(p: *mut f64, v: f64) {
        // SAFETY: the caller's.
        unsafe { p.write_volatile(v) };
    }
    /// Reads what another block wrote in this launch.
    ///
    /// # Safety
    /// `p` is aligned and readable.
    pub unsafe fn load_fresh(p: *const f64) -> f64 {
        // SAFETY: the caller's.
        f64::from_bits(unsafe { AtomicU64::from_ptr(p.cast_mut().cast()) }.load(Ordering::Relaxed))
    }
    /// Writes what other blocks read with [`load_fresh`].
    ///
    /// # Safety
    /// `p` is aligned and writable.
    pub unsafe fn store_fresh(p: *mut f64, v: f64) {
        // SAFETY: the caller's.
        unsafe { AtomicU64::from_ptr(p.cast()) }.store(v.to_bits(), Ordering::Relaxed);
    }
    /// Lets other threads run.
    pub fn pause() {
        std::thread::yield_now();
    }
}
