//! Mixtures of one feature: distribution function, quantiles, and intervals of highest density.
use crate::compensated::{log_softmax, log_sum_exp};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::memory;
use crate::model::mixture::Mixture;
use libm::erfc;
use ndarray::{Array1, Array2, Axis};
use statrs::function::erf::erfc_inv;
use std::f64::consts::{FRAC_1_SQRT_2, SQRT_2, TAU};

/// # One feature
///
/// These methods need a mixture of one feature: take a [`marginal`](Self::marginal) first. They return
/// [`Error::BadParameter`] for several features, and for a bad argument.
impl Mixture {
    /// Returns the probability that a sample is at most `x`, with full relative precision in the lower tail.
    pub fn cdf(&self, x: f64) -> Result<f64> {
        if x.is_nan() {
            return Err(Error::BadParameter { name: "x", value: "NaN".into(), remedy: "give a number" });
        }
        Ok(Line::new(self)?.below(x).min(1.0))
    }

    /// Returns the value that a sample is below with probability `p`, from 0 to 1; infinite at both ends.
    pub fn quantile(&self, p: f64) -> Result<f64> {
        let line = Line::new(self)?;
        match p {
            0.0 => Ok(f64::NEG_INFINITY),
            1.0 => Ok(f64::INFINITY),
            _ if p > 0.0 && p < 1.0 => Ok(line.quantile(p)),
            _ => {
                Err(Error::BadParameter { name: "p", value: p.to_string(), remedy: "give a probability, from 0 to 1" })
            }
        }
    }

    /// Returns the region of highest density with the probability `level`, between 0 and 1: the shortest one of that
    /// probability (Hyndman 1996).
    ///
    /// ```
    /// use gmm_host::{Covariances, Mixture};
    /// use ndarray::array;
    ///
    /// let mixture = Mixture::new(array![0.5, 0.5], array![[-9.0], [9.0]], Covariances::Spherical(array![1.0, 1.0]))?;
    /// let region = mixture.hdr(0.95)?;
    /// assert!(region.intervals.len() == 2 && (region.intervals[1][0] - (9.0 - 1.96)).abs() < 1e-4);
    /// # Ok::<(), gmm_host::Error>(())
    /// ```
    pub fn hdr(&self, level: f64) -> Result<Region> {
        let line = Line::new(self)?;
        if !(level > 0.0 && level < 1.0) {
            let remedy = "give a probability above 0 and below 1, such as 0.95";
            return Err(Error::BadParameter { name: "level", value: level.to_string(), remedy });
        }
        Ok(line.region(level))
    }

    /// Returns the density and the distribution function at `n_points` equally spaced points from the 0.001 to the
    /// 0.999 quantile, for a plot.
    ///
    /// # Errors
    /// [`Error::BadParameter`] for fewer than two points; [`Error::Memory`].
    pub fn on_axis(&self, n_points: usize) -> Result<OnAxis> {
        let (line, k) = (Line::new(self)?, self.n_components());
        if n_points < 2 {
            let remedy = "at least two are needed, the first and the last; 200 make a smooth line";
            return Err(Error::BadParameter { name: "n_points", value: n_points.to_string(), remedy });
        }
        memory::check("the values on the axis", &[n_points, k + 3], size_of::<f64>(), "take fewer points")?;
        let x = Array1::linspace(line.quantile(0.001), line.quantile(0.999), n_points);
        let total = self.weights().sum();
        let components = Array2::from_shape_fn((n_points, k), |(i, c)| {
            let variance = self.variance(c, 0);
            let square = (x[i] - self.means()[[c, 0]]).powi(2) / variance;
            self.weights()[c] / total * (-0.5 * square).exp() / (TAU * variance).sqrt()
        });
        let cdf = x.mapv(|x| line.below(x).min(1.0));
        Ok(OnAxis { density: components.sum_axis(Axis(1)), x, cdf, components })
    }
}

