//! The M-step of covariances that share a part: it turns each component's own covariance into that of the model.
use crate::model::covariance_model::CovarianceModel;
use crate::model::covariances::Covariances;
use crate::model::decomposition::{composed, eigen, geometric_mean, nearest_rotation};
use crate::model::linalg::{map_rows, matrices_at_once, precision_cholesky, trace_of_product};
use crate::model::mixture::Mixture;
use ndarray::parallel::prelude::*;
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis};

/// The relative change that ends the turns of an M-step: √ε, as in mclust.
const TOLERANCE: f64 = 1.490_116_119_384_765_6e-8;
/// The most turns of an M-step.
const MAX_TURNS: usize = 10_000;

/// Replaces the covariances of components, each the likeliest of its own, by the likeliest of the
/// model of `previous` (Celeux and Govaert 1995; EVE and VVE: Browne and McNicholas 2014). VVE's, as
/// mclust's, make another sum least.
///
/// `counts` (K,) are the divisors of their scatter. A component without a count neither counts nor
/// changes. VEI, VEV, EVE and VVE take turns that begin at the shapes and axes of `previous`, as
/// mclust's begin at those of the iteration before. Where an own covariance is singular, all become
/// numbers that no factorisation takes.
pub(super) fn constrain(covariances: &mut Covariances, counts: &Array1<f64>, previous: &Mixture) {
    let model = previous.covariance_model();
    let alive: Vec<usize> = (0..counts.len()).filter(|&c| counts[c] > 0.0).collect();
    // With noise each component has its own copy of a tied covariance.
    if model.is_plain() && previous.noise().is_none() || alive.is_empty() {
        return;
    }
    let n = counts.select(Axis(0), &alive);
    match covariances {
        Covariances::Spherical(v) if model == CovarianceModel::EII => {
            let own = v.select(Axis(0), &alive);
            let shared = n.dot(&own) / n.sum();
            alive.iter().for_each(|&c| v[c] = shared);
        }
        Covariances::Diag(v) if !model.is_plain() => {
            let mut variances = v.select(Axis(0), &alive);
            match model {
                CovarianceModel::EEI => {
                    let shared = n.dot(&variances) / n.sum();
                    variances.outer_iter_mut().for_each(|mut row| row.assign(&shared));
                }
                CovarianceModel::EVI => equal_volumes(&mut variances, &n),
                _ => {
                    let before = (0..previous.n_features()).map(|j| previous.variance(alive[0], j)).collect();
                    equal_shapes(&mut variances, &n, before);
                }
            }
            alive.iter().zip(variances.outer_iter()).for_each(|(&c, row)| v.row_mut(c).assign(&row));
        }
        Covariances::Full(v) if model != CovarianceModel::VVV => {
            let own: Vec<_> = alive.iter().map(|&c| v.index_axis(Axis(0), c).to_owned()).collect();
            let matrices = match model {
                CovarianceModel::EEE => {
                    let mut shared = Array2::zeros(own[0].raw_dim());
                    own.iter().zip(&n / n.sum()).for_each(|(matrix, share)| shared.scaled_add(share, matrix));
                    vec![shared; own.len()]
                }
                CovarianceModel::VEE => equal_shapes_and_axes(own, &n),
                CovarianceModel::EVE | CovarianceModel::VVE => {
                    let equal_volume = model == CovarianceModel::EVE;
                    equal_axes(&own, &n, previous, &alive, equal_volume)
                }
                CovarianceModel::EVV => {
                    let volumes = own.iter().map(|matrix| volume_of(matrix.view()).0).collect::<Array1<f64>>();
                    let shared = n.dot(&volumes) / n.sum();
                    own.iter().zip(volumes).map(|(matrix, volume)| matrix * (shared / volume)).collect()
                }
                _ => along_own_axes(&own, &n, model, previous.matrix(alive[0]).view()),
            };
            alive.iter().zip(&matrices).for_each(|(&c, matrix)| v.index_axis_mut(Axis(0), c).assign(matrix));
        }
        _ => {}
    }
}

/// Returns a column (K, 1).
fn column(v: &Array1<f64>) -> ArrayView2<'_, f64> {
    v.view().insert_axis(Axis(1))
}

