//! `gather_f32`, `gather_f64`: some of the samples, side by side: what is read back for seeding a fit.
//!
//! * Launch: any grid, rows along x and features along y; any block.
//! * Must do: R·D reads of a 32-byte sector each (fewer where rows are neighbours), R·D coalesced writes.
use crate::simt::*;

/// Arguments of the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct GatherArgs<T> {
    /// Samples (D, stride): column j of sample i at `j * stride + i`.
    pub x: *const T,
    /// Elements from one column to the next.
    pub stride: u64,
    /// D.
    pub d: u32,
    /// The samples asked for (R,), each below N.
    pub rows: *const u32,
    /// R.
    pub n_rows: u32,
    /// Where they go (D, R).
    pub out: *mut T,
}

#[inline(always)]
unsafe fn body<T: Copy>(args: &GatherArgs<T>) {
    let mut j = block_idx_y();
    while j < args.d {
        let mut r = block_idx() * block_dim() + thread_idx();
        while r < args.n_rows {
            // SAFETY: r < R and j < D; the row is one of the samples.
            unsafe {
                let from = j as u64 * args.stride + *args.rows.add(r as usize) as u64;
                *args.out.add(j as usize * args.n_rows as usize + r as usize) = *args.x.add(from as usize);
            }
            r += grid_dim() * block_dim();
        }
        j += grid_dim_y();
    }
}

macro_rules! instance {
    ($name:ident $t:ty) => {
        kernel! {
            /// Copies rows of the data to columns of their own.
            ///
            /// # Safety
            /// The pointers of `args` are valid for the sizes given.
            pub unsafe fn $name(args: GatherArgs<$t>) {
                // SAFETY: the caller's.
                unsafe { body(&args) }
            }
        }
    };
}
instance!(gather_f32 f32);
instance!(gather_f64 f64);
