//! The launches of `array_ranges`, `array_columns` and `array_rows`, and the host's use of their results.
use crate::device::gpu::Limits;
use crate::device::kernel::Grid;
use crate::device::launch::launch;
use crate::device::memory::Numbers;
use crate::device::place::Element;
use crate::device::require;
use gmm_kernels::arrays::columns::ColumnsArgs;
use gmm_kernels::arrays::ranges::RangesArgs;
use gmm_kernels::arrays::rows::RowsArgs;
use gmm_kernels::arrays::{Array, COLUMNS};
use gmm_kernels::simt::WARP;
use std::marker::PhantomData;

/// An array (N, D) of `T` in the device's memory.
#[derive(Debug, Clone, Copy)]
pub struct ArrayOf<'a, T> {
    address: usize,
    shape: [usize; 2],
    strides: [isize; 2],
    elements: PhantomData<&'a T>,
}

impl<T: Element> ArrayOf<'_, T> {
    /// Row i and column j is `i * strides[0] + j * strides[1]` elements behind `address`.
    ///
    /// # Safety
    /// Each element is a `T` that kernels may read for the array's lifetime.
    pub unsafe fn new(address: usize, shape: [usize; 2], strides: [isize; 2]) -> Self {
        Self { address, shape, strides, elements: PhantomData }
    }

    pub fn n(&self) -> usize {
        self.shape[0]
    }

    pub fn d(&self) -> usize {
        self.shape[1]
    }

    fn argument(&self) -> Array<T> {
        Array {
            x: std::ptr::with_exposed_provenance(self.address),
            row_stride: self.strides[0] as i64,
            column_stride: self.strides[1] as i64,
            n: self.shape[0] as u64,
            d: self.shape[1] as u64,
        }
    }
}

/// Threads of a block.
const BLOCK: u32 = 256;
/// Blocks of `array_ranges` for each multiprocessor: enough for full speed, with few results.
const RANGES_BLOCKS: u32 = 4;
/// Most blocks of the other kernels along x; their threads loop over the rest.
const MOST_BLOCKS: usize = 1 << 16;

fn grid(blocks: usize, d: usize) -> Grid {
    let blocks = (blocks.clamp(1, MOST_BLOCKS) as u32, d.div_ceil(COLUMNS) as u32);
    Grid { blocks, ..Grid::new(1, BLOCK, 0) }
}

/// The range of each column, and the first element that is not finite.
#[derive(Clone, Copy)]
pub struct RangesLaunch<'a, T: Element> {
    pub array: ArrayOf<'a, T>,
    /// (warps, D)
    pub least: Numbers<'a, T>,
    /// (warps, D)
    pub greatest: Numbers<'a, T>,
    /// (blocks along y, warps)
    pub not_finite: Numbers<'a, u64>,
}

impl<T: Element> RangesLaunch<'_, T> {
    pub fn grid(array: &ArrayOf<'_, T>, limits: &Limits) -> Grid {
        let most = (RANGES_BLOCKS * limits.multiprocessors) as usize / array.d().div_ceil(COLUMNS);
        grid(array.n().div_ceil(BLOCK as usize).min(most), array.d())
    }

    /// Returns the number of warps along x.
    pub fn warps(grid: &Grid) -> usize {
        (grid.blocks.0 * grid.threads / WARP) as usize
    }
}

// The array's elements are readable, as `ArrayOf::new` requires.
launch!([T], RangesLaunch<'_, T>, RangesArgs<T>, "array_ranges", |launch, grid, what| {
    let (warps, d, y) = (RangesLaunch::<T>::warps(grid), launch.array.d(), grid.blocks.1 as usize);
    require(what, y >= d.div_ceil(COLUMNS))?;
    Ok(RangesArgs {
        array: launch.array.argument(),
        least: launch.least.write(warps * d, what)?,
        greatest: launch.greatest.write(warps * d, what)?,
        not_finite: launch.not_finite.write(warps * y, what)?,
    })
});

/// Returns the least index that a warp has found, if any.
pub fn least_index(not_finite: &[u64]) -> Option<u64> {
    not_finite.iter().copied().min().filter(|&index| index != u64::MAX)
}

/// Returns the range of each column, from those of the warps (warps, D).
pub fn ranges<T: Copy + Into<f64>>(least: &[T], greatest: &[T], d: usize) -> Vec<(f64, f64)> {
    let mut ranges = vec![(f64::INFINITY, f64::NEG_INFINITY); d];
    for (least, greatest) in least.chunks_exact(d).zip(greatest.chunks_exact(d)) {
        for ((range, &least), &greatest) in ranges.iter_mut().zip(least).zip(greatest) {
            *range = (range.0.min(least.into()), range.1.max(greatest.into()));
        }
    }
    ranges
}

/// All samples as columns.
#[derive(Clone, Copy)]
pub struct ColumnsLaunch<'a, S: Element, T: Element> {
    pub array: ArrayOf<'a, S>,
    /// (D,)
    pub shift: Numbers<'a, f64>,
    /// (D,)
    pub scale: Numbers<'a, f64>,
    /// (D, stride)
    pub columns: Numbers<'a, T>,
    pub stride: usize,
}

impl<S: Element, T: Element> ColumnsLaunch<'_, S, T> {
    pub fn grid(&self, limits: &Limits) -> Grid {
        let most = 64 * limits.multiprocessors as usize;
        grid(self.stride.div_ceil(BLOCK as usize).min(most), self.array.d())
    }
}

// The array's elements are readable, as `ArrayOf::new` requires.
launch!([S, T], ColumnsLaunch<'_, S, T>, ColumnsArgs<S, T>, "array_columns", |launch, grid, what| {
    let (n, d) = (launch.array.n(), launch.array.d());
    require(what, launch.stride >= n && grid.blocks.1 as usize >= d.div_ceil(COLUMNS))?;
    Ok(ColumnsArgs {
        array: launch.array.argument(),
        shift: launch.shift.read(d, what)?,
        scale: launch.scale.read(d, what)?,
        columns: launch.columns.write(d * launch.stride, what)?,
        stride: launch.stride as u64,
    })
});

/// Some existing rows.
#[derive(Clone, Copy)]
pub struct RowsLaunch<'a, T: Element> {
    pub array: ArrayOf<'a, T>,
    pub rows: Numbers<'a, u64>,
    /// (R, D)
    pub out: Numbers<'a, T>,
}

impl<T: Element> RowsLaunch<'_, T> {
    pub fn grid(&self) -> Grid {
        let blocks = (self.rows.len() * self.array.d()).div_ceil(BLOCK as usize);
        Grid::new(blocks.clamp(1, MOST_BLOCKS) as u32, BLOCK, 0)
    }
}

// The array's elements are readable, as `ArrayOf::new` requires, and `DeviceArray::rows_as` has checked the rows.
launch!([T], RowsLaunch<'_, T>, RowsArgs<T>, "array_rows", |launch, _grid, what| {
    let (count, d) = (launch.rows.len(), launch.array.d());
    Ok(RowsArgs {
        array: launch.array.argument(),
        rows: launch.rows.read(count, what)?,
        count: count as u64,
        out: launch.out.write(count * d, what)?,
    })
});
