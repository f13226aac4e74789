//! Totals, totals of many parameter sets and scores, by each family.
use super::{Problem, float32, normal, of_each_type, random_mixture, samples, sizes, used, with_holes};
use crate::families;
use crate::likelihood::NearSets;
use crate::plan::task::{Digits, Operation, Task};
use gmm_core::backends::enough_digits::FramedEvaluator;
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::data::samples::Samples;
use gmm_core::model::covariances::{CovarianceType, Covariances};
use gmm_core::model::mixture::Mixture;
use gmm_kernels::likelihood::small_k;
use ndarray::{Array1, Array2, s};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

fn of_type(rng: &mut impl Rng, covariance_type: CovarianceType, k: usize, d: usize) -> Mixture {
    of_each_type(rng, k, d).into_iter().find(|m| m.covariance_type() == covariance_type).unwrap()
}

/// Returns a mixture so near another one that float16 keeps the digits of their differences.
fn beside(rng: &mut impl Rng, mixture: &Mixture) -> Mixture {
    let means = mixture.means().mapv(|v| v + 1e-4 * rng.random::<f64>());
    let Covariances::Diag(variances) = mixture.covariances() else { unreachable!() };
    let variances = variances.mapv(|v| v * (1.0 + 1e-4 * rng.random::<f64>()));
    Mixture::new(mixture.weights().to_owned(), means, Covariances::Diag(variances)).unwrap()
}

/// Checks the totals of the sets by a kernel, twice.
fn check_batch(x: &Array2<f32>, sets: &[Mixture], kernel: &str) {
    let samples = samples(x, None);
    let mut evaluator = float32(&samples, kernel);
    let totals = evaluator.log_likelihood_batch(sets).unwrap();
    used(&evaluator, kernel);
    assert_eq!(totals, evaluator.log_likelihood_batch(sets).unwrap(), "{kernel}: the same bits every time");
    for (mixture, total) in sets.iter().zip(totals) {
        Problem::new(samples.clone(), mixture).check_total(total, kernel);
    }
}

/// Checks the totals of sets near to the first one by a kernel, twice.
fn check_near(x: &Array2<f32>, sets: &[Mixture], kernel: &str) {
    let samples = samples(x, None);
    let mut evaluator = float32(&samples, kernel);
    let (frame, n) = (evaluator.frame().clone(), samples.n_samples());
    let near = NearSets { frame: &frame, reference: &sets[0], sets, n };
    let task = Task { digits: Digits::Expandable, ..evaluator.task(Operation::Totals, &sets[0]) };
    let _entered = evaluator.data.gpu().enter().unwrap();
    let totals = evaluator.near_totals(&task, near).unwrap();
    used(&evaluator, kernel);
    assert_eq!(totals, evaluator.near_totals(&task, near).unwrap(), "{kernel}: the same bits every time");
    for (mixture, total) in sets.iter().zip(totals) {
        Problem::new(samples.clone(), mixture).check_total(total.expect("the sets are near"), kernel);
    }
}

#[test]
fn batches_on_the_tensor_cores_take_every_shape() {
    let cases = [
        // N, D, K, sets, warps of a block, sets of a block
        (1, 1, 1, 1, 1, 1),
        (5, 3, 8, 3, 1, 8),
        (300, 13, 8, 5, 2, 4),
        (520, 13, 8, 9, 1, 16),
        (150, 16, 40, 2, 1, 4),
        (511, 7, 17, 3, 2, 12),
        (160, 28, 9, 6, 3, 8),
        (33, 8, 3, 4, 2, 4),
    ];
    for (i, (n, d, k, sets, warps, group)) in cases.into_iter().enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(i as u64);
        let first = random_mixture(&mut rng, k, d);
        let sets: Vec<_> = (0..sets).map(|_| beside(&mut rng, &first)).collect();
        let x = normal(&mut rng, n, d);
        check_near(&x, &sets, &format!("batch_mma/{group}:{}x1:0", 32 * warps));
        check_near(&x, &sets, &format!("batch_wgmma/{group}:{}x1:0", 128 * warps));
    }
}

