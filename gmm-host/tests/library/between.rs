//! Distances between mixtures, and mixtures made of others.
use crate::common::*;
use gmm_host::{
    Adaptation, ChunkedEvaluator, CovarianceType, Covariances, DataFacts, Description, Device, Draw, Error, Estimate,
    Evaluator, Interrupt, Mixture, Order, Predict, ReferenceEvaluator, Rows, Samples, ShardedEvaluator, Statistics,
};
use nalgebra::DMatrix;
use ndarray::{Array1, Array2, Axis, array};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn one(mean: f64, variance: f64) -> Mixture {
    Mixture::new(array![1.0], array![[mean]], Covariances::Spherical(array![variance])).unwrap()
}

fn densities(m: &Mixture, x: &Array2<f64>) -> Array1<f64> {
    reference(x.view()).score_samples(m).unwrap()
}

/// Integrates by the trapezoidal rule, which only rounds for densities that vanish at the ends.
fn integral(f: impl Fn(f64, f64) -> f64, p: &Mixture, q: &Mixture) -> f64 {
    let (n, least, step) = (20_001, -50.0, 0.005);
    let x = Array2::from_shape_fn((n, 1), |(i, _)| least + step * i as f64);
    densities(p, &x).iter().zip(&densities(q, &x)).map(|(p, q)| step * f(*p, *q)).sum()
}

fn within(estimate: Estimate, truth: f64) {
    // The seed is not one of the worst in 15,000.
    let apart = (estimate.value - truth).abs();
    assert!(apart < 4.0 * estimate.standard_error, "{estimate:?} against {truth}");
}

#[test]
fn closed_forms_of_two_normal_distributions() {
    let (p, q) = (one(0.0, 1.0), one(3.0, 1.0));
    let close = |what, a: f64, b: f64| assert_close(what, a, b, 1e-14, 1.0);
    close("Cauchy-Schwarz", p.cauchy_schwarz(&q).unwrap(), 9.0 / 4.0);
    let square = (1.0 - (-9f64 / 4.0).exp()) / std::f64::consts::PI.sqrt();
    close("L2", p.l2_distance(&q).unwrap(), square.sqrt());
    close("Wasserstein", p.wasserstein(&one(3.0, 25.0)).unwrap()[[0, 0]], 5.0);
    close("affinity", p.hellinger_affinity(&q).unwrap()[[0, 0]], (-9f64 / 8.0).exp());
    let wide = p.hellinger_affinity(&one(0.0, 25.0)).unwrap()[[0, 0]];
    close("affinity", wide, (2.0 * 5.0 / 26f64).sqrt());
    within(p.kl_divergence(&q, 20_000, 1).unwrap(), 4.5);
    for same in [p.cauchy_schwarz(&p).unwrap(), p.l2_distance(&p).unwrap(), p.wasserstein(&p).unwrap()[[0, 0]]] {
        assert_eq!(same, 0.0);
    }
    // So far apart that the product of the densities underflows.
    close("Cauchy-Schwarz", p.cauchy_schwarz(&one(1e4, 1.0)).unwrap() * 1e-7, 2.5);
    let (product, log_integral) = p.product(&one(1e4, 1.0)).unwrap();
    close("mean", product.means()[[0, 0]] * 1e-4, 0.5);
    close("integral", log_integral * 1e-7, -2.5 - 0.5e-7 * (4.0 * std::f64::consts::PI).ln());
}

#[test]
fn distances_of_mixtures_are_those_of_quadrature() {
    let p = mixture(1, CovarianceType::Full, 3, 1, 0.0);
    let q = mixture(2, CovarianceType::Tied, 4, 1, 1.0);
    let product = |a: f64, b: f64| (a + b).exp();
    let [pp, pq, qq] = [integral(product, &p, &p), integral(product, &p, &q), integral(product, &q, &q)];
    assert_close("Cauchy-Schwarz", p.cauchy_schwarz(&q).unwrap(), -(pq / (pp * qq).sqrt()).ln(), 1e-12, 1.0);
    assert_close("L2", p.l2_distance(&q).unwrap(), (pp - 2.0 * pq + qq).sqrt(), 1e-12, 1.0);
    let kl = |p: f64, q: f64| p.exp() * (p - q);
    within(p.kl_divergence(&q, 50_000, 3).unwrap(), integral(kl, &p, &q));
    within(q.kl_divergence(&p, 50_000, 3).unwrap(), integral(kl, &q, &p));
    let js = |p: f64, q: f64| {
        let m = (0.5 * (p.exp() + q.exp())).ln();
        0.5 * p.exp() * (p - m) + 0.5 * q.exp() * (q - m)
    };
    let estimate = p.js_divergence(&q, 50_000, 3).unwrap();
    within(estimate, integral(js, &p, &q));
    assert_eq!(estimate, p.js_divergence(&q, 50_000, 3).unwrap());
    assert_ne!(estimate, p.js_divergence(&q, 50_000, 4).unwrap());
    let far = p.js_divergence(&mixture(2, CovarianceType::Diag, 4, 1, 1e6), 100, 0).unwrap();
    assert_close("Jensen-Shannon", far.value, 2f64.ln(), 1e-15, 1.0);
    assert!(far.standard_error < 1e-15);
}

