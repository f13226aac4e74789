use super::*;
use crate::arrays::COLUMNS;
use crate::math::Float;
use crate::simt::*;

#[inline(always)]
unsafe fn body<S: Float, T: Float>(args: &ColumnsArgs<S, T>) {
    let array = args.array;
    let first = block_idx_y() as u64 * COLUMNS as u64;
    counted!(for i in (block_idx() as u64 * block_dim() as u64 + thread_idx() as u64..args.stride)
        .step_by(grid_dim() as u64 * block_dim() as u64)
    {
        counted!(for c in 0..COLUMNS {
            let j = first + c as u64;
            if j < array.d {
                let mut v = T::ZERO;
                // SAFETY: an element of the array, a number for each column, and a place in the column.
                if i < array.n {
                    let (shift, scale) = (f64::load(args.shift.add(j as usize)), f64::load(args.scale.add(j as usize)));
                    v = T::narrow((S::load(array.at(i, j)).wide() - shift) * scale);
                }
                store(args.columns.wrapping_add((j * args.stride + i) as usize), v);
            }
        });
    });
}

kernels! {
    /// Copies samples into columns.
    array_columns_f32_f32: ColumnsArgs<f32, f32> = body;
    array_columns_f32_f64: ColumnsArgs<f32, f64> = body;
    array_columns_f64_f32: ColumnsArgs<f64, f32> = body;
    array_columns_f64_f64: ColumnsArgs<f64, f64> = body;
}
