//! Fits a mixture, and uses the model: `cargo run --release --example fit`.
use gaussmix::data::Samples;
use gaussmix::device::{Device, LoadOptions};
use gaussmix::fit::GaussianMixtureParams;
use gaussmix::model::{CovarianceType, Predict};
use ndarray::Array2;
use std::ops::ControlFlow;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Two clouds of samples. float64 arrays work as well.
    let x = Array2::from_shape_fn((10_000, 2), |(i, j)| ((i * (j + 3)) as f32 * 0.618).sin() + (i % 2 * 4) as f32);
    let mut data = gaussmix::device::load(Device::Auto, Samples::from_f32(x.view())?, &LoadOptions::default())?;

    let model = GaussianMixtureParams::default().n_components(2).covariance_type(CovarianceType::Full).check()?;
    let fit = model.fit_with(data.as_mut(), &mut |i| {
        println!("iteration {}: lower bound {:.6}, change {:.1e}", i.iteration, i.lower_bound, i.change);
        ControlFlow::Continue(())
    })?;

    println!("converged: {}, means:\n{:.3}", fit.converged, fit.mixture.means());
    println!("BIC: {:.1}", fit.mixture.bic(data.as_mut())?);
    let labels = data.predict(&fit.mixture)?;
    println!("first labels: {:?}", &labels[..4]);
    let (drawn, _) = fit.mixture.sample(3, 0)?;
    println!("three new samples:\n{drawn:.3}");
    Ok(())
}
