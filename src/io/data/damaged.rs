//! Errors about damaged files, also from the libraries of Arrow and Parquet, which may panic on them.
use crate::io::Problem;
#[cfg(feature = "parquet")]
use gmm_host::memory;
#[cfg(any(feature = "clap", feature = "parquet"))]
use std::cell::Cell;
#[cfg(feature = "parquet")]
use std::panic::{AssertUnwindSafe, catch_unwind};

#[cfg(any(feature = "clap", feature = "parquet"))]
thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread runs [`guarded`].
#[cfg(feature = "clap")]
pub(crate) fn panics_are_caught() -> bool {
    GUARDED.get()
}

/// Runs code of the libraries of Arrow and Parquet, which may panic on damaged files.
#[cfg(feature = "parquet")]
pub(in crate::io) fn guarded<T>(read: impl FnOnce() -> Result<T, Problem>) -> Result<T, Problem> {
    GUARDED.set(true);
    let result = catch_unwind(AssertUnwindSafe(read));
    GUARDED.set(false);
    result.unwrap_or_else(|_| Err(damaged("its parts contradict each other")))
}

/// Returns the problem of a file that violates its format.
pub(in crate::io) fn damaged(error: impl std::fmt::Display) -> Problem {
    const LENGTH: usize = 300;
    let text: String = error.to_string().chars().take(LENGTH).collect();
    Problem::format(format!("the file is damaged, or has a form that is not supported: {text}"))
}

/// Checks, before memory is taken, that a part of a file does not claim more bytes than data may take.
#[cfg(feature = "parquet")]
pub(super) fn check_memory(bytes: u64) -> Result<(), Problem> {
    if bytes <= memory::half() {
        return Ok(());
    }
    let claimed = memory::in_words(bytes.into());
    Err(damaged(format_args!(
        "a part claims {claimed}, more than half of this machine's memory; write it in smaller record batches"
    )))
}
