//! The plot of `gmm fit`: the data and the components, and the lower bound of each iteration.
use super::chart::{Area, COLOURS, GREY, axes, padded, to_svg_with};
use super::overlay::{Overlay, Stroke};
use super::plane::Plane;
use crate::input::Source;
use crate::terminal::text;
use gaussmix::data::Samples;
use gaussmix::evaluator::{CpuEvaluator, Evaluator};
use gaussmix::model::Mixture;
use ndarray::{Array2, ArrayView1};
use plotters::prelude::*;
use rand::SeedableRng;
use rand::seq::index;
use rand_chacha::ChaCha8Rng;

/// The width of the chart of the data, on the left.
const LEFT: u32 = 760;
/// The width of a column of the legend, in the middle.
const LEGEND: u32 = 112;
/// The width of the chart of the lower bound, on the right.
const RIGHT: u32 = 480;
const HEIGHT: u32 = 580;
/// Lines of the legend in one column.
const LINES: usize = 28;
const COLUMNS: usize = 3;
const POINTS: usize = 2000;
/// The radii of the ellipses around a mean, in standard deviations.
const RADII: [f64; 2] = [1.0, 2.0];

/// A fit to draw, in the data's units.
pub struct Fitted<'a> {
    pub mixture: &'a Mixture,
    /// Whether each component is alive (K,); the others are drawn faintly.
    pub alive: &'a [bool],
    /// The lower bound of each iteration, and its label.
    pub bounds: &'a [f64],
    pub bound: &'a str,
}

impl Fitted<'_> {
    fn stroke(&self, c: usize) -> Stroke {
        if self.mixture.is_noise(c) {
            return Stroke::solid(GREY, 2.0);
        }
        let stroke = Stroke::of_component(c);
        if self.alive[c] { stroke } else { stroke.faint() }
    }
}

type Shapes = Result<String, Box<dyn std::error::Error>>;

/// Samples to draw, in the data's units, each with its most probable component.
pub struct Scatter {
    /// Missing values are filled in with their means given the rest of the sample.
    x: Array2<f64>,
    filled_in: Vec<bool>,
    labels: Vec<usize>,
    n_samples: usize,
}

impl Scatter {
    /// Chooses samples at random, and drops those without weight or without observed values. `mixture` is in the
    /// evaluator's units.
    pub fn new(source: &Source<'_>, evaluator: &mut dyn Evaluator, mixture: &Mixture) -> gaussmix::Result<Self> {
        let n_samples = evaluator.n_samples();
        let mut chosen = index::sample(&mut ChaCha8Rng::seed_from_u64(0), n_samples, POINTS.min(n_samples)).into_vec();
        chosen.sort_unstable();
        let rows = evaluator.rows(&chosen)?;
        let has_value = |i: usize| rows.x.row(i).iter().any(|v| !v.is_nan());
        let counted: Vec<usize> = (0..chosen.len()).filter(|&i| rows.weights[i] > 0.0 && has_value(i)).collect();
        let mut x = rows.x.select(ndarray::Axis(0), &counted);
        let filled_in: Vec<bool> = x.outer_iter().map(|x| x.iter().any(|v| v.is_nan())).collect();
        let mut labels = Vec::new();
        if !counted.is_empty() {
            let samples = Samples::with_shared_missing(x.to_shared())?;
            if filled_in.contains(&true) {
                x = mixture.impute(&samples)?;
            }
            labels = CpuEvaluator::new(samples)?.predict(mixture)?;
        }
        if let Some(standard) = &source.standardization {
            x = x * standard.scale() + standard.mean();
        }
        Ok(Self { x, filled_in, labels, n_samples })
    }

    fn caption(&self, fit: &Fitted<'_>) -> String {
        let (mut k, drawn) = (text::components(fit.mixture.n_gaussians()), self.labels.len());
        let alive = fit.alive.iter().filter(|alive| **alive).count();
        if alive < fit.alive.len() {
            k += &format!(", {alive} alive");
        }
        let of = if drawn < self.n_samples { format!("{} of ", text::grouped(drawn as u64)) } else { String::new() };
        let open = if self.filled_in.contains(&true) { " (open: values missing)" } else { "" };
        format!("{of}{} samples{open}, {k}", text::grouped(self.n_samples as u64))
    }
}

