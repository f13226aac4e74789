//! Shapes drawn over a chart as SVG elements. `plotters` rounds coordinates to whole pixels, which makes curves bumpy;
//! here they keep fractions of a pixel.
use super::chart::COLOURS;
use plotters::style::RGBColor;
use std::fmt::Write;
use std::ops::Range;

/// Dash patterns of lines, as SVG's `stroke-dasharray`.
const DASHES: [&str; 6] = ["none", "9 4", "2 3", "10 3 2 3", "18 4", "6 3 2 3 2 3"];

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stroke {
    pub colour: RGBColor,
    pub dash: &'static str,
    pub width: f64,
    pub opacity: f64,
}

impl Stroke {
    pub fn solid(colour: RGBColor, width: f64) -> Self {
        Self { colour, dash: DASHES[0], width, opacity: 1.0 }
    }

    /// Returns the line of component `c`: six colours in six patterns distinguish 36 components. Black is left for the
    /// whole mixture.
    pub fn of_component(c: usize) -> Self {
        const N: usize = COLOURS.len() - 1;
        Self { colour: COLOURS[c % N], dash: DASHES[c / N % DASHES.len()], width: 2.0, opacity: 1.0 }
    }

    pub fn faint(self) -> Self {
        Self { opacity: 0.25, ..self }
    }

    fn attributes(&self) -> String {
        let RGBColor(r, g, b) = self.colour;
        format!(
            r#"fill="none" stroke="rgb({r},{g},{b})" stroke-width="{}" stroke-dasharray="{}" stroke-opacity="{}""#,
            self.width, self.dash, self.opacity
        )
    }
}

/// Shapes as SVG text. Shapes within the chart are clipped at its border; the legend is not.
#[derive(Debug)]
pub struct Overlay {
    pixels: (Range<i32>, Range<i32>),
    x: (f64, f64),
    y: (f64, f64),
    inside: String,
    above: String,
}