/// Components of weight zero contribute nothing to near and far samples, even as the nearest.
#[test]
fn batches_leave_out_components_without_weight() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let full = random_mixture(&mut rng, 11, 3);
    let mut x = normal(&mut rng, 200, 3);
    // Different, so that their roundings differ.
    x.slice_mut(s![60..90, ..]).mapv_inplace(|v: f32| 14.0 + 0.2 * v);
    let mut means = full.means().to_owned();
    means.slice_mut(s![3.., ..]).mapv_inplace(|v| 2.0 + v);
    means.slice_mut(s![..3, ..]).fill(0.0);
    means.row_mut(2).fill(14.0);
    let weights = Array1::from_shape_fn(11, |c| if c < 3 { 0.0 } else { 0.125 });
    let mixture = Mixture::new(weights, means, full.covariances().clone()).unwrap();
    for kernel in ["batch_mma/4:64x1:0", "batch_wgmma/4:128x1:0"] {
        check_batch(&x, &[mixture.clone(), beside(&mut rng, &mixture), mixture.clone()], kernel);
    }
}

/// Another kernel evaluates the sets of a batch that are not near to the first, one by one if no other takes several
/// sets of this many features; the near sets' totals are the same as without them.
#[test]
fn far_sets_are_evaluated_by_another_kernel() {
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let k = 9;
    for d in [8, 20] {
        let x = normal(&mut rng, 400, d);
        let first = random_mixture(&mut rng, k, d);
        let near: Vec<_> = (0..3).map(|_| beside(&mut rng, &first)).collect();
        let far = Mixture::new(first.weights().to_owned(), &first.means() + 3.0, first.covariances().clone()).unwrap();
        let samples = samples(&x, None);
        for kernel in ["batch_mma/4:64x1:0", "batch_wgmma/4:128x1:0"] {
            let mut evaluator = float32(&samples, kernel);
            let alone = evaluator.log_likelihood_batch(&near).unwrap();
            used(&evaluator, kernel);
            let sets = [near[0].clone(), far.clone(), near[1].clone(), near[2].clone()];
            let totals = float32(&samples, kernel).log_likelihood_batch(&sets).unwrap();
            assert_eq!([totals[0], totals[2], totals[3]], alone[..]);
            Problem::new(samples.clone(), &far).check_total(totals[1], "the far set");
        }
    }
}

#[test]
fn small_k_takes_every_shape() {
    for d in 1..=small_k::MAX_FEATURES {
        for k in 1..=small_k::COMPONENTS {
            let mut rng = ChaCha8Rng::seed_from_u64((100 * d + k) as u64);
            let mixture = random_mixture(&mut rng, k, d);
            Problem::new(samples(&normal(&mut rng, 131, d), None), &mixture).total("small_k:32x1:0");
        }
    }
}

#[test]
fn small_k_takes_matrices() {
    for d in 1..=small_k::MAX_FEATURES {
        let mut rng = ChaCha8Rng::seed_from_u64(d as u64);
        let mut x = normal(&mut rng, 259, d);
        // A whole warp of far samples, and the next round of each of its lanes.
        x.slice_mut(s![20.., ..]).mapv_inplace(|v: f32| 40.0 + v);
        for covariance_type in [CovarianceType::Tied, CovarianceType::Full] {
            let mixture = of_type(&mut rng, covariance_type, 1 + d % 8, d);
            Problem::new(samples(&x, None), &mixture).total("small_k:32x1:0");
        }
    }
}

#[test]
fn small_k_takes_weights() {
    for (i, n) in [1, 3, 130, 515].into_iter().enumerate() {
        let d = [1, 3, 13, 16][i];
        let mut rng = ChaCha8Rng::seed_from_u64(i as u64);
        let mut x = normal(&mut rng, n, d);
        x.row_mut(n / 2).fill(30.0);
        let weights = Array1::from_shape_fn(n, |i| ((i * 7 + 1) % 5) as f64 / 2.0);
        for mixture in of_each_type(&mut rng, 1 + 2 * i, d) {
            let problem = Problem::new(samples(&x, Some(weights.view())), &mixture);
            problem.total("small_k:32x1:0");
            problem.total("small_k:64x3:0");
        }
    }
}

/// Returns whether totals and scores by `tiled` come from linear terms, or from products of two features.
fn is_expanded(samples: &Samples<'_>, mixture: &Mixture) -> bool {
    let mut evaluator = float32(samples, "tiled");
    let _entered = evaluator.data.gpu().enter().unwrap();
    let mut of = |operation| evaluator.prepared(operation, mixture).unwrap().0.is_expandable();
    let both = [Operation::Total, Operation::Scores].map(&mut of);
    assert_eq!(both[0], both[1]);
    both[0]
}

