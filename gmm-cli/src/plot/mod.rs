//! Plots as SVG.
mod chart;
mod fit;
mod overlay;
pub(crate) mod plane;
mod select;
mod traces;

pub use chart::{Series, log_log};
pub use fit::{Fitted, Scatter, fit};
pub use select::criterion;
pub use traces::{Trace, traces};
