//! The plot of `gmm select`: the criterion over the number of components.
use super::chart::{SIZE, Series, axes, draw_lines, padded, to_svg};
use plotters::prelude::*;

/// Draws a line for each series and a ring around the best point, as SVG text.
pub fn criterion(caption: &str, series: &[Series], best: (f64, f64)) -> anyhow::Result<String> {
    let points = || series.iter().flat_map(|s| &s.points);
    let (x, y) = (padded(points().map(|p| p.0)), padded(points().map(|p| p.1)));
    to_svg(SIZE, |root| {
        let mut chart = axes(root, caption, (x, y), ["number of components K", ""], true)?;
        chart.draw_series([Circle::new(best, 8, BLACK.stroke_width(2))])?;
        draw_lines(&mut chart, series, SeriesLabelPosition::UpperRight)
    })
}