/// A region of highest density.
#[derive(Debug, Clone, PartialEq)]
pub struct Region {
    /// Its intervals (from, to), ascending.
    pub intervals: Vec<[f64; 2]>,
    /// The density at every end: it is higher inside and lower outside.
    pub density: f64,
}

/// A mixture of one feature at points along its axis.
#[derive(Debug, Clone, PartialEq)]
pub struct OnAxis {
    /// The points (N,), ascending.
    pub x: Array1<f64>,
    /// The density (N,).
    pub density: Array1<f64>,
    /// The probability (N,) of a sample at most x.
    pub cdf: Array1<f64>,
    /// The part of each component in the density (N, K).
    pub components: Array2<f64>,
}

/// A component of weight above zero.
struct Part {
    log_weight: f64,
    weight: f64,
    mean: f64,
    deviation: f64,
}

impl Part {
    fn z(&self, x: f64) -> f64 {
        (x - self.mean) / self.deviation
    }

    /// Returns ln a: in the unit of length `unit` and without 1/√2π, the n-th derivative of the component's density is
    /// a times that of exp(−z²/2).
    fn log_height(&self, unit: f64, n: usize) -> f64 {
        self.log_weight - (n as f64 + 1.0) * (self.deviation / unit).ln()
    }

    /// Returns the z in [`a`, `b`] where the n-th derivative can be least or most.
    fn places(&self, n: usize, a: f64, b: f64) -> impl Iterator<Item = f64> {
        let (from, to) = (self.z(a), self.z(b));
        [from, to].into_iter().chain(EXTREMA[n].iter().copied().filter(move |z| *z > from && *z < to))
    }
}

/// The components of a mixture of one feature, with weights of sum one.
struct Line {
    parts: Vec<Part>,
    /// The least standard deviation, the unit of length.
    scale: f64,
}

impl Line {
    fn new(mixture: &Mixture) -> Result<Self> {
        mixture.check_no_noise("the distribution function")?;
        Interrupt::current().check()?;
        let (k, d) = mixture.means().dim();
        if d != 1 {
            let remedy = "this needs a mixture of one feature; take the marginal of a feature first";
            return Err(Error::BadParameter { name: "the number of features", value: d.to_string(), remedy });
        }
        let mut log_weights: Vec<f64> = (0..k).map(|c| mixture.log_weight(c)).collect();
        log_softmax(&mut log_weights);
        let parts = log_weights.iter().enumerate().filter(|(_, v)| v.is_finite()).map(|(c, v)| Part {
            log_weight: *v,
            weight: v.exp(),
            mean: mixture.means()[[c, 0]],
            deviation: mixture.variance(c, 0).sqrt(),
        });
        let parts: Vec<Part> = parts.collect();
        let scale = parts.iter().map(|part| part.deviation).fold(f64::INFINITY, f64::min);
        Ok(Self { parts, scale })
    }

    fn below(&self, x: f64) -> f64 {
        self.parts.iter().map(|part| 0.5 * part.weight * erfc(-part.z(x) * FRAC_1_SQRT_2)).sum()
    }

    fn above(&self, x: f64) -> f64 {
        self.parts.iter().map(|part| 0.5 * part.weight * erfc(part.z(x) * FRAC_1_SQRT_2)).sum()
    }

    /// Returns the probability from `a` to `b`, as a difference of the smaller tails.
    fn between(&self, [a, b]: [f64; 2]) -> f64 {
        let one = |part: &Part| {
            let (a, b) = (part.z(a) * FRAC_1_SQRT_2, part.z(b) * FRAC_1_SQRT_2);
            let (inner, outer) = match a > 0.0 {
                true => (erfc(a), erfc(b)),
                false if b < 0.0 => (erfc(-b), erfc(-a)),
                false => (2.0, erfc(-a) + erfc(b)),
            };
            0.5 * part.weight * (inner - outer)
        };
        self.parts.iter().map(one).sum()
    }

