//! Kernels loaded into a context.
use crate::context::Context;
use crate::error::Result;
use crate::functions::{FunctionHandle, ModuleHandle};
use std::ffi::{CString, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

/// `CU_JIT_MAX_REGISTERS`.
const MAX_REGISTERS: c_uint = 0;
/// `CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES`.
const STATIC_SHARED_BYTES: c_uint = 1;
/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const MAX_DYNAMIC_SHARED_BYTES: c_uint = 8;
/// `CUDA_ERROR_NOT_FOUND`: the driver's code for an unknown name.
const NOT_FOUND: c_uint = 500;
/// `CUDA_ERROR_INVALID_PTX`.
const INVALID_PTX: c_uint = 218;

/// A module of kernels, unloaded when it and all its functions are dropped.
#[derive(Debug, Clone)]
pub struct Module(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    context: Context,
    handle: ModuleHandle,
}

impl Module {
    /// Has the driver compile PTX, with at most `max_registers` registers per thread. The context must be the thread's.
    pub fn from_ptx(context: &Context, ptx: &str, max_registers: Option<u32>) -> Result<Self> {
        let text = CString::new(ptx).map_err(|_| context.error("cuModuleLoadDataEx", INVALID_PTX))?;
        // SAFETY: a text that ends with a zero.
        unsafe { Self::load(context, text.as_ptr().cast(), max_registers) }
    }

    /// Loads machine code; fails if the driver is older than its assembler. The context must be the thread's.
    ///
    /// # Safety
    /// `image` is a complete image from an assembler: the driver finds its end by its contents.
    pub unsafe fn from_machine_code(context: &Context, image: &[u8]) -> Result<Self> {
        // SAFETY: the caller guarantees it.
        unsafe { Self::load(context, image.as_ptr().cast(), None) }
    }

    /// # Safety
    /// `image` points to a whole image.
    unsafe fn load(context: &Context, image: *const c_void, max_registers: Option<u32>) -> Result<Self> {
        let mut handle = ModuleHandle::default();
        // The driver takes a number in place of a pointer.
        let mut value = ptr::without_provenance_mut(max_registers.unwrap_or_default() as usize);
        let (count, mut option) = (c_uint::from(max_registers.is_some()), MAX_REGISTERS);
        // SAFETY: a place for the handle; the caller guarantees the image; `count` options.
        let code =
            unsafe { (context.functions().cuModuleLoadDataEx)(&mut handle, image, count, &mut option, &mut value) };
        context.call("cuModuleLoadDataEx", code)?;
        Ok(Self(Arc::new(Inner { context: context.clone(), handle })))
    }

    /// Returns the kernel of this name.
    pub fn function(&self, name: &str) -> Result<Function> {
        let (Inner { context, handle: module }, mut handle) = (&*self.0, FunctionHandle::default());
        let text = CString::new(name).map_err(|_| context.error("cuModuleGetFunction", NOT_FOUND))?;
        // SAFETY: a place for the handle, and a name that ends with a zero.
        let code = unsafe { (context.functions().cuModuleGetFunction)(&mut handle, *module, text.as_ptr()) };
        context.call("cuModuleGetFunction", code)?;
        Ok(Function { module: self.clone(), handle })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: loaded once, and no function of it is left.
        self.context.release("cuModuleUnload", |functions| unsafe { (functions.cuModuleUnload)(self.handle) });
    }
}

/// A kernel of a module.
#[derive(Debug, Clone)]
pub struct Function {
    module: Module,
    handle: FunctionHandle,
}

impl Function {
    fn context(&self) -> &Context {
        &self.module.0.context
    }

    pub(crate) fn handle(&self) -> FunctionHandle {
        self.handle
    }

    /// Returns the bytes of shared memory that each block has, without those that a launch requests.
    pub fn static_shared(&self) -> Result<usize> {
        let mut bytes = 0;
        let functions = self.context().functions();
        // SAFETY: a place for the number, and a function of a loaded module.
        let code = unsafe { (functions.cuFuncGetAttribute)(&mut bytes, STATIC_SHARED_BYTES, self.handle) };
        self.context().call("cuFuncGetAttribute", code)?;
        Ok(bytes.max(0) as usize)
    }

    /// Lets launches request up to `bytes` additional bytes of shared memory. Fails if the device has less.
    pub fn set_max_dynamic_shared(&self, bytes: usize) -> Result<()> {
        let functions = self.context().functions();
        let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        // SAFETY: a function of a loaded module.
        let code = unsafe { (functions.cuFuncSetAttribute)(self.handle, MAX_DYNAMIC_SHARED_BYTES, bytes) };
        self.context().call("cuFuncSetAttribute", code)
    }

    /// Returns the number of blocks, of so many threads and bytes of shared memory, that a multiprocessor runs at once.
    pub fn blocks_at_once(&self, threads: u32, shared: usize) -> Result<u32> {
        let (mut blocks, functions) = (0, self.context().functions());
        let threads = c_int::try_from(threads).unwrap_or(c_int::MAX);
        // SAFETY: a place for the number, and a function of a loaded module.
        let code = unsafe {
            (functions.cuOccupancyMaxActiveBlocksPerMultiprocessor)(&mut blocks, self.handle, threads, shared)
        };
        self.context().call("cuOccupancyMaxActiveBlocksPerMultiprocessor", code)?;
        Ok(blocks.max(0) as u32)
    }
}
