//! What `gmm bench` says of times: a table with the crossover, JSON, a plot. `gmm bench report` says
//! it of times that were measured before.
use super::crossover::Crossover;
use super::options::OutputOptions;
use super::rows::{Row, read_rows};
use super::workload::Workload;
use crate::plot::{self, Series};
use crate::terminal::text;
use anyhow::anyhow;
use clap::Args;
use gaussmix::Error;
use gaussmix::io::Output;
use std::path::PathBuf;

/// Report and draw times that were measured before
#[derive(Debug, Args)]
pub struct Report {
    /// Rows that --json printed, on this machine or another
    #[arg(value_name = "ROWS.json")]
    rows: PathBuf,
    #[command(flatten)]
    output: OutputOptions,
}

impl Report {
    pub fn run(self) -> anyhow::Result<()> {
        let plot = self.output.create()?;
        let rows = read_rows(&self.rows)?;
        let workload = Workload::of(&rows);
        report(workload, &rows, Vec::new(), self.output.json, plot)
    }
}

/// A device, or one of its kernels, that could not be measured.
pub struct Missing {
    pub device: String,
    pub kernel: String,
    pub reason: Error,
}

impl Missing {
    fn label(&self) -> String {
        if self.kernel.is_empty() { self.device.clone() } else { format!("{} ({})", self.device, self.kernel) }
    }
}

/// Prints the table or the rows, and draws the plot.
pub fn report(
    workload: Workload,
    rows: &[Row],
    missing: Vec<Missing>,
    json: bool,
    plot: Option<Output>,
) -> anyhow::Result<()> {
    if rows.is_empty() {
        let reason = missing.into_iter().next().map(|m| anyhow!(m.reason).context(m.device));
        return Err(reason.unwrap_or_else(|| anyhow!("there is nothing to report: no device, or no rows")));
    }
    if json {
        for m in &missing {
            text::note(format_args!("{} is left out: {}", m.label(), m.reason));
        }
        text::print_json(&rows)?;
    } else {
        text::print(text_of(workload, rows, &missing))?;
    }
    if let Some(output) = plot {
        let of_one_shape = of_one_shape(rows);
        let items = format!("number of {} N", workload.items().0);
        let svg = plot::log_log(&workload.title(&rows[0]), (&items, "seconds"), &series(&of_one_shape))?;
        output.write(|file| file.write_all(svg.as_bytes()))?;
        if !json {
            text::print(format!("\nplot: {output}"))?;
        }
    }
    Ok(())
}

/// The rows of the first one's K and D.
fn of_one_shape(rows: &[Row]) -> Vec<Row> {
    let same = |r: &&Row| (r.k, r.d) == (rows[0].k, rows[0].d);
    rows.iter().filter(same).cloned().collect()
}

fn text_of(workload: Workload, rows: &[Row], missing: &[Missing]) -> String {
    let likelihood = workload == Workload::Likelihood;
    // The kernel's name is the workload's; in its place is the shape, which may differ from row to
    // row.
    let about = |r: &Row| match workload {
        Workload::Likelihood => r.kernel.clone(),
        Workload::InnerProducts => format!("{} × {}", text::grouped(r.k as u64), text::grouped(r.d as u64)),
        Workload::GaussianKernel => format!("D = {}", r.d),
    };
    let measured = rows.iter().map(|r| {
        vec![
            r.device.clone(),
            about(r),
            text::grouped(r.n as u64),
            text::seconds(r.seconds),
            text::seconds(r.seconds / r.n as f64),
        ]
    });
    let unavailable =
        missing.iter().map(|m| vec![m.device.clone(), m.kernel.clone(), "–".into(), "unavailable".into(), "–".into()]);
    let (second, fourth) = match workload {
        Workload::Likelihood => ("kernel", "evaluation"),
        Workload::InnerProducts => ("matrix", "products"),
        Workload::GaussianKernel => ("rows", "values"),
    };
    let header = ["device", second, "N", fourth, &format!("per {}", workload.items().1)];
    let mut out = text::table(&header, measured.chain(unavailable), 2);
    let notes = missing.iter().map(|m| format!("{}: {}", m.label(), m.reason));
    let crossover = Crossover::of(&of_one_shape(rows)).map(|c| c.to_string());
    let published = (!likelihood).then(|| workload.history(rows));
    for note in notes.chain(crossover).chain(published) {
        out.push_str("\n\n");
        out.push_str(&note);
    }
    out
}

/// A line of the plot for each device, and for each kernel where a device has several rows of the
/// same size.
fn series(rows: &[Row]) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    let several = |r: &Row| rows.iter().any(|o| o.device == r.device && o.n == r.n && o.kernel != r.kernel);
    for row in rows {
        let name = if several(row) { format!("{} ({})", row.device, row.kernel) } else { row.device.clone() };
        let point = (row.n as f64, row.seconds);
        match all.iter_mut().find(|s| s.name == name) {
            Some(series) => series.points.push(point),
            None => all.push(Series { name, points: vec![point] }),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(device: &str, kernel: &str, n: usize) -> Row {
        Row { device: device.into(), kernel: kernel.into(), n, k: 8, d: 13, seconds: 1.0 }
    }

    #[test]
    fn a_plot_has_a_line_for_each_kernel_that_was_compared() {
        let names = |rows: &[Row]| series(rows).into_iter().map(|s| s.name).collect::<Vec<_>>();
        // The device chose another kernel for another size: still one line.
        let chosen = [row("cpu", "x", 10), row("cpu", "y", 20), row("reference", "z", 10)];
        assert_eq!(names(&chosen), ["cpu", "reference"]);
        let compared = [row("cpu", "x", 10), row("cpu", "y", 10), row("reference", "z", 10)];
        assert_eq!(names(&compared), ["cpu (x)", "cpu (y)", "reference"]);
    }
}