    /// Searches by the logarithm of the smaller tail, between the quantiles of the components.
    fn quantile(&self, p: f64) -> f64 {
        let (lower, tail) = (p <= 0.5, p.min(1.0 - p));
        let z = SQRT_2 * erfc_inv(2.0 * tail) * if lower { -1.0 } else { 1.0 };
        let missing = |x: f64| match lower {
            true => self.below(x).ln() - tail.ln(),
            false => tail.ln() - self.above(x).ln(),
        };
        // Wider than the errors of `erfc_inv`.
        let mut room = 1e-9 * (1.0 + z.abs());
        loop {
            let (low, high) = self.ends(z - room, z + room);
            if room > 1.0 || (missing(low) <= 0.0 && missing(high) >= 0.0) {
                return root(missing, low, high, self.scale);
            }
            room *= 8.0;
        }
    }

    fn log_terms(&self, x: f64) -> impl Iterator<Item = f64> {
        self.parts.iter().map(move |part| part.log_height(self.scale, 0) - 0.5 * part.z(x).powi(2) - self.log_unit())
    }

    /// Returns the logarithm that converts a density per least deviation without 1/√2π to the units of x.
    fn log_unit(&self) -> f64 {
        self.scale.ln() + 0.5 * TAU.ln()
    }

    fn log_density(&self, x: f64) -> f64 {
        log_sum_exp(&self.log_terms(x).collect::<Vec<_>>())
    }

    /// Returns the slope of the density at `x`, up to a positive factor.
    fn slope(&self, x: f64) -> f64 {
        let largest = self.log_terms(x).fold(f64::NEG_INFINITY, f64::max);
        let terms = self.parts.iter().zip(self.log_terms(x));
        terms.map(|(part, log)| -part.z(x) * (self.scale / part.deviation) * (log - largest).exp()).sum()
    }

    /// Returns the sign of the n-th derivative in all of [a, b]; zero if the ranges of the parts do not decide it.
    fn sign(&self, n: usize, a: f64, b: f64) -> f64 {
        let ranges = self.parts.iter().map(|part| {
            let height = part.log_height(self.scale, n);
            let values = part.places(n, a, b).map(|z| Signed::new(derivative(n, z), height - 0.5 * z * z));
            let first = Signed::new(derivative(n, part.z(a)), height - 0.5 * part.z(a).powi(2));
            values.fold((first, first), |(least, most), v| {
                (if v.is_below(least) { v } else { least }, if most.is_below(v) { v } else { most })
            })
        });
        let (least, most): (Vec<Signed>, Vec<Signed>) = ranges.unzip();
        match (Signed::sign_of_sum(&least), Signed::sign_of_sum(&most)) {
            (1.0, _) => 1.0,
            (_, -1.0) => -1.0,
            _ => 0.0,
        }
    }

    fn taylor(&self, a: f64, b: f64) -> Taylor {
        let middle = a + 0.5 * (b - a);
        // The middle is rounded.
        let half = (middle - a).max(b - middle) / self.scale;
        // The largest term is scaled to one, so not all terms underflow.
        let top = |part: &Part| part.log_height(self.scale, 0) - 0.5 * 0f64.clamp(part.z(a), part.z(b)).powi(2);
        let largest = self.parts.iter().map(top).fold(f64::NEG_INFINITY, f64::max);
        let (mut slope, mut curvature, mut third, mut least) = (0.0, 0.0, 0.0, 0.0);
        for part in &self.parts {
            let value = |n: usize, z: f64| {
                let v = derivative(n, z) * (part.log_height(self.scale, n) - largest - 0.5 * z * z).exp();
                if v.is_nan() { 0.0 } else { v }
            };
            slope += value(1, part.z(middle));
            curvature += value(2, part.z(middle));
            third += part.places(3, a, b).map(|z| value(3, z).abs()).fold(0.0, f64::max);
            least += value(0, part.z(a)).min(value(0, part.z(b)));
        }
        let change = f64::abs(curvature) * half + 0.5 * third * half * half;
        Taylor {
            slope: sign_within(slope, change),
            curvature: sign_within(curvature, third * half),
            flat: (slope.abs() + change) * 2.0 * half <= FLAT * least,
        }
    }

