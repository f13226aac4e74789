//! Fits data larger than memory, chunk by chunk, with a checkpoint, and learns from a stream: `cargo run --release
//! --example chunks`.
use gaussmix::data::Samples;
use gaussmix::evaluator::{ChunkedEvaluator, CpuEvaluator};
use gaussmix::fit::{GaussianMixtureParams, StepwiseEm};
use gaussmix::io::{self, Checkpoint, CheckpointOutput, DataFile, Identity};
use gaussmix::mcmc;
use gaussmix::model::{CovarianceType, Predict};
use gaussmix::statistics::Freeze;
use std::ops::{ControlFlow, Range};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // This reads only the header. The samples of a chunk are read when they are needed.
    let file = DataFile::open("data/speech.npy")?;
    let (n, d) = file.dim();
    let read = |rows: Range<usize>| -> gaussmix::Result<Samples<'static>> {
        file.rows(rows).map_err(|e| gaussmix::Error::Load(e.into()))?.into_samples()
    };
    let load = |rows| CpuEvaluator::new(read(rows)?);

    // An evaluator that holds 4096 rows at a time, and can do everything that one with the whole data can.
    let sizes = (0..n).step_by(4096).map(|start| 4096.min(n - start)).collect();
    let mut chunks = ChunkedEvaluator::new(d, sizes, |i| Ok(Box::new(load(i * 4096..n.min((i + 1) * 4096))?)))?;
    let params = GaussianMixtureParams::default().n_components(8).covariance_type(CovarianceType::Diag);
    let path = std::env::temp_dir().join("gmm-checkpoint.json");
    let checkpoints = CheckpointOutput::create(&path)?;
    // The data and the options must be the same when the fit continues from the checkpoint.
    let made_with =
        Identity::default().with("data", mcmc::fingerprint(&read(0..n)?)).with("k", 8).with("covariance type", "diag");
    let first = params.clone().check()?.fit_with(&mut chunks, &mut |i| {
        println!("iteration {}: lower bound {:.6}", i.iteration, i.lower_bound);
        if i.iteration < 3 {
            return ControlFlow::Continue(());
        }
        // After three iterations the fit is saved and stopped, as if the machine had to be switched off.
        let (present, best) = (i.fit.clone(), i.best.cloned());
        let checkpoint = Checkpoint { made_with: made_with.clone(), present, best, feature_names: None };
        if let Err(error) = checkpoints.write(&checkpoint) {
            eprintln!("the checkpoint could not be written: {error}");
        }
        ControlFlow::Break(())
    })?;
    println!("stopped after {} iterations", first.n_iter());
    let Checkpoint { made_with: before, present, best, .. } = io::read_checkpoint(&path)?;
    before.check(&made_with)?;
    let fit = params.resume(present, best).check()?.fit(&mut chunks)?;
    println!("gone on to {} iterations, lower bound {:.6}", fit.n_iter(), fit.lower_bound());
    std::fs::remove_file(&path)?;

    // Stepwise EM sees each chunk once, as it arrives, and the parameters follow the stream.
    let mut stream = StepwiseEm::new(first.mixture, StepwiseEm::DEFAULT_DECAY, 1e-6, Freeze::default())?;
    for start in (0..n).step_by(2000) {
        let mut chunk = load(start..n.min(start + 2000))?;
        println!("chunk {}: {:.6} before it was learnt", stream.steps(), stream.partial_fit(&mut chunk)?);
    }
    println!("all samples: {:.6}", stream.mixture().score(&mut chunks)?);
    Ok(())
}
