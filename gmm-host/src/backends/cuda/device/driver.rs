//! The CUDA driver's functions, found at run time, so that one binary builds without CUDA and
//! starts without a driver.
//!
//! `cust` declares the driver's functions as external (in the original it also asks the linker for
//! `-lcuda`, which gmm-cust leaves out), and this module defines them: each one asks the real driver
//! library for its namesake on the first call and passes the call on. Without a driver a call answers "no device" (code 100), which `cust`
//! reports like any other error of the driver. The functions are not exported.
use cust::sys::{
    CUDA_ARRAY3D_DESCRIPTOR, CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
    CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY2D, CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUarray,
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUexternalMemory, CUfunc_cache, CUfunction,
    CUfunction_attribute, CUgraph, CUgraphExec, CUgraphExecUpdateResult, CUgraphNode, CUgraphNodeType, CUhostFn,
    CUjit_option, CUjitInputType, CUlimit, CUlinkState, CUmem_advise, CUmodule, CUoccupancyB2DSize, CUsharedconfig,
    CUstream, CUstreamAttrID, CUstreamAttrValue, CUstreamCaptureMode, CUsurfObject, CUtexObject, CUuuid,
};
use std::error::Error as _;
use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};
use std::sync::OnceLock;

use libloading::Library;

/// The name under which the driver library is installed.
const LIBRARY: &str = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };

// The codes of `CUresult` that this module answers by itself.
const SUCCESS: c_int = 0;
const NO_DEVICE: c_int = 100;
const NOT_SUPPORTED: c_int = 801;
const UNKNOWN: c_int = 999;

/// What has the driver's functions.
enum Driver {
    Library(Library),
    /// Finds one by its exported name.
    Replacement(Find),
}

/// Finds a function of a driver by its exported name.
pub type Find = fn(&CStr) -> Option<*const c_void>;

/// The driver from its first use on, until the process ends; or why it cannot be loaded.
static DRIVER: OnceLock<Result<Driver, String>> = OnceLock::new();

fn driver() -> Result<&'static Driver, &'static str> {
    DRIVER.get_or_init(|| emulated().map_or_else(load, Ok)).as_ref().map_err(String::as_str)
}

fn load() -> Result<Driver, String> {
    // SAFETY: loading runs the library's initialisers; under this name it is NVIDIA's driver, whose
    // initialisers ask nothing of the process.
    let library = unsafe { Library::new(LIBRARY) };
    library.map(Driver::Library).map_err(|error| {
        // The loader's explanation is the source of the error; the error's text alone is only
        // "dlopen failed".
        let reason = error.source().map_or_else(|| error.to_string(), |source| source.to_string());
        format!("the CUDA driver library {LIBRARY} cannot be loaded: {reason}")
    })
}

/// What the unit tests have in the place of the library.
#[cfg(test)]
fn emulated() -> Option<Driver> {
    Some(Driver::Replacement(gmm_kernels::simt::emulator::driver::symbol))
}

#[cfg(not(test))]
fn emulated() -> Option<Driver> {
    None
}

/// Puts other functions in the place of the driver's, for all of this process: `find` gives the
/// function of a name, if there is one. It is for tests without a GPU, on an emulated device such as
/// that of the feature `emulator` of `gmm-kernels`. To be called before anything else that uses a GPU.
///
/// # Errors
/// [`Error::Cuda`](crate::Error::Cuda) where a driver, or its absence, has been found before.
///
/// # Safety
/// Each function that `find` gives has the signature of the CUDA driver's function of that name, and
/// does what is documented of that as far as memory of the host is concerned.
pub unsafe fn replace_driver(find: Find) -> crate::error::Result<()> {
    DRIVER.set(Ok(Driver::Replacement(find))).map_err(|_| crate::error::Error::Cuda {
        op: "replace_driver",
        message: "the driver is in use already; replace it first".into(),
    })
}

