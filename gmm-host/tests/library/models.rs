//! The fourteen covariance models against R's mclust 6.0.0 (R 4.2.2).
use crate::common::*;
use gmm_host::{
    BayesianGaussianMixtureParams, CovarianceModel, CpuEvaluator, Error, Evaluator, GaussianMixtureParams, Hierarchy,
    InitParams, MapPrior, Me, Samples, Standardization, Statistics, Transformation, me, quantile_classes,
};
use nalgebra::{DMatrix, DVector};
use ndarray::{Array1, Array2, Axis, array};

/// The measurements of iris (150, 4) and the species.
pub fn iris() -> (Array2<f64>, Vec<usize>) {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../data/iris.csv")).unwrap();
    let rows = text.lines().skip(1).flat_map(|line| line.split(',').map(|v| v.parse::<f64>().unwrap()));
    let x = Array2::from_shape_vec((150, 4), rows.collect()).unwrap();
    (x, (0..150).map(|i| i / 50).collect())
}

/// The statistics of rows in classes.
fn of_classes(x: &Array2<f64>, classes: &[usize], k: usize, model: CovarianceModel) -> Statistics {
    let z = crate::common::of_classes(x.nrows(), k, |i| classes[i]);
    Statistics::from_responsibilities(x.view(), z.view(), model.form()).unwrap()
}

/// mclust's EM from classes; an error where they give no parameters.
fn me_of(x: &Array2<f64>, classes: &[usize], k: usize, model: CovarianceModel, most: usize) -> Result<Me, Error> {
    me_under(None, x, classes, k, model, most)
}

/// mclust's EM under a prior.
fn me_under(
    prior: Option<&MapPrior>,
    x: &Array2<f64>,
    classes: &[usize],
    k: usize,
    model: CovarianceModel,
    most: usize,
) -> Result<Me, Error> {
    let mut evaluator = CpuEvaluator::of_this_thread(Samples::from_f64(x.view())?);
    let moments = MapPrior::moments(&mut evaluator)?;
    let prior = prior.map(|prior| prior.of_mclust(&moments, model, k)).transpose()?;
    let start = of_classes(x, classes, k, model).to_mixture_of(model, 0.0, prior.as_ref())?;
    me(&mut evaluator, start, prior.as_ref(), 1e-5, most)
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
        let Me { mixture, log_likelihood: last, n_iter: took, .. } = me_of(&x, &species, 3, model, 100).unwrap();
        let first = me_of(&x, &species, 3, model, 1).unwrap().log_likelihood;
        // Both have rounded some hundred terms; where an M-step takes turns, they end a rounding apart.
        assert!((first - of_one).abs() < 1e-8, "{name}: {first} where mclust has {of_one}");
        assert!((last - of_all).abs() < 1e-8, "{name}: {last} where mclust has {of_all}");
        assert_eq!(took, iterations, "{name}");
        assert_eq!(mixture.n_parameters(), n_parameters + 12 + 2, "{name}");
        assert_eq!((mixture.covariance_model(), model.mclust_name()), (model, name));
    }
}

/// Of mclust, from the species under the prior, with the shrinkages 0.01, 0 and 0.5: the log-likelihoods at the end and
/// the iterations. mclust's EII has no scale, its EEI does not shrink the means, and its VVV counts a mean without
/// shrinkage.
const UNDER_PRIORS: [(&str, [(f64, usize); 3]); 8] = [
    ("VII", [(-384.4736814774, 15), (-384.3560730236, 15), (-386.7219613415, 27)]),
    ("VEI", [(-344.5993848272, 7), (-344.6279761202, 7), (-352.2708809432, 6)]),
    ("EVI", [(-342.2559846189, 17), (-342.3191272253, 17), (-349.7037763550, 31)]),
    ("VVI", [(-312.8787704380, 22), (-312.9045223501, 7), (-325.6954022797, 6)]),
    ("EEE", [(-257.3807107403, 23), (-257.0792112886, 20), (-260.3901279801, 16)]),
    ("EEV", [(-220.9699359082, 35), (-220.9189474329, 36), (-228.8257661882, 14)]),
    ("VEV", [(-198.4737496599, 31), (-198.1693461101, 30), (-214.1819337651, 46)]),
    ("VVV", [(-192.7024049334, 11), (f64::NAN, 12), (-208.3204863674, 98)]),
];

