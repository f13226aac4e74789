//! Memory that is aligned for every register.
use super::real::Real;
use aligned_vec::{AVec, ConstAlign};

/// Elements of one type, aligned for every register.
pub(crate) type Buffer<T> = AVec<T, ConstAlign<64>>;

/// `n` zeros.
pub(crate) fn buffer<T: Real>(n: usize) -> Buffer<T> {
    let mut zeros = AVec::with_capacity(64, n);
    zeros.resize(n, T::from_f64(0.0));
    zeros
}
