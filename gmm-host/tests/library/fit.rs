//! Fits: their rules, their starts, and how they end.
use crate::common::*;
use gmm_host::{
    ChunkedEvaluator, CovarianceType, Covariances, CpuEvaluator, Criterion, DataFacts, Description, Error, Evaluator,
    Fit, Freeze, GaussianMixtureParams, InitParams, Iteration, Mixture, Predict, Result, Rows, Samples,
    ShardedEvaluator, Statistics, StepwiseEm, grow, merge_down, select,
};
use ndarray::{Array1, Array2, Array3, ArrayView2, Axis, array, s};
use std::ops::ControlFlow;

fn params(k: usize, t: CovarianceType) -> GaussianMixtureParams {
    GaussianMixtureParams::default().n_components(k).covariance_type(t)
}

fn fit(params: GaussianMixtureParams, evaluator: &mut dyn Evaluator) -> Fit {
    params.check().unwrap().fit(evaluator).unwrap()
}

fn is_finite(m: &Mixture) -> bool {
    m.means().iter().chain(m.weights().iter()).copied().chain(m.covariances().iter()).all(f64::is_finite)
}

/// Counts a fit's E-steps and its passes for scores.
struct Counting<E>(E, usize, usize);

impl<E: Evaluator> Evaluator for Counting<E> {
    fn data(&self) -> DataFacts<'_> {
        self.0.data()
    }
    fn describe(&self) -> Description {
        self.0.describe()
    }
    fn log_likelihood(&mut self, m: &Mixture) -> Result<f64> {
        self.0.log_likelihood(m)
    }
    fn score_samples(&mut self, m: &Mixture) -> Result<Array1<f64>> {
        self.2 += 1;
        self.0.score_samples(m)
    }
    fn statistics(&mut self, m: &Mixture) -> Result<Statistics> {
        self.1 += 1;
        self.0.statistics(m)
    }
    fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
        self.0.rows(rows)
    }
}

#[test]
fn every_start_finds_separate_blobs() {
    let x = blobs(1, 300, 2);
    for t in CovarianceType::ALL {
        // Random responsibilities put all components on one spot, which most fits hardly leave.
        for init in InitParams::ALL.into_iter().filter(|i| *i != InitParams::Random) {
            // Starts other than k-means may reach a poor local optimum, so the best of five counts.
            let p = params(3, t).init_params(init).n_init(5).max_iter(500);
            let fit = fit(p, &mut reference(x.view()));
            let mut centres: Vec<f64> = fit.mixture.means().column(0).to_vec();
            centres.sort_by(f64::total_cmp);
            assert!(fit.converged && fit.retained.is_empty(), "{t} {init}");
            // Blobs of 100 samples with deviations up to 1: five standard errors of 0.1.
            assert_all_close(&format!("{t} {init}"), centres, [0.0, 5.0, 10.0], 0.05, 10.0);
        }
    }
}

/// Thirty samples beside three points of four equal ones: surplus components collapse onto points and lines.
fn collapsing(seed: u64, d: usize) -> Array2<f64> {
    let x = normal(seed, 33, d, 0.0);
    Array2::from_shape_fn((42, d), |(i, j)| x[[if i < 30 { i } else { 30 + (i - 30) / 4 }, j]])
}

/// Twelve points of four equal ones. With almost as many components, their shared covariance collapses.
fn few_points(seed: u64, d: usize) -> Array2<f64> {
    let x = normal(seed, 12, d, 0.0);
    Array2::from_shape_fn((48, d), |(i, j)| x[[i / 4, j]])
}

/// Returns 1 − r² of two features with this covariance.
fn one_minus_square_correlation(sigma: ArrayView2<'_, f64>) -> f64 {
    assert_eq!(sigma.dim(), (2, 2));
    let (a, b, c) = (sigma[[0, 0]], sigma[[0, 1]], sigma[[1, 1]]);
    (a * c - b * b) / (a * c)
}

/// Without `reg_covar` covariances collapse. For all covariance types and samples, also with missing values, the bound
/// never falls and fits are positive definite beyond rounding.
#[test]
fn collapsing_components_neither_lower_the_bound_nor_lose_positive_definiteness() {
    let (mut n_retained, mut n_fits) = (0, 0);
    for t in CovarianceType::ALL {
        for (float32, gaps, d) in
            [(false, false, 2), (true, false, 2), (false, true, 2), (true, true, 2), (false, false, 4)]
        {
            for seed in 0..60u64 {
                let what = format!("{t}, float32 {float32}, missing {gaps}, D {d}, seed {seed}");
                let (mut x, k) = match t {
                    CovarianceType::Tied => (few_points(seed, d), 11),
                    _ => (collapsing(seed, d), 6),
                };
                if gaps {
                    (0..x.nrows()).step_by(5).for_each(|i| x[[i, i % d]] = f64::NAN);
                }
                let narrow = x.mapv(|v| v as f32);
                let samples = match (float32, gaps) {
                    (false, false) => Samples::from_f64(x.view()),
                    (false, true) => Samples::with_missing(x.view()),
                    (true, false) => Samples::from_f32(narrow.view()),
                    (true, true) => Samples::with_missing(narrow.view()),
                };
                let mut evaluator = CpuEvaluator::new(samples.unwrap()).unwrap();
                let p = params(k, t).reg_covar(0.0).random_state(seed).max_iter(300);
                // If all covariances collapse, the samples are degenerate.
                let fit = match p.check().unwrap().fit(&mut evaluator) {
                    Ok(fit) => fit,
                    Err(Error::NotPositiveDefinite { .. } | Error::BadComponent { .. }) => continue,
                    Err(error) => panic!("{what}: {error}"),
                };
                n_fits += 1;
                n_retained += usize::from(!fit.retained.is_empty());
                // Rounding may take this much from a nearly singular covariance; the largest loss seen is 3e-12.
                assert_rises(&what, &fit.lower_bounds, |_| 1e-11);
                let m = &fit.mixture;
                assert!(Mixture::new(m.weights().to_owned(), m.means().to_owned(), m.covariances().clone()).is_ok());
                // The limit is 16·D·ε = 7.1e-15, which this formula's rounding moves by some ε.
                let sound = |c| one_minus_square_correlation(m.matrix(c).view()) > 6e-15;
                let is_matrix = matches!(t, CovarianceType::Full | CovarianceType::Tied);
                assert!(!is_matrix || d > 2 || (0..k).all(sound), "{what}: {:?}", m.covariances());
            }
        }
    }
    // Of 1,200 fits, those in which something collapses are under test.
    assert!(n_fits > 900 && n_retained > 300, "{n_fits} fits, of which {n_retained} retained a covariance");
}

