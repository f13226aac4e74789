//! The rows of `gmm bench`, as they are printed and read as JSON.
use crate::terminal::text;
use anyhow::{Context, ensure};
use gaussmix::device::Device;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What `--json` prints for each measurement, and `gmm bench report` reads.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    pub device: String,
    pub kernel: String,
    pub n: usize,
    pub k: usize,
    pub d: usize,
    pub seconds: f64,
}

impl Row {
    /// The device of that name.
    pub fn device(&self) -> Option<Device> {
        self.device.parse().ok()
    }
}

/// Prints the rows of a table: with `json` as they are, else by `report`, which also has the notes
/// about what was not measured.
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
    Ok(text::print(report(rows, notes))?)
}

/// Reads rows that `--json` printed.
pub fn read_rows(path: &Path) -> anyhow::Result<Vec<Row>> {
    let place = || path.display().to_string();
    let text = gaussmix::io::read_text(path)?;
    let rows: Vec<Row> = serde_json::from_str(&text).with_context(|| format!("{}: not rows of gmm bench", place()))?;
    for (i, row) in rows.iter().enumerate() {
        let usable = row.n > 0 && row.seconds.is_finite() && row.seconds > 0.0;
        ensure!(usable, "{}: row {i} (counted from 0): `n` and `seconds` must be above 0", place());
    }
    Ok(rows)
}
