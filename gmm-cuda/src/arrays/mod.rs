//! Arrays that another library has put into a GPU's memory. Only requested samples are copied to the host.
pub(super) mod launches;

use super::device::gpu::Gpu;
use super::device::kernel::Grid;
use super::device::layout::stride;
use super::device::memory::{Numbers, allocate};
use super::device::place::{COPY_BYTES, Element, MAX_SAMPLES};
use super::device::samples::{DeviceSamples, limit_or_free};
use super::device::stream::Stream;
use gmm_core::backends::device_parameters::Deviations;
use gmm_core::data::frame::{Frame, looked_at};
use gmm_core::data::samples::{Rows, check_rows, check_weights};
use gmm_core::error::{Error, Result};
use gmm_core::precision::Precision;
use gmm_driver::{DeviceBuffer, Entered, Plain};
use gmm_kernels::arrays::COLUMNS;
use gmm_kernels::entries;
use launches::{ArrayOf, ColumnsLaunch, RangesLaunch, RowsLaunch, least_index, ranges};
use ndarray::{ArcArray1, Array1, Array2, ArrayView1};
use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

/// The most columns, because of a launch's limit of blocks along its second axis.
const MAX_COLUMNS: usize = Grid::MOST_SLICES as usize * COLUMNS;

/// N samples of D features that another library has put into a GPU's memory: float32 or float64, in any layout.
///
/// An evaluator of them ([`CudaEvaluator::from_device_array`](crate::CudaEvaluator::from_device_array),
/// `load_device_array`) makes its columns on the GPU, without a copy to the host. It holds the array, and reads it
/// again for original samples: rows for a fit's start, and a float64 copy for a mixture that needs more digits.
#[derive(Clone)]
pub struct DeviceArray {
    address: usize,
    element: Precision,
    n: usize,
    d: usize,
    strides: [isize; 2],
    ordinal: usize,
    weights: Option<ArcArray1<f64>>,
    in_float64: bool,
    /// Keeps the memory alive.
    _owner: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for DeviceArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { element, n, d, strides, ordinal, .. } = self;
        write!(f, "DeviceArray({element:?}, {n} × {d}, strides {strides:?}, cuda:{ordinal})")
    }
}

/// A copy of a [`DeviceArray`] on the host.
#[derive(Debug, Clone)]
pub enum HostArray {
    /// float32 samples (N, D).
    F32(Array2<f32>),
    /// float64 samples (N, D).
    F64(Array2<f64>),
}

impl DeviceArray {
    /// Describes an array (N, D) of `element`s, with row i and column j at `i * strides[0] + j * strides[1]` elements
    /// behind `pointer`, an address on the GPU of number `ordinal`. `owner` keeps the memory alive; it is dropped with
    /// the last user of the array, in any thread.
    ///
    /// # Errors
    /// [`Error::EmptyData`]; [`Error::Unsupported`] for an address that is not a multiple of an element's size, more
    /// than 2³² rows, or more than 1,048,560 columns.
    ///
    /// # Safety
    /// - While `owner` lives, each element is in memory that kernels of the GPU's primary context may read.
    /// - All writes to the elements are done, or come before later work in that context's legacy default stream, as
    ///   DLPack's `stream=1` ensures.
    /// - Nothing writes to the elements while this value, a clone or an evaluator of it is in use.
    pub unsafe fn new(
        pointer: *const c_void,
        element: Precision,
        shape: [usize; 2],
        strides: [isize; 2],
        ordinal: usize,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self> {
        let ([n, d], address) = (shape, pointer.addr());
        if n == 0 || d == 0 {
            return Err(Error::EmptyData { rows: n, columns: d });
        }
        let refuse = |what: String, remedy| Err(Error::Unsupported { what, backend: "the CUDA backend", remedy });
        let size = match element {
            Precision::Float32 => size_of::<f32>(),
            Precision::Float64 => size_of::<f64>(),
        };
        if !address.is_multiple_of(size) {
            return refuse(format!("an array whose address is not a multiple of {size} bytes"), "make a copy of it");
        }
        if n > MAX_SAMPLES || d > MAX_COLUMNS {
            return refuse(format!("an array of {n} rows and {d} columns in a GPU's memory"), "use a part of it");
        }
        Ok(Self { address, element, n, d, strides, ordinal, weights: None, in_float64: false, _owner: owner })
    }

    /// Gives each sample a weight (N,), held on the host, as
    /// [`Samples::with_weights`](gmm_core::data::samples::Samples::with_weights) does.
    ///
    /// # Errors
    /// As [`Samples::with_weights`](gmm_core::data::samples::Samples::with_weights).
    pub fn with_weights(self, weights: ArcArray1<f64>) -> Result<Self> {
        check_weights(weights.view(), self.n)?;
        Ok(Self { weights: Some(weights), ..self })
    }

    /// Returns the array with all computations in float64.
    #[must_use]
    pub fn in_float64(self) -> Self {
        Self { in_float64: true, ..self }
    }

    /// Returns N.
    pub fn n_samples(&self) -> usize {
        self.n
    }

    /// Returns D.
    pub fn n_features(&self) -> usize {
        self.d
    }

    /// Returns the type of the elements.
    pub fn element(&self) -> Precision {
        self.element
    }

    /// Returns the number of the GPU, from 0.
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// Returns a private copy of the array in new memory on the same GPU.
    ///
    /// # Errors
    /// [`Error::NoCudaDevice`], [`Error::Cuda`].
    pub fn copied(&self) -> Result<Self> {
        match self.element {
            Precision::Float32 => self.copied_as::<f32>(),
            Precision::Float64 => self.copied_as::<f64>(),
        }
    }

    fn copied_as<T: Element>(&self) -> Result<Self> {
        let (gpu, _entered) = self.enter()?;
        let stride = stride(self.n);
        let columns = allocate::<T>(self.d * stride)?;
        // Exact: zero is subtracted, and the type is the same.
        self.write_columns(gpu, &vec![0.0; self.d], &vec![1.0; self.d], Numbers::of(&columns))?;
        let address = columns.as_device_ptr().expose_provenance();
        Ok(Self { address, strides: [1, stride as isize], _owner: Arc::new(columns), ..self.clone() })
    }

    /// Returns a copy of the array on the host.
    ///
    /// # Errors
    /// [`Error::NoCudaDevice`], [`Error::Cuda`].
    pub fn to_host(&self) -> Result<HostArray> {
        let rows: Vec<usize> = (0..self.n).collect();
        Ok(match self.element {
            Precision::Float32 => HostArray::F32(self.rows_as(&rows)?),
            Precision::Float64 => HostArray::F64(self.rows_as(&rows)?),
        })
    }

    pub(super) fn weights(&self) -> Option<ArrayView1<'_, f64>> {
        self.weights.as_ref().map(|weights| weights.view())
    }