#[test]
fn distances_of_components_are_those_of_matrix_roots() {
    let root = |m: DMatrix<f64>| {
        let eigen = m.symmetric_eigen();
        let roots = DMatrix::from_diagonal(&eigen.eigenvalues.map(|v| v.max(0.0).sqrt()));
        &eigen.eigenvectors * roots * eigen.eigenvectors.transpose()
    };
    let matrix = |m: &Mixture, c: usize| DMatrix::from_fn(4, 4, |i, j| m.matrix(c)[[i, j]]);
    for first in CovarianceType::ALL {
        for second in CovarianceType::ALL {
            let (p, q) = (mixture(5, first, 2, 4, 0.0), mixture(6, second, 3, 4, 0.5));
            let (w, h) = (p.wasserstein(&q).unwrap(), p.hellinger_affinity(&q).unwrap());
            assert_eq!((w.dim(), h.dim()), ((2, 3), (2, 3)));
            for ((i, j), w) in w.indexed_iter() {
                let (s, t) = (matrix(&p, i), matrix(&q, j));
                let delta = &p.means().row(i) - &q.means().row(j);
                let half = root(s.clone());
                let cross = root(&half * &t * &half).trace();
                let square = delta.dot(&delta) + s.trace() + t.trace() - 2.0 * cross;
                assert_close("Wasserstein", w * w, square, 1e-12, 1.0);
                let mean = (&s + &t) / 2.0;
                let delta = nalgebra::DVector::from_iterator(4, delta.iter().copied());
                let exponent = delta.dot(&(mean.clone().try_inverse().unwrap() * &delta)) / 8.0;
                let affinity =
                    (s.determinant() * t.determinant()).powf(0.25) / mean.determinant().sqrt() * (-exponent).exp();
                assert_close("affinity", h[[i, j]], affinity, 1e-12, 1.0);
            }
            // A component is at distance zero from itself, up to the rounding of the factors.
            assert!(p.wasserstein(&p).unwrap().diag().iter().all(|v| *v < 1e-14));
        }
    }
}

/// With equal weights a permutation is a best plan.
#[test]
fn transport_is_that_of_the_best_permutation() {
    let permutations = |n: usize| {
        let mut all = vec![vec![]];
        for _ in 0..n {
            let longer = |p: &Vec<usize>| (0..n).filter(|i| !p.contains(i)).map(|i| [&p[..], &[i]].concat()).collect();
            all = all.iter().flat_map(|p| -> Vec<Vec<usize>> { longer(p) }).collect();
        }
        all
    };
    for (seed, covariance_type) in CovarianceType::ALL.into_iter().enumerate() {
        let even = |seed: usize| {
            let m = mixture(seed as u64, covariance_type, 6, 2, 0.0);
            Mixture::new(Array1::from_elem(6, 1.0 / 6.0), m.means().to_owned(), m.covariances().clone()).unwrap()
        };
        let (p, q) = (even(seed), even(seed + 9));
        let found = p.transport(&q).unwrap();
        let costs = p.wasserstein(&q).unwrap();
        let cost = |order: Vec<usize>| order.iter().enumerate().map(|(i, j)| costs[[i, *j]].powi(2)).sum::<f64>() / 6.0;
        let least = permutations(6).into_iter().map(cost).fold(f64::INFINITY, f64::min);
        assert_close("distance", found.distance, least.sqrt(), 1e-13, 1.0);
    }
    // With other weights they are the plan's sums; a mixture is at distance zero from itself.
    let (p, q) = (mixture(3, CovarianceType::Full, 5, 2, 0.0), mixture(4, CovarianceType::Diag, 8, 2, 0.0));
    let found = p.transport(&q).unwrap();
    assert!(found.plan.iter().all(|v| *v >= 0.0));
    assert_all_close("rows", found.plan.sum_axis(Axis(1)), p.weights(), 1e-14, 1.0);
    assert_all_close("columns", found.plan.sum_axis(Axis(0)), q.weights(), 1e-14, 1.0);
    // The plan is better than independent choices, and not shorter than the distance of the means.
    let (mean_p, mean_q) = (p.weights().dot(&p.means()), q.weights().dot(&q.means()));
    let independent = p.weights().dot(&p.wasserstein(&q).unwrap().mapv(|v| v * v)).dot(&q.weights()).sqrt();
    assert!(found.distance < independent && found.distance > (mean_p - mean_q).mapv(|v| v * v).sum().sqrt());
    assert_eq!(p.transport(&p).unwrap().distance, 0.0);
}

