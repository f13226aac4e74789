//! Data that does not fit into memory: `cargo run --release --example chunks`.
use gaussmix::io::{self, Checkpoint, CheckpointOutput, DataFile, Identity};
use gaussmix::{ChunkedEvaluator, CovarianceType, CpuEvaluator, Freeze, GaussianMixtureParams, Samples, StepwiseEm, mcmc};
use std::ops::{ControlFlow, Range};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Only the header is read here; what a chunk needs is read when it is its turn.
    let file = DataFile::open("data/speech.npy")?;
    let (n, d) = file.dim();
    let read = |rows: Range<usize>| -> gaussmix::Result<Samples<'static>> {
        file.rows(rows).map_err(|e| gaussmix::Error::Load(e.into()))?.into_samples()
    };
    let load = |rows| CpuEvaluator::new(read(rows)?);

    // All of the evaluator's answers, and a fit, from 4096 rows at a time.
    let sizes = (0..n).step_by(4096).map(|start| 4096.min(n - start)).collect();
    let mut chunks = ChunkedEvaluator::new(d, sizes, |i| Ok(Box::new(load(i * 4096..n.min((i + 1) * 4096))?)))?;
    let params = GaussianMixtureParams::default().n_components(8).covariance_type(CovarianceType::Diag);
    let path = std::env::temp_dir().join("gmm-checkpoint.json");
    let checkpoints = CheckpointOutput::create(&path)?;
    // What must be the same when the fit goes on: the data, and all that changes its course.
    let made_with =
        Identity::default().with("data", mcmc::fingerprint(&read(0..n)?)).with("k", 8).with("covariance type", "diag");
    let first = params.clone().check()?.fit_with(&mut chunks, &mut |i| {
        println!("iteration {}: lower bound {:.6}", i.iteration, i.lower_bound);
        if i.iteration < 3 {
            return ControlFlow::Continue(());
        }
        // As if the machine had to be switched off here.
        let checkpoint = Checkpoint { made_with: made_with.clone(), present: i.fit.clone(), best: i.best.cloned() };
        if let Err(error) = checkpoints.write(&checkpoint) {
            eprintln!("no checkpoint: {error}");
        }
        ControlFlow::Break(())
    })?;
    println!("stopped after {} iterations", first.n_iter());
    let Checkpoint { made_with: before, present, best } = io::read_checkpoint(&path)?;
    before.check(&made_with)?;
    let fit = params.resume(present, best).check()?.fit(&mut chunks)?;
    println!("gone on to {} iterations, lower bound {:.6}", fit.n_iter(), fit.lower_bound());
    std::fs::remove_file(&path)?;

    // Or each chunk once, as it comes: the parameters follow the stream.
    let mut stream = StepwiseEm::new(first.mixture, StepwiseEm::DEFAULT_DECAY, 1e-6, Freeze::default())?;
    for start in (0..n).step_by(2000) {
        let mut chunk = load(start..n.min(start + 2000))?;
        println!("chunk {}: {:.6} before it was learnt", stream.steps(), stream.partial_fit(&mut chunk)?);
    }
    println!("all samples: {:.6}", stream.mixture().score(&mut chunks)?);
    Ok(())
}
