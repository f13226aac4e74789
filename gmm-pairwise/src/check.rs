//! Checks of all inputs.
use crate::number::Number;
use gmm_host::{Error, Result, memory};
use ndarray::parallel::prelude::*;
use ndarray::{ArrayView2, Axis};

/// The calling thread checks arrays of fewer elements.
const PARALLEL: usize = 1 << 17;

/// Checks that an array is not empty and that all its numbers are finite.
pub fn check<T: Number>(what: &'static str, x: ArrayView2<'_, T>) -> Result<()> {
    let (rows, columns) = x.dim();
    if rows == 0 || columns == 0 {
        return Err(Error::EmptyData { rows, columns });
    }
    let rows_at_once = (PARALLEL / 4 / columns).max(1);
    let pieces = || x.axis_chunks_iter(Axis(0), rows_at_once);
    let bad = if x.len() < PARALLEL {
        pieces().position(|piece| !all_finite(piece))
    } else {
        pieces().into_par_iter().enumerate().find_map_first(|(i, piece)| (!all_finite(piece)).then_some(i))
    };
    match bad {
        Some(piece) => check_rows(what, x, piece * rows_at_once..rows),
        None => Ok(()),
    }
}

/// Whether all numbers are finite, without a branch for each.
fn all_finite<T: Number>(x: ArrayView2<'_, T>) -> bool {
    match x.as_slice() {
        Some(numbers) => numbers.iter().fold(true, |all, v| all & v.is_finite()),
        None => x.iter().all(|v| v.is_finite()),
    }
}

/// As [`check`], for some rows.
pub fn check_rows<T: Number>(what: &'static str, x: ArrayView2<'_, T>, rows: std::ops::Range<usize>) -> Result<()> {
    for row in rows {
        if let Some((column, &value)) = x.row(row).iter().enumerate().find(|(_, v)| !v.is_finite()) {
            return Err(Error::NonFinite { what, row, column, value: value.into() });
        }
    }
    Ok(())
}

/// Checks the memory for a value of each row of `a` with each row of `b`.
pub fn check_products<T: Number>(what: &str, a: ArrayView2<'_, T>, b: ArrayView2<'_, T>) -> Result<()> {
    memory::check(what, &[a.nrows(), b.nrows()], size_of::<T>(), "take fewer rows at a time")
}

pub fn check_shape(what: &'static str, got: (usize, usize), expected: (usize, usize)) -> Result<()> {
    if got == expected {
        return Ok(());
    }
    Err(Error::ShapeMismatch { what, expected: vec![expected.0, expected.1], got: vec![got.0, got.1] })
}