#[test]
fn tiled_takes_linear_terms_and_products() {
    for (i, k) in [1, 3, 8, 9, 33].into_iter().enumerate() {
        for (j, d) in [1, 2, 13, 31, 64].into_iter().enumerate() {
            let mut rng = ChaCha8Rng::seed_from_u64((10 * i + j) as u64);
            let n = [300, 257, 1, 515][(i + j) % 4];
            let mut x = normal(&mut rng, n, d);
            if n > 1 {
                x.row_mut(n / 2).fill(6.0);
            }
            let weights = Array1::from_shape_fn(n, |i| ((i * 7 + 1) % 5) as f64 / 2.0);
            let of_weights = Some(weights.view());
            for covariance_type in [CovarianceType::Tied, CovarianceType::Full] {
                let mixture = of_type(&mut rng, covariance_type, k, d);
                let products = covariance_type == CovarianceType::Full;
                if products && (k < 8 || k * d > 450) {
                    continue;
                }
                for (weights, kernel) in
                    [(None, "tiled/2:64x1:0"), (None, "tiled/64:128x1:0"), (of_weights, "tiled/16:32x1:0")]
                {
                    let samples = samples(&x, weights);
                    assert!(is_expanded(&samples, &mixture), "{covariance_type} K={k} D={d}");
                    Problem::new(samples, &mixture).total_and_scores(kernel);
                }
            }
        }
    }
}

/// The frame takes away the origin, but not the distance of components that are far from each other.
#[test]
fn distant_components_are_not_expanded() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for covariance_type in [CovarianceType::Tied, CovarianceType::Full] {
        let mixture = of_type(&mut rng, covariance_type, 9, 3);
        let (weights, covariances) = (mixture.weights(), mixture.covariances());
        let with_means = |means| Mixture::new(weights.to_owned(), means, covariances.clone()).unwrap();
        let x = normal(&mut rng, 300, 3);
        let (far, far_samples) = (with_means(&mixture.means() + 1e6), &x + 1e6);
        let far_samples = samples(&far_samples, None);
        assert!(is_expanded(&far_samples, &far));
        Problem::new(far_samples, &far).total_and_scores("tiled/1:64x1:0");
        let means = Array2::from_shape_fn((9, 3), |(c, _)| 200.0 * c as f64);
        let distant_samples = Array2::from_shape_fn((300, 3), |(i, j)| x[[i, j]] + 200.0 * (i % 9) as f32);
        let (distant, distant_samples) = (with_means(means), samples(&distant_samples, None));
        assert!(!is_expanded(&distant_samples, &distant));
        Problem::new(distant_samples, &distant).total_and_scores("tiled/1:64x1:0");
    }
}

/// Components of weight zero are right on the data.
#[test]
fn small_k_leaves_out_full_components_without_weight() {
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let mixture = of_type(&mut rng, CovarianceType::Full, 4, 3);
    let mut means = mixture.means().to_owned();
    for c in [0, 2] {
        means.row_mut(c).fill(30.0);
    }
    let mixture = Mixture::new(ndarray::arr1(&[0.0, 0.4, 0.0, 0.6]), means, mixture.covariances().clone()).unwrap();
    let x = normal(&mut rng, 70, 3) + 30.0;
    Problem::new(samples(&x, None), &mixture).total("small_k:32x1:0");
}

#[test]
fn small_k_takes_every_size_and_grid() {
    for (i, n) in [1, 3, 4, 5, 127, 128, 129, 511, 512, 1000].into_iter().enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(i as u64);
        let (diagonal, x) = (random_mixture(&mut rng, 8, 13), normal(&mut rng, n, 13));
        for mixture in [diagonal, of_type(&mut rng, CovarianceType::Full, 8, 13)] {
            let problem = Problem::new(samples(&x, None), &mixture);
            ["small_k:32x1:0", "small_k:64x3:all", "small_k:32x5:1"].iter().for_each(|kernel| problem.total(kernel));
        }
    }
    let mut rng = ChaCha8Rng::seed_from_u64(77);
    let (mixture, x) = (random_mixture(&mut rng, 3, 2), normal(&mut rng, 2003, 2));
    Problem::new(samples(&x, None), &mixture).total("small_k:128x1:0");
}