/// Whether the driver library can be loaded; if not, the loader's explanation. It does not say
/// whether the driver finds a device: `cust::init` and `cust::device::Device::num_devices` do.
pub(crate) fn driver_available() -> Result<(), String> {
    driver().map(|_| ()).map_err(String::from)
}

/// A function of the driver by its exported name (for those newer than `cust`), `None` where the
/// driver is absent or too old to have it. The function lives as long as the process.
///
/// ```ignore
/// type Launch = unsafe extern "C" fn(*const Config, CUfunction, *mut *mut c_void, *mut *mut c_void) -> c_int;
/// let launch: Option<Launch> = unsafe { symbol(c"cuLaunchKernelExC") };
/// ```
///
/// # Safety
/// `F` must be a function pointer type with the C signature of the driver's function of this name.
pub(crate) unsafe fn symbol<F: Copy>(name: &CStr) -> Option<F> {
    match driver().ok()? {
        // SAFETY: the caller vouches for the type; libloading checks its size, and the library is
        // never unloaded.
        Driver::Library(library) => unsafe { library.get::<F>(name) }.ok().map(|found| *found),
        Driver::Replacement(find) => {
            const { assert!(size_of::<F>() == size_of::<*const c_void>()) };
            let found = find(name)?;
            // SAFETY: the caller vouches for the type, a pointer to a function.
            Some(unsafe { std::mem::transmute_copy(&found) })
        }
    }
}

/// Whether `cust::sys::CUresult`, a Rust enum, has a value of this code. Any other would be
/// undefined behaviour there.
fn is_known(code: c_int) -> bool {
    matches!(code, 0..=8 | 34 | 100..=102 | 200..=202 | 205..=224 | 300..=304 | 400..=401 | 500 | 600 | 700..=705
        | 708..=720 | 800..=809 | 900..=911 | UNKNOWN)
}

/// A driver's answer as `cust` may see it: the codes of later drivers become "unknown error".
fn checked(code: c_int) -> c_int {
    if is_known(code) { code } else { UNKNOWN }
}

/// Hides a function of this module from everything but the program or library that gmm-host is
/// linked into: another library of the same process, which uses CUDA too, must find the driver's
/// function. Rust has no attribute for it. Windows needs none, because a library there says which
/// other one each of its functions comes from.
macro_rules! hide {
    ($name:expr) => {
        #[cfg(target_os = "linux")]
        std::arch::global_asm!(concat!(".hidden ", $name));
    };
}

/// Defines each function of the table under its exported name. All of them return a `CUresult`.
macro_rules! driver_functions {
    ($($name:ident($($arg:ident: $type:ty),* $(,)?);)*) => { $(
        hide!(stringify!($name));
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            type Function = unsafe extern "C" fn($($type),*) -> c_int;
            static FOUND: OnceLock<Option<Function>> = OnceLock::new();
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name with a zero inside"),
            };
            // SAFETY: `Function` is the signature that `cust::sys` declares for this name.
            match FOUND.get_or_init(|| unsafe { symbol(NAME) }) {
                // SAFETY: the caller fulfils the requirements of the driver's function; this one
                // only passes the call on.
                Some(function) => checked(unsafe { function($($arg),*) }),
                None if driver_available().is_ok() => NOT_SUPPORTED,
                None => NO_DEVICE,
            }
        }
    )* };
}

hide!("cuGetErrorString");

/// The text of an error. Unlike the functions below it gives a text in every case, because `cust`
/// prints its errors with it and would panic without a text.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(error: c_int, text: *mut *const c_char) -> c_int {
    type Function = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;
    static FOUND: OnceLock<Option<Function>> = OnceLock::new();
    let mut found = std::ptr::null();
    // SAFETY: `Function` is the signature that `cust::sys` declares for this name.
    if let Some(function) = FOUND.get_or_init(|| unsafe { symbol(c"cuGetErrorString") }) {
        // SAFETY: `found` is a place for one pointer; the texts of the driver are static. A code
        // that it does not know leaves the pointer null.
        unsafe { function(error, &mut found) };
    }
    if found.is_null() {
        found = if error == NO_DEVICE { c"no CUDA device" } else { c"an error that the CUDA driver has no text for" }
            .as_ptr();
    }
    // SAFETY: the caller passes a place for one pointer, as the driver's function requires.
    unsafe { text.write(found) };
    SUCCESS
}

