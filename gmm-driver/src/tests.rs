//! Tests of the owners with a driver that records its calls, per thread.
use crate::functions::{Code, ContextHandle, DEINITIALIZED, INVALID_CONTEXT, OUT_OF_MEMORY, SUCCESS};
use crate::{Attribute, Context, DeviceBuffer, Driver, Entered, Error, Event, LockedBuffer, Module, Stream};
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    /// The calls that make, release and launch, in order.
    static CALLS: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
    /// The code that releasing functions return.
    static RELEASE: Cell<Code> = const { Cell::new(SUCCESS) };
    static CURRENT: Cell<usize> = const { Cell::new(0) };
    /// The blocks, threads, shared bytes and argument of the last launch.
    static LAUNCHED: Cell<[u64; 5]> = const { Cell::new([0; 5]) };
}

fn made(call: &'static str) -> Code {
    CALLS.with_borrow_mut(|calls| calls.push(call));
    if CURRENT.get() == 0 { INVALID_CONTEXT } else { SUCCESS }
}

fn released(call: &'static str) -> Code {
    // An ending thread releases its context after its record is gone.
    let _ = CALLS.try_with(|calls| calls.borrow_mut().push(call));
    RELEASE.get()
}

fn calls() -> Vec<&'static str> {
    CALLS.take()
}

/// Defines functions of a driver, and [`find`], which finds them by name.
macro_rules! functions {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $body:block)*) => {
        $(
            // SAFETY: as CUDA's driver API requires of the caller.
            #[allow(non_snake_case)]
            unsafe extern "system" fn $name($($argument: $type),*) -> Code {
                // SAFETY: the caller guarantees what the driver API requires.
                #[allow(unused_unsafe)]
                unsafe { $body }
            }
        )*

        fn find(name: &CStr) -> Option<*const c_void> {
            match name.to_str().ok()? {
                $(stringify!($name) => Some($name as *const c_void),)*
                _ => None,
            }
        }
    };
}

functions! {
    fn cuInit(_flags: c_uint) { SUCCESS }
    fn cuDriverGetVersion(version: *mut c_int) { version.write(12080); SUCCESS }
    fn cuDeviceGetCount(count: *mut c_int) { count.write(1); SUCCESS }
    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) {
        device.write(ordinal);
        // A code unknown to CUDA's headers.
        if ordinal == 0 { SUCCESS } else { 4711 }
    }
    fn cuDeviceGetName(name: *mut c_char, len: c_int, _device: c_int) {
        // A driver that fills the whole place, without a zero.
        name.write_bytes(b'x', len as usize);
        SUCCESS
    }
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, _device: c_int) {
        value.write(attribute as c_int);
        SUCCESS
    }
    fn cuGetErrorName(code: Code, text: *mut *const c_char) {
        if code != OUT_OF_MEMORY {
            return 1;
        }
        text.write(c"CUDA_ERROR_OUT_OF_MEMORY".as_ptr());
        SUCCESS
    }
    fn cuGetErrorString(code: Code, text: *mut *const c_char) {
        if code != OUT_OF_MEMORY {
            return 1;
        }
        text.write(c"out of memory".as_ptr());
        SUCCESS
    }
    fn cuDevicePrimaryCtxRetain(context: *mut usize, _device: c_int) { context.write(8); SUCCESS }
    fn cuDevicePrimaryCtxRelease_v2(_device: c_int) { released("context") }
    fn cuCtxGetCurrent(context: *mut usize) { context.write(CURRENT.get()); SUCCESS }
    fn cuCtxSetCurrent(context: ContextHandle) { CURRENT.set(context.0.addr()); SUCCESS }
    fn cuMemAlloc_v2(start: *mut u64, bytes: usize) {
        if bytes > 1 << 30 {
            return OUT_OF_MEMORY;
        }
        start.write(4096);
        made("memory")
    }
    fn cuMemFree_v2(_start: u64) { released("free memory") }
    fn cuMemcpyHtoD_v2(_to: u64, _from: *const c_void, _bytes: usize) { SUCCESS }
    fn cuMemAllocHost_v2(start: *mut *mut c_void, bytes: usize) {
        let layout = std::alloc::Layout::from_size_align_unchecked(bytes, 64);
        start.write(std::alloc::alloc(layout).cast());
        start.read().cast::<u8>().write_bytes(0xff, bytes);
        made("locked memory")
    }
    fn cuMemFreeHost(start: *mut c_void) {
        // The only such buffer in these tests has three numbers of eight bytes.
        std::alloc::dealloc(start.cast(), std::alloc::Layout::from_size_align_unchecked(24, 64));
        released("free locked memory")
    }
    fn cuStreamCreate(stream: *mut usize, _flags: c_uint) { stream.write(16); made("stream") }
    fn cuStreamDestroy_v2(_stream: usize) { released("free stream") }
    fn cuStreamQuery(stream: usize) { if stream == 16 { 600 } else { 1 } }
    fn cuEventCreate(event: *mut usize, _flags: c_uint) { event.write(24); made("event") }
    fn cuEventDestroy_v2(_event: usize) { released("free event") }
    fn cuModuleLoadDataEx(
        module: *mut usize, image: *const c_char, count: c_uint, option: *mut c_uint, value: *mut usize
    ) {
        assert_eq!((CStr::from_ptr(image), count, option.read(), value.read()), (c"// PTX", 1, 0, 168));
        module.write(32);
        made("module")
    }
    fn cuModuleUnload(_module: usize) { released("free module") }
    fn cuModuleGetFunction(function: *mut usize, _module: usize, name: *const c_char) {
        assert_eq!(CStr::from_ptr(name), c"pair");
        function.write(40);
        SUCCESS
    }
    fn cuLaunchKernel(
        function: usize, x: c_uint, y: c_uint, _z: c_uint, threads: c_uint, _block_y: c_uint, _block_z: c_uint,
        shared: c_uint, stream: usize, arguments: *mut *const u64, _extra: *mut *mut c_void
    ) {
        assert_eq!((function, stream), (40, 16));
        LAUNCHED.set([x.into(), y.into(), threads.into(), shared.into(), arguments.read().read()]);
        made("launch")
    }
}

