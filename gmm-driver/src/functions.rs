//! The driver's functions, with CUDA's names and signatures.
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// `CUresult`. The driver may return a number that no header names yet.
pub type Code = c_uint;
/// `CUdevice`.
pub type DeviceHandle = c_int;
/// `CUdeviceptr`.
pub type Address = u64;

// The codes that this crate handles or returns itself.
pub const SUCCESS: Code = 0;
pub const OUT_OF_MEMORY: Code = 2;
pub const DEINITIALIZED: Code = 4;
pub const INVALID_CONTEXT: Code = 201;
pub const NOT_READY: Code = 600;
pub const NOT_SUPPORTED: Code = 801;

macro_rules! handles {
    ($($name:ident: $cuda:literal;)*) => { $(
        #[doc = concat!("`", $cuda, "`, an opaque pointer of the driver.")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(transparent)]
        pub struct $name(pub *mut c_void);

        // SAFETY: the driver takes its handles from any thread.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}

        impl Default for $name {
            fn default() -> Self {
                Self(std::ptr::null_mut())
            }
        }
    )* };
}

handles! {
    ContextHandle: "CUcontext";
    ModuleHandle: "CUmodule";
    FunctionHandle: "CUfunction";
    StreamHandle: "CUstream";
    EventHandle: "CUevent";
}

/// Returns the address of a driver's function from its exported name, if it exists.
pub type Find = fn(&CStr) -> Option<*const c_void>;

/// Defines [`Functions`], a table with a pointer for each function.
macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {
        /// The functions of a driver; missing ones return [`NOT_SUPPORTED`].
        #[allow(non_snake_case)]
        pub struct Functions {
            $(pub $name: unsafe extern "system" fn($($argument: $type),*) -> Code,)*
        }

        impl Functions {
            /// Collects the functions that `find` returns.
            ///
            /// # Safety
            /// Each address is that of a function with the signature and behaviour of the CUDA driver's function of
            /// that name, and stays valid until the process ends.
            pub unsafe fn new(find: impl Fn(&CStr) -> Option<*const c_void>) -> Self {
                $(
                    #[allow(non_snake_case)]
                    unsafe extern "system" fn $name($(_: $type),*) -> Code {
                        NOT_SUPPORTED
                    }
                )*
                Self {
                    $($name: {
                        const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                            Ok(name) => name,
                            Err(_) => panic!("a name with a zero inside"),
                        };
                        match find(NAME) {
                            // SAFETY: the caller guarantees the signature.
                            Some(found) => unsafe {
                                std::mem::transmute::<*const c_void, unsafe extern "system" fn($($type),*) -> Code>(found)
                            },
                            None => $name,
                        }
                    },)*
                }
            }
        }
    };
}

functions! {
    cuInit(flags: c_uint);
    cuDriverGetVersion(version: *mut c_int);
    cuGetErrorName(code: Code, text: *mut *const c_char);
    cuGetErrorString(code: Code, text: *mut *const c_char);
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGet(device: *mut DeviceHandle, ordinal: c_int);
    cuDeviceGetName(name: *mut c_char, len: c_int, device: DeviceHandle);
    cuDeviceTotalMem_v2(bytes: *mut usize, device: DeviceHandle);
    cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: DeviceHandle);
    cuDevicePrimaryCtxRetain(context: *mut ContextHandle, device: DeviceHandle);
    cuDevicePrimaryCtxRelease_v2(device: DeviceHandle);
    cuCtxGetCurrent(context: *mut ContextHandle);
    cuCtxSetCurrent(context: ContextHandle);
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuMemAlloc_v2(start: *mut Address, bytes: usize);
    cuMemFree_v2(start: Address);
    cuMemAllocHost_v2(start: *mut *mut c_void, bytes: usize);
    cuMemFreeHost(start: *mut c_void);
    cuMemHostGetDevicePointer_v2(device: *mut Address, host: *mut c_void, flags: c_uint);
    cuMemcpyHtoD_v2(to: Address, from: *const c_void, bytes: usize);
    cuMemcpyHtoDAsync_v2(to: Address, from: *const c_void, bytes: usize, stream: StreamHandle);
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: Address, bytes: usize, stream: StreamHandle);
    cuMemsetD8_v2(to: Address, value: u8, bytes: usize);
    cuMemsetD8Async(to: Address, value: u8, bytes: usize, stream: StreamHandle);
    cuModuleLoadDataEx(
        module: *mut ModuleHandle, image: *const c_void, count: c_uint, options: *mut c_uint, values: *mut *mut c_void,
    );
    cuModuleUnload(module: ModuleHandle);
    cuModuleGetFunction(function: *mut FunctionHandle, module: ModuleHandle, name: *const c_char);
    cuFuncGetAttribute(value: *mut c_int, attribute: c_uint, function: FunctionHandle);
    cuFuncSetAttribute(function: FunctionHandle, attribute: c_uint, value: c_int);
    cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int, function: FunctionHandle, threads: c_int, shared: usize,
    );
    cuStreamCreate(stream: *mut StreamHandle, flags: c_uint);
    cuStreamDestroy_v2(stream: StreamHandle);
    cuStreamSynchronize(stream: StreamHandle);
    cuStreamQuery(stream: StreamHandle);
    cuEventCreate(event: *mut EventHandle, flags: c_uint);
    cuEventDestroy_v2(event: EventHandle);
    cuEventRecord(event: EventHandle, stream: StreamHandle);
    cuEventSynchronize(event: EventHandle);
    cuEventElapsedTime(milliseconds: *mut f32, start: EventHandle, end: EventHandle);
    cuLaunchKernel(
        function: FunctionHandle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: StreamHandle, arguments: *mut *mut c_void, extra: *mut *mut c_void,
    );
    cuLaunchCooperativeKernel(
        function: FunctionHandle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: StreamHandle, arguments: *mut *mut c_void,
    );
}