#[test]
fn the_same_seed_gives_the_same_bits_and_another_another_start() {
    let x = normal(3, 200, 2, 0.0);
    for init in InitParams::ALL {
        let p = params(3, CovarianceType::Diag).init_params(init).max_iter(0);
        let start = |seed| fit(p.clone().random_state(seed), &mut reference(x.view()));
        let (a, b, c) = (start(7), start(7), start(8));
        assert_eq!(a.mixture, b.mixture, "{init}");
        // A hierarchy of all rows has no random numbers.
        assert_eq!(a.mixture == c.mixture, init == InitParams::Hierarchical, "{init}");
        assert_eq!((a.n_iter(), a.converged, a.lower_bound()), (0, false, f64::NEG_INFINITY));
    }
}

/// A start costs its passes over all samples (`MAX_LLOYD` in `init.rs`), here more samples than k-means' first subset.
#[test]
fn a_start_takes_few_passes_over_all_samples() {
    let x = normal(5, 6000, 2, 0.0);
    for init in InitParams::ALL {
        let mut e = Counting(reference(x.view()), 0, 0);
        fit(params(4, CovarianceType::Diag).init_params(init).max_iter(0), &mut e);
        // Lloyd's iterations, and the assignment that gives the start.
        let most = if init == InitParams::KMeans { 20 + 1 } else { 1 };
        assert!(e.1 <= most, "{init}: {} passes", e.1);
        // The distances by which samples are drawn.
        assert!(e.2 <= 1, "{init}: {} passes for scores", e.2);
    }
}

#[test]
fn given_parameters_are_where_the_fit_starts() {
    let x = blobs(6, 90, 2);
    let start = mixture(7, CovarianceType::Full, 3, 2, 0.0);
    let given = params(3, CovarianceType::Full)
        .weights_init(start.weights().to_owned())
        .means_init(start.means().to_owned())
        .precisions_init(start.precisions());
    let a = fit(given.max_iter(0), &mut reference(x.view())).mixture;
    assert_eq!((a.weights(), a.means()), (start.weights(), start.means()));
    assert_all_close("covariances", a.covariances().iter(), start.covariances().iter(), 1e-12, 1.0);
    let p = params(3, CovarianceType::Full).start(start.clone()).max_iter(0);
    assert_eq!(fit(p, &mut reference(x.view())).mixture, start);
    // Only the means are given; weights and covariances are found.
    let p = params(3, CovarianceType::Full).means_init(start.means().to_owned()).max_iter(0);
    let a = fit(p, &mut reference(x.view())).mixture;
    assert_eq!(a.means(), start.means());
    assert_ne!(a.covariances(), start.covariances());
}

#[test]
fn a_warm_start_goes_on_bit_for_bit() {
    let x = normal(8, 150, 3, 0.0);
    let p = params(3, CovarianceType::Diag).tol(0.0);
    let whole = fit(p.clone().max_iter(12), &mut reference(x.view()));
    let first = fit(p.clone().max_iter(5), &mut reference(x.view()));
    let second = fit(p.clone().max_iter(7).warm_start(&first), &mut reference(x.view()));
    assert_eq!(second.mixture, whole.mixture);
    assert_eq!([first.lower_bounds, second.lower_bounds].concat(), whole.lower_bounds);
    // A converged fit is recognised at once.
    let done = fit(p.clone().tol(1e-3), &mut reference(x.view()));
    let again = fit(p.tol(1e-3).warm_start(&done), &mut reference(x.view()));
    assert!(done.converged && again.converged);
    assert_eq!(again.n_iter(), 1);
}

#[test]
fn an_interrupted_fit_goes_on_bit_for_bit() {
    let x = normal(30, 200, 2, 0.0);
    let p = params(4, CovarianceType::Full).n_init(3).init_params(InitParams::RandomFromData).tol(1e-4).max_iter(30);
    let whole = fit(p.clone(), &mut reference(x.view()));
    // Interrupted in each run, at its first iteration and later.
    for (run, iteration) in [(0, 1), (0, 7), (1, 1), (1, 12), (2, 3)] {
        let model = p.clone().check().unwrap();
        let (present, best) = interrupted(&model, &mut reference(x.view()), (run, iteration));
        assert_eq!((present.run, present.n_iter(), best.is_some()), (run, iteration, run > 0));
        let resumed = fit(p.clone().resume(present, best), &mut reference(x.view()));
        assert_eq!((&resumed.mixture, &resumed.lower_bounds), (&whole.mixture, &whole.lower_bounds));
        assert_eq!((resumed.run, resumed.converged, resumed.stopped), (whole.run, whole.converged, false));
    }
    // A finished fit goes on only if more iterations are allowed.
    let p = p.n_init(1);
    let done = fit(p.clone(), &mut reference(x.view()));
    let again = fit(p.clone().resume(done.clone(), None), &mut reference(x.view()));
    assert_eq!((again.n_iter(), again.mixture), (done.n_iter(), done.mixture.clone()));
    let more = fit(p.clone().tol(0.0).max_iter(35).resume(done.clone(), None), &mut reference(x.view()));
    assert_eq!((more.n_iter(), more.converged), (35, false));
    assert_eq!(more.lower_bounds[..done.n_iter()], done.lower_bounds);
    let other = p.n_components(3).resume(done, None).check().unwrap_err();
    assert!(matches!(other, Error::ShapeMismatch { .. }), "{other}");
}

