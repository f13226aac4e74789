//! A CUDA driver for tests: functions that replace those of NVIDIA's library. Its one device is the emulator: device
//! memory is host memory, a kernel is the function of the same name, and a stream does work at once. So tests run a
//! whole CUDA backend, from a public call to the kernel and back, on any machine.
//!
//! Unlike a real device, it checks: a kernel fails if it reads or writes outside of allocated memory, or needs more
//! shared memory than its launch asks for. Fresh memory, of the device and page-locked, is full of NaN. Each kernel
//! runs its threads alternately from the first to the last and from the last to the first. By the events, work takes a
//! second, so that the first of several timed variants is chosen.
//!
//! The functions have the names and the signatures of CUDA's driver API.
use super::{KERNELS, LaunchShape, Memory, Registered};
use core::cell::Cell;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::eprintln;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::string::String;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES`.
const STATIC_SHARED_BYTES: c_uint = 1;

const SUCCESS: c_int = 0;
const INVALID_VALUE: c_int = 1;
const OUT_OF_MEMORY: c_int = 2;
const INVALID_DEVICE: c_int = 101;
const INVALID_CONTEXT: c_int = 201;
const NOT_FOUND: c_int = 500;
const NO_BINARY_FOR_GPU: c_int = 209;
const LAUNCH_FAILED: c_int = 719;

/// Few, so that small data fills a grid, and blocks go through their loops.
const MULTIPROCESSORS: c_int = 2;
const SHARED_PER_BLOCK: c_int = 227 << 10;
const SHARED_PER_MULTIPROCESSOR: c_int = 228 << 10;
const L2: c_int = 50 << 20;
const MEMORY: usize = 4 << 30;
/// As an H100, which has every kernel.
const COMPUTE_CAPABILITY: (c_int, c_int) = (9, 0);
const VERSION: c_int = 13000;

/// CUDA aligns memory to a multiple of this.
const ALIGN: usize = 256;

/// The allocations by address, with their lengths in bytes.
static ALLOCATED: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// The target of every handle of a context, a stream, a module or an event.
static HANDLE: u64 = 0;

std::thread_local! {
    /// Whether the context is current in this thread: nothing is made, used or freed otherwise.
    static CURRENT: Cell<bool> = const { Cell::new(false) };
    /// The number of machine code images that this thread gave the driver, if it takes them.
    static MACHINE_CODE: Cell<Option<usize>> = const { Cell::new(Some(0)) };
}

/// Makes the driver refuse machine code, or take it again, on the calling thread.
pub fn refuse_machine_code(refuse: bool) {
    MACHINE_CODE.set((!refuse).then_some(0));
}

/// The number of modules of machine code that the driver took on the calling thread; `None` if it refuses them.
#[must_use]
pub fn machine_code_taken() -> Option<usize> {
    MACHINE_CODE.get()
}

fn allocated() -> MutexGuard<'static, BTreeMap<usize, usize>> {
    ALLOCATED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, ALIGN).expect("the size of an allocation")
}

fn handle<T>() -> *mut T {
    (&raw const HANDLE).cast_mut().cast()
}

/// Whether these bytes belong to one allocation.
fn is_allocated(address: usize, bytes: usize) -> bool {
    let allocated = allocated();
    let before = allocated.range(..=address).next_back();
    bytes == 0 || before.is_some_and(|(start, len)| address + bytes <= start + len)
}

/// Safety: `place` is a place for a pointer.
unsafe fn allocate(place: *mut *mut c_void, bytes: usize) -> c_int {
    if bytes == 0 {
        return INVALID_VALUE;
    }
    if bytes > MEMORY {
        return OUT_OF_MEMORY;
    }
    // SAFETY: the size is not zero; the allocation has this size.
    let start = unsafe {
        let start = alloc(layout(bytes));
        if start.is_null() {
            return OUT_OF_MEMORY;
        }
        start.write_bytes(0xff, bytes);
        start
    };
    allocated().insert(start.expose_provenance(), bytes);
    // SAFETY: the caller guarantees it.
    unsafe { place.write(start.cast()) };
    SUCCESS
}

/// Safety: the allocation is not in use.
unsafe fn free(start: *mut c_void) -> c_int {
    let Some(bytes) = allocated().remove(&start.addr()) else { return INVALID_VALUE };
    // SAFETY: it was allocated with this layout.
    unsafe { dealloc(start.cast(), layout(bytes)) };
    SUCCESS
}

/// Copies memory; `device`: addresses of the sides that must be allocated on the device.
/// Safety: the other sides have this many bytes.
unsafe fn copy(to: *mut c_void, from: *const c_void, bytes: usize, device: &[usize]) -> c_int {
    if !device.iter().all(|address| is_allocated(*address, bytes)) {
        return INVALID_VALUE;
    }
    // SAFETY: the caller guarantees it for the host's side, and the device's has been checked.
    unsafe { core::ptr::copy(from.cast::<u8>(), to.cast::<u8>(), bytes) };
    SUCCESS
}

/// Safety: the memory is not in use.
unsafe fn fill(to: *mut c_void, value: u8, bytes: usize) -> c_int {
    if !is_allocated(to.addr(), bytes) {
        return INVALID_VALUE;
    }
    // SAFETY: the bytes are allocated, and the caller guarantees the rest.
    unsafe { to.cast::<u8>().write_bytes(value, bytes) };
    SUCCESS
}

/// Makes a handle of an object.
/// Safety: `place` is a place for a pointer.
unsafe fn make(place: *mut *mut c_void) -> c_int {
    // SAFETY: the caller guarantees it.
    unsafe { place.write(handle()) };
    SUCCESS
}

/// Safety: `argument` is the kernel's.
unsafe fn launch(kernel: *const c_void, shape: LaunchShape, arguments: *mut *mut c_void) -> c_int {
    // SAFETY: a handle of a function is a kernel of the list.
    let kernel = unsafe { &*kernel.cast::<Registered>() };
    if shape.shared_bytes > SHARED_PER_BLOCK as usize {
        return INVALID_VALUE;
    }
    let memory = Memory::of_allocations(allocated().iter().map(|(start, bytes)| (*start, *bytes)));
    // SAFETY: the caller guarantees it.
    let run = || unsafe { kernel.launch(shape, &memory, (*arguments).cast()) };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(()) => SUCCESS,
        Err(reason) => {
            let reason = reason.downcast_ref::<String>().cloned().unwrap_or_default();
            eprintln!("{} fails: {reason}", kernel.name);
            LAUNCH_FAILED
        }
    }
}

/// The values of `CUdevice_attribute` that the backend asks for.
fn attribute(attribute: c_uint) -> Option<c_int> {
    Some(match attribute {
        16 => MULTIPROCESSORS,
        38 => L2,
        // `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR`.
        75 => COMPUTE_CAPABILITY.0,
        76 => COMPUTE_CAPABILITY.1,
        // `CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR` and `_PER_BLOCK_OPTIN`.
        81 => SHARED_PER_MULTIPROCESSOR,
        97 => SHARED_PER_BLOCK,
        _ => return None,
    })
}

/// Defines the driver's functions, and [`symbol`], which finds them by name. Each body returns the function's answer.
/// The functions behind `in the context` refuse a thread without it.
macro_rules! driver {
    (
        $(fn $name:ident($($arg:ident: $type:ty),*) $body:block)*
        in the context:
        $(fn $inside:ident($($of_inside:ident: $type_inside:ty),*) $body_inside:block)*
    ) => {
        driver!(@each true, $(fn $name($($arg: $type),*) $body)*);
        driver!(@each CURRENT.get(), $(fn $inside($($of_inside: $type_inside),*) $body_inside)*);

        /// Returns the function of this name, if this driver has it.
        pub fn symbol(name: &CStr) -> Option<*const c_void> {
            match name.to_str().ok()? {
                $(stringify!($name) => Some($name as *const c_void),)*
                $(stringify!($inside) => Some($inside as *const c_void),)*
                _ => None,
            }
        }
    };
    (@each $allowed:expr, $(fn $name:ident($($arg:ident: $type:ty),*) $body:block)*) => {
        $(
            // SAFETY: as CUDA's driver API asks of the caller.
            #[allow(non_snake_case)]
            unsafe extern "system" fn $name($($arg: $type),*) -> c_int {
                if !$allowed {
                    return INVALID_CONTEXT;
                }
                // SAFETY: the caller guarantees what the driver API asks for.
                #[allow(unused_unsafe)]
                unsafe { $body }
            }
        )*
    };
}

driver! {
    fn cuInit(_flags: c_uint) { SUCCESS }
    fn cuDriverGetVersion(version: *mut c_int) { version.write(VERSION); SUCCESS }
    fn cuDeviceGetCount(count: *mut c_int) { count.write(1); SUCCESS }
    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) {
        if ordinal != 0 {
            return INVALID_DEVICE;
        }
        device.write(0);
        SUCCESS
    }
    fn cuDeviceGetName(name: *mut c_char, len: c_int, _device: c_int) {
        let text = c"emulated".to_bytes_with_nul();
        let len = text.len().min(len as usize);
        name.copy_from_nonoverlapping(text.as_ptr().cast(), len);
        SUCCESS
    }
    fn cuDeviceTotalMem_v2(bytes: *mut usize, _device: c_int) { bytes.write(MEMORY); SUCCESS }
    fn cuDeviceGetAttribute(value: *mut c_int, wanted: c_uint, _device: c_int) {
        let Some(known) = attribute(wanted) else { return INVALID_VALUE };
        value.write(known);
        SUCCESS
    }
    fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, _device: c_int) { context.write(handle()); SUCCESS }
    fn cuDevicePrimaryCtxRelease_v2(_device: c_int) { SUCCESS }
    fn cuCtxGetCurrent(context: *mut *mut c_void) {
        context.write(if CURRENT.get() { handle() } else { std::ptr::null_mut() });
        SUCCESS
    }
    fn cuCtxSetCurrent(context: *mut c_void) { CURRENT.set(!context.is_null()); SUCCESS }

    in the context:
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        total.write(MEMORY);
        free.write(MEMORY.saturating_sub(allocated().values().sum()));
        SUCCESS
    }
    fn cuMemAlloc_v2(place: *mut *mut c_void, bytes: usize) { allocate(place, bytes) }
    fn cuMemFree_v2(start: *mut c_void) { free(start) }
    fn cuMemAllocHost_v2(place: *mut *mut c_void, bytes: usize) { allocate(place, bytes) }
    fn cuMemFreeHost(start: *mut c_void) { free(start) }
    fn cuMemHostGetDevicePointer_v2(place: *mut *mut c_void, host: *mut c_void, _flags: c_uint) {
        place.write(host);
        SUCCESS
    }
    fn cuMemcpyHtoD_v2(to: *mut c_void, from: *const c_void, bytes: usize) { copy(to, from, bytes, &[to.addr()]) }
    fn cuMemcpyHtoDAsync_v2(to: *mut c_void, from: *const c_void, bytes: usize, _stream: *mut c_void) {
        copy(to, from, bytes, &[to.addr()])
    }
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: *const c_void, bytes: usize, _stream: *mut c_void) {
        copy(to, from, bytes, &[from.addr()])
    }
    fn cuMemsetD8_v2(to: *mut c_void, value: u8, bytes: usize) { fill(to, value, bytes) }
    fn cuMemsetD8Async(to: *mut c_void, value: u8, bytes: usize, _stream: *mut c_void) { fill(to, value, bytes) }
    fn cuModuleLoadDataEx(
        module: *mut *mut c_void, image: *const c_void, _count: c_uint, _options: *mut c_uint,
        _values: *mut *mut c_void
    ) {
        // PTX is text; machine code begins like every ELF file.
        if image.cast::<u8>().read() == 0x7f {
            let Some(taken) = MACHINE_CODE.get() else { return NO_BINARY_FOR_GPU };
            MACHINE_CODE.set(Some(taken + 1));
        }
        make(module)
    }
    fn cuModuleUnload(_module: *mut c_void) { SUCCESS }
    fn cuModuleGetFunction(function: *mut *const c_void, _module: *mut c_void, name: *const c_char) {
        let name = CStr::from_ptr(name).to_bytes();
        let Some(kernel) = KERNELS.iter().find(|kernel| kernel.name.as_bytes() == name) else { return NOT_FOUND };
        function.write(core::ptr::from_ref(kernel).cast());
        SUCCESS
    }
    fn cuFuncGetAttribute(value: *mut c_int, wanted: c_uint, _function: *const c_void) {
        if wanted != STATIC_SHARED_BYTES {
            return INVALID_VALUE;
        }
        value.write(0);
        SUCCESS
    }
    fn cuFuncSetAttribute(_function: *const c_void, _attribute: c_uint, _value: c_int) { SUCCESS }
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int, _function: *const c_void, _threads: c_int, shared: usize
    ) {
        blocks.write(SHARED_PER_MULTIPROCESSOR / (shared as c_int + 1024));
        SUCCESS
    }
    fn cuStreamCreate(stream: *mut *mut c_void, _flags: c_uint) { make(stream) }
    fn cuStreamDestroy_v2(_stream: *mut c_void) { SUCCESS }
    fn cuStreamSynchronize(_stream: *mut c_void) { SUCCESS }
    fn cuStreamQuery(_stream: *mut c_void) { SUCCESS }
    fn cuEventCreate(event: *mut *mut c_void, _flags: c_uint) { make(event) }
    fn cuEventDestroy_v2(_event: *mut c_void) { SUCCESS }
    fn cuEventRecord(_event: *mut c_void, _stream: *mut c_void) { SUCCESS }
    fn cuEventSynchronize(_event: *mut c_void) { SUCCESS }
    fn cuEventElapsedTime(milliseconds: *mut f32, _start: *mut c_void, _end: *mut c_void) {
        milliseconds.write(1000.0);
        SUCCESS
    }
    fn cuLaunchKernel(
        kernel: *const c_void, x: c_uint, y: c_uint, _z: c_uint, threads: c_uint, _threads_y: c_uint,
        _threads_z: c_uint, shared: c_uint, _stream: *mut c_void, arguments: *mut *mut c_void,
        _extra: *mut *mut c_void
    ) {
        let shape = LaunchShape { grid: (x, y), threads, shared_bytes: shared as usize, together: false };
        launch(kernel, shape, arguments)
    }
    fn cuLaunchCooperativeKernel(
        kernel: *const c_void, x: c_uint, y: c_uint, _z: c_uint, threads: c_uint, _threads_y: c_uint,
        _threads_z: c_uint, shared: c_uint, _stream: *mut c_void, arguments: *mut *mut c_void
    ) {
        let shape = LaunchShape { grid: (x, y), threads, shared_bytes: shared as usize, together: true };
        launch(kernel, shape, arguments)
    }
}