/// Draws the samples with the components on the left and the lower bound of each iteration on the right, as SVG text.
/// `names` are those of the features, if any.
pub fn fit(scatter: &Scatter, fit: &Fitted<'_>, names: &[String]) -> anyhow::Result<String> {
    let one_feature = fit.mixture.n_features() == 1;
    // The histogram has one more line, the density of the whole mixture.
    let entries = fit.mixture.n_components() + usize::from(one_feature);
    let columns = entries.div_ceil(LINES).clamp(1, COLUMNS);
    let split = LEFT + LEGEND * columns as u32;
    to_svg_with((split + RIGHT, HEIGHT), |root| {
        let (left, right) = root.split_horizontally(split);
        let (left, _) = left.split_horizontally(LEFT);
        let shapes =
            if one_feature { histogram(&left, scatter, fit, names)? } else { plane(&left, scatter, fit, names)? };
        Ok(shapes + &bounds(&right, fit)?)
    })
}

/// Draws the legend beside the left chart: the lines of `first`, then the line and the weight of each component.
fn legend(overlay: &mut Overlay, fit: &Fitted<'_>, first: &[(&str, Stroke)]) {
    let place = |i: usize| (f64::from(LEFT + LEGEND * (i / LINES) as u32) + 6.0, 64.0 + 18.0 * (i % LINES) as f64);
    overlay.entry((f64::from(LEFT) + 6.0, 44.0), None, "component: weight");
    for (i, (name, stroke)) in first.iter().enumerate() {
        overlay.entry(place(i), Some(*stroke), name);
    }
    let (k, room) = (fit.mixture.n_components(), COLUMNS * LINES - first.len());
    let shown = if k > room { room - 1 } else { k };
    for (c, weight) in fit.mixture.weights().iter().enumerate().take(shown) {
        let name = if fit.mixture.is_noise(c) { "noise".into() } else { c.to_string() };
        overlay.entry(place(first.len() + c), Some(fit.stroke(c)), &format!("{name}: {weight:.3}"));
    }
    if shown < k {
        overlay.entry(place(first.len() + shown), None, &format!("and {} more", k - shown));
    }
}

fn plane(area: &Area<'_>, scatter: &Scatter, fit: &Fitted<'_>, names: &[String]) -> Shapes {
    let mixture = fit.mixture;
    let plane = Plane::of(&mixture.without_noise(), names);
    let points: Vec<(f64, f64)> = scatter.x.outer_iter().map(|x| plane.project(x)).collect();
    let k = mixture.n_gaussians();
    let ellipses: Vec<_> = (0..k).map(|c| plane.ellipse(mixture, c)).collect();
    // The chart shows the inner ellipses of alive components completely: in direction j they reach ±√(A·Aᵀ)ⱼⱼ from the
    // mean.
    let corners = ellipses.iter().zip(fit.alive).filter(|(_, alive)| **alive).flat_map(|((centre, [a, b, d]), _)| {
        let (x, y) = (a.abs(), b.hypot(*d));
        [(centre.0 - x, centre.1 - y), (centre.0 + x, centre.1 + y)]
    });
    let seen: Vec<(f64, f64)> = points.iter().copied().chain(corners).collect();
    let seen = || seen.iter();
    let (x, y) = (padded(seen().map(|p| p.0)), padded(seen().map(|p| p.1)));
    let caption = format!("{}; ellipses at 1 and 2 standard deviations", scatter.caption(fit));
    let mut chart = axes(area, &caption, (x, y), [&plane.labels[0], &plane.labels[1]], false)?;
    let dots = points.iter().zip(&scatter.labels).zip(&scatter.filled_in);
    chart.draw_series(dots.map(|((&p, &c), &filled_in)| {
        let colour = fit.stroke(c).colour.mix(0.45);
        Circle::new(p, 2, if filled_in { colour.into() } else { colour.filled() })
    }))?;
    let mut overlay = Overlay::new(chart.plotting_area().get_pixel_range(), x, y);
    for (c, (centre, shape)) in ellipses.iter().enumerate() {
        for radius in RADII {
            overlay.ellipse(*centre, shape.map(|v| radius * v), fit.stroke(c));
        }
    }
    for (c, (centre, _)) in ellipses.iter().enumerate() {
        overlay.badge(*centre, &c.to_string(), fit.stroke(c));
    }
    legend(&mut overlay, fit, &[]);
    Ok(overlay.finish("plane"))
}

