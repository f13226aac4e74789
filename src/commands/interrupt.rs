//! Ctrl-C.
use anyhow::Context;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The exit code of a program that ended because of Ctrl-C, as shells have it.
pub const EXIT_CODE: u8 = 130;

/// Whether Ctrl-C was pressed. The second time ends the program at once.
#[derive(Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on Ctrl-C is noted instead of ending the program; once in a process.
    pub fn install() -> anyhow::Result<Self> {
        let noted = Arc::new(AtomicBool::new(false));
        let handler = Arc::clone(&noted);
        ctrlc::set_handler(move || {
            if handler.swap(true, Ordering::Relaxed) {
                std::process::exit(EXIT_CODE.into());
            }
        })
        .context("Ctrl-C cannot be caught")?;
        Ok(Self(noted))
    }

    pub fn noted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
