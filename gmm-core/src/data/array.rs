//! The caller's arrays.
use ndarray::{ArcArray, ArrayView, Axis, Dimension};
use std::ops::Range;

/// An array of the caller, borrowed or shared.
#[derive(Debug, Clone)]
pub enum Array<'a, T, D: Dimension> {
    /// A borrowed array.
    Borrowed(ArrayView<'a, T, D>),
    /// A reference-counted array.
    Shared(ArcArray<T, D>),
}

impl<'a, T, D: Dimension> From<ArrayView<'a, T, D>> for Array<'a, T, D> {
    fn from(view: ArrayView<'a, T, D>) -> Self {
        Self::Borrowed(view)
    }
}

impl<T, D: Dimension> From<ArcArray<T, D>> for Array<'_, T, D> {
    fn from(array: ArcArray<T, D>) -> Self {
        Self::Shared(array)
    }
}

impl<T: Clone, D: Dimension> Array<'_, T, D> {
    /// Returns a view of the array.
    pub fn view(&self) -> ArrayView<'_, T, D> {
        match self {
            Self::Borrowed(x) => x.view(),
            Self::Shared(x) => x.view(),
        }
    }

    /// Returns the same array, borrowed from this one or shared with it.
    pub fn reborrow(&self) -> Array<'_, T, D> {
        match self {
            Self::Borrowed(x) => Array::Borrowed(x.view()),
            Self::Shared(x) => Array::Shared(x.clone()),
        }
    }

    /// Drops all rows but these, without copying an element.
    pub fn select_rows(&mut self, rows: Range<usize>) {
        let rows = ndarray::Slice::from(rows);
        match self {
            Self::Borrowed(x) => x.slice_axis_inplace(Axis(0), rows),
            Self::Shared(x) => x.slice_axis_inplace(Axis(0), rows),
        }
    }
}