/// Returns the geometric mean of each row (K,).
fn means_of_rows(v: &Array2<f64>) -> Array1<f64> {
    v.map_axis(Axis(1), |row| geometric_mean(row.iter()))
}

/// Returns the D-th root of a matrix's determinant, and U with U·Uᵀ its inverse; not a number for a singular matrix.
fn volume_of(matrix: ArrayView2<'_, f64>) -> (f64, Array2<f64>) {
    match precision_cholesky(matrix) {
        Ok(u) => (geometric_mean(u.diag().iter()).powi(-2), u),
        Err(_) => (f64::NAN, Array2::from_elem(matrix.raw_dim(), f64::NAN)),
    }
}

/// Returns the relative change of a number.
fn change(before: f64, now: f64) -> f64 {
    (before - now).abs() / (1.0 + now.abs())
}

/// Gives all components the mean volume.
fn equal_volumes(variances: &mut Array2<f64>, n: &Array1<f64>) {
    let volumes = means_of_rows(variances);
    *variances *= &column(&volumes.mapv(|volume| n.dot(&volumes) / n.sum() / volume));
}

/// Gives all components one shape (VEI and VEV): alternates between volumes and the shape, from the shape of one
/// component before.
fn equal_shapes(variances: &mut Array2<f64>, n: &Array1<f64>, before: Array1<f64>) {
    let d = variances.ncols() as f64;
    let mut shape = &before / geometric_mean(before.iter());
    let mut volumes = Array1::<f64>::zeros(n.len());
    for _ in 0..MAX_TURNS {
        let (inverse, mut next) = (shape.mapv(f64::recip), Array1::zeros(shape.len()));
        let mut moved = 0.0;
        for ((row, volume), n) in variances.outer_iter().zip(&mut volumes).zip(n) {
            let new = row.dot(&inverse) / d;
            moved = change(*volume, new).max(moved);
            *volume = new;
            next.scaled_add(n / new, &row);
        }
        next /= geometric_mean(next.iter());
        moved = shape.iter().zip(&next).map(|(old, new)| change(*old, *new)).fold(moved, f64::max);
        shape = next;
        if moved <= TOLERANCE {
            break;
        }
    }
    variances.outer_iter_mut().zip(volumes).for_each(|(mut row, volume)| row.assign(&(&shape * volume)));
}

/// Returns the matrices of EEV and VEV, each with its own axes. `before` is the covariance of a component before.
fn along_own_axes(
    own: &[Array2<f64>],
    n: &Array1<f64>,
    model: CovarianceModel,
    before: ArrayView2<'_, f64>,
) -> Vec<Array2<f64>> {
    let d = before.nrows();
    let parts = map_rows(own.par_iter(), matrices_at_once(own.len(), d, 8 * d * d), |matrix| eigen(matrix.view()));
    let (rows, axes): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    let mut variances = Array2::from_shape_fn((own.len(), d), |(c, j)| rows[c][j]);
    match model {
        CovarianceModel::EEV => {
            let shared = n.dot(&variances) / n.sum();
            // A singular matrix has no shape, so none has one.
            let sound = variances.iter().all(|v| *v > 0.0);
            variances.outer_iter_mut().for_each(|mut row| if sound { row.assign(&shared) } else { row.fill(f64::NAN) });
        }
        _ => {
            let of_before = eigen(before).0;
            // A fit begins at spheres, which have no shape.
            let round = of_before.iter().all(|v| *v == of_before[0]);
            let shape = if round { n.dot(&variances) } else { of_before };
            equal_shapes(&mut variances, n, shape);
        }
    }
    axes.iter().zip(variances.outer_iter()).map(|(axes, row)| composed(axes.view(), &row.to_owned())).collect()
}