    /// Returns whether evaluators compute everything in float64.
    pub(super) fn is_evaluated_in_float64(&self) -> bool {
        self.in_float64 || self.element == Precision::Float64
    }

    /// As [`Gpu::enter`] of the array's GPU; also waits until the elements are written.
    pub(super) fn enter(&self) -> Result<(&'static Gpu, Entered)> {
        let gpu = Gpu::open(self.ordinal)?;
        let entered = gpu.enter()?;
        Stream::wait_for_legacy_default()?;
        Ok((gpu, entered))
    }

    /// Returns some samples in float64, with their weights.
    pub(super) fn select(&self, rows: &[usize]) -> Result<Rows> {
        let x = match self.element {
            Precision::Float32 => self.rows_as::<f32>(rows)?.mapv(f64::from),
            Precision::Float64 => self.rows_as::<f64>(rows)?,
        };
        let weight = |&row: &usize| self.weights.as_ref().map_or(1.0, |weights| weights[row]);
        Ok(Rows::new(x, Array1::from_iter(rows.iter().map(weight))))
    }

    /// Checks that the samples are finite and returns their frame.
    pub(super) fn frame(&self) -> Result<Frame> {
        let (gpu, _entered) = self.enter()?;
        let ranges = match self.element {
            Precision::Float32 => self.ranges::<f32>(gpu)?,
            Precision::Float64 => self.ranges::<f64>(gpu)?,
        };
        let rows: Vec<usize> = match self.is_evaluated_in_float64() {
            true => looked_at::<f64>(self.n).collect(),
            false => looked_at::<f32>(self.n).collect(),
        };
        let some = self.select(&rows)?.x;
        Ok(Frame::from_ranges(self.d, |j| ranges[j], |j, to| to.extend(some.column(j))))
    }

    /// Writes (x − shift)·scale of all samples to `columns`, (D, `layout::stride(N)`).
    pub(super) fn write_columns<T: Element>(
        &self,
        gpu: &Gpu,
        shift: &[f64],
        scale: &[f64],
        columns: Numbers<'_, T>,
    ) -> Result<()> {
        match self.element {
            Precision::Float32 => self.write_columns_of::<f32, T>(gpu, shift, scale, columns),
            Precision::Float64 => self.write_columns_of::<f64, T>(gpu, shift, scale, columns),
        }
    }

    fn write_columns_of<S: Element, T: Element>(
        &self,
        gpu: &Gpu,
        shift: &[f64],
        scale: &[f64],
        columns: Numbers<'_, T>,
    ) -> Result<()> {
        let stream = Stream::new()?;
        let (shift, scale) = (uploaded(&stream, shift)?, uploaded(&stream, scale)?);
        let launch = ColumnsLaunch::<S, T> {
            array: self.argument()?,
            shift: Numbers::of(&shift),
            scale: Numbers::of(&scale),
            columns,
            stride: stride(self.n),
        };
        let kernel = gpu.kernel(&entries::array_columns::<S, T>(), None)?;
        stream.launch(kernel, launch.grid(&gpu.limits), launch)?.wait().map(drop)
    }

