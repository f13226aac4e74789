//! Colours, axes, lines and SVG text for all plots.
use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::coord::ranged1d::Ranged;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

/// Colours that colour-blind readers can tell apart (Okabe and Ito, 2008).
pub const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
];
pub const SIZE: (u32, u32) = (900, 600);
pub const FONT: &str = "sans-serif";
pub const GREY: RGBColor = RGBColor(205, 205, 205);
pub const LIGHT_GREY: RGBColor = RGBColor(238, 238, 238);

pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub type Drawn = Result<(), Box<dyn std::error::Error>>;

pub struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// Draws a chart of lines over two logarithmic axes, as SVG text. `labels` are the titles of the x axis and the y axis.
pub fn log_log(title: &str, labels: (&str, &str), series: &[Series]) -> anyhow::Result<String> {
    to_svg(SIZE, |root| draw_log_log(root, title, labels, series))
}

/// Returns the drawing of `draw` on a white page, as SVG text.
pub fn to_svg(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Drawn) -> anyhow::Result<String> {
    to_svg_with(size, |root| draw(root).map(|()| String::new()))
}

/// Returns the drawing of `draw` on a white page, below the SVG elements that `draw` returns (see
/// [`Overlay`](super::overlay::Overlay)), as SVG text.
pub fn to_svg_with(
    size: (u32, u32),
    draw: impl FnOnce(&Area<'_>) -> Result<String, Box<dyn std::error::Error>>,
) -> anyhow::Result<String> {
    let mut svg = String::new();
    let drawn = || {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        let overlay = draw(&root)?;
        root.present()?;
        Ok::<_, Box<dyn std::error::Error>>(overlay)
    };
    let overlay = drawn().map_err(|e| anyhow!("the plot could not be drawn: {e}"))?;
    let end = svg.rfind("</svg>").unwrap_or(svg.len());
    svg.insert_str(end, &overlay);
    Ok(without_forbidden_characters(svg))
}

/// Replaces characters that XML cannot hold, not even as references, by escapes such as `\u{1b}`: names of columns may
/// have them. (XML 1.0, section 2.2.)
fn without_forbidden_characters(svg: String) -> String {
    let forbidden =
        |c: char| matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}');
    if !svg.contains(forbidden) {
        return svg;
    }
    svg.chars().map(|c| if forbidden(c) { c.escape_unicode().to_string() } else { c.to_string() }).collect()
}

/// A chart over two linear axes.
pub type Chart<'a, 'svg> = ChartContext<'a, SVGBackend<'svg>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Draws the axes of a chart over the ranges `x` and `y`, with their titles; of counts, only whole numbers have labels.
pub fn axes<'a, 'svg>(
    area: &'a Area<'svg>,
    caption: &str,
    (x, y): ((f64, f64), (f64, f64)),
    titles: [&str; 2],
    counts: bool,
) -> Result<Chart<'a, 'svg>, Box<dyn std::error::Error>> {
    let mut chart = ChartBuilder::on(area)
        .caption(caption, (FONT, 17))
        .margin(12)
        .x_label_area_size(46)
        .y_label_area_size(78)
        .build_cartesian_2d(x.0..x.1, y.0..y.1)?;
    let of_x = |v: &f64| match counts {
        true if v.fract() != 0.0 => String::new(),
        true => format!("{v:.0}"),
        false => label(*v, x),
    };
    chart
        .configure_mesh()
        .x_desc(titles[0])
        .y_desc(titles[1])
        .axis_desc_style((FONT, 16))
        .label_style((FONT, 13))
        .bold_line_style(LIGHT_GREY)
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&of_x)
        .y_label_formatter(&|v| label(*v, y))
        .draw()?;
    Ok(chart)
}

