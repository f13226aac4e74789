//! A fit: the data and its components, and how the lower bound rose.
use super::plane::Plane;
use super::{Area, COLOURS, Drawn, FONT, GREY, LIGHT_GREY, label, padded, to_svg};
use crate::commands::source::Source;
use crate::commands::text;
use gmm::{CpuEvaluator, Evaluator, Fit, Mixture, Samples};
use ndarray::{Array2, ArrayView1};
use plotters::prelude::*;
use rand::SeedableRng;
use rand::seq::index;
use rand_chacha::ChaCha8Rng;

const SIZE: (u32, u32) = (1240, 580);
/// Where the right part begins.
const SPLIT: u32 = 760;
/// Most samples that are drawn.
const POINTS: usize = 2000;
/// Distances of the ellipses from the means, in standard deviations.
const RADII: [f64; 2] = [1.0, 2.0];

/// Some of the samples, in the data's own units, each with its most probable component.
pub struct Scatter {
    x: Array2<f64>,
    labels: Vec<usize>,
    n_samples: usize,
}

impl Scatter {
    /// At random, of those that have weight; `mixture` is in the evaluator's units.
    pub fn new(source: &Source<'_>, evaluator: &mut dyn Evaluator, mixture: &Mixture) -> gmm::Result<Self> {
        let n_samples = evaluator.n_samples();
        let mut chosen = index::sample(&mut ChaCha8Rng::seed_from_u64(0), n_samples, POINTS.min(n_samples)).into_vec();
        chosen.sort_unstable();
        let rows = evaluator.rows(&chosen)?;
        let counted: Vec<usize> = (0..chosen.len()).filter(|&i| rows.weights[i] > 0.0).collect();
        let mut x = rows.x.select(ndarray::Axis(0), &counted);
        let labels = match counted.len() {
            0 => Vec::new(),
            _ => CpuEvaluator::new(Samples::from_f64(x.view())?)?.predict(mixture)?,
        };
        if let Some(standard) = &source.standardization {
            x = x * standard.scale() + standard.mean();
        }
        Ok(Self { x, labels, n_samples })
    }

    fn caption(&self, mixture: &Mixture) -> String {
        let (k, drawn) = (text::components(mixture.n_components()), self.labels.len());
        let of = if drawn < self.n_samples { format!("{} of ", text::grouped(drawn as u64)) } else { String::new() };
        format!("{of}{} samples, {k}", text::grouped(self.n_samples as u64))
    }
}

/// The samples with the fit's components on the left, its lower bounds on the right; as SVG text.
pub fn fit(scatter: &Scatter, fit: &Fit) -> anyhow::Result<String> {
    to_svg(SIZE, |root| {
        let (left, right) = root.split_horizontally(SPLIT);
        if fit.mixture.n_features() == 1 {
            histogram(&left, scatter, &fit.mixture)?;
        } else {
            plane(&left, scatter, &fit.mixture)?;
        }
        bounds(&right, &fit.lower_bounds)
    })
}

fn colour(c: usize) -> RGBColor {
    COLOURS[c % COLOURS.len()]
}

/// Samples and ellipses.
fn plane(area: &Area<'_>, scatter: &Scatter, mixture: &Mixture) -> Drawn {
    let plane = Plane::of(mixture);
    let points: Vec<(f64, f64)> = scatter.x.outer_iter().map(|x| plane.project(x)).collect();
    let ellipses: Vec<Vec<Vec<(f64, f64)>>> = (0..mixture.n_components())
        .map(|c| RADII.iter().map(|&radius| plane.ellipse(mixture, c, radius)).collect())
        .collect();
    // The inner ellipses are always seen as a whole.
    let seen = || points.iter().chain(ellipses.iter().flat_map(|e| &e[0]));
    let (x, y) = (padded(seen().map(|p| p.0)), padded(seen().map(|p| p.1)));
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{}; ellipses at 1 and 2 standard deviations", scatter.caption(mixture)), (FONT, 17))
        .margin(12)
        .x_label_area_size(46)
        .y_label_area_size(78)
        .build_cartesian_2d(x.0..x.1, y.0..y.1)?;
    chart
        .configure_mesh()
        .x_desc(&plane.labels[0])
        .y_desc(&plane.labels[1])
        .axis_desc_style((FONT, 16))
        .label_style((FONT, 13))
        .bold_line_style(LIGHT_GREY)
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|v| label(*v, x))
        .y_label_formatter(&|v| label(*v, y))
        .draw()?;
    let dots = points.iter().zip(&scatter.labels);
    chart.draw_series(dots.map(|(&p, &c)| Circle::new(p, 2, colour(c).mix(0.45).filled())))?;
    for (c, ellipses) in ellipses.into_iter().enumerate() {
        let style = colour(c).stroke_width(2);
        chart.draw_series(ellipses.into_iter().map(|line| PathElement::new(line, style)))?;
        let mean = plane.project(mixture.means().row(c));
        chart.draw_series([Circle::new(mean, 5, WHITE.filled()), Circle::new(mean, 4, colour(c).filled())])?;
    }
    Ok(())
}

