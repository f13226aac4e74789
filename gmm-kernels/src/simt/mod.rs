//! The SIMT interface for which kernels are written, and its three implementations (homes).
//!
//! | home | when | shared memory, arithmetic, loads, shuffles, atomics |
//! |---|---|---|
//! | rustc's NVPTX target | `nvptx64`, the committed PTX | `device.rs` (PTX by `asm!`) |
//! | rust-cuda | feature `rust-cuda` | `device.rs` |
//! | the emulator | feature `emulator`, on the host | `emulator/lane.rs`: the threads of a block are coroutines |
//!
//! `index.rs` has the index of a thread in all three.

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
#[macro_use]
mod loops;

#[cfg(target_arch = "nvptx64")]
mod device;
#[cfg(target_arch = "nvptx64")]
pub use device::*;

#[cfg(all(not(target_arch = "nvptx64"), any(feature = "emulator", test)))]
#[deny(unsafe_op_in_unsafe_fn)]
pub mod emulator;
#[cfg(all(not(target_arch = "nvptx64"), any(feature = "emulator", test)))]
pub use emulator::lane::*;

#[cfg(any(target_arch = "nvptx64", feature = "rust-cuda", feature = "emulator", test))]
mod index;
#[cfg(any(target_arch = "nvptx64", feature = "rust-cuda", feature = "emulator", test))]
pub use index::*;

/// Number of threads of a warp.
pub const WARP: u32 = 32;
/// Number of threads of a warpgroup.
pub const WARPGROUP: u32 = 4 * WARP;

/// Index of the thread. What depends on it is computed again where needed, to save registers.
#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
#[inline(always)]
pub(crate) fn thread() -> u32 {
    opaque(thread_idx())
}

/// Splits two numbers into a float16 and the rounded rest; the error is 2^-22 of the number, or 2^-25 if that is more.
#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
#[inline(always)]
pub fn split_halves(a: f32, b: f32) -> [Halves; 2] {
    let high = round_halves(a, b);
    let [x, y] = widen_halves(high);
    [high, round_halves(a - x, b - y)]
}

/// Reads two neighbouring float32 numbers of global memory in one 8-byte read.
/// Safety: the place is valid for them and aligned to 8 bytes; no thread writes there during the launch.
#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
#[inline(always)]
pub(crate) unsafe fn load_f32x2(from: *const f32) -> [f32; 2] {
    let bits = load_u64(from.cast());
    [f32::from_bits(bits as u32), f32::from_bits((bits >> 32) as u32)]
}

/// Waits for all threads of the block; orders their accesses to shared memory. `barrier!(id, threads)` waits for that
/// number of threads, in whole warps, at barrier `id`, 1 to 15.
///
/// The unaligned form (`barrier.sync`) is used because compilers unaware that barriers are convergent may duplicate it;
/// it then remains correct. The comment lets `cargo xtask ptx --check` find a duplicate.
#[macro_export]
macro_rules! barrier {
    () => {{
        #[cfg(target_arch = "nvptx64")]
        #[allow(unused_unsafe)]
        // SAFETY: a barrier has no operands; every thread of the block reaches it (the kernels' contract).
        unsafe {
            core::arch::asm!(concat!("barrier.sync 0; // barrier ", file!(), ":", line!()), options(nostack));
        }
        #[cfg(not(target_arch = "nvptx64"))]
        $crate::simt::emulator::barrier();
    }};
    ($id:expr, $threads:expr) => {{
        let (id, threads): (u32, u32) = ($id, $threads);
        #[cfg(target_arch = "nvptx64")]
        #[allow(unused_unsafe)]
        // SAFETY: all of these threads reach it (the kernels' contract).
        unsafe {
            core::arch::asm!(
                concat!("barrier.sync {}, {}; // barrier ", file!(), ":", line!()),
                in(reg32) id, in(reg32) threads, options(nostack)
            );
        }
        #[cfg(not(target_arch = "nvptx64"))]
        $crate::simt::emulator::barrier_of(id, threads);
    }};
}

/// Declares a kernel: an entry of the PTX on the device, an ordinary unsafe function on the host.
#[macro_export]
macro_rules! kernel {
    ($(#[$doc:meta])* pub unsafe fn $name:ident($arg:ident: $ty:ty) $body:block) => {
        kernel! {
            @entry
            $(#[$doc])*
            ///
            /// # Safety
            /// The pointers of the argument are valid for the sizes given; launched as the module says.
            $name($arg: $ty) $body
        }
    };
    (@entry $(#[$doc:meta])* $name:ident($arg:ident: $ty:ty) $body:block) => {
        $(#[$doc])*
        #[cfg(feature = "rust-cuda")]
        #[cuda_std::kernel]
        pub unsafe fn $name($arg: $ty) $body

        $(#[$doc])*
        #[cfg(all(target_arch = "nvptx64", not(feature = "rust-cuda")))]
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $name($arg: $ty) $body

        $(#[$doc])*
        #[cfg(all(not(target_arch = "nvptx64"), not(feature = "rust-cuda")))]
        pub unsafe fn $name($arg: $ty) $body

        #[cfg(all(not(target_arch = "nvptx64"), not(feature = "rust-cuda")))]
        const _: () = {
            use $crate::simt::emulator::{KERNELS, LaunchShape, Memory, Registered, run};
            #[linkme::distributed_slice(KERNELS)]
            static KERNEL: Registered = Registered::new(stringify!($name), size_of::<$ty>(), launch);
            unsafe fn launch(shape: LaunchShape, memory: &Memory<'_>, argument: *const u8) {
                run(shape, memory, argument, $name as unsafe fn($ty))
            }
        };
    };
}

/// Declares the kernels of a generic function, with one documentation:
/// `kernels! { /// Sums. sum_f32: SumArgs<f32> = body::<f32>; … }`.
#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
macro_rules! kernels {
    (#[$doc:meta] $($name:ident: $args:ty = $body:expr;)+) => { $(
        kernel! {
            #[$doc]
            pub unsafe fn $name(args: $args) {
                $body(&args)
            }
        }
    )+ };
}