fn draw_log_log(root: &Area<'_>, title: &str, labels: (&str, &str), series: &[Series]) -> Drawn {
    let points = || series.iter().flat_map(|s| &s.points);
    let x = decades(points().map(|p| p.0));
    let y = decades(points().map(|p| p.1));
    let mut chart = ChartBuilder::on(root)
        .caption(title, (FONT, 22))
        .margin(16)
        .x_label_area_size(48)
        .y_label_area_size(72)
        .build_cartesian_2d((x.0..x.1).log_scale(), (y.0..y.1).log_scale())?;
    chart
        .configure_mesh()
        .x_desc(labels.0)
        .y_desc(labels.1)
        .axis_desc_style((FONT, 18))
        .label_style((FONT, 15))
        .bold_line_style(GREY)
        .light_line_style(LIGHT_GREY)
        .x_label_formatter(&|v| power_of_ten(*v))
        .y_label_formatter(&|v| power_of_ten(*v))
        .draw()?;
    draw_lines(&mut chart, series, SeriesLabelPosition::UpperLeft)
}

pub fn draw_lines<'a, 'svg: 'a, X, Y>(
    chart: &mut ChartContext<'a, SVGBackend<'svg>, Cartesian2d<X, Y>>,
    series: &[Series],
    corner: SeriesLabelPosition,
) -> Drawn
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    for (s, colour) in series.iter().zip(COLOURS.into_iter().cycle()) {
        let style = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(s.points.iter().copied(), style))?
            .label(&s.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], style));
        chart.draw_series(s.points.iter().map(|&p| Circle::new(p, 4, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(corner)
        .legend_area_size(32)
        .margin(12)
        .label_font((FONT, 16))
        .background_style(WHITE.mix(0.9))
        .border_style(GREY)
        .draw()?;
    Ok(())
}

/// Returns the powers of ten next below and above the positive values.
fn decades(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.filter(|v| *v > 0.0).fold((f64::INFINITY, 0.0f64), |(l, h), v| (l.min(v), h.max(v)));
    if low > high {
        return (1.0, 10.0);
    }
    let low = low.log10().floor();
    // At least one decade, even for a single value that is a power of ten.
    let high = high.log10().ceil().max(low + 1.0);
    (10f64.powf(low), 10f64.powf(high))
}

fn power_of_ten(value: f64) -> String {
    let exponent = value.log10();
    if (exponent - exponent.round()).abs() > 1e-6 {
        return String::new();
    }
    let digits = format!("{exponent:.0}");
    let superscript = digits.chars().map(|c| match c {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        c => c.to_digit(10).and_then(|d| char::from_u32('⁰' as u32 + d)).unwrap_or(c),
    });
    format!("10{}", superscript.collect::<String>())
}

/// Returns the range of the finite values, extended by a twentieth on either side.
pub fn padded(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let finite = values.filter(|v| v.is_finite());
    let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    if low > high {
        return (0.0, 1.0);
    }
    // A range of a single value is extended by half of the value.
    let room = if high > low { (high - low) / 20.0 } else { low.abs().max(1.0) / 2.0 };
    (low - room, high + room)
}

/// Formats a number with as many decimals as the labels of an axis of this range need.
pub fn label(value: f64, (low, high): (f64, f64)) -> String {
    let step = (high - low) / 10.0;
    if low.abs().max(high.abs()) >= 1e7 || step < 1e-5 {
        return format!("{value:.3e}");
    }
    let decimals = (-step.log10().floor()).clamp(0.0, 5.0) as usize;
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_makes_xml() {
        let name = "a\u{1b}\u{0}\u{ffff}\u{c}<&>\"ü";
        let series = [Series { name: name.into(), points: vec![(1.0, 2.0), (10.0, 3.0)] }];
        let svg = log_log(name, (name, name), &series).unwrap();
        assert!(svg.contains("\\u{1b}\\u{0}\\u{ffff}\\u{c}&lt;&amp;") && svg.contains('ü'), "{svg}");
        assert!(!svg.contains(|c: char| c.is_control() && !"\n\r\t".contains(c)) && !svg.contains('\u{ffff}'));
    }
}
