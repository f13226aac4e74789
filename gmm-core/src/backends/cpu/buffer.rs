//! Memory aligned for every register.
use super::real::Real;
use aligned_vec::{AVec, ConstAlign};
use memmap2::MmapMut;
use pulp::bytemuck;
use std::alloc::{Layout, handle_alloc_error};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

pub(crate) type Buffer<T> = AVec<T, ConstAlign<64>>;

pub(crate) fn buffer<T: Real>(n: usize) -> Buffer<T> {
    let mut zeros = AVec::with_capacity(64, n);
    zeros.resize(n, T::from_f64(0.0));
    zeros
}

/// Zeros at first, in memory pages of their own, which are returned to the system on drop. Heap blocks of this size,
/// coming and going with the chunks of a large data set, would leave holes too small for later blocks.
#[derive(Debug)]
pub(crate) struct Pages<T> {
    map: MmapMut,
    element: PhantomData<T>,
}

impl<T: Real> Pages<T> {
    /// `length` is at least one.
    fn new(length: usize) -> Self {
        let layout = Layout::array::<T>(length).unwrap_or(Layout::new::<T>());
        match MmapMut::map_anon(length.saturating_mul(size_of::<T>())) {
            Ok(map) => {
                // In small pages, passes over samples in a virtual machine spend half of their time on page tables. A
                // system without large pages ignores this, so the outcome does not matter.
                #[cfg(target_os = "linux")]
                let _ = map.advise(memmap2::Advice::HugePage);
                Self { map, element: PhantomData }
            }
            // As a vector does when memory runs out.
            Err(_) => handle_alloc_error(layout),
        }
    }
}

/// Zeros at first, in their own pages if there are many: heap pages that come and go cost more than the computation.
#[derive(Debug)]
pub(crate) enum Zeros<T> {
    Heap(Buffer<T>),
    Pages(Pages<T>),
}

impl<T: Real> Zeros<T> {
    pub fn new(length: usize) -> Self {
        const MANY: usize = 1 << 18;
        if length < MANY { Self::Heap(buffer(length)) } else { Self::Pages(Pages::new(length)) }
    }
}

impl<T: Real> Deref for Zeros<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Heap(v) => v,
            Self::Pages(v) => v,
        }
    }
}

impl<T: Real> DerefMut for Zeros<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::Heap(v) => v,
            Self::Pages(v) => v,
        }
    }
}

impl<T: Real> Deref for Pages<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(&self.map)
    }
}

impl<T: Real> DerefMut for Pages<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut self.map)
    }
}