// All functions that cust 0.3.2 refers to, except cuGetErrorString.
driver_functions! {
    cuArray3DCreate_v2(p_handle: *mut CUarray, p_allocate_array: *const CUDA_ARRAY3D_DESCRIPTOR);
    cuArray3DGetDescriptor_v2(p_array_descriptor: *mut CUDA_ARRAY3D_DESCRIPTOR, h_array: CUarray);
    cuArrayDestroy(h_array: CUarray);
    cuCtxCreate_v2(pctx: *mut CUcontext, flags: c_uint, dev: CUdevice);
    cuCtxDestroy_v2(ctx: CUcontext);
    cuCtxGetApiVersion(ctx: CUcontext, version: *mut c_uint);
    cuCtxGetCacheConfig(pconfig: *mut CUfunc_cache);
    cuCtxGetCurrent(pctx: *mut CUcontext);
    cuCtxGetDevice(device: *mut CUdevice);
    cuCtxGetFlags(flags: *mut c_uint);
    cuCtxGetLimit(pvalue: *mut usize, limit: CUlimit);
    cuCtxGetSharedMemConfig(p_config: *mut CUsharedconfig);
    cuCtxGetStreamPriorityRange(least_priority: *mut c_int, greatest_priority: *mut c_int);
    cuCtxPopCurrent_v2(pctx: *mut CUcontext);
    cuCtxPushCurrent_v2(ctx: CUcontext);
    cuCtxSetCacheConfig(config: CUfunc_cache);
    cuCtxSetCurrent(ctx: CUcontext);
    cuCtxSetLimit(limit: CUlimit, value: usize);
    cuCtxSetSharedMemConfig(config: CUsharedconfig);
    cuCtxSynchronize();
    cuDestroyExternalMemory(ext_mem: CUexternalMemory);
    cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    cuDeviceGetAttribute(pi: *mut c_int, attrib: CUdevice_attribute, dev: CUdevice);
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGetName(name: *mut c_char, len: c_int, dev: CUdevice);
    cuDevicePrimaryCtxRelease_v2(dev: CUdevice);
    cuDevicePrimaryCtxReset_v2(dev: CUdevice);
    cuDevicePrimaryCtxRetain(pctx: *mut CUcontext, dev: CUdevice);
    cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: c_uint);
    cuDeviceTotalMem_v2(bytes: *mut usize, dev: CUdevice);
    cuDriverGetVersion(driver_version: *mut c_int);
    cuEventCreate(ph_event: *mut CUevent, flags: c_uint);
    cuEventDestroy_v2(h_event: CUevent);
    cuEventElapsedTime(p_milliseconds: *mut f32, h_start: CUevent, h_end: CUevent);
    cuEventQuery(h_event: CUevent);
    cuEventRecord(h_event: CUevent, h_stream: CUstream);
    cuEventSynchronize(h_event: CUevent);
    cuExternalMemoryGetMappedBuffer(
        dev_ptr: *mut CUdeviceptr, ext_mem: CUexternalMemory, buffer_desc: *const
        CUDA_EXTERNAL_MEMORY_BUFFER_DESC
    );
    cuFuncGetAttribute(pi: *mut c_int, attrib: CUfunction_attribute, hfunc: CUfunction);
    cuFuncSetCacheConfig(hfunc: CUfunction, config: CUfunc_cache);
    cuFuncSetSharedMemConfig(hfunc: CUfunction, config: CUsharedconfig);
    cuGraphAddKernelNode(
        ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies:
        usize, node_params: *const CUDA_KERNEL_NODE_PARAMS
    );
    cuGraphCreate(ph_graph: *mut CUgraph, flags: c_uint);
    cuGraphDebugDotPrint(h_graph: CUgraph, path: *const c_char, flags: c_uint);
    cuGraphDestroy(h_graph: CUgraph);
    cuGraphGetEdges(h_graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, num_edges: *mut usize);
    cuGraphGetNodes(h_graph: CUgraph, nodes: *mut CUgraphNode, num_nodes: *mut usize);
    cuGraphKernelNodeGetParams(h_node: CUgraphNode, node_params: *mut CUDA_KERNEL_NODE_PARAMS);
    cuGraphNodeGetType(h_node: CUgraphNode, kind: *mut CUgraphNodeType);
    cuImportExternalMemory(
        ext_mem_out: *mut CUexternalMemory, mem_handle_desc: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC
    );
    cuInit(flags: c_uint);
    cuLaunchHostFunc(h_stream: CUstream, callback: CUhostFn, user_data: *mut c_void);
    cuLaunchKernel(
        f: CUfunction, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint,
        block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, h_stream: CUstream, kernel_params:
        *mut *mut c_void, extra: *mut *mut c_void
    );
    cuLinkAddData_v2(
        state: CUlinkState, kind: CUjitInputType, data: *mut c_void, size: usize, name: *const c_char,
        num_options: c_uint, options: *mut CUjit_option, option_values: *mut *mut c_void
    );
    cuLinkComplete(state: CUlinkState, cubin_out: *mut *mut c_void, size_out: *mut usize);
    cuLinkCreate_v2(
        num_options: c_uint, options: *mut CUjit_option, option_values: *mut *mut c_void, state_out: *mut
        CUlinkState
    );
    cuLinkDestroy(state: CUlinkState);
    cuMemAdvise(dev_ptr: CUdeviceptr, count: usize, advice: CUmem_advise, device: CUdevice);
    cuMemAllocAsync(dptr: *mut CUdeviceptr, bytesize: usize, h_stream: CUstream);
    cuMemAllocHost_v2(pp: *mut *mut c_void, bytesize: usize);
    cuMemAllocManaged(dptr: *mut CUdeviceptr, bytesize: usize, flags: c_uint);
    cuMemAlloc_v2(dptr: *mut CUdeviceptr, bytesize: usize);
    cuMemFreeAsync(dptr: CUdeviceptr, h_stream: CUstream);
    cuMemFreeHost(p: *mut c_void);
    cuMemFree_v2(dptr: CUdeviceptr);
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuMemPrefetchAsync(dev_ptr: CUdeviceptr, count: usize, dst_device: CUdevice, h_stream: CUstream);
    cuMemcpy2D_v2(p_copy: *const CUDA_MEMCPY2D);
    cuMemcpyAtoH_v2(dst_host: *mut c_void, src_array: CUarray, src_offset: usize, byte_count: usize);
    cuMemcpyDtoDAsync_v2(dst_device: CUdeviceptr, src_device: CUdeviceptr, byte_count: usize, h_stream: CUstream);
    cuMemcpyDtoD_v2(dst_device: CUdeviceptr, src_device: CUdeviceptr, byte_count: usize);
    cuMemcpyDtoHAsync_v2(dst_host: *mut c_void, src_device: CUdeviceptr, byte_count: usize, h_stream: CUstream);
    cuMemcpyDtoH_v2(dst_host: *mut c_void, src_device: CUdeviceptr, byte_count: usize);
    cuMemcpyHtoA_v2(dst_array: CUarray, dst_offset: usize, src_host: *const c_void, byte_count: usize);
    cuMemcpyHtoDAsync_v2(dst_device: CUdeviceptr, src_host: *const c_void, byte_count: usize, h_stream: CUstream);
    cuMemcpyHtoD_v2(dst_device: CUdeviceptr, src_host: *const c_void, byte_count: usize);
    cuMemsetD16Async(dst_device: CUdeviceptr, us: c_ushort, n: usize, h_stream: CUstream);
    cuMemsetD16_v2(dst_device: CUdeviceptr, us: c_ushort, n: usize);
    cuMemsetD32Async(dst_device: CUdeviceptr, ui: c_uint, n: usize, h_stream: CUstream);
    cuMemsetD32_v2(dst_device: CUdeviceptr, ui: c_uint, n: usize);
    cuMemsetD8Async(dst_device: CUdeviceptr, uc: c_uchar, n: usize, h_stream: CUstream);
    cuMemsetD8_v2(dst_device: CUdeviceptr, uc: c_uchar, n: usize);
    cuModuleGetFunction(hfunc: *mut CUfunction, hmod: CUmodule, name: *const c_char);
    cuModuleGetGlobal_v2(dptr: *mut CUdeviceptr, bytes: *mut usize, hmod: CUmodule, name: *const c_char);
    cuModuleLoad(module: *mut CUmodule, fname: *const c_char);
    cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
    cuModuleLoadDataEx(
        module: *mut CUmodule, image: *const c_void, num_options: c_uint, options: *mut CUjit_option,
        option_values: *mut *mut c_void
    );
    cuModuleUnload(hmod: CUmodule);
    cuOccupancyAvailableDynamicSMemPerBlock(
        dynamic_smem_size: *mut usize, function: CUfunction, num_blocks: c_int, block_size: c_int
    );
    cuOccupancyMaxActiveBlocksPerMultiprocessor(
        num_blocks: *mut c_int, function: CUfunction, block_size: c_int, dynamic_smem_size: usize
    );
    cuOccupancyMaxPotentialBlockSize(
        min_grid_size: *mut c_int, block_size: *mut c_int, function: CUfunction, dynamic_smem_of_block:
        CUoccupancyB2DSize, dynamic_smem_size: usize, block_size_limit: c_int
    );
    cuStreamCreateWithPriority(ph_stream: *mut CUstream, flags: c_uint, priority: c_int);
    cuStreamDestroy_v2(h_stream: CUstream);
    cuStreamGetFlags(h_stream: CUstream, flags: *mut c_uint);
    cuStreamGetPriority(h_stream: CUstream, priority: *mut c_int);
    cuStreamSynchronize(h_stream: CUstream);
    cuStreamWaitEvent(h_stream: CUstream, h_event: CUevent, flags: c_uint);
    cuSurfObjectCreate(p_surf_object: *mut CUsurfObject, p_res_desc: *const CUDA_RESOURCE_DESC);
    cuSurfObjectDestroy(surf_object: CUsurfObject);
    cuSurfObjectGetResourceDesc(p_res_desc: *mut CUDA_RESOURCE_DESC, surf_object: CUsurfObject);
    cuTexObjectCreate(
        p_tex_object: *mut CUtexObject, p_res_desc: *const CUDA_RESOURCE_DESC, p_tex_desc: *const
        CUDA_TEXTURE_DESC, p_res_view_desc: *const CUDA_RESOURCE_VIEW_DESC
    );
    cuTexObjectDestroy(tex_object: CUtexObject);
    cuTexObjectGetResourceDesc(p_res_desc: *mut CUDA_RESOURCE_DESC, tex_object: CUtexObject);
    cuTexObjectGetResourceViewDesc(p_res_view_desc: *mut CUDA_RESOURCE_VIEW_DESC, tex_object: CUtexObject);
}

