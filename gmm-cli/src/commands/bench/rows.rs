//! The rows of `gmm bench` as printed.
use crate::terminal::text;
use anyhow::ensure;
use gaussmix::device::Device;
use serde::{Deserialize, Serialize};

/// A measurement as `--json` prints it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// The device as the user named it.
    pub device: String,
    /// The kernel that ran, or the name of the workload if it has one kernel.
    pub kernel: String,
    /// The number of samples.
    pub n: usize,
    /// The number of components.
    pub k: usize,
    /// The number of features.
    pub d: usize,
    /// The time of one evaluation.
    pub seconds: f64,
}

impl Row {
    pub(super) fn device(&self) -> Option<Device> {
        self.device.parse().ok()
    }
}

/// Prints the rows as JSON, or by `report`, which also gets the notes about failed measurements. Errors: if nothing was
/// measured, or stdout cannot be written.
pub fn print_rows<R: Serialize>(
    rows: &[R],
    notes: &[String],
    json: bool,
    report: impl Fn(&[R], &[String]) -> String,
) -> anyhow::Result<()> {
    ensure!(!rows.is_empty(), "nothing could be measured: {}", notes.join("; "));
    if json {
        notes.iter().for_each(text::note);
        return text::print_json(&rows);
    }
    text::print(report(rows, notes))
}