#[test]
fn batch_takes_every_shape() {
    let cases = [
        // N, D, K, sets, threads, blocks of a multiprocessor, sets of a group
        (1, 1, 1, 1, 32, 1, 1),
        (5, 3, 8, 3, 32, 1, 2),
        (700, 13, 8, 5, 64, 1, 2),
        (1000, 13, 8, 4, 32, 2, 4),
        (515, 16, 40, 2, 32, 1, 1),
        (511, 8, 17, 3, 64, 2, 16),
    ];
    for (i, (n, d, k, sets, threads, per_multiprocessor, group)) in cases.into_iter().enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(i as u64);
        let sets: Vec<_> = (0..sets).map(|_| random_mixture(&mut rng, k, d)).collect();
        let x = normal(&mut rng, n, d);
        check_batch(&x, &sets, &format!("batch/{group}:{threads}x{per_multiprocessor}:0"));
    }
}

#[test]
fn tiled_takes_every_shape() {
    // The variant without its number of warps along the components, that number, and N, D, K.
    let cases = [
        ("32x1:0", 1, "1x1x1 3x13x8"),
        ("64x1:0", 1, "255x9x9"),
        ("64x1:0", 2, "511x64x17 300x65x40 1000x7x40 200x34x9"),
        ("32x2:0", 1, "260x130x3"),
        ("128x1:0", 4, "513x16x33"),
        ("128x1:0", 2, "1030x2x100"),
    ];
    for (i, (blocks, across, text)) in cases.into_iter().enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(i as u64);
        for (n, d, k) in sizes(text) {
            let x = normal(&mut rng, n, d);
            for mixture in of_each_type(&mut rng, k, d) {
                // With matrices the emulator is slow.
                if mixture.factor().is_some() && n * d * k > 100_000 {
                    continue;
                }
                let problem = Problem::new(samples(&x, None), &mixture);
                for split in [across, 16 * across] {
                    problem.total_and_scores(&format!("tiled/{split}:{blocks}"));
                }
            }
        }
    }
}

#[test]
fn pair_takes_every_shape() {
    let cases = [
        // N, D, K, threads, blocks of a multiprocessor
        (1, 1, 1, 32, 1),
        (3, 13, 8, 256, 1),
        (5, 13, 8, 64, 2),
        (131, 13, 40, 512, 1),
        (131, 16, 4, 128, 1),
        (200, 65, 3, 64, 1),
        (301, 20, 9, 128, 2),
        (100, 4, 7, 96, 1),
    ];
    for (i, (n, d, k, threads, per_multiprocessor)) in cases.into_iter().enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(i as u64);
        let (mixture, x) = (random_mixture(&mut rng, k, d), normal(&mut rng, n, d));
        let kernel = format!("pair/{}:{threads}x{per_multiprocessor}:0", threads / 32);
        Problem::new(samples(&x, None), &mixture).total_and_scores(&kernel);
    }
}

/// Samples 1000 and 10⁴ standard deviations away beside near ones in one quad, and whole quads of them, have finite
/// log-likelihoods (about −5·10⁵ and −5·10⁷ a feature), and the near ones keep theirs.
#[test]
fn far_samples_are_finite() {
    for (n, far) in [(64, vec![0, 9, 20, 21, 22, 23]), (7, vec![6]), (1, vec![0])] {
        let mut rng = ChaCha8Rng::seed_from_u64(n as u64);
        let mixture = random_mixture(&mut rng, 5, 3);
        let mut x = normal(&mut rng, n, 3);
        for (i, &row) in far.iter().enumerate() {
            x.row_mut(row).fill(if i % 2 == 0 { 1e3 } else { -1e4 });
        }
        let problem = Problem::new(samples(&x, None), &mixture);
        assert!(problem.scores.iter().all(|v| v.is_finite()) && problem.scores[far[0]] < -1e5);
        problem.total("small_k:32x1:0");
        for kernel in ["tiled/1:32x1:0", "tiled/32:64x1:0", "pair/4:128x1:0"] {
            problem.total_and_scores(kernel);
        }
        check_batch(&x, &[mixture.clone(), mixture.clone()], "batch/2:32x1:0");
        // In the other cases the data's centre is far from the mixture.
        if n == 64 {
            check_batch(&x, &[mixture.clone(), mixture.clone()], "batch_mma/4:32x1:0");
            check_batch(&x, &[mixture.clone(), mixture], "batch_wgmma/4:128x1:0");
        }
    }
}

