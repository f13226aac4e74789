//! Types that the kernels of patterns share.
use super::*;
use crate::simt::*;

/// The columns that a pattern observes.
#[derive(Clone, Copy)]
pub(crate) struct Observed {
    words: *const u32,
    /// The first word; the only one for D up to 32.
    first: u32,
    width: u32,
}

impl Observed {
    /// The columns that a pattern of the launch observes.
    /// Safety: the pattern exists.
    #[inline(always)]
    pub(crate) unsafe fn of(masks: &Masks, pattern: usize) -> Self {
        let words = masks.words.wrapping_add(pattern * masks.width as usize);
        Self { words, first: load_u32(words), width: masks.width }
    }

    /// Whether column `j` is observed.
    #[inline(always)]
    pub(crate) fn has(self, j: usize) -> bool {
        let word = if self.width == 1 {
            self.first
        } else {
            // SAFETY: a column of the pattern.
            unsafe { load_u32(self.words.add(j / 32)) }
        };
        word >> (j % 32) & 1 != 0
    }
}

/// A work matrix in global memory.
#[derive(Clone, Copy)]
pub(crate) struct Matrix {
    at: *mut f64,
    d: usize,
}

impl Matrix {
    /// The matrix (D, D) at `at`.
    #[inline(always)]
    pub(crate) fn new(at: *mut f64, d: usize) -> Self {
        Self { at, d }
    }

    /// Safety: the element exists and is not written at the same time.
    #[inline(always)]
    pub(crate) unsafe fn get(self, i: usize, j: usize) -> f64 {
        load(self.at.add(i * self.d + j))
    }

    /// Safety: the element exists and no other thread accesses it at the same time.
    #[inline(always)]
    pub(crate) unsafe fn set(self, i: usize, j: usize, v: f64) {
        store(self.at.add(i * self.d + j), v);
    }
}

/// The lane's elements of a matrix of `width` columns: every 32nd, row by row.
#[derive(Clone, Copy)]
pub(crate) struct Cells {
    pub(crate) i: usize,
    pub(crate) j: usize,
    width: usize,
}

impl Cells {
    #[inline(always)]
    pub(crate) fn of(lane: usize, width: usize) -> Self {
        Self { i: 0, j: lane, width }.wrapped()
    }

    #[inline(always)]
    pub(crate) fn next(self) -> Self {
        Self { j: self.j + WARP as usize, ..self }.wrapped()
    }

    #[inline(always)]
    fn wrapped(mut self) -> Self {
        while self.j >= self.width {
            self.j -= self.width;
            self.i += 1;
        }
        self
    }
}
