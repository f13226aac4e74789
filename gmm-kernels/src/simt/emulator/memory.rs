//! The arrays in global memory that a launch may access.
use std::marker::PhantomData;
use std::vec::Vec;

/// A kernel's access to global memory.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Access {
    Read,
    Write,
}

#[derive(Clone)]
struct Array {
    name: &'static str,
    start: usize,
    bytes: usize,
    writable: bool,
}

/// The arrays that a launch may access. A kernel that accesses anything else in global memory fails.
///
/// It borrows the arrays, and returns the pointers for the kernel's arguments. The memory past the end of one array
/// must not be another array of the launch: use allocations (`Vec`), not parts of one allocation or of the stack.
#[derive(Clone, Default)]
pub struct Memory<'a> {
    /// By their starts.
    arrays: Vec<Array>,
    borrowed: PhantomData<&'a mut ()>,
}

impl<'a> Memory<'a> {
    /// No arrays.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes allocations (start, bytes) that launches may read and write. None may be used after it was freed.
    pub fn of_allocations(allocations: impl IntoIterator<Item = (usize, usize)>) -> Self {
        let mut memory = Self::new();
        allocations.into_iter().for_each(|(start, bytes)| memory.add("an allocation", start, bytes, true));
        memory
    }

    /// Lets launches read an array. `name` is for the error.
    pub fn read<T>(&mut self, name: &'static str, array: &'a [T]) -> *const T {
        self.add(name, array.as_ptr().expose_provenance(), size_of_val(array), false);
        array.as_ptr()
    }

    /// Lets launches read and write an array. `name` is for the error.
    pub fn write<T>(&mut self, name: &'static str, array: &'a mut [T]) -> *mut T {
        let p = array.as_mut_ptr();
        self.add(name, p.expose_provenance(), size_of_val(array), true);
        p
    }

    fn add(&mut self, name: &'static str, start: usize, bytes: usize, writable: bool) {
        let place = self.arrays.partition_point(|a| a.start < start);
        self.arrays.insert(place, Array { name, start, bytes, writable });
    }

    /// Fails unless the bytes are in one array, which permits the access.
    pub(super) fn check(&self, address: usize, bytes: usize, align: usize, access: Access) {
        let inside = |a: &&Array| a.start <= address && address + bytes <= a.start + a.bytes;
        let verb = if access == Access::Read { "reads" } else { "writes" };
        let before = self.arrays.partition_point(|a| a.start <= address);
        match self.arrays[..before].iter().rev().find(inside) {
            Some(array) => {
                assert!(
                    array.writable || access == Access::Read,
                    "it writes to `{}`, which is for reading",
                    array.name
                );
                let offset = address - array.start;
                assert!(
                    address.is_multiple_of(align),
                    "it {verb} {bytes} bytes of `{}`, {offset} bytes behind its start, at an address that is no multiple of \
                     {align}",
                    array.name
                );
            }
            None => match self.arrays[..before].last() {
                Some(Array { name, start, bytes: length, .. }) => panic!(
                    "it {verb} {bytes} bytes that belong to no array of the launch: {} bytes behind the start of `{name}`, \
                     which has {length}",
                    address - start
                ),
                None => panic!("it {verb} {bytes} bytes at {address:#x}, before all arrays of the launch"),
            },
        }
    }
}
