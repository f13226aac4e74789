use super::*;
use crate::math::Float;
use crate::simt::*;
use core::num::NonZeroU64;

#[inline(always)]
unsafe fn body<T: Float>(args: &RowsArgs<T>) {
    let Some(d) = NonZeroU64::new(args.array.d) else { return };
    counted!(for e in (block_idx() as u64 * block_dim() as u64 + thread_idx() as u64..args.count * d.get())
        .step_by(grid_dim() as u64 * block_dim() as u64)
    {
        let (r, j) = (e / d, e % d);
        // SAFETY: a row of the list, an element of the array, and a place for it.
        let i = load_u64(args.rows.add(r as usize));
        store(args.out.add(e as usize), T::load(args.array.at(i, j)));
    });
}

kernels! {
    /// Copies chosen rows.
    array_rows_f32: RowsArgs<f32> = body;
    array_rows_f64: RowsArgs<f64> = body;
}