#[test]
fn sorted_components_are_the_same_mixture() {
    let x = normal(9, 10, 3, 0.0);
    for covariance_type in CovarianceType::ALL {
        let m = mixture(12, covariance_type, 5, 3, 0.0);
        let by_weight = m.sorted(&Order::Weight).unwrap();
        assert!(by_weight.weights().windows(2).into_iter().all(|pair| pair[0] >= pair[1]));
        let by_mean = by_weight.sorted(&Order::Mean(2)).unwrap();
        assert!(by_mean.means().column(2).windows(2).into_iter().all(|pair| pair[0] <= pair[1]));
        for sorted in [&by_weight, &by_mean] {
            // The same terms in another order.
            assert_all_close("density", densities(sorted, &x), densities(&m, &x), 1e-13, 1.0);
        }
        let back = m.sorted(&Order::Permutation(vec![4, 2, 0, 1, 3])).unwrap();
        assert_eq!(back.sorted(&Order::Permutation(vec![2, 3, 1, 4, 0])).unwrap(), m);
        for bad in [vec![0, 1, 2, 3], vec![0, 1, 2, 3, 3], vec![0, 1, 2, 3, 5]] {
            let error = m.sorted(&Order::Permutation(bad)).unwrap_err();
            assert!(error.to_string().contains("for 5 components: name each component once"));
        }
        assert!(m.sorted(&Order::Mean(3)).is_err());
    }
}

#[test]
fn products_and_sums_have_the_densities_of_their_definitions() {
    for first in CovarianceType::ALL {
        for second in CovarianceType::ALL {
            let (p, q) = (mixture(7, first, 3, 4, 100.0), mixture(8, second, 2, 4, 101.0));
            let x = normal(9, 30, 4, 100.0);
            let (log_p, log_q) = (densities(&p, &x), densities(&q, &x));
            let (product, log_integral) = p.product(&q).unwrap();
            assert_eq!(product.n_components(), 6);
            let found = densities(&product, &x);
            // Numbers near 30; means near 100 have 10⁻¹⁴ of a standard deviation.
            assert_all_close("product", found, &log_p + &log_q - log_integral, 1e-12, 1.0);
            let sum = Mixture::sum(&[&p, &q], &[3.0, 1.0]).unwrap();
            let truth = log_p.iter().zip(&log_q).map(|(p, q)| (0.75 * p.exp() + 0.25 * q.exp()).ln());
            assert_all_close("sum", densities(&sum, &x), truth, 1e-12, 1.0);
            let types = [product.covariance_type(), sum.covariance_type()];
            use CovarianceType::{Diag, Full, Spherical, Tied};
            let wanted = match (first, second) {
                (Tied, Tied) => [Tied, Full],
                (Spherical, Spherical) => [Spherical; 2],
                (Spherical | Diag, Spherical | Diag) => [Diag; 2],
                _ => [Full; 2],
            };
            assert_eq!(types, wanted);
        }
    }
    let tied = mixture(1, CovarianceType::Tied, 2, 3, 0.0);
    assert_eq!(Mixture::sum(&[&tied, &tied], &[1.0, 1.0]).unwrap().covariances(), tied.covariances());
}

