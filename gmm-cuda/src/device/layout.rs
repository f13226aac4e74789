//! Samples in the kernels' layout: column by column. Nothing here calls CUDA.
use gmm_core::data::frame::{Float, Frame};
use gmm_core::data::samples::{Samples, View};
use ndarray::{ArrayView2, s};
use rayon::prelude::*;

/// Columns begin at multiples of this many samples: whole cache lines, and whole blocks of rows for the conversion.
pub(crate) const STRIDE: usize = 512;

/// Returns the elements from one column to the next for `n` samples.
pub fn stride(n: usize) -> usize {
    n.next_multiple_of(STRIDE)
}

/// Writes the samples to `out`, (D, `stride(N)`): centred and scaled in float64, then rounded; zeros behind the last.
/// The weights of samples follow as one more column, divided by `weight_scale`.
pub(crate) fn columns<T: Float>(samples: &Samples<'_>, frame: &Frame, weight_scale: f64, out: &mut [T]) {
    let (n, d) = (samples.n_samples(), samples.n_features());
    let (x, weights) = out.split_at_mut(d * stride(n));
    match samples.view() {
        View::F32(view) => fill(view, frame, x),
        View::F64(view) => fill(view, frame, x),
    }
    self::weights(samples.weights().into_iter().flatten().copied(), weight_scale, weights);
}

/// Writes sample weights, divided by `scale`, to `out`; zeros behind the last.
pub(crate) fn weights<T: Float>(weights: impl Iterator<Item = f64>, scale: f64, out: &mut [T]) {
    let values = weights.map(|w| w / scale).chain(std::iter::repeat(0.0));
    out.iter_mut().zip(values).for_each(|(to, w)| *to = T::from_f64(w));
}

fn fill<S: Float, T: Float>(x: ArrayView2<'_, S>, frame: &Frame, out: &mut [T]) {
    write_columns(x, out, |j, v| T::from_f64(frame.apply(j, v.into())));
}

/// Returns rows in the kernels' layout: column by column, (D, `stride(N)`), zeros behind the last row.
pub fn transposed(x: ArrayView2<'_, f32>) -> Vec<f32> {
    let mut out = vec![0.0; x.ncols() * stride(x.nrows())];
    if !x.is_empty() {
        write_columns(x, &mut out, |_, v| v);
    }
    out
}

/// Writes `apply` of each column's number and each of its elements.
fn write_columns<S: Float, T: Float>(x: ArrayView2<'_, S>, out: &mut [T], apply: impl Fn(usize, S) -> T + Sync) {
    let (n, d) = x.dim();
    let stride = stride(n);
    debug_assert_eq!(out.len(), d * stride);
    // Blocks of a few rows and all columns, so that `x` is read from the cache in either memory order.
    let mut blocks: Vec<Vec<&mut [T]>> = (0..stride / STRIDE).map(|_| Vec::with_capacity(d)).collect();
    for column in out.chunks_exact_mut(stride) {
        for (blocks, block) in blocks.iter_mut().zip(column.chunks_exact_mut(STRIDE)) {
            blocks.push(block);
        }
    }
    blocks.into_par_iter().enumerate().for_each(|(p, columns)| {
        let rows = x.slice(s![p * STRIDE..n.min((p + 1) * STRIDE), ..]);
        for (j, column) in columns.into_iter().enumerate() {
            let (body, tail) = column.split_at_mut(rows.nrows());
            for (to, &from) in body.iter_mut().zip(rows.column(j)) {
                *to = apply(j, from);
            }
            tail.fill(T::from_f64(0.0));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array2, ShapeBuilder};

    #[test]
    fn columns_are_centred_in_float64_and_padded() {
        // 10⁷ plus a quarter is not a float32; less its neighbours' mean it is.
        let x = Array2::from_shape_fn((1030, 3), |(i, j)| 1e7 + 0.25 * (i as f64 + 10.0 * j as f64));
        let frame = Frame::of(x.view());
        let fortran = Array2::from_shape_fn((1030, 3).f(), |ij| x[ij]);
        for view in [x.view(), fortran.view()] {
            let mut out = vec![f32::NAN; 3 * 1536];
            columns(&Samples::from_f64(view).unwrap(), &frame, 1.0, &mut out);
            for j in 0..3 {
                for i in 0..1536 {
                    let exact = if i < 1030 { (x[[i, j]] - frame.shift[j]) * frame.scale[j] } else { 0.0 };
                    assert_eq!(out[j * 1536 + i], exact as f32);
                }
            }
        }
    }
}
