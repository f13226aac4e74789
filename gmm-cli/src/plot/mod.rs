//! Plots as SVG.
mod chart;
mod fit;
mod heat;
mod overlay;
pub(crate) mod plane;
mod select;
mod traces;

pub use chart::{Series, log_log};
pub use fit::{Fitted, Scatter, fit};
pub use heat::{HeatCell, HeatMap, heat_maps, ratio_text, shade};
pub use select::criterion;
pub use traces::{Trace, traces};