#[test]
fn reductions_keep_the_moments_and_the_bound() {
    for covariance_type in CovarianceType::ALL {
        let m = mixture(11, covariance_type, 12, 3, 0.0);
        // The mean, and the covariance as far as the type holds it.
        let moments = |m: &Mixture| {
            let mean = m.weights().dot(&m.means());
            let mut total = Array2::<f64>::zeros((3, 3));
            for (c, centred) in (&m.means() - &mean).outer_iter().enumerate() {
                let outer = Array2::from_shape_fn((3, 3), |(i, j)| centred[i] * centred[j]);
                total.scaled_add(m.weights()[c], &(m.matrix(c) + outer));
            }
            let total = match covariance_type {
                CovarianceType::Diag => total.diag().to_vec(),
                CovarianceType::Spherical => vec![total.diag().sum()],
                _ => total.iter().copied().collect(),
            };
            (mean, total)
        };
        let (mean, total) = moments(&m);
        let mut before = 0.0;
        assert_eq!(m.reduce(12).unwrap(), (m.clone(), 0.0));
        for k in [11, 7, 3, 1] {
            let (smaller, bound) = m.reduce(k).unwrap();
            assert_eq!((smaller.n_components(), smaller.covariance_type()), (k, covariance_type));
            let (new_mean, new_total) = moments(&smaller);
            assert_all_close("mean", new_mean, &mean, 1e-13, 1.0);
            assert_all_close("covariance", new_total, &total, 1e-13, 1.0);
            let kl = m.kl_divergence(&smaller, 20_000, 5).unwrap();
            assert!(bound > before && kl.value - 4.0 * kl.standard_error < bound, "{k}: {kl:?}, {bound}");
            // The best pair of all is merged first.
            if k == 11 {
                let all = (0..12).flat_map(|a| (a + 1..12).map(move |b| (a, b)));
                let least = all.map(|(a, b)| two(&m, a, b)).fold(f64::INFINITY, f64::min);
                assert_close("bound", bound, least, 1e-12, 1.0);
            }
            before = bound;
        }
    }
}

/// Returns Runnalls' bound of a pair, by reducing these two alone; tied covariances widen by weight.
fn two(m: &Mixture, a: usize, b: usize) -> f64 {
    let (w, rows) = (m.weights(), [a, b]);
    let total = w[a] + w[b];
    let delta = &m.means().row(a) - &m.means().row(b);
    let spread = w[a] * w[b] / total;
    match m.covariances() {
        Covariances::Tied(v) => {
            let s = DMatrix::from_fn(3, 3, |i, j| v[[i, j]]);
            let wider = DMatrix::from_fn(3, 3, |i, j| v[[i, j]] + spread * delta[i] * delta[j]);
            0.5 * (wider.determinant() / s.determinant()).ln()
        }
        covariances => {
            let covariances = covariances.select(&rows);
            let means = m.means().select(Axis(0), &rows);
            let pair = Mixture::new(w.select(Axis(0), &rows) / total, means, covariances).unwrap();
            total * pair.reduce(1).unwrap().1
        }
    }
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let (p, q) = (mixture(1, CovarianceType::Full, 2, 3, 0.0), mixture(1, CovarianceType::Full, 2, 2, 0.0));
    let text = |error: gmm_host::Error| error.to_string();
    assert!(text(p.cauchy_schwarz(&q).unwrap_err()).contains("the other mixture is [2, 2]; expected [2, 3]"));
    assert!(p.product(&q).is_err() && p.wasserstein(&q).is_err() && p.l2_distance(&q).is_err());
    assert!(text(p.kl_divergence(&p, 1, 0).unwrap_err()).contains("at least two"));
    assert!(text(p.reduce(0).unwrap_err()).contains("from 1"));
    assert!(text(p.reduce(3).unwrap_err()).contains("n_components is 3"));
    assert!(text(Mixture::sum(&[], &[]).unwrap_err()).contains("at least one mixture"));
    assert!(text(Mixture::sum(&[&p, &p], &[1.0]).unwrap_err()).contains("the weights is [1]"));
    assert!(text(Mixture::sum(&[&p, &q], &[1.0, 1.0]).unwrap_err()).contains("the other mixture"));
    for bad in [[-1.0, 2.0], [0.0, 0.0], [f64::NAN, 1.0]] {
        assert!(text(Mixture::sum(&[&p, &p], &bad).unwrap_err()).contains("finite and not negative"));
    }
}

/// Tables of all pairs of 2·10⁵ components would take 300 GB and more.
#[test]
fn too_many_pairs_of_components_are_an_error() {
    let k = 200_000;
    let means = Array2::from_shape_fn((k, 1), |(c, _)| c as f64);
    let covariances = Covariances::Spherical(Array1::ones(k));
    let m = Mixture::new(Array1::from_elem(k, 1.0 / k as f64), means, covariances).unwrap();
    let results = [
        m.product(&m).err(),
        m.wasserstein(&m).err(),
        m.hellinger_affinity(&m).err(),
        m.cauchy_schwarz(&m).err(),
        m.l2_distance(&m).err(),
        m.transport(&m).err(),
        m.reduce(2).err(),
    ];
    for (i, error) in results.into_iter().enumerate() {
        assert!(matches!(error, Some(Error::Memory { .. })), "{i}: {error:?}");
    }
}

