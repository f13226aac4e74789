//! The Gaussian kernel.
use crate::check::{check, check_products, check_rows, check_shape};
use crate::number::Number;
use crate::side::{Side, Task};
use crate::{cpu, gpu, reference};
use gmm_host::{Device, Error, Result};
use ndarray::{Array1, Array2, ArrayView2, Axis};

/// exp(−γ‖a − b‖²), also called the radial basis function, or with γ = 1/(2σ²) the kernel of width σ.
///
/// Differences a − b are formed first, so data far from the origin loses nothing. A value's relative error is at most
/// (γ‖a − b‖² + 1)·(D + 8)·u, with u = 2⁻²⁴ for float32 and 2⁻⁵³ for float64; below the smallest normal number, its
/// absolute error is at most that number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GaussianKernel {
    gamma: f64,
}

impl GaussianKernel {
    /// Makes the kernel for γ, in units of one over the data's square.
    ///
    /// # Errors
    /// [`Error::BadParameter`] unless γ is finite and above 0.
    pub fn new(gamma: f64) -> Result<Self> {
        if gamma.is_finite() && gamma > 0.0 {
            return Ok(Self { gamma });
        }
        Err(Error::BadParameter { name: "gamma", value: gamma.to_string(), remedy: "give a finite number above 0" })
    }

    /// Returns γ.
    pub fn gamma(&self) -> f64 {
        self.gamma
    }

    fn gamma_for<T: Number>(&self) -> Result<f64> {
        if T::GAMMA.contains(&self.gamma) {
            return Ok(self.gamma);
        }
        let remedy = "float32 takes 1e-30 to 1e30 and float64 takes 1e-280 to 1e280; scale the data";
        Err(Error::BadParameter { name: "gamma", value: format!("{:e}", self.gamma), remedy })
    }
}

/// Pairs of rows of two arrays (N, D), resident in a device: borrowed on the CPU, copied on a GPU.
#[derive(Debug)]
pub struct RowPairs<'a, T> {
    a: ArrayView2<'a, T>,
    b: ArrayView2<'a, T>,
    side: Side<gpu::Pairs>,
}

impl<'a, T: Number> RowPairs<'a, T> {
    /// Pairs row i of `a` with row i of `b`; any memory order. On the CPU the numbers are checked when first read.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`], [`Error::EmptyData`]; for a CUDA device also [`Error::NonFinite`].
    pub fn load(device: Device, a: ArrayView2<'a, T>, b: ArrayView2<'a, T>) -> Result<Self> {
        let (rows, columns) = a.dim();
        if a.is_empty() {
            return Err(Error::EmptyData { rows, columns });
        }
        check_shape("the second array of rows", b.dim(), a.dim())?;
        let side = Side::new(device, |ordinal| open_pairs(ordinal, a, b))?;
        Ok(Self { a, b, side })
    }

    /// Returns the kernel of each pair (N,).
    ///
    /// # Errors
    /// [`Error::NonFinite`], [`Error::BadParameter`] for γ beyond the range of the element type (float32: 10⁻³⁰ to
    /// 10³⁰; float64: 10⁻²⁸⁰ to 10²⁸⁰).
    pub fn gaussian(&mut self, kernel: &GaussianKernel) -> Result<Array1<T>> {
        let mut out = Array1::from_elem(self.a.nrows(), T::default());
        self.gaussian_into(kernel, out.as_slice_mut().unwrap_or_default())?;
        Ok(out)
    }

    /// As [`gaussian`](Self::gaussian), written to N numbers of the caller's.
    ///
    /// # Errors
    /// As [`gaussian`](Self::gaussian), and [`Error::ShapeMismatch`].
    pub fn gaussian_into(&mut self, kernel: &GaussianKernel, out: &mut [T]) -> Result<()> {
        check_shape("the array of the pairs' values", (out.len(), 1), (self.a.nrows(), 1))?;
        self.side.run(&mut PairsTask { gamma: kernel.gamma_for::<T>()?, a: self.a, b: self.b, out })
    }

    /// Returns the seconds of the kernel of all pairs by the GPU's clock, over `repeats` consecutive runs.
    ///
    /// # Errors
    /// As [`gaussian`](Self::gaussian), and [`Error::Unsupported`] if the pairs are not on a CUDA device.
    pub fn kernel_seconds(&mut self, kernel: &GaussianKernel, repeats: u32) -> Result<f64> {
        let gamma = kernel.gamma_for::<T>()?;
        match &mut self.side {
            Side::Gpu(gpu) => gpu.seconds(gamma, repeats),
            _ => Err(gpu::no_clock()),
        }
    }
}

fn open_pairs<T: Number>(ordinal: usize, a: ArrayView2<'_, T>, b: ArrayView2<'_, T>) -> Result<gpu::Pairs> {
    let arrays = [gpu::float32(a)?, gpu::float32(b)?];
    check(FIRST, a)?;
    check(SECOND, b)?;
    gpu::Pairs::open(ordinal, arrays)
}

const FIRST: &str = "the first array of rows";
const SECOND: &str = "the second array of rows";

struct PairsTask<'a, T> {
    gamma: f64,
    a: ArrayView2<'a, T>,
    b: ArrayView2<'a, T>,
    out: &'a mut [T],
}

