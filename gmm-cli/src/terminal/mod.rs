//! What the program tells the user while it runs and at its end, and how it hears Ctrl-C.
mod fit_progress;
pub mod interrupt;
mod progress;
pub mod text;
mod verbosity;

pub use fit_progress::FitProgress;
pub use interrupt::Interrupt;
pub use progress::ProgressLine;
pub use verbosity::Verbosity;