impl Overlay {
    /// `pixels` is the part of the drawing in which the chart shows the ranges `x` and `y`.
    pub fn new(pixels: (Range<i32>, Range<i32>), x: (f64, f64), y: (f64, f64)) -> Self {
        Self { pixels, x, y, inside: String::new(), above: String::new() }
    }

    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let share = |v: f64, (low, high): (f64, f64)| (v - low) / (high - low);
        let length = |range: &Range<i32>| f64::from(range.end - range.start);
        let (columns, rows) = &self.pixels;
        (
            f64::from(columns.start) + share(x, self.x) * length(columns),
            f64::from(rows.end) - share(y, self.y) * length(rows),
        )
    }

    pub fn line(&mut self, points: impl IntoIterator<Item = (f64, f64)>, stroke: Stroke) {
        let mut path = String::new();
        for p in points {
            let (x, y) = self.at(p);
            let _ = write!(path, "{x:.2},{y:.2} ");
        }
        let _ = writeln!(self.inside, r#"<polyline {} points="{path}"/>"#, stroke.attributes());
    }

    /// Draws the ellipse centre + A·(cos t, sin t) with A = [[a, 0], [b, d]].
    pub fn ellipse(&mut self, centre: (f64, f64), [a, b, d]: [f64; 3], stroke: Stroke) {
        let (cx, cy) = self.at(centre);
        let (ux, uy) = self.at((centre.0 + a, centre.1 + b));
        let (_, vy) = self.at((centre.0, centre.1 + d));
        // A in pixels. The half axes r and the rotation R follow from A·Aᵀ = R·diag(r²)·Rᵀ.
        let (a, b, d) = (ux - cx, uy - cy, vy - cy);
        let (xx, xy, yy) = (a * a, a * b, b * b + d * d);
        let (mean, half) = ((xx + yy) / 2.0, ((xx - yy) / 2.0).hypot(xy));
        let angle = 0.5 * (2.0 * xy).atan2(xx - yy).to_degrees();
        let (rx, ry) = ((mean + half).sqrt(), (mean - half).max(0.0).sqrt());
        let _ = writeln!(
            self.inside,
            r#"<ellipse {} cx="{cx:.2}" cy="{cy:.2}" rx="{rx:.2}" ry="{ry:.2}" transform="rotate({angle:.3} {cx:.2} {cy:.2})"/>"#,
            stroke.attributes()
        );
    }

    pub fn badge(&mut self, at: (f64, f64), text: &str, stroke: Stroke) {
        let (x, y) = self.at(at);
        let (RGBColor(r, g, b), opacity) = (stroke.colour, stroke.opacity);
        let width = 7.0 + 6.5 * text.len() as f64;
        let _ = writeln!(
            self.inside,
            r#"<rect x="{:.2}" y="{:.2}" width="{width}" height="15" rx="7" fill="white" fill-opacity="0.9" stroke="rgb({r},{g},{b})" stroke-width="1.5" opacity="{opacity}"/>"#,
            x - width / 2.0,
            y - 7.5
        );
        let _ = writeln!(
            self.inside,
            r#"<text x="{x:.2}" y="{:.2}" text-anchor="middle" font-family="sans-serif" font-size="11" fill="black" opacity="{opacity}">{text}</text>"#,
            y + 4.0
        );
    }

    /// Draws an entry of the legend at a position in pixels: a sample of the line, if any, and its text.
    pub fn entry(&mut self, (x, y): (f64, f64), stroke: Option<Stroke>, text: &str) {
        let text_x = match stroke {
            Some(stroke) => {
                let _ = writeln!(
                    self.above,
                    r#"<line {} x1="{x}" y1="{y}" x2="{}" y2="{y}"/>"#,
                    stroke.attributes(),
                    x + 36.0
                );
                x + 42.0
            }
            None => x,
        };
        let _ = writeln!(
            self.above,
            r#"<text x="{text_x}" y="{}" font-family="sans-serif" font-size="12" fill="black">{text}</text>"#,
            y + 4.0
        );
    }

    /// Returns the shapes as SVG text. `name` must be unique among the overlays of the drawing.
    pub fn finish(self, name: &str) -> String {
        let (columns, rows) = self.pixels;
        let (width, height) = (columns.end - columns.start, rows.end - rows.start);
        format!(
            "<clipPath id=\"{name}\"><rect x=\"{}\" y=\"{}\" width=\"{width}\" height=\"{height}\"/></clipPath>\n\
             <g clip-path=\"url(#{name})\">\n{}</g>\n{}",
            columns.start, rows.start, self.inside, self.above
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn dozens_of_components_can_be_told_apart() {
        let styles: HashSet<String> = (0..36).map(|c| Stroke::of_component(c).attributes()).collect();
        assert_eq!(styles.len(), 36);
    }

    #[test]
    fn an_ellipse_keeps_its_fractions() {
        // Ten pixels a unit to the right, five upwards.
        let mut overlay = Overlay::new((100..200, 0..50), (0.0, 10.0), (0.0, 10.0));
        overlay.ellipse((1.01, 9.0), [2.0, 0.0, 1.5], Stroke::of_component(0));
        let svg = overlay.finish("c");
        for part in [r#"cx="110.10""#, r#"cy="5.00""#, r#"rx="20.00""#, r#"ry="7.50""#, "rotate(0.000 "] {
            assert!(svg.contains(part) || svg.contains("rotate(-0.000 "), "{part} in {svg}");
        }
        // A circle of radius 10 sheared by b = 3 units downwards on the screen: A = [[10, 0], [−15, 10]] in pixels.
        let mut overlay = Overlay::new((0..100, 0..50), (0.0, 10.0), (0.0, 10.0));
        overlay.ellipse((5.0, 5.0), [1.0, 3.0, 2.0], Stroke::of_component(7));
        // The singular values of A are 5 and 20, its first left singular vector is (1, −2)/√5.
        let svg = overlay.finish("c");
        for part in [r#"rx="20.00""#, r#"ry="5.00""#, "rotate(-63.435 50.00 25.00)", r#"stroke-dasharray="9 4""#] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
    }
}
