//! A model as a C header that evaluates it.
use super::Model;
use crate::io::Problem;
use gmm_host::Covariances;
use ndarray::ArrayView2;
use std::fmt::Write;

/// Writes a model as a C header (C99 and later, and C++) of functions that evaluate it in float64, without allocating
/// memory and with no library but `math.h`. `name` is the prefix of all its names; characters that are invalid in C
/// names become `_`.
///
/// For a posterior of variational inference the functions return the results of scikit-learn's methods of the same
/// names.
///
/// # Errors
/// For covariances of an unknown type, and for a mixture with noise.
pub fn model_to_c(model: &Model, name: &str) -> Result<String, Problem> {
    let mut name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert(0, '_');
    }
    let mixture = model.density();
    mixture.check_no_noise("a C header")?;
    let (k, d) = mixture.means().dim();
    let upper = name.to_ascii_uppercase();
    let cholesky = mixture.precisions_cholesky();
    // The value of a sample in each component: constant − ½ |Uᵀ(x − μ)|², with the precision U Uᵀ.
    let (rows, squares, log_determinants) = whitening(&cholesky, k, d)?;
    let constants: Vec<f64> = (0..k)
        .map(|c| {
            let of_normal = log_determinants[c] - 0.5 * d as f64 * (2.0 * std::f64::consts::PI).ln();
            mixture.weights()[c].ln() + of_normal
        })
        .collect();
    let features = model.summary.feature_names.as_ref().map_or_else(String::new, |names| {
        // No name may end the comment.
        format!("\n   The features are, in this order: {}.", names.join(", ").replace("*/", "* /"))
    });
    let version = env!("CARGO_PKG_VERSION");
    let kind = mixture.covariance_type();
    let mut text = format!(
        "\
/* A Gaussian mixture of {k} component(s) over {d} feature(s), {kind} covariances; written by gmm {version}.{features}

   x is a sample of {upper}_N_FEATURES numbers. Nothing is checked: a NaN in x gives NaN, and component 0. */
#ifndef {upper}_H
#define {upper}_H

#include <math.h>

#define {upper}_N_COMPONENTS {k}
#define {upper}_N_FEATURES {d}

"
    );
    let mut array = |what: &str, values: &mut dyn Iterator<Item = f64>| {
        let values: Vec<String> = values.map(number).collect();
        let lines: Vec<String> = values.chunks(4).map(|line| line.join(", ")).collect();
        let _ = write!(
            text,
            "static const double {name}_{what}[{}] = {{\n    {}}};\n\n",
            values.len(),
            lines.join(",\n    ")
        );
    };
    array("constants", &mut constants.into_iter());
    array("means", &mut mixture.means().iter().copied());
    array("factors", &mut rows.into_iter());
    let functions = include_str!("c_header.h").replace("@squares@", squares).replace("@name@", &name);
    Ok(text + &functions.replace("@NAME@", &upper).replace("@log_total@", &number(model.log_total())))
}

/// The numbers of the factors, the loop that adds the squares of Uᵀ(x − μ) times `scale`, and log |U| of each
/// component.
type Whitening = (Vec<f64>, &'static str, Vec<f64>);

/// In the loop, `@name@` and `@NAME@` stand for the header's name.
fn whitening(factors: &Covariances, k: usize, d: usize) -> Result<Whitening, Problem> {
    let log = |diagonal: &mut dyn Iterator<Item = &f64>| diagonal.map(|u| u.ln()).sum::<f64>();
    let triangle = |u: ArrayView2<'_, f64>| -> Vec<f64> {
        (0..d).flat_map(|j| (0..=j).map(move |i| [i, j])).map(|at| u[at]).collect()
    };
    Ok(match factors {
        Covariances::Full(u) => {
            let logs = u.outer_iter().map(|u| log(&mut u.diag().iter())).collect();
            (u.outer_iter().flat_map(triangle).collect(), OF_TRIANGLES, logs)
        }
        Covariances::Tied(u) => (triangle(u.view()), OF_ONE_TRIANGLE, vec![log(&mut u.diag().iter()); k]),
        Covariances::Diag(u) => {
            (u.iter().copied().collect(), OF_DIAGONALS, u.outer_iter().map(|u| log(&mut u.iter())).collect())
        }
        Covariances::Spherical(u) => (u.to_vec(), OF_NUMBERS, u.iter().map(|u| d as f64 * u.ln()).collect()),
    })
}

/// The squares of a triangle that begins at `$column`.
macro_rules! of_triangle {
    ($column:literal) => {
        concat!(
            "    const double *column = ",
            $column,
            ";
    for (j = 0; j < @NAME@_N_FEATURES; j++) {
        double t = 0.0;
        for (i = 0; i <= j; i++)
            t += *column++ * (x[i] * scale - mean[i] * scale);
        squares += t * t;
    }"
        )
    };
}

const OF_TRIANGLES: &str = of_triangle!("@name@_factors + k * (@NAME@_N_FEATURES * (@NAME@_N_FEATURES + 1) / 2)");
const OF_ONE_TRIANGLE: &str = of_triangle!("@name@_factors");
const OF_DIAGONALS: &str = "    for (j = 0; j < @NAME@_N_FEATURES; j++) {
        double t = @name@_factors[k * @NAME@_N_FEATURES + j] * (x[j] * scale - mean[j] * scale);
        squares += t * t;
    }";
const OF_NUMBERS: &str = "    for (j = 0; j < @NAME@_N_FEATURES; j++) {
        double t = @name@_factors[k] * (x[j] * scale - mean[j] * scale);
        squares += t * t;
    }";

/// Writes a number that C reads as the same bits.
fn number(value: f64) -> String {
    match value {
        v if v == f64::INFINITY => "HUGE_VAL".into(),
        v if v == f64::NEG_INFINITY => "-HUGE_VAL".into(),
        v => format!("{v:?}"),
    }
}
