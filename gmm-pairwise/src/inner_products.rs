//! Many inner products with one matrix.
use crate::check::{check, check_products, check_shape};
use crate::number::Number;
use crate::side::{Side, Task};
use crate::{cpu, gpu, reference};
use gmm_host::{Device, Result};
use ndarray::{Array2, ArrayView2};

/// A matrix (M, D) resident in a device, to multiply with vectors one at a time or in blocks.
///
/// ‖error‖ ≤ 10⁻⁶ ‖|V|·|M|ᵀ‖ for float32 on every device, in the Euclidean norm over all products. The CPU uses fused
/// multiply-adds. The GPU splits each number into two float16 numbers, scaled by a power of two per row, and its tensor
/// cores add three of the four products in float32; numbers below 2⁻³⁷ of their row's largest count as zero. Up to
/// eight vectors at a time are not split: they are multiplied in float32 with the sums of the matrix's two numbers.
#[derive(Debug)]
pub struct InnerProducts<T> {
    /// (M, D) with contiguous columns, which the CPU reads without a copy.
    matrix: Array2<T>,
    side: Side<gpu::Products>,
}

impl<T: Number> InnerProducts<T> {
    /// Copies `matrix` (M, D; any memory order) to `device`. For A·B with B (D, M), pass `b.t()`.
    ///
    /// # Errors
    /// [`Error::EmptyData`](crate::Error::EmptyData), [`Error::NonFinite`](crate::Error::NonFinite).
    pub fn load(device: Device, matrix: ArrayView2<'_, T>) -> Result<Self> {
        check("the matrix", matrix)?;
        let matrix = matrix.t().as_standard_layout().into_owned().reversed_axes();
        let side = Side::new(device, |ordinal| gpu::Products::open(ordinal, gpu::float32(matrix.view())?))?;
        Ok(Self { matrix, side })
    }

    /// Returns M, the matrix's rows and the products of each vector.
    pub fn n_rows(&self) -> usize {
        self.matrix.nrows()
    }

    /// Returns D, the matrix's columns and the elements of each vector.
    pub fn n_columns(&self) -> usize {
        self.matrix.ncols()
    }

    /// Returns `vectors` (N, D) times the transposed matrix (N, M): inner products of vectors i and rows j.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`](crate::Error::ShapeMismatch), [`Error::EmptyData`](crate::Error::EmptyData),
    /// [`Error::NonFinite`](crate::Error::NonFinite), [`Error::Memory`](crate::Error::Memory).
    pub fn products(&mut self, vectors: ArrayView2<'_, T>) -> Result<Array2<T>> {
        check_products("the products", vectors, self.matrix.view())?;
        let mut out = Array2::from_elem((vectors.nrows(), self.n_rows()), T::default());
        self.products_into(vectors, out.as_slice_mut().unwrap_or_default())?;
        Ok(out)
    }

    /// As [`products`](Self::products), written to N·M numbers of the caller's, vector by vector.
    pub fn products_into(&mut self, vectors: ArrayView2<'_, T>, out: &mut [T]) -> Result<()> {
        check_shape("the vectors", vectors.dim(), (vectors.nrows(), self.n_columns()))?;
        let n = vectors.nrows().saturating_mul(self.n_rows());
        check_shape("the array of the products", (out.len(), 1), (n, 1))?;
        check("the vectors", vectors)?;
        self.side.run(&mut Products { matrix: self.matrix.view(), vectors, out })
    }

    /// Returns the seconds of a product with `vectors` by the GPU's clock, with vectors and products on the device,
    /// over `repeats` consecutive runs.
    ///
    /// # Errors
    /// As [`products`](Self::products), and [`Error::Unsupported`](crate::Error::Unsupported) without a CUDA device.
    pub fn kernel_seconds(&mut self, vectors: ArrayView2<'_, T>, repeats: u32) -> Result<f64> {
        check_shape("the vectors", vectors.dim(), (vectors.nrows(), self.n_columns()))?;
        check("the vectors", vectors)?;
        match &mut self.side {
            Side::Gpu(gpu) => gpu.seconds(gpu::float32(vectors)?, repeats),
            _ => Err(gpu::no_clock()),
        }
    }
}

struct Products<'a, T> {
    matrix: ArrayView2<'a, T>,
    vectors: ArrayView2<'a, T>,
    /// (N, M) by rows.
    out: &'a mut [T],
}

impl<T: Number> Task for Products<'_, T> {
    type Gpu = gpu::Products;

    fn size(&self) -> usize {
        self.vectors.nrows().saturating_mul(self.matrix.len())
    }

    fn has_gpu(&self) -> bool {
        T::float32(self.vectors).is_some()
    }

    fn on_cpu(&mut self) -> Result<()> {
        cpu::products(self.vectors, self.matrix, self.out)
    }

    fn on_reference(&mut self) -> Result<()> {
        reference::products(self.vectors, self.matrix, self.out)
    }

    fn on_gpu(&mut self, gpu: &mut gpu::Products) -> Result<()> {
        let out = T::float32_mut(self.out).ok_or_else(gpu::float32_only)?;
        gpu.products(gpu::float32(self.vectors)?, out)
    }

    fn open(&self, ordinal: usize) -> Result<gpu::Products> {
        gpu::Products::open(ordinal, gpu::float32(self.matrix)?)
    }
}
