//! The errors that the emulator catches.
use super::{Memory, launch, launch_together};
use crate::barrier;
use crate::likelihood::pair::{self, PairArgs};
use crate::reduce::{Output, UNWRITTEN};
use crate::simt::*;
use std::boxed::Box;
use std::panic::catch_unwind;
use std::string::String;
use std::vec;

/// The message of a failed launch.
fn failure(launch: impl FnOnce() + std::panic::UnwindSafe) -> String {
    *catch_unwind(launch).expect_err("the launch fails").downcast::<String>().expect("a message")
}

/// `pair` over `n` samples, for arrays of 40 samples with 2 features, and 3 components.
fn run_pair(n: u64, scores: &mut [f32]) -> f64 {
    /// Aligned as the kernel reads it.
    #[repr(align(16))]
    struct Samples([f32; 80]);
    let (x, parameters) = (Box::new(Samples([0.5; 80])), vec![0.25f32; 18]);
    let (mut partials, mut total) = (vec![f64::from_bits(UNWRITTEN); 2], vec![f64::NAN]);
    let mut memory = Memory::new();
    let args = PairArgs {
        x: memory.read("x", &x.0),
        stride: 40,
        n,
        k: 3,
        d: 2,
        parameters: memory.read("parameters", &parameters),
        samples: memory.write("scores", scores),
        output: Output { partials: memory.write("partials", &mut partials), total: memory.write("total", &mut total) },
    };
    // SAFETY: the arrays of the arguments, as far as they reach.
    unsafe { launch((2, 1), 64, pair::shared_bytes(2, 64), &memory, pair::kernel::pair, args) };
    total[0]
}

#[test]
fn reads_past_the_end_of_an_array_are_caught() {
    assert!(run_pair(40, &mut [f32::NAN; 41]).is_finite());
    // Sample 40 of feature 0 is sample 0 of feature 1; sample 40 of feature 1 is behind the array.
    let message = failure(|| _ = run_pair(41, &mut [f32::NAN; 41]));
    let expected =
        "reads 16 bytes that belong to no array of the launch: 320 bytes behind the start of `x`, which has 320";
    assert!(message.contains(expected), "{message}");
    // The second block takes sample 40, and thread 10 copies its quad of feature 1.
    assert!(message.starts_with("thread 10 of block (1, 0) failed"), "{message}");
}

#[test]
fn writes_past_the_end_of_an_array_are_caught() {
    let message = failure(|| _ = run_pair(40, &mut [f32::NAN; 39]));
    assert!(message.contains("writes 4 bytes that belong to no array") && message.contains("`scores`"), "{message}");
}

/// Launches one block whose first thread does `work` while the others wait for it at a barrier.
fn first_thread(memory: &Memory, p: *mut f32, work: fn(*mut f32)) -> String {
    #[derive(Clone, Copy)]
    struct Args(*mut f32, fn(*mut f32));
    unsafe fn kernel(args: Args) {
        if thread_idx() == 0 {
            args.1(args.0);
        }
        barrier!();
    }
    let args = Args(p, work);
    // SAFETY: all accesses are checked.
    failure(std::panic::AssertUnwindSafe(|| unsafe { launch((1, 1), 64, 16, memory, kernel, args) }))
}

#[test]
fn other_bad_accesses_are_caught_too() {
    let (constant, mut array) = ([0.0f32; 4], [0.0f32; 9]);
    let mut memory = Memory::new();
    let (reads, writes) = (memory.read("constant", &constant).cast_mut(), memory.write("array", &mut array));
    // SAFETY: the accesses are checked beforehand, here and below.
    let message = first_thread(&memory, reads, |p| unsafe { store(p, 1.0) });
    assert!(message.contains("it writes to `constant`, which is for reading"), "{message}");
    // One of the two is not a multiple of 16 bytes.
    let odd = if writes.addr().is_multiple_of(16) { writes.wrapping_add(1) } else { writes };
    // SAFETY: as above.
    let message = first_thread(&memory, odd, |p| unsafe { _ = load_f32x4(p) });
    assert!(message.contains("`array`") && message.contains("no multiple of 16"), "{message}");
    // SAFETY: as above.
    let message = first_thread(&memory, std::ptr::null_mut(), |p| unsafe { _ = load(p) });
    assert!(message.contains("before all arrays"), "{message}");
    // SAFETY: as above.
    let message = first_thread(&memory, writes, |_| unsafe { Shared::<f32>::at(16).set(0, 1.0) });
    assert!(message.contains("past the end of the shared memory"), "{message}");
}

/// Blocks that wait for each other do not wait for one that has failed.
#[test]
fn a_cooperative_launch_ends_when_a_thread_fails() {
    #[derive(Clone, Copy)]
    struct Args(*const f64);
    unsafe fn kernel(args: Args) {
        assert!(block_idx() != 1 || thread_idx() != 5, "on purpose");
        barrier!();
        // SAFETY: no thread writes there.
        while unsafe { load_fresh(args.0) } == 0.0 {
            pause();
        }
    }
    let flag = [0.0];
    let mut memory = Memory::new();
    let args = Args(memory.read("flag", &flag));
    let memory = std::panic::AssertUnwindSafe(&memory);
    // SAFETY: as above.
    let message = failure(std::panic::AssertUnwindSafe(|| unsafe { launch_together(2, 32, 0, &memory, kernel, args) }));
    assert_eq!(message, "thread 5 of block (1, 0) failed: on purpose");
}

/// Threads that wait at different barriers would wait forever.
#[test]
fn threads_that_wait_for_each_other_are_caught() {
    #[derive(Clone, Copy)]
    struct Nothing;
    unsafe fn kernel(_: Nothing) {
        if thread_idx() == 0 {
            warp_sync();
        }
        barrier!();
    }
    // SAFETY: it accesses no memory.
    let message = failure(|| unsafe { launch((1, 1), 32, 0, &Memory::new(), kernel, Nothing) });
    assert_eq!(message, "all threads wait for others at a barrier");
}

/// Of two launches, one resumes the reader before the writer, and one after it.
#[test]
fn a_missing_barrier_shows_in_one_of_two_launches() {
    #[derive(Clone, Copy)]
    struct Args(*mut f32);
    unsafe fn kernel(args: Args) {
        let number = Shared::<f32>::at(0);
        // SAFETY: inside the shared memory and the array; on the host the two threads run one after the other.
        unsafe {
            match thread_idx() {
                3 => number.set(0, 1.0),
                20 => store(args.0, number.get(0)),
                _ => {}
            }
        }
    }
    let found = [(); 2].map(|()| {
        let mut read = [0.0f32];
        let mut memory = Memory::new();
        let args = Args(memory.write("read", &mut read));
        // SAFETY: as above.
        unsafe { launch((1, 1), 32, 16, &memory, kernel, args) };
        read[0]
    });
    // Memory that has not been written is NaN.
    assert!(found.contains(&1.0) && found.iter().any(|v| v.is_nan()), "{found:?}");
}