/// Draws data of one feature: a histogram, and the densities of the mixture and of its components.
fn histogram(area: &Area<'_>, scatter: &Scatter, fit: &Fitted<'_>, names: &[String]) -> Shapes {
    const BINS: usize = 60;
    const GRID: usize = 400;
    let mixture = fit.mixture;
    let x = padded(scatter.x.iter().copied());
    let width = (x.1 - x.0) / BINS as f64;
    let mut counts = [0.0; BINS];
    for v in &scatter.x {
        counts[(((v - x.0) / width) as usize).min(BINS - 1)] += 1.0 / (scatter.x.len() as f64 * width);
    }
    let grid: Vec<f64> = (0..GRID).map(|i| x.0 + (x.1 - x.0) * i as f64 / (GRID - 1) as f64).collect();
    let curves: Vec<Vec<f64>> = (0..mixture.n_gaussians()).map(|c| density(mixture, c, &grid)).collect();
    let noise = mixture.noise().map_or(0.0, |noise| mixture.weights()[curves.len()] / noise.volume);
    let total: Vec<f64> = (0..GRID).map(|i| noise + curves.iter().map(|c| c[i]).sum::<f64>()).collect();
    let top = 1.08 * total.iter().chain(&counts).copied().fold(0.0, f64::max);
    let caption = format!("{}: density of the mixture and of its components", scatter.caption(fit));
    let feature = names.first().map_or("column 0", String::as_str);
    let mut chart = axes(area, &caption, (x, (0.0, top)), [feature, "density"], false)?;
    chart.draw_series(counts.iter().enumerate().filter(|(_, n)| **n > 0.0).map(|(b, &n)| {
        let left = x.0 + b as f64 * width;
        Rectangle::new([(left, 0.0), (left + width, n)], GREY.filled())
    }))?;
    let all = Stroke::solid(BLACK, 2.5);
    let mut overlay = Overlay::new(chart.plotting_area().get_pixel_range(), x, (0.0, top));
    overlay.line(grid.iter().copied().zip(total), all);
    for (c, curve) in curves.iter().enumerate() {
        overlay.line(grid.iter().copied().zip(curve.iter().copied()), fit.stroke(c));
    }
    for (c, curve) in curves.iter().enumerate() {
        let highest = (0..GRID).max_by(|&i, &j| curve[i].total_cmp(&curve[j])).unwrap_or(0);
        overlay.badge((grid[highest], curve[highest]), &c.to_string(), fit.stroke(c));
    }
    legend(&mut overlay, fit, &[("mixture", all)]);
    Ok(overlay.finish("densities"))
}

/// Returns πₖ N(x; μₖ, σₖ²) on a grid, for a mixture over one feature. Every covariance type then has one variance for
/// each component, or one for all.
fn density(mixture: &Mixture, c: usize, grid: &[f64]) -> Vec<f64> {
    let variances: Vec<f64> = mixture.covariances().iter().collect();
    let variance = variances[c.min(variances.len() - 1)];
    let (weight, mean) = (mixture.weights()[c], mixture.means()[[c, 0]]);
    let norm = weight / (std::f64::consts::TAU * variance).sqrt();
    ArrayView1::from(grid).mapv(|x| norm * (-0.5 * (x - mean) * (x - mean) / variance).exp()).to_vec()
}

fn bounds(area: &Area<'_>, fit: &Fitted<'_>) -> Shapes {
    let lower_bounds = fit.bounds;
    let points: Vec<(f64, f64)> = lower_bounds.iter().enumerate().map(|(i, &v)| ((i + 1) as f64, v)).collect();
    let (x, y) = ((0.0, (points.len() + 1) as f64), padded(lower_bounds.iter().copied()));
    let mut chart = axes(area, fit.bound, (x, y), ["iteration", ""], true)?;
    let mut overlay = Overlay::new(chart.plotting_area().get_pixel_range(), x, y);
    overlay.line(points.iter().copied(), Stroke::solid(COLOURS[0], 2.0));
    if points.len() <= 60 {
        chart.draw_series(points.iter().map(|&p| Circle::new(p, 3, COLOURS[0].filled())))?;
    }
    Ok(overlay.finish("bounds"))
}
