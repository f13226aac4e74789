//! Arithmetic, loads, shuffles and atomics of one thread.
mod tensor_cores;
mod warpgroup;
mod warpgroup_registers;

use super::memory::Access;
use super::{block, here, suspend};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
pub use tensor_cores::*;
pub use warpgroup::*;
pub use warpgroup_registers::*;

/// a·b + c, rounded once.
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    a.mul_add(b, c)
}
/// a·b − c, rounded once.
pub fn fma_minus(a: f32, b: f32, c: f32) -> f32 {
    a.mul_add(b, -c)
}
/// a·b + c in float64, rounded once.
pub fn fma64(a: f64, b: f64, c: f64) -> f64 {
    a.mul_add(b, c)
}
/// 2^x; 0 below 2^-126, as on the device.
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
/// `x`.
pub fn computed(x: f64) -> f64 {
    x
}
/// Does nothing.
pub fn not_unrolled() {}
/// A cache policy, which has no effect on the host.
#[derive(Clone, Copy)]
pub struct CachePolicy;
/// Keeps the data in the cache on a device.
pub fn policy_keep() -> CachePolicy {
    CachePolicy
}
/// Streams the data through the cache on a device.
pub fn policy_stream() -> CachePolicy {
    CachePolicy
}
/// Returns the address in global memory, if the launch may access it and it is aligned.
fn checked<T>(p: *const T, access: Access) -> *const T {
    block().launch.memory.check(p.addr(), size_of::<T>(), align_of::<T>(), access);
    p
}
/// As [`checked`], for a write.
fn checked_mut<T>(p: *mut T) -> *mut T {
    checked(p, Access::Write).cast_mut()
}
/// Numbers that are accessed 16 bytes at a time.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Wide<T>(T);
/// Reads a number in global memory.
///
/// # Safety
/// No other thread writes there at the same time.
pub unsafe fn load<T: Copy>(p: *const T) -> T {
    // SAFETY: an array of the launch; the caller excludes races.
    checked(p, Access::Read).read()
}
/// Writes a number to global memory.
///
/// # Safety
/// No other thread accesses it at the same time.
pub unsafe fn store<T: Copy>(p: *mut T, v: T) {
    // SAFETY: an array of the launch; the caller excludes races.
    checked_mut(p).write(v);
}
/// Reads four numbers of global memory in one 16-byte read.
///
/// # Safety
/// No thread writes there during the launch.
pub unsafe fn load4(p: *const f32, _policy: CachePolicy) -> [f32; 4] {
    load_f32x4(p)
}
/// Does nothing: there is no cache.
///
/// # Safety
/// `p` is readable.
pub unsafe fn prefetch(_: *const f32) {}
/// Reads four bytes.
///
/// # Safety
/// No thread writes there during the launch.
pub unsafe fn load_u32(p: *const u32) -> u32 {
    load(p)
}
/// Reads eight bytes.
///
/// # Safety
/// No thread writes there during the launch.
pub unsafe fn load_u64(p: *const u64) -> u64 {
    load(p)
}
/// Reads four float32 numbers of global memory in one 16-byte read.
///
/// # Safety
/// No thread writes there during the launch.
pub unsafe fn load_f32x4(p: *const f32) -> [f32; 4] {
    load(p.cast::<Wide<[f32; 4]>>()).0
}
/// Reads two float64 numbers of global memory in one 16-byte read.
///
/// # Safety
/// No thread writes there during the launch.
pub unsafe fn load_f64x2(p: *const f64) -> [f64; 2] {
    load(p.cast::<Wide<[f64; 2]>>()).0
}
/// Writes four numbers to global memory at once.
///
/// # Safety
/// No other thread accesses them at the same time.
pub unsafe fn store4(p: *mut f32, v: [f32; 4]) {
    store(p.cast(), Wide(v));
}
/// Writes two numbers to global memory at once.
///
/// # Safety
/// No other thread accesses them at the same time.
pub unsafe fn store2(p: *mut f32, v: [f32; 2]) {
    #[derive(Clone, Copy)]
    #[repr(C, align(8))]
    struct Two([f32; 2]);
    store(p.cast(), Two(v));
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
    /// The same place, as numbers of another type.
    pub fn cast<U: Copy>(self) -> Shared<U> {
        Shared::at(self.bytes)
    }
    fn pointer<U>(self, i: usize) -> *mut U {
        let start = self.offset(i).bytes;
        assert!(start + size_of::<U>() <= block().launch.shared_bytes, "past the end of the shared memory");
        assert!(start.is_multiple_of(size_of::<U>()), "a shared access must be aligned");
        // SAFETY: inside the block's allocation.
        unsafe { block().shared.cast::<u8>().add(start).cast() }
    }
    /// Element `i`.
    ///
    /// # Safety
    /// No other thread writes it at the same time.
    pub unsafe fn get(self, i: usize) -> T {
        // SAFETY: inside and aligned; the caller excludes races.
        self.pointer::<T>(i).read()
    }
    /// Writes element `i`.
    ///
    /// # Safety
    /// No other thread accesses it at the same time.
    pub unsafe fn set(self, i: usize, v: T) {
        // SAFETY: inside and aligned; the caller excludes races.
        self.pointer::<T>(i).write(v)
    }
    /// The same place.
    pub fn in_thread_register(self) -> Self {
        self
    }
    /// Reads elements `i` to `i + 3`.
    ///
    /// # Safety
    /// No other thread writes them at the same time.
    pub unsafe fn get4(self, i: usize) -> [T; 4] {
        // SAFETY: inside and aligned; the caller excludes races.
        self.pointer::<[T; 4]>(i).read()
    }
    /// Writes elements `i` to `i + 3`.
    ///
    /// # Safety
    /// No other thread accesses them at the same time.
    pub unsafe fn set4(self, i: usize, v: [T; 4]) {
        // SAFETY: inside and aligned; the caller excludes races.
        self.pointer::<[T; 4]>(i).write(v)
    }
    /// Copies four numbers of global memory to elements `i` to `i + 3`, at once.
    ///
    /// # Safety
    /// No other thread accesses the elements.
    pub unsafe fn copy4(self, i: usize, from: *const T, _policy: CachePolicy) {
        self.pointer::<[T; 4]>(i).write(load(from.cast::<Wide<[T; 4]>>()).0)
    }
}
impl Shared<f32> {
    /// Reads P elements from `i` on.
    ///
    /// # Safety
    /// No other thread writes them at the same time.
    pub unsafe fn get_some<const P: usize>(self, i: usize) -> [f32; P] {
        std::array::from_fn(|p| self.get(i + p))
    }
}
impl Shared<f64> {
    /// Reads elements `i` and `i + 1`.
    ///
    /// # Safety
    /// No other thread writes them at the same time.
    pub unsafe fn get_pair(self, i: usize) -> [f64; 2] {
        // SAFETY: inside and aligned; the caller excludes races.
        self.pointer::<[f64; 2]>(i).read()
    }
}
/// Ends a group of the thread's copies.
pub fn copies_commit() {}
/// Waits until all copies of the thread have arrived.
pub fn copies_wait() {}
/// Waits until all but the latest group of the thread's copies have arrived.
pub fn copies_wait_but_one() {}
/// Waits until all but the latest two groups of the thread's copies have arrived.
pub fn copies_wait_but_two() {}
/// The value of `x` in each lane of the warp.
fn exchange(x: u32) -> [u32; 32] {
    let (warp, lane) = (here().thread / 32, here().thread % 32);
    let warp = &block().warps[warp as usize];
    warp.slots[lane as usize].set(x);
    warp.meeting.wait(block().launch);
    let all = std::array::from_fn(|l| warp.slots[l].get());
    warp.meeting.wait(block().launch);
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
/// The value of `x` in the lane `by` above (the lane's value past the end).
pub fn shuffle_down_u32(x: u32, by: u32) -> u32 {
    let lane = here().thread % 32;
    exchange(x)[if lane + by < 32 { lane + by } else { lane } as usize]
}
/// The value of `x` in lane `lane`.
pub fn shuffle_u32(x: u32, lane: u32) -> u32 {
    exchange(x)[lane as usize]
}
/// The value of `x` in the lane whose number differs in the bits `mask`.
pub fn shuffle_xor_u32(x: u32, mask: u32) -> u32 {
    exchange(x)[((here().thread % 32) ^ mask) as usize]
}
/// Waits for all lanes of the warp.
pub fn warp_sync() {
    exchange(0);
}
/// 1 / x for a normal x whose reciprocal is normal.
pub fn reciprocal(x: f32) -> f32 {
    1.0 / x
}
/// Adds `v` to the counter at `p`, and returns its former value.
///
/// # Safety
/// Other threads access the counter only by this function, until the last of them has.
pub unsafe fn count_up(p: *mut u32, v: u32) -> u32 {
    AtomicU32::from_ptr(checked_mut(p)).fetch_add(v, Ordering::AcqRel)
}
/// Adds `v` to the number at `p`, modulo 2^64.
///
/// # Safety
/// Other threads access it only by this function, until all have met.
pub unsafe fn add_u64(p: *mut u64, v: u64) {
    AtomicU64::from_ptr(checked_mut(p)).fetch_add(v, Ordering::Relaxed);
}
/// Writes a value that the host may poll.
///
/// # Safety
/// No other thread accesses it at the same time.
pub unsafe fn publish(p: *mut f64, v: f64) {
    store(p, v);
}
/// Reads a number that another block wrote in this launch.
///
/// # Safety
/// Only [`store_fresh`] writes it while other threads run.
pub unsafe fn load_fresh(p: *const f64) -> f64 {
    let p = checked(p, Access::Read).cast_mut().cast();
    // SAFETY: an array of the launch.
    f64::from_bits(AtomicU64::from_ptr(p).load(Ordering::Relaxed))
}
/// Writes a number that other blocks read with [`load_fresh`].
///
/// # Safety
/// Only [`load_fresh`] reads it while other threads run.
pub unsafe fn store_fresh(p: *mut f64, v: f64) {
    // SAFETY: an array of the launch.
    AtomicU64::from_ptr(checked_mut(p).cast()).store(v.to_bits(), Ordering::Relaxed);
}
/// As on the device.
pub fn fence() {
    std::sync::atomic::fence(Ordering::SeqCst);
}
/// Lets other threads run, unless one has failed.
pub fn pause() {
    let launch = block().launch;
    launch.leave_if_failed();
    launch.progress.set(true);
    suspend();
}
