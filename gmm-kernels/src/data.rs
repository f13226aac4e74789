//! The resident samples, in the layout that all kernels read.

/// Samples of a quad: four neighbours that are read together, 16 bytes of a column.
pub const QUAD: usize = 4;

/// The resident samples.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Columns {
    /// Samples (D, stride): column j of sample i at `j * stride + i`. Address and stride are multiples of 16 bytes.
    pub x: *const f32,
    /// Elements from one column to the next: at least N rounded up to a multiple of 4. All are finite, except NaN in
    /// the kernels for samples with missing values.
    pub stride: u64,
    /// N.
    pub n: u64,
    /// The number of quads, from the first on, that the L2 cache is asked to keep for the next launch.
    pub cached_quads: u32,
}

impl Columns {
    /// Number of quads, the last one possibly partial.
    #[inline(always)]
    pub fn quads(&self) -> u32 {
        self.n.div_ceil(QUAD as u64) as u32
    }

    /// Feature `j` of quad `i`.
    #[inline(always)]
    pub fn quad(&self, i: u32, j: usize) -> *const f32 {
        self.x.wrapping_add(j * self.stride as usize + QUAD * i as usize)
    }
}
