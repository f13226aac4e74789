//! The log-likelihood of data that stays on the device, for one mixture after another: `cargo run --release --example
//! score`.
use gaussmix::data::Samples;
use gaussmix::device::{Device, LoadOptions};
use gaussmix::model::{Covariances, Mixture};
use ndarray::{Array2, arr1, arr2};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // N samples × D features. float64 arrays work as well.
    let x = Array2::from_shape_fn((100_000, 2), |(i, j)| ((i * (j + 3)) as f32 * 0.618).sin());
    let mut data = gaussmix::device::load(Device::Auto, Samples::from_f32(x.view())?, &LoadOptions::default())?;
    for step in 0..5 {
        let shift = 0.1 * f64::from(step);
        let mixture = Mixture::new(
            arr1(&[0.5, 0.5]),
            arr2(&[[-0.5 + shift, 0.0], [0.5 + shift, 0.0]]),
            Covariances::Diag(arr2(&[[0.25, 0.5], [0.25, 0.5]])),
        )?;
        println!("shift {shift:.1}: log-likelihood {:.3}", data.log_likelihood(&mixture)?);
    }
    println!("computed by {:?}", data.describe());
    Ok(())
}