#[test]
fn the_callback_sees_every_iteration_and_can_stop() {
    let x = normal(9, 100, 2, 0.0);
    let model = params(2, CovarianceType::Tied).tol(0.0).n_init(3).check().unwrap();
    let mut seen = Vec::new();
    let fit = model.fit_with(&mut reference(x.view()), &mut |i| {
        seen.push((i.run, i.iteration, i.lower_bound, i.change, i.fit.mixture.clone()));
        if i.run == 1 && i.iteration == 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let fit = fit.unwrap();
    assert_eq!(seen.len(), 104);
    assert!(fit.stopped && !fit.converged);
    assert_eq!(seen[0].3, f64::INFINITY);
    assert_eq!(seen[2].3, seen[2].2 - seen[1].2);
    let last = seen.iter().rfind(|s| s.0 == fit.run).unwrap();
    assert_eq!(last.4, fit.mixture);
}

#[test]
fn convergence_is_scikit_learns() {
    let x = blobs(10, 120, 2);
    let fit = fit(params(3, CovarianceType::Full).tol(1e-6).max_iter(1000), &mut reference(x.view()));
    let b = &fit.lower_bounds;
    assert!(fit.converged && fit.retained.is_empty());
    assert!((b[b.len() - 1] - b[b.len() - 2]).abs() < 1e-6);
    assert!(b.windows(2).rev().skip(1).all(|p| (p[1] - p[0]).abs() >= 1e-6));
}

/// Returns the samples in chunks of 40, 1, 80 and the rest.
fn chunked<'a>(x: &'a Array2<f64>, w: &'a Array1<f64>) -> ChunkedEvaluator<'a> {
    let cuts = [0, 40, 41, 121, x.nrows()];
    let sizes = cuts.windows(2).map(|c| c[1] - c[0]).collect();
    ChunkedEvaluator::new(x.ncols(), sizes, move |i| {
        let (x, w) = (x.slice(s![cuts[i]..cuts[i + 1], ..]), w.slice(s![cuts[i]..cuts[i + 1]]));
        Ok(Box::new(weighted(x, w)))
    })
    .unwrap()
    .with_total_weight(w.sum())
}

#[test]
fn chunks_fit_as_the_whole() {
    let x = blobs(15, 200, 3);
    let w = Array1::from_shape_fn(200, |i| 0.5 + (i % 3) as f64);
    let mut whole = weighted(x.view(), w.view());
    let mut parts = chunked(&x, &w);
    assert_eq!((parts.n_samples(), parts.n_features(), parts.n_chunks()), (200, 3, 4));
    for t in CovarianceType::ALL {
        let m = mixture(16, t, 3, 3, 5.0);
        assert_evaluators_agree(&format!("{t}"), &mut parts, &mut whole, &m, Allowed::all(1e-12));
        let p = params(3, t).tol(0.0).max_iter(10).random_state(3);
        let (a, b) = (fit(p.clone(), &mut parts), fit(p, &mut whole));
        assert_all_close("bounds", a.lower_bounds, b.lower_bounds, 1e-11, 1.0);
        assert_all_close("means", a.mixture.means(), b.mixture.means(), 1e-10, 1.0);
    }
    let order = [150, 3, 40, 199, 41, 3];
    let rows = parts.rows(&order).unwrap();
    assert_eq!(rows.x, x.select(Axis(0), &order));
    assert_eq!(rows.weights, w.select(Axis(0), &order));
    assert!(matches!(parts.rows(&[200]), Err(Error::NoSuchRow { row: 200, n_samples: 200 })));
    // A loader whose chunks are not those announced.
    let mut wrong = ChunkedEvaluator::new(3, vec![5], |_| Ok(Box::new(reference(x.view())))).unwrap();
    let m = mixture(16, CovarianceType::Diag, 3, 3, 5.0);
    assert!(matches!(wrong.statistics(&m), Err(Error::ShapeMismatch { .. })));
    assert!(ChunkedEvaluator::new(3, vec![], |_| Ok(Box::new(reference(x.view())))).is_err());
}

#[test]
fn stepwise_em_approaches_the_fit() {
    let x = blobs(17, 6000, 2);
    let whole = fit(params(3, CovarianceType::Full).tol(1e-9), &mut reference(x.view())).mixture;
    let start = fit(params(3, CovarianceType::Full), &mut reference(x.slice(s![..300, ..]))).mixture;
    let mut em = StepwiseEm::new(start, StepwiseEm::DEFAULT_DECAY, 1e-6, Freeze::default()).unwrap();
    for chunk in 0..20 {
        let chunk = x.slice(s![300 * chunk..300 * (chunk + 1), ..]);
        em.partial_fit(&mut reference(chunk)).unwrap();
    }
    assert_eq!(em.steps(), 20);
    let mut e = reference(x.view());
    let (a, b) = (em.mixture().score(&mut e).unwrap(), whole.score(&mut e).unwrap());
    // The last chunks weigh about 1/η₁₉ = 8 of 20: excess loss ≈ p/2 · 1/(8·300) = 17/2/2400 = 0.0035.
    assert!(a > b - 0.01, "{a} against {b}");
    // One chunk of everything is one step of EM.
    let first = mixture(18, CovarianceType::Diag, 3, 2, 5.0);
    let mut em = StepwiseEm::new(first.clone(), 0.6, 1e-6, Freeze::default()).unwrap();
    let bound = em.partial_fit(&mut reference(x.view())).unwrap();
    let once = fit(params(3, CovarianceType::Diag).start(first.clone()).max_iter(1), &mut reference(x.view()));
    assert_close("bound", bound, once.lower_bound(), 1e-14, 0.0);
    assert_all_close("means", em.mixture().means(), once.mixture.means(), 1e-12, 1.0);
    let refused = StepwiseEm::new(first, 0.5, 1e-6, Freeze::default());
    assert!(matches!(refused, Err(Error::BadParameter { name: "decay", .. })));
}

#[test]
fn the_number_of_blobs_is_found() {
    let x = blobs(19, 300, 2);
    let mut e = reference(x.view());
    let p = GaussianMixtureParams::default().n_init(2);
    let chosen = select(&mut e, &p, &[1, 2, 3, 4, 5], &CovarianceType::ALL, Criterion::Bic, &mut go).unwrap();
    assert_eq!(chosen.table.len(), 20);
    let best = chosen.table[chosen.best];
    // The blobs are spherical, of three widths.
    assert_eq!((best.n_components, best.covariance_type), (3, CovarianceType::Spherical.into()));
    assert!(chosen.table.iter().all(|row| row.criterion >= best.criterion));
    assert_close("bic", chosen.fit.mixture.bic(&mut e).unwrap(), best.criterion, 1e-14, 0.0);
    assert_eq!(chosen.fit.mixture.n_components(), 3);
    for t in CovarianceType::ALL {
        for criterion in [Criterion::Bic, Criterion::Rissanen] {
            let model = params(8, t).check().unwrap();
            let merged = merge_down(&mut e, &model, 1, criterion, &mut go).unwrap();
            let ks: Vec<usize> = merged.table.iter().map(|row| row.n_components).collect();
            assert_eq!(ks, [8, 7, 6, 5, 4, 3, 2, 1]);
            // Three components with tied covariances cannot describe three widths.
            let expected = if t == CovarianceType::Tied { 3..=6 } else { 3..=3 };
            assert!(expected.contains(&merged.fit.mixture.n_components()), "{t}: {:?}", merged.table);
        }
    }
    // Down to a least number, and two searches as one.
    let down = |t: CovarianceType| {
        let model = params(5, t).check().unwrap();
        merge_down(&mut reference(x.view()), &model, 4, Criterion::Bic, &mut go).unwrap()
    };
    let both = down(CovarianceType::Full).then(down(CovarianceType::Spherical));
    let rows: Vec<_> = both.table.iter().map(|row| (row.covariance_type.name(), row.n_components)).collect();
    assert_eq!(rows, [("full", 5), ("full", 4), ("spherical", 5), ("spherical", 4)]);
    assert_eq!((both.best, both.fit.mixture.covariance_type()), (3, CovarianceType::Spherical));
    let both = down(CovarianceType::Spherical).then(down(CovarianceType::Full));
    assert_eq!((both.best, both.fit.mixture.covariance_type()), (1, CovarianceType::Spherical));
    // A callback that breaks ends the search with the results so far.
    let mut n = 0;
    let stopped = select(&mut e, &p, &[1, 2, 3], &[CovarianceType::Diag], Criterion::Aic, &mut |_| {
        n += 1;
        if n == 5 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let stopped = stopped.unwrap();
    assert!(stopped.stopped && stopped.table.len() < 3);
    let mut refused = |ks: &[usize], ts| select(&mut e, &p, ks, ts, Criterion::Bic, &mut go).unwrap_err();
    assert!(matches!(refused(&[], &CovarianceType::ALL[..0]), Error::BadParameter { .. }));
    let error = refused(&[301], &CovarianceType::ALL);
    assert!(matches!(error, Error::TooFewSamples { n_samples: 300, n_components: 301 }));
}

#[test]
fn more_components_than_samples_are_left_out_of_a_selection() {
    let x = blobs(19, 7, 2);
    let kinds = [CovarianceType::Diag, CovarianceType::Spherical];
    let search = |n_components: &[usize], weights: Option<Array1<f64>>| {
        // Equal weights change nothing.
        let mut evaluator = weighted(x.view(), weights.unwrap_or_else(|| Array1::ones(7)).view());
        let p = GaussianMixtureParams::default();
        select(&mut evaluator, &p, n_components, &kinds, Criterion::Bic, &mut go)
    };
    let rows = |chosen: &gmm_host::Selection| chosen.table.iter().map(|row| row.n_components).collect::<Vec<_>>();
    let chosen = search(&[9, 1, 8, 2], None).unwrap();
    assert_eq!((rows(&chosen), &chosen.left_out[..]), (vec![1, 2, 1, 2], &[8, 9][..]));
    assert_eq!(chosen.then(search(&[10, 1], None).unwrap()).left_out, [8, 9, 10]);
    assert!(search(&[1, 2], None).unwrap().left_out.is_empty());
    // Samples of weight zero do not count.
    let mut weights = Array1::ones(7);
    weights.slice_mut(s![2..]).fill(0.0);
    let chosen = search(&[1, 3], Some(weights)).unwrap();
    assert_eq!((rows(&chosen), &chosen.left_out[..]), (vec![1, 1], &[3][..]));
    // The error is that of the least K.
    assert!(matches!(search(&[9, 8], None), Err(Error::TooFewSamples { n_samples: 7, n_components: 8 })));
}

#[test]
fn samples_have_the_mixtures_moments() {
    let n = 20_000;
    for t in CovarianceType::ALL {
        let m = mixture(20, t, 3, 3, 1.0);
        let (x, labels) = m.sample(n, 42).unwrap();
        assert_eq!((x.clone(), labels.clone()), m.sample(n, 42).unwrap());
        assert_ne!(x, m.sample(n, 43).unwrap().0);
        // Drawing in parts gives the same samples.
        let mut sampler = m.sampler(42).unwrap();
        for (start, end) in [(0, 1), (1, 1), (1, 1000)] {
            let (part, part_labels) = sampler.draw(end - start).unwrap();
            assert_eq!((part, &part_labels[..]), (x.slice(s![start..end, ..]).to_owned(), &labels[start..end]));
        }
        for c in 0..3 {
            let rows: Vec<usize> = (0..n).filter(|&i| labels[i] == c).collect();
            let part = x.select(Axis(0), &rows);
            // Five standard errors: √(0.25/n) of a share; 3·√(2/5000) of a mean or covariance with variances below 3.
            assert_close("share", rows.len() as f64 / n as f64, m.weights()[c], 0.018, 1.0);
            let mean = part.mean_axis(Axis(0)).unwrap();
            let centred = &part - &mean;
            let covariance = centred.t().dot(&centred) / rows.len() as f64;
            let difference = covariance - m.matrix(c);
            let worst = difference.iter().chain(&(mean - m.means().row(c))).fold(0.0f64, |m, v| m.max(v.abs()));
            assert!(worst < 0.3, "{t}: {worst}");
        }
        let label = m.sample(0, 1).unwrap();
        assert_eq!((label.0.dim(), label.1.len()), ((0, 3), 0));
    }
    // A component of weight zero gives no samples.
    let m = Mixture::new(array![0.0, 1.0], array![[0.0], [9.0]], Covariances::Spherical(array![1.0, 1.0])).unwrap();
    assert!(m.sample(500, 0).unwrap().1.iter().all(|&c| c == 1));
}

#[test]
fn degenerate_data_end_in_a_finite_model_or_a_clear_error() {
    let equal = Array2::from_elem((20, 2), 3.5);
    let mut constant = normal(21, 60, 3, 0.0);
    constant.column_mut(1).fill(7.0);
    let mut duplicates = normal(22, 40, 2, 0.0);
    duplicates.slice_mut(s![5.., ..]).fill(1.0);
    for t in CovarianceType::ALL {
        for init in InitParams::ALL {
            for (name, x, k) in [("equal", &equal, 3), ("constant", &constant, 3), ("duplicates", &duplicates, 8)] {
                let p = params(k, t).init_params(init).tol(0.0).max_iter(30);
                let found = fit(p.clone(), &mut reference(x.view()));
                assert!(is_finite(&found.mixture), "{t} {init} {name}");
                assert!(found.mixture.score(&mut reference(x.view())).unwrap().is_finite());
                // With `reg_covar` zero the likelihood is unbounded (an error) or the model is finite.
                match p.reg_covar(0.0).check().unwrap().fit(&mut reference(x.view())) {
                    Ok(found) => assert!(is_finite(&found.mixture), "{t} {init} {name}"),
                    Err(e) => assert!(e.to_string().contains("reg_covar"), "{t} {init} {name}: {e}"),
                }
            }
            // No component has a usable covariance, so this is always an error. (A spherical variance is the mean over
            // the columns: one constant column leaves it positive.)
            for x in [&equal, &constant] {
                if t != CovarianceType::Spherical || x.ncols() == 2 {
                    let p = params(2, t).init_params(init).reg_covar(0.0).check().unwrap();
                    assert!(p.fit(&mut reference(x.view())).is_err(), "{t} {init}");
                }
            }
        }
    }
    // As many components as samples.
    let x = normal(23, 5, 2, 0.0);
    for t in CovarianceType::ALL {
        assert!(is_finite(&fit(params(5, t), &mut reference(x.view())).mixture));
        let e = params(6, t).check().unwrap().fit(&mut reference(x.view())).unwrap_err();
        assert!(matches!(e, Error::TooFewSamples { n_samples: 5, n_components: 6 }), "{e}");
    }
    // Enough samples, but too few with weight.
    let w = array![1.0, 0.0, 2.0, 0.0, 0.0];
    let e = params(3, CovarianceType::Diag).check().unwrap().fit(&mut weighted(x.view(), w.view())).unwrap_err();
    assert!(matches!(e, Error::TooFewWeightedSamples { n_samples: 2, n_components: 3 }), "{e}");
    assert!(is_finite(&fit(params(2, CovarianceType::Diag), &mut weighted(x.view(), w.view())).mixture));
}

#[test]
fn far_and_wide_data_are_fitted_as_near_ones() {
    let x = blobs(24, 150, 2);
    let p = params(3, CovarianceType::Full).reg_covar(0.0).tol(0.0).max_iter(10);
    let near = fit(p.clone(), &mut reference(x.view())).mixture;
    // Powers of two move and scale the data exactly to 10⁻¹¹ of their spread.
    let (shift, scale) = (2f64.powi(17), 2f64.powi(-30));
    for (shift, scale) in [(shift, 1.0), (0.0, scale), (0.0, 1.0 / scale)] {
        let moved = x.mapv(|v| v * scale + shift);
        let far = fit(p.clone(), &mut reference(moved.view())).mixture;
        assert_all_close("means", far.means().mapv(|v| (v - shift) / scale), near.means(), 1e-8, 1.0);
        let covariances = far.covariances().iter().map(|v| v / (scale * scale));
        assert_all_close("covariances", covariances, near.covariances().iter(), 1e-8, 1.0);
    }
}

/// Rows that a random subset overlooks, 1 of 20,000 or 9 distinct ones, some as rare, are found by every evaluator.
#[test]
fn rare_rows_are_found_in_a_large_set() {
    let one = Array2::from_shape_fn((20_000, 2), |(i, _)| if i == 17_001 { 1.0 } else { 0.0 });
    // Row i is of kind 0 to 8; kinds above 2 have one, two, four, … of 20,000 rows.
    let kind = |i: usize| (3..9).find(|k| (1..=1 << (k - 3)).any(|j| i == j * 311 + k)).unwrap_or(i % 3);
    let few = Array2::from_shape_fn((20_000, 2), |(i, j)| ((kind(i) * (3 + 4 * j) + 5) % 11) as f64);
    for (x, k) in [(&one, 2), (&few, 9)] {
        let x32 = x.mapv(|v| v as f32);
        let mut evaluators: Vec<Box<dyn Evaluator + '_>> = vec![
            Box::new(reference(x.view())),
            Box::new(CpuEvaluator::new(Samples::from_f64(x.view()).unwrap()).unwrap()),
            Box::new(CpuEvaluator::new(Samples::from_f32(x32.view()).unwrap()).unwrap()),
        ];
        let samples = Samples::from_f64(x.view()).unwrap();
        let load = |chunk| -> Result<Box<dyn Evaluator + '_>> { Ok(Box::new(CpuEvaluator::new(chunk)?)) };
        evaluators.push(Box::new(ChunkedEvaluator::of_samples(samples.clone(), 3001, load).unwrap()));
        let shards = [0..4000, 4000..17_002, 17_002..20_000].map(|rows| load(samples.rows(rows)).unwrap());
        evaluators.push(Box::new(ShardedEvaluator::new(shards.into()).unwrap()));
        for e in &mut evaluators {
            for seed in 0..4 {
                let fit = fit(params(k, CovarianceType::Spherical).random_state(seed).max_iter(3), e.as_mut());
                // Each component has the covariance `reg_covar`, because its rows are equal.
                let Covariances::Spherical(v) = fit.mixture.covariances() else { panic!() };
                assert!(v.iter().all(|v| (v / 1e-6 - 1.0).abs() < 1e-3), "{} {seed}: {v}", e.describe().device);
            }
        }
    }
}

/// Rows whose weights exceed all others together are found.
#[test]
fn heavy_weights_are_found_in_a_large_set() {
    let x = Array2::from_shape_fn((20_000, 1), |(i, _)| if i == 3 { 7.0 } else { (i as f64).sin() * 1e-3 });
    let w = Array1::from_shape_fn(20_000, |i| if i == 3 { 1e6 } else { 1.0 });
    for seed in 0..4 {
        let fit = fit(params(2, CovarianceType::Diag).random_state(seed), &mut weighted(x.view(), w.view()));
        let share = fit.mixture.weights().iter().fold(0.0, |most: f64, v| most.max(*v));
        assert!((share - 1e6 / 1_019_999.0).abs() < 1e-9, "{seed}: {share}");
    }
}

#[test]
fn sparse_weights_are_found_in_a_large_set() {
    // 12 of 20000 samples count, in two blobs.
    let x = blobs(25, 20_000, 1);
    let mut w = Array1::zeros(20_000);
    for i in 0..6 {
        w[3 * i * 1000] = 1.0;
        w[3 * i * 1000 + 2] = 1.0;
    }
    let fit = fit(params(2, CovarianceType::Diag), &mut weighted(x.view(), w.view()));
    let mut means = fit.mixture.means().column(0).to_vec();
    means.sort_by(f64::total_cmp);
    assert!((means[0] - 0.0).abs() < 1.0 && (means[1] - 10.0).abs() < 2.0, "{means:?}");
}

#[test]
fn bad_parameters_are_refused() {
    let d = GaussianMixtureParams::default;
    let name = |p: GaussianMixtureParams| match p.check() {
        Err(Error::BadParameter { name, .. }) => name,
        other => panic!("{other:?}"),
    };
    let diag = |k| params(k, CovarianceType::Diag);
    let m = mixture(26, CovarianceType::Diag, 2, 3, 0.0);
    for (p, expected) in [
        (d().n_components(0), "n_components"),
        (d().tol(-1.0), "tol"),
        (d().tol(f64::NAN), "tol"),
        (d().reg_covar(-1e-9), "reg_covar"),
        (d().reg_covar(f64::INFINITY), "reg_covar"),
        (d().n_init(0), "n_init"),
        (diag(2).start(m.clone()).weights_init(array![0.5, 0.5]), "start"),
    ] {
        assert_eq!(name(p), expected);
    }
    for p in [
        diag(3).start(m.clone()),
        diag(3).weights_init(array![0.5, 0.5]),
        diag(3).means_init(Array2::zeros((2, 2))),
        params(2, CovarianceType::Full).precisions_init(Covariances::Full(Array3::zeros((2, 2, 3)))),
    ] {
        assert!(matches!(p.clone().check(), Err(Error::ShapeMismatch { .. })), "{p:?}");
    }
    let error = |p: GaussianMixtureParams| p.check().unwrap_err();
    let tied = |precisions| params(2, CovarianceType::Tied).precisions_init(precisions);
    let e = error(params(2, CovarianceType::Full).start(m.clone()));
    assert!(matches!(e, Error::WrongCovarianceType { expected: "full", .. }), "{e}");
    let e = error(tied(Covariances::Diag(Array2::ones((2, 2)))));
    assert!(matches!(e, Error::WrongCovarianceType { .. }), "{e}");
    assert!(matches!(error(diag(2).weights_init(array![0.7, 0.7])), Error::WeightSum { .. }));
    let e = error(diag(2).means_init(array![[0.0, f64::NAN], [0.0, 0.0]]));
    assert!(matches!(e, Error::BadComponent { component: 0, .. }), "{e}");
    let e = error(tied(Covariances::Tied(Array2::ones((2, 2)))));
    assert!(matches!(e, Error::NotPositiveDefinite { component: None, pivot: 1 }), "{e}");
    // Errors that depend on the data.
    let x = normal(27, 30, 2, 0.0);
    let short = Statistics::from_responsibilities(x.view(), Array2::ones((29, 2)).view(), CovarianceType::Diag);
    assert!(matches!(short, Err(Error::ShapeMismatch { .. })));
    let against = |p: GaussianMixtureParams| p.check().unwrap().fit(&mut reference(x.view())).unwrap_err();
    let given = [diag(2).means_init(m.means().to_owned()), diag(2).precisions_init(m.precisions()), diag(2).start(m)];
    for p in given {
        let e = against(p);
        assert!(matches!(e, Error::ShapeMismatch { .. }) && e.to_string().contains("data"), "{e}");
    }
}

/// Returns the run that successive halving leaves, and each run's iterations, from the bounds of whole runs.
fn halved(bounds: &[Vec<f64>]) -> (usize, Vec<usize>) {
    let mut left: Vec<usize> = (0..bounds.len()).collect();
    let mut done = vec![0; bounds.len()];
    for round in 0.. {
        let until = if left.len() == 1 { usize::MAX } else { 5 << round };
        left.iter().for_each(|&run| done[run] = bounds[run].len().min(until));
        if left.iter().all(|&run| done[run] == bounds[run].len()) {
            break;
        }
        left.sort_by(|a, b| bounds[*b][done[*b] - 1].total_cmp(&bounds[*a][done[*a] - 1]));
        left.truncate(left.len().div_ceil(2));
        left.sort_unstable();
    }
    let best = left.into_iter().rev().max_by(|a, b| bounds[*a].last().unwrap().total_cmp(bounds[*b].last().unwrap()));
    (best.unwrap(), done)
}

#[test]
fn halving_drops_the_runs_that_are_behind() {
    let x = blobs(7, 400, 3);
    let mut dropped = 0;
    for (k, n_init) in [(4, 9), (6, 10), (5, 1)] {
        let p = params(k, CovarianceType::Full).n_init(n_init).init_params(InitParams::RandomFromData);
        let p = p.tol(1e-5).max_iter(60);
        let mut whole: Vec<Vec<f64>> = vec![Vec::new(); n_init];
        let mut mixtures: Vec<Option<Mixture>> = vec![None; n_init];
        let mut e = reference(x.view());
        let all = watched(&p.clone().check().unwrap(), &mut e, |i| {
            whole[i.run].push(i.lower_bound);
            mixtures[i.run] = Some(i.fit.mixture.clone());
        });
        let (best, iterations) = halved(&whole);
        let mut seen: Vec<Vec<f64>> = vec![Vec::new(); n_init];
        let halving = p.clone().halving(true).check().unwrap();
        let fit = watched(&halving, &mut e, |i| {
            seen[i.run].push(i.lower_bound);
            assert_eq!(i.iteration, seen[i.run].len());
            // The other runs have begun, or there are none.
            let others = seen.iter().enumerate().filter(|(run, bounds)| *run != i.run && !bounds.is_empty());
            assert!(others.count() > 0 || i.best.is_none());
        });
        assert_eq!(seen.iter().map(Vec::len).collect::<Vec<_>>(), iterations);
        // Each run, and so the best, has the bits of a fit without halving.
        seen.iter().zip(&whole).for_each(|(seen, whole)| assert_eq!(seen[..], whole[..seen.len()]));
        assert_eq!((fit.run, &fit.lower_bounds), (best, &whole[best]));
        assert_eq!(Some(&fit.mixture), mixtures[best].as_ref());
        assert!(fit.lower_bound() <= all.lower_bound());
        dropped += iterations.iter().zip(&whole).filter(|(n, whole)| **n < whole.len()).count();
        let [one, three] = [1, 3].map(|n| with_threads(n, || halving.fit(&x).unwrap()));
        assert_eq!((one.run, &one.mixture, &one.lower_bounds), (three.run, &three.mixture, &three.lower_bounds));
        let many = halving.fit_many(&[Samples::from_f64(x.view()).unwrap()], &());
        assert_eq!(many[0].as_ref().unwrap().run, one.run);
        // The first iteration of the second run ends it with the first run as the best so far.
        let first = &mut |i: &Iteration<'_>| if i.run == 0 { go(i) } else { ControlFlow::Break(()) };
        let stopped = halving.fit_with(&mut e, first).unwrap();
        assert_eq!((stopped.stopped, stopped.run), (n_init > 1, 0));
        // The callback's view is not enough to resume.
        let resumed = p.clone().halving(true).resume(fit, None).check();
        assert!(matches!(resumed, Err(Error::BadParameter { name: "halving", .. })));
    }
    assert!(dropped > 8, "{dropped}");
}

#[test]
fn growing_is_never_worse_than_starts_alone() {
    let x = blobs(5, 400, 3);
    let mut better = 0;
    for t in CovarianceType::ALL {
        // From 3 to 6 three components are added.
        let ks = [6, 1, 2, 3, 7, 8];
        let p = GaussianMixtureParams::default().init_params(InitParams::RandomFromData).tol(1e-6).max_iter(2000);
        let mut e = CpuEvaluator::new(Samples::from_f64(x.view()).unwrap()).unwrap();
        let mut ascending = ks.to_vec();
        ascending.sort_unstable();
        let alone = select(&mut e, &p, &ascending, &[t], Criterion::Bic, &mut go).unwrap();
        let grown = grow(&mut e, &p, &ks, &[t], Criterion::Bic, &mut go).unwrap();
        assert_eq!(grown.table.iter().map(|row| row.n_components).collect::<Vec<_>>(), ascending);
        assert_eq!(grown.table[0], alone.table[0]);
        for (grown, alone) in grown.table.iter().zip(&alone.table) {
            // The bound is that before the last step, which changes it by at most `tol`.
            let tol = 1e-6 * x.nrows() as f64;
            assert!(grown.log_likelihood >= alone.log_likelihood - tol, "{t}: {grown:?}, {alone:?}");
            better += usize::from(grown.log_likelihood > alone.log_likelihood + 1e-3 * x.nrows() as f64);
        }
        if t == CovarianceType::Tied {
            // A precision that is valid for every K is for the first start only.
            let given = p.clone().n_components(2).covariance_type(t).precisions_init(Covariances::Tied(Array2::eye(3)));
            let given = given.check().unwrap();
            let before = mixture(1, t, 1, 3, 0.0);
            assert!(given.grown_start(before, &mut e).unwrap().is_some());
        }
        let on = |n: usize| {
            let mut e = CpuEvaluator::new(Samples::from_f64(x.view()).unwrap()).unwrap();
            with_threads(n, || grow(&mut e, &p, &ks, &[t], Criterion::Bic, &mut go).unwrap())
        };
        let (one, three) = (on(1), on(3));
        assert_eq!((&one.table, &one.fit.mixture), (&three.table, &three.fit.mixture));
    }
    assert!(better >= 4, "{better}");
    // Splits cannot separate equal samples; missing values are as in any fit; one feature has one axis.
    for (x, missing) in [(Array2::zeros((20, 2)), false), (blobs(2, 60, 1), false), (blobs(2, 60, 2), true)] {
        let mut x = x;
        if missing {
            x.column_mut(0).iter_mut().step_by(7).for_each(|v| *v = f64::NAN);
        }
        let samples = Samples::with_missing(x.view()).unwrap();
        let p = GaussianMixtureParams::default();
        for t in CovarianceType::ALL {
            let mut e = CpuEvaluator::new(samples.clone()).unwrap();
            let grown = grow(&mut e, &p, &[1, 2, 3], &[t], Criterion::Bic, &mut go).unwrap();
            assert!(grown.table.iter().all(|row| row.log_likelihood.is_finite()), "{t}");
        }
    }
    let mut e = reference(x.view());
    let frozen = GaussianMixtureParams::default().freeze(Freeze { weights: true.into(), ..Freeze::default() });
    let refused = grow(&mut e, &frozen, &[1, 2], &[CovarianceType::Full], Criterion::Bic, &mut go);
    assert!(matches!(refused, Err(Error::BadParameter { name: "freeze", .. })));
}

/// Returns ways to freeze three components: all of them, parts of them, and equal weights.
fn parts() -> impl Iterator<Item = Freeze> {
    let texts = "weights means covariances means=0,2 weights=1 covariances=1 weights=0,means=0,covariances=0 \
        weights=equal weights=2,weights=equal";
    texts.split(' ').map(|text| text.parse().unwrap())
}

#[test]
fn single_components_stay_and_the_bound_never_falls() {
    let x = blobs(41, 120, 2);
    for t in CovarianceType::ALL {
        let start = mixture(42, t, 3, 2, 3.0);
        for freeze in parts().filter(|freeze| t != CovarianceType::Tied || !freeze.covariances.any()) {
            let p = params(3, t).start(start.clone()).tol(0.0).reg_covar(0.0).max_iter(30).freeze(freeze.clone());
            let found = fit(p, &mut reference(x.view()));
            // Rounding of a mean over 120 samples.
            assert_rises(&format!("{t} {freeze}"), &found.lower_bounds, |_| 1e-12);
            assert!(found.lower_bound() > found.lower_bounds[0] + 0.01, "{t} {freeze}");
            let (new, old) = (&found.mixture, &start);
            for c in 0..3 {
                let what = format!("{t} {freeze} {c}");
                assert_eq!(new.weights()[c] == old.weights()[c], freeze.weights.has(c), "{what}");
                assert_eq!(new.means().row(c) == old.means().row(c), freeze.means.has(c), "{what}");
                let same = (0..2).all(|j| new.variance(c, j) == old.variance(c, j));
                assert_eq!(same, freeze.covariances.has(c), "{what}");
            }
            assert!((new.weights().sum() - 1.0).abs() < 1e-14);
            let free: Vec<f64> = (0..3).filter(|&c| !freeze.weights.has(c)).map(|c| new.weights()[c]).collect();
            let equal = !free.is_empty() && free.iter().all(|w| *w == free[0]);
            assert_eq!(equal, freeze.equal_weights, "{t} {freeze}");
        }
    }
}

#[test]
fn equal_weights_hold_from_any_start() {
    let x = blobs(43, 90, 2);
    let freeze = Freeze { equal_weights: true, ..Freeze::default() };
    for weights in [None, Some(array![0.8, 0.1, 0.1])] {
        let mut p = params(3, CovarianceType::Diag).freeze(freeze.clone()).tol(0.0).max_iter(10);
        p.method.weights_init = weights;
        let found = fit(p, &mut reference(x.view()));
        assert_eq!(found.mixture.weights(), Array1::from_elem(3, 1.0 / 3.0));
        assert_rises("equal weights", &found.lower_bounds, |_| 1e-12);
    }
}

/// Components share a mean, and one keeps its own: the bound rises in each iteration, and at the end the shared mean is
/// the likeliest, since Σₖ nₖ Σₖ⁻¹ (x̄ₖ − μ) is zero there.
#[test]
fn equal_means_are_the_likeliest() {
    let x = blobs(47, 400, 2);
    for t in CovarianceType::ALL {
        let freeze: Freeze = "means=2,means=equal".parse().unwrap();
        let p = params(3, t).freeze(freeze).tol(0.0).max_iter(300).reg_covar(0.0);
        let mut data = reference(x.view());
        let found = fit(p, &mut data);
        assert_rises(t.name(), &found.lower_bounds, |_| 1e-12);
        // With one covariance and one mean both are equal, and the start has them already.
        let gain = if t == CovarianceType::Tied { 0.0 } else { 0.01 };
        assert!(found.lower_bound() > found.lower_bounds[0] + gain, "{t}: {:?}", found.lower_bounds);
        let mixture = &found.mixture;
        assert_eq!(mixture.means().row(0), mixture.means().row(1), "{t}");
        assert_ne!(mixture.means().row(0), mixture.means().row(2), "{t}");
        let statistics = data.statistics(mixture).unwrap();
        let precisions = mixture.precisions();
        let precisions = Mixture::new(mixture.weights().to_owned(), mixture.means().to_owned(), precisions).unwrap();
        let score = |c: usize| {
            let away = &statistics.means().row(c) - &mixture.means().row(c);
            precisions.matrix(c).dot(&away) * statistics.counts()[c]
        };
        let (both, one) = (score(0) + score(1), score(0));
        let largest = |v: &Array1<f64>| v.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
        // 300 iterations of EM leave this much.
        assert!(largest(&both) < 1e-3 * largest(&one).max(1.0), "{t}: {both} {one}");
    }
}

#[test]
fn what_cannot_be_frozen_is_refused() {
    let message = |k, t, text: &str| {
        let freeze = text.parse::<Freeze>();
        let checked = freeze.and_then(|freeze| params(k, t).freeze(freeze).check());
        checked.map(drop).unwrap_err().to_string()
    };
    let full = CovarianceType::Full;
    assert!(message(3, full, "means=3").contains("means of component 3"));
    assert!(message(3, full, "precisions").contains("`precisions`"));
    assert!(message(3, full, "covariances=equal").contains("`covariances=equal`"));
    assert!(message(2, full, "means,means=equal").contains("leave out one"));
    assert!(message(3, full, "weights,3").contains("`3`"));
    assert!(message(2, full, "weights=0,1,weights=equal").contains("leave out one"));
    assert!(message(3, CovarianceType::Tied, "covariances=1").contains("share a part"));
    assert!(params(2, CovarianceType::Tied).freeze("covariances=0,1".parse().unwrap()).check().is_ok());
}