/// Returns the matrices of VEE: alternates between a matrix of determinant 1 and the components' volumes.
fn equal_shapes_and_axes(mut own: Vec<Array2<f64>>, n: &Array1<f64>) -> Vec<Array2<f64>> {
    let mut volumes = Array1::<f64>::ones(n.len());
    let mut shared = Array2::zeros(own[0].raw_dim());
    let mut before = f64::INFINITY;
    for _ in 0..MAX_TURNS {
        shared.fill(0.0);
        own.iter().zip(n / &volumes).for_each(|(matrix, share)| shared.scaled_add(share, matrix));
        let (volume, inverse_root) = volume_of(shared.view());
        shared /= volume;
        let d = shared.nrows() as f64;
        let of = |matrix: &Array2<f64>| volume * trace_of_product(matrix.view(), inverse_root.view()) / d;
        volumes = own.iter().map(of).collect();
        let now = d * (n.sum() + n.dot(&volumes.mapv(f64::ln)));
        let moves = change(before, now) > TOLERANCE;
        before = now;
        if !moves {
            break;
        }
    }
    own.iter_mut().zip(volumes).for_each(|(matrix, volume)| matrix.assign(&(&shared * volume)));
    own
}

/// Returns the matrices of EVE and VVE: alternates between common axes, by two majorisations, and the shapes along them.
fn equal_axes(
    own: &[Array2<f64>],
    n: &Array1<f64>,
    previous: &Mixture,
    alive: &[usize],
    equal_volume: bool,
) -> Vec<Array2<f64>> {
    let (k, d) = (own.len(), own[0].nrows());
    let scatter: Vec<_> = own.iter().zip(n).map(|(matrix, n)| matrix * *n).collect();
    let largest: Array1<f64> = scatter.iter().map(|w| eigen(w.view()).0[0]).collect();
    // One below the other (K·D, D).
    let stacked = |matrices: &[Array2<f64>]| Array2::from_shape_fn((k * d, d), |(i, j)| matrices[i / d][[i % d, j]]);
    // The variances of each component along the axes (K, D), from the products of its matrix and the axes.
    let along = |axes: &Array2<f64>, products: &Array2<f64>| {
        let of = |(c, j)| (0..d).map(|i| axes[[i, j]] * products[[c * d + i, j]]).sum::<f64>();
        Array2::from_shape_fn((k, d), of)
    };
    let shapes_of = |variances: &Array2<f64>| variances / &column(&means_of_rows(variances));
    // The axes nearest to the sum of products times `shares` (K, D), less the axes times `less` (D,).
    let turned = |axes: &Array2<f64>, products: &Array2<f64>, shares: &Array2<f64>, less: &Array1<f64>| {
        let mut sum = axes * &-less;
        for (product, shares) in products.exact_chunks((d, d)).into_iter().zip(shares.outer_iter()) {
            sum += &(&product * &shares);
        }
        // Numbers that no factorisation takes, if there is none.
        nearest_rotation(&sum).unwrap_or_else(|| Array2::from_elem((d, d), f64::NAN))
    };
    let mut axes = previous.common_axes();
    let of_previous: Vec<_> = alive.iter().map(|&c| previous.matrix(c)).collect();
    let mut shapes = shapes_of(&along(&axes, &stacked(&of_previous).dot(&axes)));
    let scatter = stacked(&scatter);
    let mut products = scatter.dot(&axes);
    let (mut variances, mut before) = (Array2::zeros((k, d)), f64::INFINITY);
    for _ in 0..MAX_TURNS {
        let precisions = shapes.mapv(f64::recip);
        axes = turned(&axes, &products, &precisions, &largest.dot(&precisions));
        let most = precisions.map_axis(Axis(1), |row| row.iter().copied().fold(0.0, f64::max));
        axes = turned(&axes, &scatter.dot(&axes), &(precisions - column(&most)), &Array1::zeros(d));
        products = scatter.dot(&axes);
        variances = along(&axes, &products);
        shapes = shapes_of(&variances);
        let now = (&variances / &shapes).sum();
        let moves = change(before, now) > TOLERANCE;
        before = now;
        if !moves {
            break;
        }
    }
    let volume = before / (n.sum() * d as f64);
    let of = |(c, (shape, row)): (usize, (ArrayView1<'_, f64>, ArrayView1<'_, f64>))| {
        let variances = if equal_volume { &shape * volume } else { &row / n[c] };
        composed(axes.view(), &variances)
    };
    shapes.outer_iter().zip(variances.outer_iter()).enumerate().map(of).collect()
}
