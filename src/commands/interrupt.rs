//! Ctrl-C, and the signals that ask a program to end: SIGTERM, and SIGHUP when the terminal goes.
use anyhow::Context;
use gmm::io::exit_without_temporaries;
use std::sync::atomic::{AtomicBool, Ordering};

/// The exit code of a program that ended because of Ctrl-C, as shells have it; SIGTERM and SIGHUP end it the same way.
pub const EXIT_CODE: u8 = 130;

/// Whether the command ends by itself when a signal comes.
static WATCHED: AtomicBool = AtomicBool::new(false);
/// Whether one has come.
static NOTED: AtomicBool = AtomicBool::new(false);

/// From now on a signal ends the program at once and leaves no unfinished file; once in a process.
pub fn handle_signals() -> anyhow::Result<()> {
    keep_ignoring_hangups(|| {
        ctrlc::set_handler(|| {
            if !WATCHED.load(Ordering::SeqCst) || NOTED.swap(true, Ordering::SeqCst) {
                exit_without_temporaries(EXIT_CODE.into());
            }
        })
        .context("Ctrl-C cannot be caught")
    })
}

/// A program that was started with SIGHUP ignored (by `nohup`) is to outlive its terminal: `install` must not change that.
#[cfg(unix)]
fn keep_ignoring_hangups<T>(install: impl FnOnce() -> T) -> T {
    // SAFETY: `signal` with SIG_IGN runs no code of this program, and SIGHUP may be ignored.
    let before = unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
    let installed = install();
    if before == libc::SIG_IGN {
        // SAFETY: as above.
        unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
    }
    installed
}

#[cfg(not(unix))]
fn keep_ignoring_hangups<T>(install: impl FnOnce() -> T) -> T {
    install()
}

/// For a command that keeps what it has when a signal comes. The second signal ends the program at once.
pub struct Interrupt(());

impl Interrupt {
    /// From now on a signal is noted instead of ending the program.
    pub fn install() -> Self {
        WATCHED.store(true, Ordering::SeqCst);
        Self(())
    }

    pub fn noted(&self) -> bool {
        NOTED.load(Ordering::SeqCst)
    }
}
