//! Signals that ask a program to end: Ctrl-C, SIGTERM, and SIGHUP when its terminal is closed.
use anyhow::Context;
use gaussmix::program::remove_temporaries_and_exit;
use std::sync::atomic::{AtomicBool, Ordering};

/// The exit code after Ctrl-C, as shells report it, and here also after SIGTERM and SIGHUP.
pub const EXIT_CODE: u8 = 130;

/// Whether the running command checks for signals and ends in its own way.
static COMMAND_LOOKS: AtomicBool = AtomicBool::new(false);
static NOTED: AtomicBool = AtomicBool::new(false);

/// Makes a signal end the program at once without leaving an unfinished file, and makes a file beyond its size limit
/// (`ulimit -f`, SIGXFSZ) an error of the write. Call it once in a process.
pub fn handle_signals() -> anyhow::Result<()> {
    #[cfg(unix)]
    // SAFETY: `signal` with SIG_IGN runs no code of this program, and SIGXFSZ may be ignored.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
    keep_ignoring_hangups(|| {
        ctrlc::set_handler(|| {
            if !COMMAND_LOOKS.load(Ordering::SeqCst) || NOTED.swap(true, Ordering::SeqCst) {
                remove_temporaries_and_exit(EXIT_CODE.into());
            }
        })
        .context("the handler of Ctrl-C could not be installed")
    })
}

/// Runs `install`, which sets signal handlers, and then ignores SIGHUP again if it was ignored before: a program
/// started by `nohup` must continue when its terminal is closed, even at this moment.
#[cfg(unix)]
fn keep_ignoring_hangups<T>(install: impl FnOnce() -> T) -> T {
    // SAFETY: `signal` with SIG_IGN runs no code of this program, and SIGHUP may be ignored.
    let before = unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
    if before != libc::SIG_IGN {
        return install();
    }
    let mut hangup = std::mem::MaybeUninit::uninit();
    let mut earlier = std::mem::MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises the set, and `pthread_sigmask` the earlier mask, before they are used; the mask
    // is this thread's. A signal waits until SIGHUP is ignored again, and is then discarded. Threads that `install`
    // starts wait too.
    unsafe {
        libc::sigemptyset(hangup.as_mut_ptr());
        libc::sigaddset(hangup.as_mut_ptr(), libc::SIGHUP);
        libc::pthread_sigmask(libc::SIG_BLOCK, hangup.as_ptr(), earlier.as_mut_ptr());
    }
    let installed = install();
    // SAFETY: as for the calls above.
    unsafe {
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
        libc::pthread_sigmask(libc::SIG_SETMASK, earlier.as_ptr(), std::ptr::null_mut());
    }
    installed
}

#[cfg(not(unix))]
fn keep_ignoring_hangups<T>(install: impl FnOnce() -> T) -> T {
    install()
}

/// Held by a command that saves its state when a signal comes. A second signal ends the program at once.
pub struct Interrupt(());

impl Interrupt {
    /// From now on the first signal is noted instead of ending the program.
    pub fn install() -> Self {
        COMMAND_LOOKS.store(true, Ordering::SeqCst);
        Self(())
    }

    pub fn noted(&self) -> bool {
        NOTED.load(Ordering::SeqCst)
    }
}
