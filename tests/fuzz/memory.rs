//! The peak memory of a thread.
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread has allocated and not freed, and their peak.
    static LIVE: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

/// The system's allocator, with a count of the bytes of each thread.
struct CountingAllocator;

fn count(bytes: i64) {
    let live = LIVE.get() + bytes;
    LIVE.set(live);
    PEAK.set(PEAK.get().max(live));
}

// SAFETY: every call goes to the system's allocator with the caller's arguments. Counting touches
// constant-initialised thread-local cells without destructors, which allocate nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise is that of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise is that of `System`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller's promise is that of `System`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // The old and the new block may exist at the same time.
        count(size as i64);
        count(-(layout.size() as i64));
        // SAFETY: the caller's promise is that of `System`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Runs `work` on this thread. Returns its result and its peak memory in bytes.
pub fn peak<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = work();
    (result, u64::try_from(PEAK.get() - before).unwrap_or(0))
}

#[test]
fn the_peak_counts_what_was_freed_again() {
    let (length, bytes) = peak(|| {
        let large: Vec<u8> = vec![1; 100_000];
        let length = large.len();
        drop(large);
        length + vec![1u8; 10].len()
    });
    assert_eq!(length, 100_010);
    assert!((100_000..110_000).contains(&bytes), "{bytes}");
}
