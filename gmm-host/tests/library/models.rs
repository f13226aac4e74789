//! The fourteen covariance models against R's mclust 6.0.0 (R 4.2.2).
use gmm_host::{
    Callback, CovarianceModel, CpuEvaluator, Criterion, Evaluator, Freeze, GaussianMixtureParams, Hierarchy,
    InitParams, Mixture, Samples, Statistics, Transformation, select,
};
use ndarray::Array2;
use std::ops::ControlFlow;

/// The measurements of iris (150, 4) and the species.
fn iris() -> (Array2<f64>, Vec<usize>) {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../data/iris.csv")).unwrap();
    let rows = text.lines().skip(1).flat_map(|line| line.split(',').map(|v| v.parse::<f64>().unwrap()));
    let x = Array2::from_shape_vec((150, 4), rows.collect()).unwrap();
    (x, (0..150).map(|i| i / 50).collect())
}

/// The statistics of rows in classes.
fn of_classes(x: &Array2<f64>, classes: &[usize], k: usize, model: CovarianceModel) -> Statistics {
    let z = Array2::from_shape_fn((x.nrows(), k), |(i, c)| f64::from(u8::from(classes[i] == c)));
    Statistics::from_responsibilities(x.view(), z.view(), model.form()).unwrap()
}

/// mclust's EM from classes: the log-likelihood after one M-step, the last one, and the number of
/// iterations until it changes by less than 10⁻⁵ of itself and 1.
fn me(x: &Array2<f64>, classes: &[usize], k: usize, model: CovarianceModel) -> (f64, f64, usize, Mixture) {
    let mut evaluator = CpuEvaluator::of_this_thread(Samples::from_f64(x.view()).unwrap());
    let mut mixture = of_classes(x, classes, k, model).to_mixture_of(model, 0.0).unwrap();
    let (mut before, mut first, mut iterations) = (f64::NEG_INFINITY, f64::NAN, 0);
    loop {
        let statistics = evaluator.statistics(&mixture).unwrap();
        let now = statistics.log_likelihood();
        iterations += 1;
        if iterations == 1 {
            first = now;
        }
        // mclust's axes of VVE make Σ nₖ λₖ least instead of Σ nₖ log λₖ.
        assert!(now >= before - 1e-9 || model == CovarianceModel::VVE, "{model}: from {before} to {now}");
        if (now - before).abs() / (1.0 + now.abs()) <= 1e-5 {
            return (first, now, iterations, mixture);
        }
        before = now;
        mixture = statistics.update(&mixture, 0.0, &Freeze::default()).unwrap().mixture;
    }
}

/// Of mclust, from the species: the log-likelihood after an M-step, the last, the iterations, and the
/// number of parameters of the covariances.
const OF_IRIS: [(&str, f64, f64, usize, usize); 14] = [
    ("EII", -414.6979512733, -401.8035856588, 10, 1),
    ("VII", -392.4984144985, -384.3169637404, 16, 3),
    ("EEI", -364.5173643381, -361.4285168921, 9, 4),
    ("VEI", -340.8360524756, -339.4711290087, 9, 6),
    ("EVI", -342.9736984728, -340.0897557658, 8, 10),
    ("VVI", -309.3627578939, -306.8753878018, 18, 12),
    ("EEE", -256.6461842549, -256.3541406884, 5, 10),
    ("VEE", -238.3946990591, -237.5608737484, 7, 12),
    ("EVE", -235.5504842603, -234.1404756487, 7, 16),
    ("VVE", -215.3443048498, -214.6384949991, 5, 18),
    ("EEV", -215.1432631274, -214.8509887772, 7, 22),
    ("VEV", -187.7097444050, -186.0740180653, 12, 24),
    ("EVV", -209.4547976987, -205.5368514289, 15, 28),
    ("VVV", -182.9208486053, -180.1858520496, 11, 30),
];

#[test]
fn every_model_is_that_of_mclust() {
    let (x, species) = iris();
    for (name, of_one, of_all, iterations, n_parameters) in OF_IRIS {
        let model: CovarianceModel = name.parse().unwrap();
        let (first, last, took, mixture) = me(&x, &species, 3, model);
        // Both have rounded some hundred terms; where an M-step takes turns, they end a rounding apart.
        assert!((first - of_one).abs() < 1e-8, "{name}: {first} where mclust has {of_one}");
        assert!((last - of_all).abs() < 1e-8, "{name}: {last} where mclust has {of_all}");
        assert_eq!(took, iterations, "{name}");
        assert_eq!(mixture.n_parameters(), n_parameters + 12 + 2, "{name}");
        assert_eq!((mixture.covariance_model(), model.mclust_name()), (model, name));
    }
}