    /// Checks that all numbers are finite and returns the least and greatest of each column.
    fn ranges<T: Element>(&self, gpu: &Gpu) -> Result<Vec<(f64, f64)>> {
        let array = self.argument::<T>()?;
        let grid = RangesLaunch::grid(&array, &gpu.limits);
        let warps = RangesLaunch::<T>::warps(&grid);
        let stream = Stream::new()?;
        let (least, greatest) = (allocate(warps * self.d)?, allocate(warps * self.d)?);
        let not_finite = allocate(warps * grid.blocks.1 as usize)?;
        let launch = RangesLaunch {
            array,
            least: Numbers::of(&least),
            greatest: Numbers::of(&greatest),
            not_finite: Numbers::of(&not_finite),
        };
        stream.launch(gpu.kernel(&entries::array_ranges::<T>(), None)?, grid, launch)?.wait()?;
        if let Some(index) = least_index(&downloaded(&stream, &not_finite)?) {
            let (row, column) = ((index / self.d as u64) as usize, (index % self.d as u64) as usize);
            let value = self.rows_as::<T>(&[row])?[[0, column]].into();
            return Err(Error::NonFiniteSample { row, column, value });
        }
        Ok(ranges(&downloaded(&stream, &least)?, &downloaded(&stream, &greatest)?, self.d))
    }

    /// Returns some rows unchanged.
    fn rows_as<T: Element>(&self, rows: &[usize]) -> Result<Array2<T>> {
        check_rows(rows, self.n)?;
        let (gpu, _entered) = self.enter()?;
        let stream = Stream::new()?;
        let kernel = gpu.kernel(&entries::array_rows::<T>(), None)?;
        let at_once = (COPY_BYTES / size_of::<T>() / self.d).clamp(1, rows.len().max(1));
        let out = allocate::<T>(at_once * self.d)?;
        let mut all = Array2::from_elem((rows.len(), self.d), T::default());
        let numbers = all.as_slice_mut().unwrap_or_default();
        for (rows, numbers) in rows.chunks(at_once).zip(numbers.chunks_mut(at_once * self.d)) {
            let indices = uploaded(&stream, &rows.iter().map(|&row| row as u64).collect::<Vec<_>>())?;
            let launch = RowsLaunch { array: self.argument()?, rows: Numbers::of(&indices), out: Numbers::of(&out) };
            stream.launch(kernel, launch.grid(), launch)?.wait()?;
            stream.read(&out, numbers)?;
        }
        Ok(all)
    }

    /// Returns the array as an argument of the kernels.
    fn argument<T: Element>(&self) -> Result<ArrayOf<'_, T>> {
        let size = match self.element {
            Precision::Float32 => size_of::<f32>(),
            Precision::Float64 => size_of::<f64>(),
        };
        if size != size_of::<T>() {
            return Err(super::device::mismatch(
                "the elements of an array, in bytes",
                vec![size],
                vec![size_of::<T>()],
            ));
        }
        let &Self { address, n, d, strides, .. } = self;
        // SAFETY: `new` requires that the elements are readable as long as this array lives; they are of type `T`,
        // because the two types differ in size.
        Ok(unsafe { ArrayOf::new(address, [n, d], strides) })
    }

    /// Makes the kernels' columns of the samples. They must fit beside the array.
    pub(super) fn load<T: Element>(
        &self,
        deviations: Deviations,
        memory_limit: Option<usize>,
    ) -> Result<DeviceSamples<T>> {
        let (gpu, _entered) = self.enter()?;
        let (n, d) = (self.n, self.d);
        let frame = match deviations {
            Deviations::InFrame => self.frame()?,
            Deviations::AroundMeans => Frame::identity(d),
        };
        let (limit, stride) = (limit_or_free(gpu, memory_limit)?, stride(n));
        let width = d + usize::from(self.weights.is_some());
        let bytes = width as u128 * stride as u128 * size_of::<T>() as u128;
        if bytes > limit as u128 {
            return Err(Error::Unsupported {
                what: format!(
                    "{bytes} bytes for a copy of the samples, where {limit} bytes of GPU memory can be used,"
                ),
                backend: "the CUDA backend",
                remedy: "free memory of the GPU, or bring the array to the host, from where it is sent in chunks",
            });
        }
        let columns = allocate::<T>(width * stride)?;
        self.write_columns(gpu, &frame.shift, &frame.scale, Numbers::of(&columns).part(0..d * stride)?)?;
        DeviceSamples::of_columns(gpu, columns, n, frame, deviations, self.weights())
    }
}

fn uploaded<T: Plain>(stream: &Stream, numbers: &[T]) -> Result<DeviceBuffer<T>> {
    let buffer = allocate(numbers.len())?;
    stream.write(&buffer, numbers)?;
    Ok(buffer)
}

fn downloaded<T: Plain + Default + Copy>(stream: &Stream, buffer: &DeviceBuffer<T>) -> Result<Vec<T>> {
    let mut numbers = vec![T::default(); buffer.len()];
    stream.read(buffer, &mut numbers)?;
    Ok(numbers)
}