#[test]
fn an_interrupt_ends_what_takes_long() {
    let m = mixture(1, CovarianceType::Full, 3, 2, 0.0);
    let of_one_feature = m.marginal(&[0]).unwrap();
    let (x, missing) = (Array2::zeros((5, 2)), array![[0.0, f64::NAN]]);
    let interrupt = Interrupt::default();
    interrupt.raise();
    let results = interrupt.install(|| {
        let samples = || Samples::from_f64(x.view()).unwrap();
        let missing = Samples::with_missing(missing.view()).unwrap();
        [
            m.kl_divergence(&m, 1000, 0).err(),
            m.js_divergence(&m, 1000, 0).err(),
            m.wasserstein(&m).err(),
            m.hellinger_affinity(&m).err(),
            m.cauchy_schwarz(&m).err(),
            m.transport(&m).err(),
            m.reduce(1).err(),
            m.sample(10, 0).err(),
            of_one_feature.quantile(0.5).err(),
            m.impute(&missing).err(),
            m.on(Device::Cpu).score_samples(samples()).err(),
            m.on(Device::Cpu).adapt(samples(), &Adaptation::default()).err(),
            m.on(Device::Cpu).predict_proba(&missing).err(),
            m.on(Device::Reference).predict_proba(samples()).err(),
        ]
    });
    for (i, error) in results.into_iter().enumerate() {
        assert!(matches!(error, Some(Error::Interrupted)), "{i}: {error:?}");
    }
    // The flag falls when the interrupted call ends.
    assert!(m.sample(10, 0).is_ok());
}

/// Ignores the flag, as a GPU does, and raises it as the second to evaluate.
struct Deaf {
    inner: ReferenceEvaluator,
    interrupt: Interrupt,
    number: Arc<AtomicUsize>,
}

impl Deaf {
    fn evaluate<T>(&mut self, f: impl FnOnce(&mut ReferenceEvaluator) -> Result<T, Error>) -> Result<T, Error> {
        if self.number.fetch_add(1, Ordering::SeqCst) == 1 {
            self.interrupt.raise();
        }
        Interrupt::default().install(|| f(&mut self.inner))
    }
}

impl Evaluator for Deaf {
    fn data(&self) -> DataFacts<'_> {
        self.inner.data()
    }
    fn describe(&self) -> Description {
        self.inner.describe()
    }
    fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64, Error> {
        self.evaluate(|inner| inner.log_likelihood(mixture))
    }
    fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>, Error> {
        self.evaluate(|inner| inner.score_samples(mixture))
    }
    fn statistics(&mut self, mixture: &Mixture) -> Result<Statistics, Error> {
        self.evaluate(|inner| inner.statistics(mixture))
    }
    fn rows(&mut self, rows: &[usize]) -> Result<Rows, Error> {
        self.inner.rows(rows)
    }
}

/// An interrupt acts between two chunks, and in the threads of shards, the first of which is the calling thread.
#[test]
fn an_interrupt_ends_chunks_and_shards() {
    let m = mixture(1, CovarianceType::Full, 3, 2, 0.0);
    let x = Array2::zeros((10, 2));
    type Compute<'a> = &'a dyn Fn(&mut dyn Evaluator) -> Option<Error>;
    let all: [Compute<'_>; 4] = [
        &|data| data.log_likelihood(&m).err(),
        &|data| data.score_samples(&m).err(),
        &|data| data.statistics(&m).err(),
        &|data| data.draw(&Draw::new(&m, 0, 3)).err(),
    ];
    for sharded in [false, true] {
        for (i, compute) in all.iter().enumerate() {
            let (interrupt, number) = (Interrupt::default(), Arc::new(AtomicUsize::new(0)));
            let chunks = ChunkedEvaluator::of_samples(Samples::from_f64(x.view()).unwrap(), 2, |chunk| {
                let (interrupt, number) = (interrupt.clone(), Arc::clone(&number));
                Ok(Box::new(Deaf { inner: ReferenceEvaluator::new(chunk), interrupt, number }))
            });
            let mut data: Box<dyn Evaluator + '_> = Box::new(chunks.unwrap());
            if sharded {
                let first: Box<dyn Evaluator> = Box::new(ReferenceEvaluator::new(Samples::from_f64(x.view()).unwrap()));
                data = Box::new(ShardedEvaluator::new(vec![first, data]).unwrap());
            }
            let error = interrupt.install(|| compute(data.as_mut()));
            // Otherwise, all five chunks would be evaluated.
            assert_eq!(number.load(Ordering::SeqCst), 2, "{sharded}, {i}: {error:?}");
            assert!(matches!(error, Some(Error::Interrupted)), "{sharded}, {i}: {error:?}");
        }
    }
}