/// Of mclust: the sizes of three groups of iris.
#[test]
fn hierarchies_are_those_of_mclust() {
    let (x, _) = iris();
    let sizes = |model: &str, transformation: &str, k| {
        let tree = Hierarchy::new(x.view(), model.parse().unwrap(), transformation.parse().unwrap()).unwrap();
        let mut sizes = vec![0; k];
        tree.classes(k).into_iter().for_each(|class| sizes[class] += 1);
        sizes
    };
    for model in ["EII", "EEE"] {
        assert_eq!(sizes(model, "VARS", 3), [50, 64, 36], "{model}");
    }
    for model in ["VII", "VVV"] {
        assert_eq!(sizes(model, "VARS", 3), [50, 64, 36], "{model}");
    }
    for model in ["EII", "VII", "EEE", "VVV"] {
        assert_eq!(sizes(model, "SVD", 3), [49, 62, 39], "{model}");
    }
    assert_eq!(sizes("VVV", "SVD", 2), [49, 101]);
    assert_eq!(sizes("VVV", "SVD", 4), [33, 16, 62, 39]);
    // Two equal rows are merged first.
    let tree = Hierarchy::new(x.view(), CovarianceModel::VVV, Transformation::ScaledSvd).unwrap();
    assert_eq!(tree.mergers[0], (101, 142));
    assert!(Hierarchy::new(x.view(), CovarianceModel::VEV, Transformation::None).is_err());
}

/// mclustBIC(iris) for G = 1…3, in the order of [`OF_IRIS`].
const BIC_OF_IRIS: [[f64; 14]; 2] = [
    [
        -1123.411741,
        -1012.235180,
        -1042.967917,
        -956.2822689,
        -1007.308224,
        -857.5514939,
        -688.0972201,
        -656.3270061,
        -657.2262803,
        -605.1840935,
        -644.5996994,
        -561.7284621,
        -658.3306309,
        -574.0178323,
    ],
    [
        -878.7649858,
        -853.8144072,
        -813.0504331,
        -779.1565603,
        -797.8342010,
        -744.6381834,
        -632.9647323,
        -605.3982485,
        -666.5491500,
        -636.4258665,
        -644.7810179,
        -562.5522369,
        -656.0359365,
        -580.8396304,
    ],
];

#[test]
fn the_table_of_iris_is_that_of_mclust() {
    let (x, _) = iris();
    for (k, row) in [2, 3].into_iter().zip(BIC_OF_IRIS) {
        let tree = Hierarchy::new(x.view(), CovarianceModel::VVV, Transformation::ScaledSvd).unwrap();
        for ((name, ..), of_mclust) in OF_IRIS.into_iter().zip(row) {
            let model: CovarianceModel = name.parse().unwrap();
            let (_, log_likelihood, _, mixture) = me(&x, &tree.classes(k), k, model);
            let bic = 2.0 * log_likelihood - mixture.n_parameters() as f64 * 150f64.ln();
            // mclust prints ten digits.
            assert!((bic - of_mclust).abs() < 1e-6, "{name}, {k}: {bic} where mclust has {of_mclust}");
        }
    }
    // By `select`, whose fits end at smaller changes.
    let mut evaluator = CpuEvaluator::of_this_thread(Samples::from_f64(x.view()).unwrap());
    let params = GaussianMixtureParams::new(1).init_params(InitParams::Hierarchical).reg_covar(0.0).tol(1e-7);
    let params = params.max_iter(1000);
    let go: Callback<'_> = &mut |_| ControlFlow::Continue(());
    let chosen = select(&mut evaluator, &params, &[1, 2, 3], &CovarianceModel::ALL, Criterion::Bic, go).unwrap();
    let best = chosen.table[chosen.best];
    assert_eq!((best.covariance_type, best.n_components), (CovarianceModel::VEV, 2));
    assert!((best.criterion - 561.7284621).abs() < 1e-3, "{best:?}");
    let icl = select(&mut evaluator, &params, &[2], &[CovarianceModel::VEV], Criterion::Icl, go).unwrap();
    assert!((icl.table[0].criterion - 561.72887565114).abs() < 1e-3, "{:?}", icl.table[0]);
}