/// After a far round a warp takes out the maximum until no sample is far; near samples among them keep their values.
#[test]
fn far_and_near_rounds_follow_each_other() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mixture = random_mixture(&mut rng, 5, 13);
    // Rounds of the two warps, 256 samples each: near, one far, all far, near, near.
    let mut x = normal(&mut rng, 10 * 128 - 3, 13);
    x.row_mut(260).fill(20.0);
    x.slice_mut(s![512..768, ..]).mapv_inplace(|v: f32| v - 20.0);
    Problem::new(samples(&x, None), &mixture).total("small_k:32x1:0");
}

/// Missing values, more and more of them, for every D; an empty row, and a row far from every component.
#[test]
fn small_k_takes_missing_values() {
    for d in 1..=small_k::MAX_FEATURES {
        let mut rng = ChaCha8Rng::seed_from_u64(70 + d as u64);
        let (n, k) = ([1, 130, 301, 67][d % 4], 1 + d % 8);
        let mixture = random_mixture(&mut rng, k, d);
        let x = normal(&mut rng, n, d);
        let mut x = with_holes(&mut rng, x, [0.05, 0.3, 0.6][d % 3]);
        x.row_mut(n / 2).fill(f32::NAN);
        if n > 1 {
            x[[0, 0]] = 40.0;
        }
        let problem = Problem::new(samples(&x, None), &mixture);
        problem.total("small_k:32x1:0");
        problem.total("small_k:64x1:0");
    }
}

#[test]
fn tiled_takes_missing_values() {
    let cases = [
        // N, D, K, share, threads, warps along the components
        (1, 1, 1, 0.6, 32, 1),
        (3, 13, 8, 0.3, 64, 2),
        (300, 13, 20, 0.05, 64, 1),
        (515, 16, 40, 0.3, 128, 4),
        (511, 17, 3, 0.6, 32, 1),
        (100, 41, 9, 0.3, 64, 2),
    ];
    for (i, (n, d, k, share, threads, across)) in cases.into_iter().enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(90 + i as u64);
        let mixture = random_mixture(&mut rng, k, d);
        let x = normal(&mut rng, n, d);
        let mut x = with_holes(&mut rng, x, share);
        x.row_mut(n / 2).fill(f32::NAN);
        x[[0, d - 1]] = if n > 1 { 40.0 } else { f32::NAN };
        Problem::new(samples(&x, None), &mixture).total_and_scores(&format!("tiled/{across}:{threads}x1:0"));
    }
}

/// A component of weight zero contributes nothing, even as the nearest or the only one of a tile.
#[test]
fn weight_zero_contributes_nothing() {
    let k = 19;
    let mut rng = ChaCha8Rng::seed_from_u64(19);
    let full = random_mixture(&mut rng, k, 3);
    let x: Array2<f32> = Array2::from_shape_simple_fn((70, 3), || 30.0 + rng.sample::<f32, _>(StandardNormal));
    let mut means = full.means().to_owned();
    // Right on the data, with the weighted components 30 standard deviations away.
    for c in (0..8).chain(16..19) {
        means.row_mut(c).fill(30.0);
    }
    let weights = Array1::from_shape_fn(k, |c| if (8..16).contains(&c) { 0.125 } else { 0.0 });
    let mixture = Mixture::new(weights, means, full.covariances().clone()).unwrap();
    let problem = Problem::new(samples(&x, None), &mixture);
    for kernel in ["tiled/1:32x1:0", "tiled/4:128x1:0", "tiled/32:64x1:0", "pair/8:256x1:0"] {
        problem.total_and_scores(kernel);
    }
    check_batch(&x, &[mixture.clone(), mixture], "batch/2:32x1:0");
}

/// Without a requested kernel, one is chosen by time and kept.
#[test]
fn a_kernel_is_chosen() {
    let mut rng = ChaCha8Rng::seed_from_u64(20);
    let (mixture, x) = (random_mixture(&mut rng, 3, 4), normal(&mut rng, 300, 4));
    let samples = samples(&x, None);
    let source = crate::source::Source::Host(samples.clone(), 0);
    let mut evaluator = super::Float32::new(source, &super::CudaOptions::default()).unwrap();
    let total = evaluator.log_likelihood(&mixture).unwrap();
    Problem::new(samples, &mixture).check_total(total, "the chosen kernel");
    let kernel = evaluator.describe().kernel;
    assert!(families::ALL.iter().any(|family| kernel.starts_with(family.name())), "{kernel}");
    assert_eq!(total.to_bits(), evaluator.log_likelihood(&mixture).unwrap().to_bits());
    assert_eq!(kernel, evaluator.describe().kernel);
}
