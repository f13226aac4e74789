//! Reports of times: a table with the crossover, JSON, a plot.
use super::crossover::Crossover;
use super::options::OutputOptions;
use super::rows::Row;
use crate::plot::{self, Series};
use crate::terminal::text;
use anyhow::anyhow;
use gaussmix::Error;
use gaussmix::io::Output;

/// The words for a workload timed over several sizes.
pub struct Workload {
    /// The title of the plot.
    pub title: fn(&Row) -> String,
    /// The things that N counts.
    pub items: &'static str,
    /// The columns of the table: device, `about`, N, the time, the time of one item.
    pub header: [&'static str; 5],
    /// The text of the second column.
    pub about: fn(&Row) -> String,
}

/// A device, or one of its kernels, that could not be measured.
pub struct Missing {
    /// The device as the user named it.
    pub device: String,
    /// The kernel; empty if the whole device failed.
    pub kernel: String,
    /// Why it could not be measured.
    pub reason: Error,
}

impl Missing {
    fn label(&self) -> String {
        if self.kernel.is_empty() { self.device.clone() } else { format!("{} ({})", self.device, self.kernel) }
    }
}

/// Prints the table, or the rows as JSON, and draws the plot. Errors: if there are no rows, or a file or stdout cannot
/// be written.
pub fn report(
    workload: &Workload,
    rows: &[Row],
    missing: Vec<Missing>,
    published: Option<String>,
    json: bool,
    plot: Option<Output>,
) -> anyhow::Result<()> {
    if rows.is_empty() {
        let reason = missing.into_iter().next().map(|m| anyhow!(m.reason).context(m.device));
        return Err(reason.unwrap_or_else(|| anyhow!("there is nothing to report: no device, or no rows")));
    }
    // The rows of the first row's K and D.
    let same = |r: &&Row| (r.k, r.d) == (rows[0].k, rows[0].d);
    let of_one_shape: Vec<Row> = rows.iter().filter(same).cloned().collect();
    if json {
        for m in &missing {
            text::note(format_args!("{} is left out: {}", m.label(), m.reason));
        }
        text::print_json(&rows)?;
    } else {
        let notes = missing.iter().map(|m| format!("{}: {}", m.label(), m.reason));
        let crossover = Crossover::of(&of_one_shape).map(|c| c.to_string());
        let parts = [table(workload, rows, &missing)].into_iter().chain(notes).chain(crossover).chain(published);
        text::print(parts.collect::<Vec<_>>().join("\n\n"))?;
    }
    OutputOptions::draw(plot, json, || {
        let items = format!("number of {} N", workload.items);
        plot::log_log(&(workload.title)(&rows[0]), (&items, "seconds"), &series(&of_one_shape))
    })
}

fn table(workload: &Workload, rows: &[Row], missing: &[Missing]) -> String {
    let measured = rows.iter().map(|r| {
        let (n, one) = (text::grouped(r.n as u64), r.seconds / r.n as f64);
        vec![r.device.clone(), (workload.about)(r), n, text::seconds(r.seconds), text::seconds(one)]
    });
    let unavailable =
        missing.iter().map(|m| vec![m.device.clone(), m.kernel.clone(), "–".into(), "unavailable".into(), "–".into()]);
    text::table(&workload.header, measured.chain(unavailable), 2)
}

/// Returns a line of the plot for each device, or for each kernel if a device has several rows of one size.
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
        // The device chose different kernels for different sizes: still one line.
        let chosen = [row("cpu", "x", 10), row("cpu", "y", 20), row("reference", "z", 10)];
        assert_eq!(names(&chosen), ["cpu", "reference"]);
        let compared = [row("cpu", "x", 10), row("cpu", "y", 10), row("reference", "z", 10)];
        assert_eq!(names(&compared), ["cpu (x)", "cpu (y)", "reference"]);
    }
}
