//! Arithmetic, loads, shuffles and atomics of one thread. Functions are documented in `device.rs`; a comment here says
//! what differs. All accesses are checked to be inside and aligned; the kernels exclude races.
#![allow(missing_docs, unsafe_op_in_unsafe_fn, clippy::missing_safety_doc)]
mod tensor_cores;
mod warpgroup;
mod warpgroup_registers;

use super::memory::Access;
use super::{block, here, suspend};
use std::array::from_fn;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
pub use tensor_cores::*;
pub use warpgroup::*;
pub use warpgroup_registers::*;

pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    a.mul_add(b, c)
}
pub fn fma_minus(a: f32, b: f32, c: f32) -> f32 {
    a.mul_add(b, -c)
}
pub fn fma64(a: f64, b: f64, c: f64) -> f64 {
    a.mul_add(b, c)
}
/// 2^x; 0 below 2^-126, as on the device.
pub fn exp2(x: f32) -> f32 {
    if x < -126.0 { 0.0 } else { x.exp2() }
}
pub fn log2(x: f32) -> f32 {
    x.log2()
}
pub fn max(a: f32, b: f32) -> f32 {
    a.max(b)
}
pub fn min(a: f32, b: f32) -> f32 {
    a.min(b)
}
pub fn floor(x: f32) -> f32 {
    x.floor()
}
pub fn opaque(x: u32) -> u32 {
    x
}
pub fn computed(x: f64) -> f64 {
    x
}
pub fn not_unrolled() {}
/// A cache policy, which has no effect on the host.
#[derive(Clone, Copy)]
pub struct CachePolicy;
pub fn policy_keep() -> CachePolicy {
    CachePolicy
}
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
pub unsafe fn load<T: Copy>(p: *const T) -> T {
    checked(p, Access::Read).read()
}
pub unsafe fn store<T: Copy>(p: *mut T, v: T) {
    checked_mut(p).write(v);
}
pub unsafe fn load4(p: *const f32, _policy: CachePolicy) -> [f32; 4] {
    load_f32x4(p)
}
/// Does nothing: there is no cache.
pub unsafe fn prefetch(_: *const f32) {}
pub unsafe fn load_u32(p: *const u32) -> u32 {
    load(p)
}
pub unsafe fn load_u64(p: *const u64) -> u64 {
    load(p)
}
pub unsafe fn load_f32x4(p: *const f32) -> [f32; 4] {
    load(p.cast::<Wide<[f32; 4]>>()).0
}
pub unsafe fn load_f64x2(p: *const f64) -> [f64; 2] {
    load(p.cast::<Wide<[f64; 2]>>()).0
}
pub unsafe fn store4(p: *mut f32, v: [f32; 4]) {
    store(p.cast(), Wide(v));
}
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
    pub fn at(bytes: usize) -> Self {
        Self { bytes, element: std::marker::PhantomData }
    }
    pub fn offset(self, count: usize) -> Self {
        Self::at(self.bytes + count * size_of::<T>())
    }
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
    pub unsafe fn get(self, i: usize) -> T {
        self.pointer::<T>(i).read()
    }
    pub unsafe fn set(self, i: usize, v: T) {
        self.pointer::<T>(i).write(v)
    }
    pub fn in_thread_register(self) -> Self {
        self
    }
    pub unsafe fn get4(self, i: usize) -> [T; 4] {
        self.pointer::<[T; 4]>(i).read()
    }
    pub unsafe fn set4(self, i: usize, v: [T; 4]) {
        self.pointer::<[T; 4]>(i).write(v)
    }
    pub unsafe fn copy4(self, i: usize, from: *const T, _policy: CachePolicy) {
        self.pointer::<[T; 4]>(i).write(load(from.cast::<Wide<[T; 4]>>()).0)
    }
}
impl Shared<f32> {
    pub unsafe fn get_some<const P: usize>(self, i: usize) -> [f32; P] {
        from_fn(|p| self.get(i + p))
    }
}
impl Shared<f64> {
    pub unsafe fn get_pair(self, i: usize) -> [f64; 2] {
        self.pointer::<[f64; 2]>(i).read()
    }
}
pub fn copies_commit() {}
pub fn copies_wait() {}
pub fn copies_wait_but_one() {}
pub fn copies_wait_but_two() {}
/// Exchanges W numbers of each lane of the warp.
fn exchange_all<const W: usize>(values: [u32; W]) -> [[u32; W]; 32] {
    let (warp, lane) = (here().thread / 32, here().thread % 32);
    let warp = &block().warps[warp as usize];
    for (slot, value) in warp.slots[lane as usize].iter().zip(values) {
        slot.set(value);
    }
    warp.meeting.wait(block().launch);
    let all = from_fn(|lane| from_fn(|i| warp.slots[lane][i].get()));
    warp.meeting.wait(block().launch);
    all
}
fn exchange(x: u32) -> [u32; 32] {
    exchange_all([x]).map(|[x]| x)
}
pub fn warp_add(x: i32) -> i32 {
    exchange(x as u32).iter().fold(0, |sum, &v| sum.wrapping_add(v as i32))
}
pub fn warp_any(x: bool) -> bool {
    exchange(x as u32).contains(&1)
}
pub fn shuffle_down_u32(x: u32, by: u32) -> u32 {
    let lane = here().thread % 32;
    exchange(x)[if lane + by < 32 { lane + by } else { lane } as usize]
}
pub fn shuffle_u32(x: u32, lane: u32) -> u32 {
    exchange(x)[lane as usize]
}
pub fn shuffle_xor_u32(x: u32, mask: u32) -> u32 {
    exchange(x)[((here().thread % 32) ^ mask) as usize]
}
pub fn warp_sync() {
    exchange(0);
}
pub fn reciprocal(x: f32) -> f32 {
    1.0 / x
}
pub unsafe fn count_up(p: *mut u32, v: u32) -> u32 {
    AtomicU32::from_ptr(checked_mut(p)).fetch_add(v, Ordering::AcqRel)
}
pub unsafe fn add_u64(p: *mut u64, v: u64) {
    AtomicU64::from_ptr(checked_mut(p)).fetch_add(v, Ordering::Relaxed);
}
pub unsafe fn publish(p: *mut f64, v: f64) {
    store(p, v);
}
pub unsafe fn load_fresh(p: *const f64) -> f64 {
    let p = checked(p, Access::Read).cast_mut().cast();
    f64::from_bits(AtomicU64::from_ptr(p).load(Ordering::Relaxed))
}
pub unsafe fn store_fresh(p: *mut f64, v: f64) {
    AtomicU64::from_ptr(checked_mut(p).cast()).store(v.to_bits(), Ordering::Relaxed);
}
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
