//! Time of the kernel `pair`, launched through cust as in `tests/pair`. The id is
//! work/device/covariance type/N/D/K/element type.
//!
//! `cargo bench -p gaussmix --features cust --bench pair`; docs/rust-cuda.md lists the requirements.
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use cust::event::{Event, EventFlags};
use gmm_host::{Covariances, Mixture};
use launch::Pair;
use ndarray::{Array1, Array2};
use std::time::Duration;

#[path = "../tests/pair/launch.rs"]
mod launch;

fn pair(c: &mut Criterion) {
    #[cfg(feature = "rust-cuda")]
    gaussmix::use_rust_cuda_kernels().expect("no kernel was used before");
    let (n, d, k) = (1_000_000, 13, 8);
    let x = Array2::from_shape_fn((n, d), |(i, j)| ((i * d + j) as f32 * 0.618).sin());
    let means = Array2::from_shape_fn((k, d), |(c, j)| ((c * d + j) as f64 * 0.7).sin());
    let variances = Array2::from_shape_fn((k, d), |(c, j)| 0.5 + ((c + j) % 3) as f64 / 2.0);
    let mixture = Mixture::new(Array1::from_elem(k, 1.0 / k as f64), means, Covariances::Diag(variances))
        .expect("usable parameters");
    let mut pair = match Pair::new(x.view(), k) {
        Ok(pair) => pair,
        Err(error) => return eprintln!("no GPU to measure on: {error:?}"),
    };

    let mut group = c.benchmark_group("pair");
    group.throughput(Throughput::Elements(n as u64));
    // The time that a caller waits.
    group.bench_function(format!("parameters to total/cuda/diag/{n}/{d}/{k}/f32"), |b| {
        b.iter(|| pair.log_likelihood(&mixture).expect("a total"));
    });
    // Consecutive launches, by the clock of the GPU.
    let [start, stop] = [(); 2].map(|()| Event::new(EventFlags::DEFAULT).expect("an event"));
    group.bench_function(format!("kernel/cuda/diag/{n}/{d}/{k}/f32"), |b| {
        b.iter_custom(|launches| {
            start.record(&pair.stream).expect("a running stream");
            (0..launches).for_each(|_| pair.launch().expect("a launch"));
            stop.record(&pair.stream).and_then(|()| stop.synchronize()).expect("the launches' end");
            Duration::from_secs_f32(stop.elapsed_time_f32(&start).expect("a time") / 1e3)
        });
    });
}

criterion_group!(benches, pair);
criterion_main!(benches);