    /// Returns points, ascending, between which the density rises or falls: its extrema, which lie between the means,
    /// and points where it is [`FLAT`].
    fn turns(&self) -> Vec<f64> {
        let mut means: Vec<f64> = self.parts.iter().map(|part| part.mean).collect();
        means.sort_by(f64::total_cmp);
        let mut found = Vec::new();
        let mut open: Vec<(f64, f64)> = means.windows(2).map(|pair| (pair[0], pair[1])).collect();
        open.push((means[0], means[0]));
        while let Some((a, b)) = open.pop() {
            let middle = a + 0.5 * (b - a);
            if self.sign(1, a, b) != 0.0 {
                continue;
            }
            let taylor = self.taylor(a, b);
            if taylor.slope != 0.0 {
                continue;
            }
            if taylor.flat || middle <= a || middle >= b {
                found.push(middle);
            } else if taylor.curvature != 0.0 || self.sign(2, a, b) != 0.0 {
                let (from, to) = (self.slope(a), self.slope(b));
                if from * to <= 0.0 {
                    found.push(root(|x| self.slope(x), a, b, self.scale));
                }
            } else {
                open.extend([(a, middle), (middle, b)]);
            }
        }
        found.sort_by(f64::total_cmp);
        found.dedup();
        found
    }

    fn region(&self, level: f64) -> Region {
        let points: Vec<(f64, f64)> = self.turns().into_iter().map(|x| (x, self.log_density(x))).collect();
        let top = points.iter().map(|(_, log_p)| *log_p).fold(f64::NEG_INFINITY, f64::max);
        // The missing probability, from the smaller side, which has more digits.
        let missing = |bound: f64| {
            let region = self.denser_than(bound, &points);
            match (level <= 0.5, region.first(), region.last()) {
                (false, Some(first), Some(last)) => {
                    let gaps = region.windows(2).map(|pair| self.between([pair[0][1], pair[1][0]])).sum::<f64>();
                    self.below(first[0]) + gaps + self.above(last[1]) - (1.0 - level)
                }
                _ => level - region.iter().map(|interval| self.between(*interval)).sum::<f64>(),
            }
        };
        let mut depth = 1.0;
        // Densities of components differ by less than a factor of e^1500.
        while missing(top - depth) > 0.0 && depth < 2048.0 {
            depth *= 2.0;
        }
        let bound = root(missing, top - depth, top, 1.0);
        Region { intervals: self.denser_than(bound, &points), density: bound.exp() }
    }

    /// Returns the intervals of log densities of at least `bound`; `points` are `turns`, with their log densities.
    fn denser_than(&self, bound: f64, points: &[(f64, f64)]) -> Vec<[f64; 2]> {
        // Beyond this many standard deviations of every component, the density is below the bound.
        let z = (2.0 * (-self.log_unit() - bound)).max(0.0).sqrt() + 1.0;
        let (first, last) = self.ends(-z, z);
        let ends = [(first, f64::NEG_INFINITY), (last, f64::NEG_INFINITY)];
        let all: Vec<_> = [ends[0]].into_iter().chain(points.iter().copied()).chain([ends[1]]).collect();
        let crossings = all.windows(2).filter(|pair| (pair[0].1 >= bound) != (pair[1].1 >= bound));
        let crossings = crossings.map(|pair| root(|x| self.log_density(x) - bound, pair[0].0, pair[1].0, self.scale));
        crossings.collect::<Vec<_>>().as_chunks::<2>().0.to_vec()
    }

    /// Returns the least point at z = `low` and the largest at z = `high` over all parts.
    fn ends(&self, low: f64, high: f64) -> (f64, f64) {
        let least = self.parts.iter().map(|part| part.mean + part.deviation * low).fold(f64::INFINITY, f64::min);
        let most = self.parts.iter().map(|part| part.mean + part.deviation * high).fold(f64::NEG_INFINITY, f64::max);
        (least, most)
    }
}

/// A density that changes by at most this fraction of itself counts as rising or falling.
const FLAT: f64 = 1e-12;