#[test]
fn priors_are_those_of_mclust() {
    let (x, species) = iris();
    for (name, of_mclust) in UNDER_PRIORS {
        for (shrinkage, (last, iterations)) in [0.01, 0.0, 0.5].into_iter().zip(of_mclust) {
            let prior = MapPrior { mean_precision: shrinkage, ..MapPrior::default() };
            let found = me_under(Some(&prior), &x, &species, 3, name.parse().unwrap(), 1000).unwrap();
            if last.is_nan() {
                continue;
            }
            // As without a prior.
            let same = (found.log_likelihood - last).abs() < 1e-8 && found.n_iter == iterations;
            assert!(same, "{name}, {shrinkage}: {found:?} where mclust has {last} in {iterations} iterations");
        }
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
    for model in ["EII", "VII", "EEE", "VVV"] {
        assert_eq!(sizes(model, "VARS", 3), [50, 64, 36], "{model}");
        assert_eq!(sizes(model, "SVD", 3), [49, 62, 39], "{model}");
    }
    assert_eq!(sizes("VVV", "SVD", 2), [49, 101]);
    assert_eq!(sizes("VVV", "SVD", 4), [33, 16, 62, 39]);
    // Two equal rows are merged first.
    let tree = Hierarchy::new(x.view(), CovarianceModel::VVV, Transformation::ScaledSvd).unwrap();
    assert_eq!(tree.mergers[0], (101, 142));
    assert!(Hierarchy::new(x.view(), CovarianceModel::VEV, Transformation::None).is_err());
    let one = Hierarchy::new(x.slice(ndarray::s![..1, ..]), CovarianceModel::VVV, Transformation::ScaledSvd).unwrap();
    assert_eq!(one.classes(1), [0]);
}

/// Every merger of EII and EEE is the cheapest of all pairs, by its cost computed anew.
#[test]
fn pooled_mergers_are_the_cheapest() {
    let x = blobs(77, 90, 3);
    for model in [CovarianceModel::EII, CovarianceModel::EEE] {
        let tree = Hierarchy::new(x.view(), model, Transformation::None).unwrap();
        let mut groups: Vec<(usize, f64, Array1<f64>)> = (0..90).map(|i| (i, 1.0, x.row(i).to_owned())).collect();
        let mut pooled = DMatrix::<f64>::zeros(3, 3);
        for (step, merger) in tree.mergers.iter().enumerate() {
            let (volume, inverse) = (pooled.determinant(), pooled.clone().try_inverse());
            let metric = match inverse.filter(|_| model == CovarianceModel::EEE && step >= 3) {
                Some(inverse) => inverse * (volume / 90f64.powi(2)) + DMatrix::identity(3, 3),
                None => DMatrix::identity(3, 3),
            };
            let added = |i: usize, j: usize| {
                let ((_, a, mean), (_, b, other)) = (&groups[i], &groups[j]);
                (a * b / (a + b), DVector::from_iterator(3, mean - other))
            };
            let cost = |(i, j)| {
                let (share, delta) = added(i, j);
                share * delta.dot(&(&metric * &delta))
            };
            let pairs = (0..groups.len()).flat_map(|j| (0..j).map(move |i| (i, j)));
            let (i, j) = pairs.min_by(|a, b| cost(*a).total_cmp(&cost(*b))).unwrap();
            assert_eq!((merger.0.min(merger.1), merger.0.max(merger.1)), {
                let (a, b) = (groups[i].0, groups[j].0);
                (a.min(b), a.max(b))
            });
            let (share, delta) = added(i, j);
            pooled += &delta * delta.transpose() * share;
            let (first, size, mean) = groups.remove(j);
            let into = &mut groups[i];
            into.2 = (&into.2 * into.1 + mean * size) / (into.1 + size);
            (into.0, into.1) = (into.0.min(first), into.1 + size);
        }
    }
}

/// Of mclust's `qclass`.
#[test]
fn one_feature_begins_at_the_classes_of_mclust() {
    let x = array![1.0, 0.5, 0.5, 0.5, 0.25, 0.5, 1.25, 1.5, 0.25, 1.0, 0.0, 0.75, 1.5, 1.0, 0.75];
    assert_eq!(quantile_classes(x.view(), 3), [2, 1, 1, 1, 0, 1, 2, 2, 0, 2, 0, 1, 2, 2, 1]);
    assert_eq!(quantile_classes(x.view(), 4), [3, 1, 1, 1, 0, 1, 3, 3, 0, 3, 0, 2, 3, 3, 2]);
    // Fewer values than classes.
    assert_eq!(quantile_classes(array![7.0, 5.0, 7.0, 6.0].view(), 4), [2, 0, 2, 1]);
}

/// mclustBIC(iris) for G = 2…5, a line each, in the order of [`OF_IRIS`].
const BIC_OF_IRIS: &str = "\
-1123.411741 -1012.235180 -1042.967917 -956.2822689 -1007.308224 -857.5514939 -688.0972201 -656.3270061 \
-657.2262803 -605.1840935 -644.5996994 -561.7284621 -658.3306309 -574.0178323
-878.7649858 -853.8144072 -813.0504331 -779.1565603 -797.8342010 -744.6381834 -632.9647323 -605.3982485 \
-666.5491500 -636.4258665 -644.7810179 -562.5522369 -656.0359365 -580.8396304
-893.6140464 -812.6047578 -827.4036122 -748.4528822 -837.5451684 -751.0197703 -646.0257630 -604.8371466 \
-705.5434784 -639.7078032 -699.8684166 -602.0103829 -725.2924895 -630.5999592
-782.6440536 -742.6083246 -741.9184779 -688.3463094 -766.8158039 -711.4502401 -604.8130676 NA \
-723.7198696 -632.2055860 -652.2958633 -634.2889918 NA -676.6060630";

#[test]
fn the_table_of_iris_is_that_of_mclust() {
    let (x, _) = iris();
    for (k, row) in (2..).zip(BIC_OF_IRIS.lines()) {
        let tree = Hierarchy::new(x.view(), CovarianceModel::VVV, Transformation::ScaledSvd).unwrap();
        for ((name, ..), of_mclust) in OF_IRIS.into_iter().zip(row.split_whitespace()) {
            let of_mclust = of_mclust.parse().unwrap_or(f64::NAN);
            let model: CovarianceModel = name.parse().unwrap();
            let bic = match me_of(&x, &tree.classes(k), k, model, 1000) {
                Ok(Me { mixture, log_likelihood, is_singular: false, .. }) => {
                    2.0 * log_likelihood - mixture.n_parameters() as f64 * 150f64.ln()
                }
                _ => f64::NAN,
            };
            // mclust prints ten digits.
            let same = (bic - of_mclust).abs() < 1e-6 || bic.is_nan() && of_mclust.is_nan();
            assert!(same, "{name}, {k}: {bic} where mclust has {of_mclust}");
        }
    }
}

/// Of every model the likelihood never falls (but of VVE), the covariances share what the name says, a resumed fit has
/// the bits of one that was not interrupted, and the float32 backend agrees.
#[test]
fn fits_of_every_model_keep_its_parts() {
    let x = blobs(7, 240, 3);
    for model in CovarianceModel::ALL {
        let params = GaussianMixtureParams::new(3).covariance_type(model).tol(0.0).max_iter(12);
        let mut middle = None;
        let fit = watched(&params.clone().check().unwrap(), &mut reference(x.view()), |i| {
            if i.iteration == 5 {
                middle = Some(i.fit.clone());
            }
        });
        assert!(fit.retained.is_empty() && fit.mixture.covariance_model() == model, "{model}");
        // Rounding of sums of 240 terms.
        let falls = fit.lower_bounds.windows(2).any(|pair| pair[1] < pair[0] - 1e-12);
        assert!(!falls || model == CovarianceModel::VVE, "{model}: {:?}", fit.lower_bounds);
        let resumed = params.clone().resume(middle.unwrap(), None).fit(&mut reference(x.view()) as &mut dyn Evaluator);
        assert_eq!(resumed.unwrap().mixture, fit.mixture, "{model}");

        let parts = fit.mixture.decomposition();
        let letters = model.mclust_name().as_bytes();
        let same =
            |c: usize, a: f64, b: f64| assert!((a - b).abs() <= 1e-7 * b.abs().max(1e-3), "{model}, {c}: {a}, {b}");
        for c in 0..3 {
            if letters[0] == b'E' {
                same(c, parts.volumes[c], parts.volumes[0]);
            }
            for j in 0..3 {
                if letters[1] != b'V' {
                    same(c, parts.shapes[[c, j]], if letters[1] == b'I' { 1.0 } else { parts.shapes[[0, j]] });
                }
                for i in 0..3 {
                    // What the axes make of the parts is the covariance, so that shared axes are those of all.
                    let of_parts: f64 = (0..3)
                        .map(|l| {
                            let axes = |row| parts.orientations[[if letters[2] == b'E' { 0 } else { c }, row, l]];
                            parts.volumes[c] * parts.shapes[[c, l]] * axes(i) * axes(j)
                        })
                        .sum();
                    same(c, of_parts, fit.mixture.matrix(c)[[i, j]]);
                }
            }
        }

        // A start is within the model, with missing values too, and with one mean.
        let holes = with_holes(8, x.clone(), 0.3);
        let short = params.clone().max_iter(3);
        let of_holes = short.clone().fit(Samples::with_missing(holes.view()).unwrap()).unwrap();
        let of_one_mean = short.freeze("means=equal".parse().unwrap()).fit(&x).unwrap();
        for bounds in [of_holes.lower_bounds, of_one_mean.lower_bounds] {
            assert_rises(model.name(), &bounds, |_| if model == CovarianceModel::VVE { 1.0 } else { 1e-12 });
        }

        let narrow = x.mapv(|v| v as f32);
        let of_narrow = params.clone().fit(&narrow).unwrap();
        // Bounds of samples that were rounded to float32, whose terms are a few units.
        assert!((of_narrow.lower_bound() - fit.lower_bound()).abs() < 1e-4, "{model}");
    }
}

#[test]
fn weights_count_as_repetitions_under_every_model() {
    let x = blobs(8, 60, 2);
    let counts: Vec<usize> = (0..60).map(|i| (i / 3) % 3).collect();
    let rows: Vec<usize> = (0..60).flat_map(|i| vec![i; counts[i]]).collect();
    let (repeated, weights) = (x.select(Axis(0), &rows), counts.iter().map(|v| *v as f64).collect::<Array1<f64>>());
    for model in CovarianceModel::ALL {
        let start = GaussianMixtureParams::new(2).covariance_type(model).max_iter(0).fit(&x).unwrap().mixture;
        let params = GaussianMixtureParams::new(2).covariance_type(model).start(start).tol(0.0).max_iter(6);
        let of_weights = params.fit(&mut weighted(x.view(), weights.view()) as &mut dyn Evaluator).unwrap();
        let of_repeated = params.fit(&mut reference(repeated.view()) as &mut dyn Evaluator).unwrap();
        // The ends of alternations in an M-step differ by √ε.
        let tolerance = if model.shares() { 1e-7 } else { 1e-10 };
        assert!((of_weights.lower_bound() - of_repeated.lower_bound()).abs() < tolerance, "{model}");
    }
}

/// Under a prior nothing collapses, the posterior density never falls, and the shared parts stay.
#[test]
fn collapses_and_bad_input_are_errors_or_retained() {
    // A third cluster of three equal rows.
    let mut x = blobs(9, 60, 2);
    (57..60).for_each(|i| x.row_mut(i).fill(50.0));
    let labels: Vec<usize> = (0..60).map(|i| if i >= 57 { 2 } else { i % 2 }).collect();
    for model in CovarianceModel::ALL.into_iter().filter(|model| model.shares()) {
        let statistics = of_classes(&x, &labels, 3, model);
        let params = GaussianMixtureParams::new(3).covariance_type(model).start_statistics(statistics).max_iter(5);
        // Pooled models have a covariance nevertheless; of others the start is refused, by component.
        match params.clone().reg_covar(0.0).fit(&x) {
            Ok(fit) => assert!(fit.lower_bounds.iter().all(|bound| bound.is_finite()), "{model}"),
            Err(error) => assert!(error.to_string().contains("component"), "{model}: {error}"),
        }
        let fit = params.clone().reg_covar(1e-6).fit(&x).unwrap();
        assert!(fit.retained.is_empty(), "{model}");
        let prior = params.reg_covar(0.0).prior(MapPrior::default()).fit(&x);
        assert!(prior.is_err() || prior.unwrap().mixture.covariance_model() == model);
    }
    for model in CovarianceModel::ALL {
        let under = GaussianMixtureParams::new(2).covariance_type(model).prior(MapPrior::default()).check();
        let has_none = ["EVE", "VEE", "VVE", "EVV"].contains(&model.mclust_name());
        assert_eq!(under.err().map(|e| e.to_string().contains(model.name())), has_none.then_some(true), "{model}");
    }
    let refused =
        GaussianMixtureParams::new(2).covariance_type(CovarianceModel::VEV).freeze("covariances=0".parse().unwrap());
    assert!(refused.check().unwrap_err().to_string().contains("share"));
    let variational = BayesianGaussianMixtureParams::new(2).covariance_type(CovarianceModel::VEV).check();
    assert!(variational.unwrap_err().to_string().contains("variational"));
    // What turned ellipsoids share is lost if each column gets a unit.
    let units = Standardization::of(&Samples::from_f64(x.view()).unwrap()).unwrap();
    let of_model = |model| GaussianMixtureParams::new(2).covariance_type(model);
    assert!(of_model(CovarianceModel::VEV).standardized(&units).unwrap_err().to_string().contains("VEV"));
    assert!(of_model(CovarianceModel::VEV).standardized(&units.clone().isotropic()).is_ok());
    assert!(of_model(CovarianceModel::VEE).standardized(&units).is_ok());
    // One constant column has no quantiles to begin at.
    let flat = GaussianMixtureParams::new(2).init_params(InitParams::Hierarchical).fit(&Array2::<f64>::ones((10, 1)));
    assert!(flat.unwrap_err().to_string().contains("component 1"));
    assert!(Hierarchy::new(Array2::zeros((3, 0)).view(), CovarianceModel::EII, Transformation::None).is_err());
    assert!("XYZ".parse::<CovarianceModel>().unwrap_err().to_string().contains("VEV"));
    assert_eq!("tied-spherical".parse::<CovarianceModel>().unwrap(), CovarianceModel::EII);
}

#[test]
fn reproducible_fits_refuse_what_needs_eigenvectors() {
    let params = GaussianMixtureParams::new(2).reproducible(true);
    let of_model = params.clone().covariance_type(CovarianceModel::VEV).check().unwrap_err().to_string();
    let of_start = params.init_params(InitParams::Hierarchical).check().unwrap_err().to_string();
    let x = blobs(3, 40, 2);
    let mut evaluator = CpuEvaluator::new(Samples::from_f64(x.view()).unwrap()).unwrap();
    let loaded = GaussianMixtureParams::new(2).reproducible(true).fit(&mut evaluator as &mut dyn Evaluator);
    assert!(loaded.unwrap_err().to_string().contains("loaded for cpu"));
    assert!(of_model.contains("VEV") && of_start.contains("hierarchical"), "{of_model}, {of_start}");
}
