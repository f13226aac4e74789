//! The plot of `gmm mcmc`: traces and marginal distributions of the draws.
use super::chart::{Area, COLOURS, Drawn, FONT, LIGHT_GREY, label, padded, to_svg};
use plotters::prelude::*;

pub struct Trace {
    pub name: String,
    pub chains: Vec<Vec<f64>>,
}

/// The size of a quantity's two panels, in pixels.
const CELL: (u32, u32) = (560, 190);
const TRACE_WIDTH: u32 = 330;
/// The largest height of the page, as a part of its width.
const MAX_HEIGHT: f64 = 0.75;
/// Up to this many chains are drawn one by one. If there are more, the first ones are drawn as traces, and the marginal
/// is that of all chains together.
const MAX_CHAINS: usize = 7;
const MAX_POINTS: usize = 800;

/// Draws two panels for each quantity, its trace on the left and its marginal density on the right, as SVG text, in
/// enough columns that the page is wider than tall.
pub fn traces(traces: &[Trace]) -> anyhow::Result<String> {
    let (columns, rows) = grid(traces.len());
    to_svg((CELL.0 * columns as u32, CELL.1 * rows as u32), |root| {
        // The quantities fill one column after another.
        let areas = root.split_evenly((rows, columns));
        for (i, trace) in traces.iter().enumerate() {
            let (left, right) = areas[i % rows * columns + i / rows].split_horizontally(TRACE_WIDTH);
            draw(trace, &left, &right)?;
        }
        Ok(())
    })
}

fn grid(count: usize) -> (usize, usize) {
    let rows = |columns: usize| count.div_ceil(columns).max(1);
    let tall =
        |columns: usize| f64::from(CELL.1) * rows(columns) as f64 > MAX_HEIGHT * f64::from(CELL.0) * columns as f64;
    let mut columns = 1;
    while columns < count && tall(columns) {
        columns += 1;
    }
    (columns, rows(columns))
}

fn draw(trace: &Trace, left: &Area<'_>, right: &Area<'_>) -> Drawn {
    let draws = trace.chains.first().map_or(0, Vec::len);
    let range = padded(trace.chains.iter().flatten().copied());
    let mut chart = ChartBuilder::on(left)
        .margin(8)
        .x_label_area_size(38)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..draws.max(1) as f64, range.0..range.1)?;
    chart
        .configure_mesh()
        .x_desc("draw")
        .y_desc(&trace.name)
        .axis_desc_style((FONT, 14))
        .label_style((FONT, 12))
        .bold_line_style(LIGHT_GREY)
        .light_line_style(TRANSPARENT)
        .x_labels(5)
        .y_labels(5)
        .x_label_formatter(&|v| format!("{v:.0}"))
        .y_label_formatter(&|v| label(*v, range))
        .draw()?;
    let step = draws.div_ceil(MAX_POINTS).max(1);
    for (chain, colour) in trace.chains.iter().take(MAX_CHAINS).zip(COLOURS) {
        let points = chain.iter().enumerate().step_by(step).map(|(i, &v)| (i as f64, v));
        chart.draw_series(LineSeries::new(points, colour.mix(0.7).stroke_width(1)))?;
    }

    let groups: Vec<Vec<f64>> =
        if trace.chains.len() > MAX_CHAINS { vec![trace.chains.concat()] } else { trace.chains.clone() };
    let curves: Vec<Vec<(f64, f64)>> = groups.iter().map(|g| density(g, range)).collect();
    let top = curves.iter().flatten().map(|p| p.1).fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(right)
        .margin(8)
        .x_label_area_size(38)
        .y_label_area_size(24)
        .build_cartesian_2d(range.0..range.1, 0.0..if top > 0.0 { 1.08 * top } else { 1.0 })?;
    chart
        .configure_mesh()
        .x_desc(&trace.name)
        .y_desc("density")
        .axis_desc_style((FONT, 14))
        .label_style((FONT, 12))
        .bold_line_style(LIGHT_GREY)
        .light_line_style(TRANSPARENT)
        .disable_y_mesh()
        .x_labels(3)
        .y_labels(0)
        .x_label_formatter(&|v| label(*v, range))
        .draw()?;
    for (curve, colour) in curves.into_iter().zip(COLOURS) {
        chart.draw_series(LineSeries::new(curve, colour.stroke_width(2)))?;
    }
    Ok(())
}

/// Returns a kernel density estimate on a grid, with a normal kernel of the width recommended by Silverman (1986).
fn density(values: &[f64], (low, high): (f64, f64)) -> Vec<(f64, f64)> {
    const GRID: usize = 160;
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let std = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt();
    if !(std > 0.0 && std.is_finite()) {
        return Vec::new();
    }
    let width = 1.06 * std * n.powf(-0.2);
    // A few thousand values are enough for a plot.
    let step = values.len().div_ceil(4000);
    let thinned = values.iter().step_by(step);
    let norm = width * std::f64::consts::TAU.sqrt() * thinned.len() as f64;
    (0..GRID)
        .map(|i| {
            let x = low + (high - low) * i as f64 / (GRID - 1) as f64;
            (x, thinned.clone().map(|v| (-0.5 * ((x - v) / width).powi(2)).exp()).sum::<f64>() / norm)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_density_integrates_to_one() {
        let values: Vec<f64> = (0..500).map(|i| (i as f64 * 0.7).sin()).collect();
        let curve = density(&values, (-3.0, 3.0));
        let sum: f64 = curve.windows(2).map(|w| (w[1].0 - w[0].0) * 0.5 * (w[0].1 + w[1].1)).sum();
        // The trapezoidal rule is nearly exact over a smooth curve that vanishes at both ends.
        assert!((sum - 1.0).abs() < 1e-3, "{sum}");
        assert!(density(&[1.0; 10], (0.0, 2.0)).is_empty());
    }

    #[test]
    fn every_panel_has_axis_titles_on_a_page_of_usual_proportions() {
        let trace = |i: usize| Trace { name: format!("means.{i}.1"), chains: vec![vec![1.0, 2.0, 1.5, 1.2]; 2] };
        for count in [1, 2, 3, 8, 28, 32] {
            let svg = traces(&(0..count).map(trace).collect::<Vec<_>>()).unwrap();
            for i in 0..count {
                // One is beside the trace, one below the density.
                assert_eq!(svg.matches(&format!("means.{i}.1\n")).count(), 2, "{count}");
            }
            for title in ["draw\n", "density\n"] {
                assert_eq!(svg.matches(title).count(), count, "{title}, {count}");
            }
            let (columns, rows) = grid(count);
            assert!(columns * rows >= count && 1520 >= CELL.1 as usize * rows, "{count}: {columns} x {rows}");
        }
    }
}