impl<T: Number> Task for PairsTask<'_, T> {
    type Gpu = gpu::Pairs;

    fn size(&self) -> usize {
        self.a.len()
    }

    fn has_gpu(&self) -> bool {
        T::float32(self.a).is_some()
    }

    fn on_cpu(&mut self) -> Result<()> {
        if cpu::pairs(self.gamma, self.a, self.b, self.out)? {
            return Ok(());
        }
        // Finite numbers far apart may also have an infinite distance.
        for row in 0..self.a.nrows() {
            check_rows(FIRST, self.a, row..row + 1)?;
            check_rows(SECOND, self.b, row..row + 1)?;
        }
        Ok(())
    }

    fn on_reference(&mut self) -> Result<()> {
        check(FIRST, self.a)?;
        check(SECOND, self.b)?;
        reference::pairs(self.gamma, self.a, self.b, self.out)
    }

    fn on_gpu(&mut self, gpu: &mut gpu::Pairs) -> Result<()> {
        gpu.gaussian(self.gamma, T::float32_mut(self.out).ok_or_else(gpu::float32_only)?)
    }

    fn open(&self, ordinal: usize) -> Result<gpu::Pairs> {
        open_pairs(ordinal, self.a, self.b)
    }
}

/// The centres of a radial-basis network, resident in a device; more can be added at any time.
#[derive(Debug)]
pub struct Centres<T> {
    centres: Array2<T>,
    blocks: cpu::Blocks<T>,
    side: Side<gpu::Centres>,
}

impl<T: Number> Centres<T> {
    /// Copies `centres` (M, D) to `device`.
    ///
    /// # Errors
    /// [`Error::EmptyData`], [`Error::NonFinite`].
    pub fn load(device: Device, centres: ArrayView2<'_, T>) -> Result<Self> {
        check("the centres", centres)?;
        let d = centres.ncols();
        let side = Side::new(device, |ordinal| {
            gpu::float32(centres)?;
            gpu::Centres::open(ordinal, d)
        })?;
        let mut all = Self { centres: Array2::default((0, d)), blocks: cpu::Blocks::new(d), side };
        all.push(centres)?;
        Ok(all)
    }

    /// Appends `centres` (M′, D). Adding M centres one by one takes time in proportion to M.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`], [`Error::EmptyData`], [`Error::NonFinite`].
    pub fn push(&mut self, centres: ArrayView2<'_, T>) -> Result<()> {
        check_shape("the centres", centres.dim(), (centres.nrows(), self.centres.ncols()))?;
        check("the centres", centres)?;
        self.blocks.push(centres);
        let (got, expected) = (centres.ncols(), self.centres.ncols());
        let mismatch = |_| Error::ShapeMismatch { what: "the centres", expected: vec![expected], got: vec![got] };
        self.centres.append(Axis(0), centres).map_err(mismatch)
    }

    /// Returns the centres (M, D).
    pub fn view(&self) -> ArrayView2<'_, T> {
        self.centres.view()
    }

    /// Returns the kernel of row i of `x` (N, D) with centre j, (N, M).
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`], [`Error::EmptyData`], [`Error::NonFinite`], [`Error::BadParameter`] as for
    /// [`RowPairs::gaussian`], [`Error::Memory`].
    pub fn gaussian(&mut self, kernel: &GaussianKernel, x: ArrayView2<'_, T>) -> Result<Array2<T>> {
        check_shape("the rows", x.dim(), (x.nrows(), self.centres.ncols()))?;
        check_products("the kernel's values", x, self.centres.view())?;
        check("the rows", x)?;
        let mut out = Array2::from_elem((x.nrows(), self.centres.nrows()), T::default());
        let gamma = kernel.gamma_for::<T>()?;
        self.side.run(&mut CentresTask {
            gamma,
            centres: self.centres.view(),
            blocks: &self.blocks,
            x,
            out: out.as_slice_mut().unwrap_or_default(),
        })?;
        Ok(out)
    }

    /// Returns the seconds of the kernel of `x` with all centres by the GPU's clock, with `x` and the values on the
    /// device, over `repeats` consecutive runs.
    ///
    /// # Errors
    /// As [`gaussian`](Self::gaussian), and [`Error::Unsupported`] if the centres are not on a CUDA device.
    pub fn kernel_seconds(&mut self, kernel: &GaussianKernel, x: ArrayView2<'_, T>, repeats: u32) -> Result<f64> {
        check_shape("the rows", x.dim(), (x.nrows(), self.centres.ncols()))?;
        check("the rows", x)?;
        let gamma = kernel.gamma_for::<T>()?;
        match &mut self.side {
            Side::Gpu(gpu) => gpu.seconds(gamma, gpu::float32(x)?, gpu::float32(self.centres.view())?, repeats),
            _ => Err(gpu::no_clock()),
        }
    }
}

struct CentresTask<'a, T> {
    gamma: f64,
    centres: ArrayView2<'a, T>,
    blocks: &'a cpu::Blocks<T>,
    x: ArrayView2<'a, T>,
    /// (N, M) by rows.
    out: &'a mut [T],
}

impl<T: Number> Task for CentresTask<'_, T> {
    type Gpu = gpu::Centres;

    fn size(&self) -> usize {
        self.x.len().saturating_mul(self.centres.nrows())
    }

    fn has_gpu(&self) -> bool {
        T::float32(self.x).is_some()
    }

    fn on_cpu(&mut self) -> Result<()> {
        self.blocks.matrix(self.gamma, self.x, self.out)
    }

    fn on_reference(&mut self) -> Result<()> {
        reference::matrix(self.gamma, self.x, self.centres, self.out)
    }

    fn on_gpu(&mut self, gpu: &mut gpu::Centres) -> Result<()> {
        let out = T::float32_mut(self.out).ok_or_else(gpu::float32_only)?;
        gpu.gaussian(self.gamma, gpu::float32(self.x)?, gpu::float32(self.centres)?, out)
    }

    fn open(&self, ordinal: usize) -> Result<gpu::Centres> {
        gpu::Centres::open(ordinal, self.x.ncols())
    }
}