// Functions that cust::sys declares and cust itself does not use: mapped host memory, captured
// graphs, cooperative launches, the persisting part of the L2 cache, what identifies a device.
driver_functions! {
    cuCtxResetPersistingL2Cache();
    cuDeviceGetPCIBusId(pci_bus_id: *mut c_char, len: c_int, dev: CUdevice);
    cuDeviceGetUuid(uuid: *mut CUuuid, dev: CUdevice);
    cuDevicePrimaryCtxGetState(dev: CUdevice, flags: *mut c_uint, active: *mut c_int);
    cuFuncSetAttribute(hfunc: CUfunction, attrib: CUfunction_attribute, value: c_int);
    cuGetErrorName(error: c_int, p_str: *mut *const c_char);
    cuGraphExecDestroy(h_graph_exec: CUgraphExec);
    cuGraphExecKernelNodeSetParams(
        h_graph_exec: CUgraphExec, h_node: CUgraphNode, node_params: *const CUDA_KERNEL_NODE_PARAMS
    );
    cuGraphExecUpdate(
        h_graph_exec: CUgraphExec, h_graph: CUgraph, h_error_node_out: *mut CUgraphNode, update_result_out:
        *mut CUgraphExecUpdateResult
    );
    cuGraphInstantiateWithFlags(ph_graph_exec: *mut CUgraphExec, h_graph: CUgraph, flags: c_ulonglong);
    cuGraphLaunch(h_graph_exec: CUgraphExec, h_stream: CUstream);
    cuGraphUpload(h_graph_exec: CUgraphExec, h_stream: CUstream);
    cuLaunchCooperativeKernel(
        f: CUfunction, grid_dim_x: c_uint, grid_dim_y: c_uint, grid_dim_z: c_uint, block_dim_x: c_uint,
        block_dim_y: c_uint, block_dim_z: c_uint, shared_mem_bytes: c_uint, h_stream: CUstream, kernel_params:
        *mut *mut c_void
    );
    cuMemHostAlloc(pp: *mut *mut c_void, bytesize: usize, flags: c_uint);
    cuMemHostGetDevicePointer_v2(pdptr: *mut CUdeviceptr, p: *mut c_void, flags: c_uint);
    cuMemHostRegister_v2(p: *mut c_void, bytesize: usize, flags: c_uint);
    cuMemHostUnregister(p: *mut c_void);
    cuStreamBeginCapture_v2(h_stream: CUstream, mode: CUstreamCaptureMode);
    cuStreamEndCapture(h_stream: CUstream, ph_graph: *mut CUgraph);
    cuStreamGetAttribute(h_stream: CUstream, attr: CUstreamAttrID, value_out: *mut CUstreamAttrValue);
    cuStreamQuery(h_stream: CUstream);
    cuStreamSetAttribute(h_stream: CUstream, attr: CUstreamAttrID, value: *const CUstreamAttrValue);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn init_answers_with_and_without_a_driver() {
        let answer = cust::init(cust::CudaFlags::empty());
        match driver_available() {
            // Without a driver: the loader's reason, "no device", and an error that can be printed.
            Err(reason) => {
                assert!(reason.contains(LIBRARY), "{reason}");
                assert_eq!(answer, Err(cust::error::CudaError::NoDevice));
                assert!(cust::error::CudaError::NoDevice.to_string().contains("no CUDA device"));
                // SAFETY: nothing is called through the pointer.
                assert!(unsafe { symbol::<unsafe extern "C" fn(c_uint) -> c_int>(c"cuInit") }.is_none());
            }
            // With a driver its functions are found, and a name that it does not have is not.
            Ok(()) => {
                // SAFETY: nothing is called through the pointers.
                assert!(unsafe { symbol::<unsafe extern "C" fn(c_uint) -> c_int>(c"cuInit") }.is_some());
                // SAFETY: as above.
                assert!(unsafe { symbol::<unsafe extern "C" fn()>(c"cuNoSuchFunction") }.is_none());
            }
        }
    }

    #[test]
    fn unknown_codes_become_unknown_error() {
        for (code, seen) in [(0, 0), (100, 100), (719, 719), (225, 999), (721, 999), (-1, 999), (999, 999)] {
            assert_eq!(checked(code), seen);
        }
    }
}