/// The facts that the Taylor polynomial around the middle of an interval proves, with its remainder.
struct Taylor {
    /// The signs of the first and second derivatives; zero if unknown.
    slope: f64,
    curvature: f64,
    flat: bool,
}

/// Returns the sign of all numbers within `change` of `v`; zero if both occur.
fn sign_within(v: f64, change: f64) -> f64 {
    if v.abs() > change { v.signum() } else { 0.0 }
}

/// Returns the n-th derivative of exp(−z²/2), divided by exp(−z²/2).
fn derivative(n: usize, z: f64) -> f64 {
    match n {
        0 => 1.0,
        1 => -z,
        2 => z * z - 1.0,
        _ => z * (3.0 - z * z),
    }
}

/// The extrema of the n-th derivative of exp(−z²/2): the zeros of the next derivative.
const EXTREMA: [&[f64]; 4] = [
    &[0.0],
    &[-1.0, 1.0],
    &[-1.732_050_807_568_877_2, 0.0, 1.732_050_807_568_877_2],
    &[-2.334_414_218_338_977, -0.741_963_784_302_725_8, 0.741_963_784_302_725_8, 2.334_414_218_338_977],
];

/// A number as its sign and the logarithm of its size.
#[derive(Clone, Copy)]
struct Signed {
    sign: f64,
    log: f64,
}

impl Signed {
    fn new(factor: f64, log: f64) -> Self {
        let log = factor.abs().ln() + log;
        Self { sign: factor.signum(), log: if log.is_nan() { f64::NEG_INFINITY } else { log } }
    }

    fn is_below(self, other: Self) -> bool {
        match (self.sign > 0.0, other.sign > 0.0) {
            (true, true) => self.log < other.log,
            (false, false) => self.log > other.log,
            (positive, _) => !positive,
        }
    }

    /// Returns the sign of a sum; zero if it may be rounding errors.
    fn sign_of_sum(terms: &[Self]) -> f64 {
        let largest = terms.iter().map(|term| term.log).fold(f64::NEG_INFINITY, f64::max);
        if largest == f64::NEG_INFINITY {
            return 0.0;
        }
        let sum: f64 = terms.iter().map(|term| term.sign * (term.log - largest).exp()).sum();
        sign_within(sum, 1e-13 * terms.len() as f64)
    }
}

/// Returns the zero of `f` between `a` and `b`, to the last digits of a number or of `scale`, by inverse quadratic
/// interpolation and bisection (Chandrupatla 1997); one of the ends if `f` does not change its sign.
fn root(f: impl Fn(f64) -> f64, mut a: f64, mut b: f64, scale: f64) -> f64 {
    let (mut fa, mut fb) = (f(a), f(b));
    if fa == 0.0 || fb == 0.0 || (fa > 0.0) == (fb > 0.0) {
        return if fa.abs() < fb.abs() { a } else { b };
    }
    let mut t = 0.5;
    // Bisection alone would need about a hundred steps.
    for _ in 0..300 {
        let x = a + t * (b - a);
        let fx = f(x);
        let (c, fc);
        if (fx > 0.0) == (fa > 0.0) {
            (c, fc) = (a, fa);
        } else {
            (c, fc) = (b, fb);
            (b, fb) = (a, fa);
        }
        (a, fa) = (x, fx);
        let (best, f_best) = if fa.abs() < fb.abs() { (a, fa) } else { (b, fb) };
        let least = f64::EPSILON * (best.abs() + 0.01 * scale) / (b - a).abs();
        if f_best == 0.0 || least > 0.5 || least.is_nan() {
            return best;
        }
        let (xi, phi) = ((a - b) / (c - b), (fa - fb) / (fc - fb));
        let is_smooth = phi * phi < xi && (1.0 - phi).powi(2) < 1.0 - xi;
        t = match is_smooth {
            true => fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb),
            false => 0.5,
        };
        t = if t.is_nan() { 0.5 } else { t.clamp(least, 1.0 - least) };
    }
    a
}
