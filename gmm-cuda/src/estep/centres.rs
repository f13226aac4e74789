//! The centres of a mixture's components in the data's frame, and their distances from the data's centre.
use gmm_core::backends::device_parameters::{DeviceParameters, Matrices};
use gmm_core::data::frame::Frame;
use gmm_core::model::linalg::triangle;
use gmm_core::model::mixture::Mixture;
use ndarray::Axis;

/// The farthest that a component may be from the data's centre, in units of its t (0.85 standard deviations), for
/// moments around that centre: their cancellation then costs at most two of float32's seven digits.
pub(crate) const NEAR: f64 = 16.0;

/// Returns the larger of two numbers, neither NaN: one instruction, unlike `f32::max`.
#[inline(always)]
pub(super) fn larger<T: PartialOrd>(a: T, b: T) -> T {
    if a > b { a } else { b }
}

/// Returns the means in the frame (K, D), zeros for components without weight.
pub(super) fn means_in_frame(mixture: &Mixture, parameters: &DeviceParameters<f32>, frame: &Frame) -> Vec<f32> {
    (0..parameters.n_components).flat_map(|c| mean_in_frame(mixture, parameters, frame, c)).collect()
}

/// Returns the mean of a component in the frame, zeros if it has no weight.
pub(super) fn mean_in_frame<'a>(
    mixture: &'a Mixture,
    parameters: &DeviceParameters<f32>,
    frame: &'a Frame,
    c: usize,
) -> impl Iterator<Item = f32> + 'a {
    let alive = parameters.weight[c] > 0.0;
    let in_frame = move |(j, mean): (usize, &f64)| if alive { frame.apply(j, *mean) as f32 } else { 0.0 };
    mixture.means().index_axis_move(Axis(0), c).into_iter().enumerate().map(in_frame)
}

/// Returns the greatest distance of a component from the data's centre, in units of its t; `centres` (K or more, D).
pub(super) fn farthest(parameters: &DeviceParameters<f32>, centres: &[f32]) -> f64 {
    let alive = (0..parameters.n_components).filter(|c| parameters.weight[*c] > 0.0);
    let d = parameters.n_features;
    alive.map(|c| distance(parameters, c, &centres[c * d..][..d])).fold(0.0, f64::max)
}

/// Returns the distance of a component from the data's centre, in units of its t.
pub(super) fn distance(parameters: &DeviceParameters<f32>, c: usize, centre: &[f32]) -> f64 {
    let d = parameters.n_features;
    let term = |(a, x): (&f32, &f32)| f64::from((a * x).abs());
    if let Matrices::Diagonal = parameters.matrices {
        return parameters.scale[c * d..][..d].iter().zip(centre).map(term).fold(0.0, larger);
    }
    let matrix = parameters.triangle(c);
    let of_row = |i: usize| {
        let row = &matrix[triangle(i)..][..=i];
        // Several sums side by side, because a single one waits for each addition.
        let (rows, last) = row.as_chunks::<8>();
        let (centres, last_centres) = centre[..=i].as_chunks::<8>();
        let mut sums = [0.0; 8];
        for (a, x) in rows.iter().zip(centres) {
            sums.iter_mut().zip(a.iter().zip(x)).for_each(|(sum, both)| *sum += term(both));
        }
        sums.iter().sum::<f64>() + last.iter().zip(last_centres).map(term).sum::<f64>()
    };
    (0..d).map(of_row).fold(0.0, larger)
}