fn driver() -> Driver {
    // SAFETY: these functions have the driver's signatures, and write where the driver would.
    unsafe { Driver::from_functions(find) }
}

fn entered() -> (Context, Entered) {
    let context = Context::new(driver().device(0).unwrap()).unwrap();
    let entered = context.enter().unwrap();
    (context, entered)
}

#[test]
fn the_library_is_found_or_the_loader_says_why_not() {
    match Driver::load() {
        Ok(driver) => assert!(driver.version().unwrap() >= (11, 0)),
        Err(error @ Error::Absent { library, .. }) => assert!(error.to_string().contains(library), "{error}"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_device_is_described() {
    let device = driver().device(0).unwrap();
    assert_eq!((driver().version(), driver().device_count()), (Ok((12, 8)), Ok(1)));
    assert_eq!(device.name().unwrap(), "x".repeat(256));
    assert_eq!(device.attribute(Attribute::L2CacheSize), Ok(38));
}

#[test]
fn codes_with_and_without_a_name_are_errors() {
    let (context, _entered) = entered();
    let error = DeviceBuffer::<f64>::new(&context, 1 << 30).unwrap_err();
    assert_eq!(error.to_string(), "cuMemAlloc: out of memory (CUDA_ERROR_OUT_OF_MEMORY, code 2)");
    assert_eq!(DeviceBuffer::<f64>::new(&context, usize::MAX).unwrap_err(), error);
    let error = driver().device(1).unwrap_err().to_string();
    assert_eq!(error, "cuDeviceGet: the driver has no text for this error (a code without a name, code 4711)");
    let error = context.free_memory().unwrap_err().to_string();
    assert!(error.starts_with("cuMemGetInfo: the driver does not have this function"), "{error}");
}

#[test]
fn owners_are_released_once_and_before_their_context() {
    let (context, entered) = entered();
    {
        let memory = DeviceBuffer::from_slice(&context, &[1.0f32, 2.0]).unwrap();
        let none = DeviceBuffer::from_slice(&context, &[0u32; 0]).unwrap();
        assert!(none.is_empty() && none.as_device_ptr().is_null() && memory.len() == 2);
        let locked = LockedBuffer::<AtomicU64>::new(&context, 3).unwrap();
        assert!(locked.iter().all(|number| number.load(Ordering::Relaxed) == 0), "page-locked memory is zero");
        let event = Event::new(&context).unwrap();
        let stream = Stream::new(&context).unwrap();
        assert_eq!(stream.is_done(), Ok(false));
        let module = Module::from_ptx(&context, "// PTX", Some(168)).unwrap();
        let kernel = module.function("pair").unwrap();
        drop(module);
        // SAFETY: nothing runs.
        unsafe { stream.launch(&kernel, (7, 3), 128, 4096, false, &99u64).unwrap() };
        assert_eq!(LAUNCHED.get(), [7, 3, 128, 4096, 99]);
        // An owner enters its own context to release its object, even if the thread has none.
        CURRENT.set(0);
        drop((context, memory, locked, event, stream, kernel));
    }
    let made = ["memory", "locked memory", "event", "stream", "module", "launch"];
    let freed = ["free memory", "free locked memory", "free event", "free stream", "free module"];
    assert_eq!(calls(), [&made[..], &freed].concat(), "the thread is in the context");
    drop(entered);
    assert_eq!(calls(), ["context"]);
}

#[test]
fn a_thread_returns_to_its_earlier_context() {
    // Another library's.
    CURRENT.set(5);
    let (context, outer) = entered();
    let inner = context.enter().unwrap();
    drop(inner);
    assert_eq!((CURRENT.get(), Context::current(driver()).is_ok()), (8, true));
    let memory = DeviceBuffer::<u8>::new(&context, 1).unwrap();
    drop(outer);
    assert_eq!((CURRENT.get(), Context::current(driver()).is_ok()), (5, false));
    drop(memory);
    assert_eq!(CURRENT.get(), 5);
}

#[test]
fn a_failure_of_a_release_is_told_by_the_next_call() {
    let (context, _entered) = entered();
    let buffers = [1, 2].map(|len| DeviceBuffer::<u8>::new(&context, len).unwrap());
    RELEASE.set(700);
    drop(buffers);
    RELEASE.set(SUCCESS);
    assert!(matches!(context.enter(), Err(Error::Call { call: "cuMemFree", code: 700, .. })));
    assert!(context.enter().is_ok(), "it is told once");
}

#[test]
fn a_driver_that_has_ended_has_released_everything() {
    let (context, _entered) = entered();
    let stream = Stream::new(&context).unwrap();
    RELEASE.set(DEINITIALIZED);
    drop(stream);
    RELEASE.set(SUCCESS);
    assert!(context.enter().is_ok());
}

#[test]
fn what_is_made_outside_of_a_context_is_refused() {
    let error = Context::current(driver()).unwrap_err();
    assert!(matches!(error, Error::Call { code: INVALID_CONTEXT, .. }), "{error}");
    let context = Context::new(driver().device(0).unwrap()).unwrap();
    assert!(matches!(Event::timed(&context), Err(Error::Call { code: INVALID_CONTEXT, .. })));
    let _entered = context.enter().unwrap();
    assert!(Context::current(driver()).is_ok());
}
