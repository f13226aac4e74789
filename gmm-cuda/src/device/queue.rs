//! A queue of device work besides mixtures. Each scope waits for its work, so that no memory in use is freed.
use super::gpu::{Gpu, Limits};
use super::kernel::{Grid, Kernel, Launch};
use super::memory::{Numbers, allocate, enlarge, enlarge_with_zeros};
use super::staging::{BUFFER_BYTES, Staging};
use super::stream::Stream;
use gmm_core::error::Result;
use gmm_driver::{DeviceBuffer, Plain};
use gmm_kernels::entries::Entry;
use std::marker::PhantomData;

/// Numbers in a device's memory, which a [`Queue`]'s work reads and writes.
#[derive(Debug)]
pub struct Memory<T: Plain> {
    gpu: &'static Gpu,
    numbers: DeviceBuffer<T>,
}

impl<T: Plain> Memory<T> {
    /// Makes room for at least `len` numbers: if there are fewer, they are replaced by uninitialised ones.
    ///
    /// # Errors
    /// [`Error::Cuda`](gmm_core::error::Error::Cuda), for example if memory is short.
    pub fn reserve(&mut self, len: usize) -> Result<()> {
        let _entered = self.gpu.enter()?;
        enlarge(&mut self.numbers, len)
    }

    /// Makes room as [`reserve`](Self::reserve), with the same errors; new numbers are zero.
    pub fn reserve_zeros(&mut self, len: usize) -> Result<()> {
        let _entered = self.gpu.enter()?;
        enlarge_with_zeros(&mut self.numbers, len)
    }

    /// Returns the numbers, for a launch.
    pub fn numbers(&self) -> Numbers<'_, T> {
        Numbers::of(&self.numbers)
    }
}

/// A queue of work for a device: copies and kernels, one after the other.
///
/// ```no_run
/// use gmm_host::cuda::Queue;
///
/// let queue = Queue::open(0)?;
/// let memory = queue.memory(3)?;
/// let (numbers, mut back) = ([1.0, 2.0, 3.0], [0.0; 3]);
/// queue.run(|work| {
///     work.upload(&memory, &numbers)?;
///     work.download(&memory, &mut back)
/// })?;
/// assert_eq!(back, numbers);
/// # Ok::<(), gmm_host::Error>(())
/// ```
///
/// Work borrows what it uses for longer than its scope, so that it cannot be freed there:
///
/// ```compile_fail,E0597
/// # fn run(queue: &gmm_host::cuda::Queue) -> gmm_host::Result<()> {
/// let memory = queue.memory(3)?;
/// queue.run(|work| {
///     let numbers = [1.0, 2.0, 3.0];
///     work.upload(&memory, &numbers)
/// })
/// # }
/// ```
#[derive(Debug)]
pub struct Queue {
    gpu: &'static Gpu,
    stream: Stream,
    staging: Staging<f32>,
}

impl Queue {
    /// Returns a queue for the device of this number, made ready at first use.
    ///
    /// # Errors
    /// [`Error::NoCudaDevice`](gmm_core::error::Error::NoCudaDevice), [`Error::Cuda`](gmm_core::error::Error::Cuda).
    pub fn open(ordinal: usize) -> Result<Self> {
        let gpu = Gpu::open(ordinal)?;
        let _entered = gpu.enter()?;
        Ok(Self { gpu, stream: Stream::new()?, staging: Staging::new(gpu, BUFFER_BYTES / size_of::<f32>()) })
    }

    /// Returns the facts of the device for the choice of a launch's shape.
    pub fn limits(&self) -> Limits {
        self.gpu.limits
    }

    /// Returns the kernel of an entry, compiled by the driver at first use.
    ///
    /// # Errors
    /// [`Error::Cuda`](gmm_core::error::Error::Cuda).
    pub fn kernel<A>(&self, entry: &Entry<A>) -> Result<Kernel<A>> {
        let _entered = self.gpu.enter()?;
        self.gpu.kernel(entry, None)
    }

    /// Returns memory for `len` uninitialised numbers.
    ///
    /// # Errors
    /// [`Error::Cuda`](gmm_core::error::Error::Cuda), for example if memory is short.
    pub fn memory<T: Plain>(&self, len: usize) -> Result<Memory<T>> {
        let _entered = self.gpu.enter()?;
        Ok(Memory { gpu: self.gpu, numbers: allocate(len)? })
    }

    /// Runs `work` on the device and waits for everything that it starts.
    ///
    /// # Errors
    /// Errors of `work`, and [`Error::Cuda`](gmm_core::error::Error::Cuda).
    pub fn run<'env, R>(&'env self, work: impl FnOnce(&Work<'env>) -> Result<R>) -> Result<R> {
        let _entered = self.gpu.enter()?;
        // If `work` fails, dropping this waits.
        let running = self.stream.unfinished();
        let result = work(&self.work())?;
        running.wait()?;
        Ok(result)
    }

    /// Runs `work` as [`run`](Self::run), with the same errors, and returns its seconds by the device's clock.
    pub fn seconds<'env>(&'env self, work: impl FnOnce(&Work<'env>) -> Result<()>) -> Result<f64> {
        let _entered = self.gpu.enter()?;
        self.stream.seconds(|| {
            let running = self.stream.unfinished();
            work(&self.work())?;
            Ok(running)
        })
    }

    fn work(&self) -> Work<'_> {
        Work { queue: self, invariant: PhantomData }
    }
}

/// The scope of some work of a [`Queue`], which ends before `'env` does. The work borrows its memory for `'env`.
#[derive(Debug)]
pub struct Work<'env> {
    queue: &'env Queue,
    /// `'env` must not shrink: it could then end inside the scope.
    invariant: PhantomData<&'env mut &'env ()>,
}

impl<'env> Work<'env> {
    /// Starts a kernel.
    ///
    /// # Errors
    /// Errors of [`Launch::argument`], and [`Error::Cuda`](gmm_core::error::Error::Cuda).
    pub fn launch<L: Launch + Copy + 'env>(&self, kernel: Kernel<L::Argument>, grid: Grid, launch: L) -> Result<()> {
        let Queue { stream, .. } = self.queue;
        // The queue waits instead of this guard. The borrows of `launch` last until then; a `Copy` type owns nothing.
        drop(stream.launch(kernel, grid, launch)?.followed_by(stream.idle()));
        Ok(())
    }

    /// Starts to copy numbers to the beginning of the memory.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`](gmm_core::error::Error::ShapeMismatch) if the memory is shorter, and
    /// [`Error::Cuda`](gmm_core::error::Error::Cuda).
    pub fn upload(&self, to: &'env Memory<f32>, from: &'env [f32]) -> Result<()> {
        let Queue { stream, staging, .. } = self.queue;
        // As for a launch.
        drop(staging.upload(stream, &to.numbers, from)?.followed_by(stream.idle()));
        Ok(())
    }

    /// Copies numbers from the beginning of the memory after the work, and waits for them.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`](gmm_core::error::Error::ShapeMismatch) if the memory is shorter, and
    /// [`Error::Cuda`](gmm_core::error::Error::Cuda).
    pub fn download(&self, from: &Memory<f32>, to: &mut [f32]) -> Result<()> {
        self.queue.staging.download(&self.queue.stream, &from.numbers, to)
    }
}
