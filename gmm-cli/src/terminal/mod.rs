//! Messages to the user during and after the work, and the handling of Ctrl-C.
mod fit_progress;
pub mod interrupt;
mod progress;
pub mod text;
mod verbosity;

pub use fit_progress::FitProgress;
pub use interrupt::Interrupt;
pub use progress::ProgressLine;
pub use verbosity::Verbosity;
