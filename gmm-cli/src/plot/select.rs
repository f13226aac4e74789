//! The plot of `gmm select`: the criterion over the number of components.
use super::chart::{FONT, LIGHT_GREY, SIZE, Series, draw_lines, label, padded, to_svg};
use plotters::prelude::*;

/// Draws a line for each series and a ring around the best point, as SVG text.
pub fn criterion(caption: &str, series: &[Series], best: (f64, f64)) -> anyhow::Result<String> {
    let points = || series.iter().flat_map(|s| &s.points);
    let (x, y) = (padded(points().map(|p| p.0)), padded(points().map(|p| p.1)));
    to_svg(SIZE, |root| {
        let mut chart = ChartBuilder::on(root)
            .caption(caption, (FONT, 20))
            .margin(16)
            .x_label_area_size(48)
            .y_label_area_size(90)
            .build_cartesian_2d(x.0..x.1, y.0..y.1)?;
        chart
            .configure_mesh()
            .x_desc("number of components K")
            .axis_desc_style((FONT, 18))
            .label_style((FONT, 15))
            .bold_line_style(LIGHT_GREY)
            .light_line_style(TRANSPARENT)
            .x_label_formatter(&|v| if v.fract() == 0.0 { format!("{v:.0}") } else { String::new() })
            .y_label_formatter(&|v| label(*v, y))
            .draw()?;
        chart.draw_series([Circle::new(best, 8, BLACK.stroke_width(2))])?;
        draw_lines(&mut chart, series, SeriesLabelPosition::UpperRight)
    })
}