/// For one feature: how often its values are, and the densities.
fn histogram(area: &Area<'_>, scatter: &Scatter, mixture: &Mixture) -> Drawn {
    const BINS: usize = 60;
    const GRID: usize = 400;
    let x = padded(scatter.x.iter().copied());
    let width = (x.1 - x.0) / BINS as f64;
    let mut counts = [0.0; BINS];
    for v in &scatter.x {
        counts[(((v - x.0) / width) as usize).min(BINS - 1)] += 1.0 / (scatter.x.len() as f64 * width);
    }
    let grid: Vec<f64> = (0..GRID).map(|i| x.0 + (x.1 - x.0) * i as f64 / (GRID - 1) as f64).collect();
    let curves: Vec<Vec<f64>> = (0..mixture.n_components()).map(|c| density(mixture, c, &grid)).collect();
    let total: Vec<f64> = (0..GRID).map(|i| curves.iter().map(|c| c[i]).sum()).collect();
    let top = 1.08 * total.iter().chain(&counts).copied().fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{}: density of all and of each", scatter.caption(mixture)), (FONT, 17))
        .margin(12)
        .x_label_area_size(46)
        .y_label_area_size(78)
        .build_cartesian_2d(x.0..x.1, 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc("column 0")
        .y_desc("density")
        .axis_desc_style((FONT, 16))
        .label_style((FONT, 13))
        .bold_line_style(LIGHT_GREY)
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|v| label(*v, x))
        .y_label_formatter(&|v| label(*v, (0.0, top)))
        .draw()?;
    chart.draw_series(counts.iter().enumerate().filter(|(_, n)| **n > 0.0).map(|(b, &n)| {
        let left = x.0 + b as f64 * width;
        Rectangle::new([(left, 0.0), (left + width, n)], GREY.filled())
    }))?;
    for (c, curve) in curves.into_iter().enumerate() {
        chart.draw_series(LineSeries::new(grid.iter().copied().zip(curve), colour(c).stroke_width(2)))?;
    }
    chart.draw_series(LineSeries::new(grid.iter().copied().zip(total), BLACK.stroke_width(2)))?;
    Ok(())
}

/// πₖ N(x; μₖ, σₖ²) on a grid, of a mixture over one feature, whose shapes all have one number for each component (or one in all).
fn density(mixture: &Mixture, c: usize, grid: &[f64]) -> Vec<f64> {
    let variances: Vec<f64> = mixture.covariances().iter().collect();
    let variance = variances[c.min(variances.len() - 1)];
    let (weight, mean) = (mixture.weights()[c], mixture.means()[[c, 0]]);
    let norm = weight / (std::f64::consts::TAU * variance).sqrt();
    ArrayView1::from(grid).mapv(|x| norm * (-0.5 * (x - mean) * (x - mean) / variance).exp()).to_vec()
}

/// The lower bound of each iteration.
fn bounds(area: &Area<'_>, lower_bounds: &[f64]) -> Drawn {
    let points: Vec<(f64, f64)> = lower_bounds.iter().enumerate().map(|(i, &v)| ((i + 1) as f64, v)).collect();
    let y = padded(lower_bounds.iter().copied());
    let mut chart = ChartBuilder::on(area)
        .caption("lower bound (mean log-likelihood of a sample)", (FONT, 17))
        .margin(12)
        .x_label_area_size(46)
        .y_label_area_size(78)
        .build_cartesian_2d(0.0..(points.len() + 1) as f64, y.0..y.1)?;
    chart
        .configure_mesh()
        .x_desc("iteration")
        .axis_desc_style((FONT, 16))
        .label_style((FONT, 13))
        .bold_line_style(LIGHT_GREY)
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|v| if v.fract() == 0.0 { format!("{v:.0}") } else { String::new() })
        .y_label_formatter(&|v| label(*v, y))
        .draw()?;
    chart.draw_series(LineSeries::new(points.iter().copied(), COLOURS[0].stroke_width(2)))?;
    if points.len() <= 60 {
        chart.draw_series(points.iter().map(|&p| Circle::new(p, 3, COLOURS[0].filled())))?;
    }
    Ok(())
}
