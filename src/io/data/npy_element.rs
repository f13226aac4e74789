//! The types of elements in NumPy's array files.
use super::array::Dtype;
use super::columns::short;
use super::npy_header::Header;
use crate::io::Problem;
use bytemuck::Pod;

pub(super) trait Element: Pod + Send + Sync {
    /// Returns the element with its bytes in the opposite order.
    fn swapped(self) -> Self;

    fn nearest(value: f64) -> Self;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stored {
    kind: Kind,
    /// The size of an element in bytes, at most 8.
    pub size: usize,
    /// Whether the byte order differs from this machine's.
    pub swap_bytes: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Boolean,
    Signed,
    Unsigned,
    Float,
}

impl Stored {
    /// Accepts types whose elements are numbers: integers and floating-point numbers of at most 64 bits, and truth
    /// values.
    pub fn of(header: &Header) -> Result<Self, Problem> {
        let (kind, size, big) = header.element().unwrap_or(('?', 0, false));
        let kind = match (kind, size) {
            ('b', 1) => Kind::Boolean,
            ('i', 1 | 2 | 4 | 8) => Kind::Signed,
            ('u', 1 | 2 | 4 | 8) => Kind::Unsigned,
            ('f', 2 | 4 | 8) => Kind::Float,
            _ => {
                return Err(Problem::format(format!(
                    "the array's type is {}; expected integers, booleans, float16, float32 or float64; save \
                     x.astype('float64')",
                    short(&header.descr)
                )));
            }
        };
        Ok(Self { kind, size: size as usize, swap_bytes: big != cfg!(target_endian = "big") })
    }

    /// Returns the type that the elements are read as.
    pub fn dtype(self) -> Dtype {
        if self.kind == Kind::Float && self.size <= 4 { Dtype::F32 } else { Dtype::F64 }
    }

    /// Returns the number stored in these [`size`](Self::size) bytes.
    fn number(self, bytes: &[u8]) -> f64 {
        let mut all = [0; 8];
        let (Some(used), true) = (all.get_mut(..self.size), bytes.len() == self.size) else { return f64::NAN };
        used.copy_from_slice(bytes);
        if self.swap_bytes != cfg!(target_endian = "big") {
            used.reverse();
        }
        let bits = u64::from_le_bytes(all);
        match (self.kind, self.size) {
            (Kind::Boolean, _) => f64::from(bits != 0),
            (Kind::Unsigned, _) => bits as f64,
            (Kind::Signed, size) => {
                let unused = 64 - 8 * size;
                ((bits << unused).cast_signed() >> unused) as f64
            }
            (Kind::Float, 2) => half::f16::from_bits(bits as u16).to_f64(),
            (Kind::Float, 4) => f64::from(f32::from_bits(bits as u32)),
            (Kind::Float, _) => f64::from_bits(bits),
        }
    }

    /// Whether elements are stored like `T` in memory, except for the byte order.
    pub fn is_as<T: Element>(self) -> bool {
        self.kind == Kind::Float && self.size == size_of::<T>()
    }

    /// Fills `out` with the elements stored in `bytes`.
    pub fn decode<T: Element>(self, bytes: &[u8], out: &mut [T]) {
        for (out, bytes) in out.iter_mut().zip(bytes.chunks_exact(self.size)) {
            *out = T::nearest(self.number(bytes));
        }
    }
}

impl Element for f32 {
    fn nearest(value: f64) -> Self {
        value as f32
    }

    fn swapped(self) -> Self {
        Self::from_bits(self.to_bits().swap_bytes())
    }
}

impl Element for f64 {
    fn nearest(value: f64) -> Self {
        value
    }

    fn swapped(self) -> Self {
        Self::from_bits(self.to_bits().swap_bytes())
    }
}
