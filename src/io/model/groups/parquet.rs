//! The models of many groups as a table of Parquet, with a row for each component.
use super::contents::{GroupFit, GroupModels};
use crate::io::data::arrow::{ids, numbers};
use crate::io::data::damaged::guarded;
use crate::io::data::parquet::read_all;
use crate::io::data::short;
use crate::io::model::contents::{FitSummary, Model, mixture_from_arrays};
use crate::io::output::parquet::{ParquetWriter, ids_column};
use crate::io::{Ids, Problem};
use arrow_array::builder::{Float64Builder, ListBuilder};
use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::ArrowError;
use gmm_host::{CovarianceModel, CovarianceType, Covariances, Mixture};
use std::collections::HashSet;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

const COLUMNS: [&str; 9] = [
    "component",
    "weight",
    "covariance",
    "covariance_type",
    "n_samples",
    "converged",
    "n_iter",
    "lower_bound",
    "error",
];
const MEAN: &str = "mean";
/// The most numbers to write at a time. Arrow counts those of a batch's lists in 32 bits.
const BATCH_NUMBERS: usize = if cfg!(test) { 10 } else { 1 << 22 };

type Outcome<T> = Result<T, Problem>;

/// Returns the name of the column with the means of a feature.
fn mean_name(features: Option<&[String]>, feature: usize) -> String {
    features.map_or_else(|| format!("{MEAN}{feature}"), |names| format!("{MEAN}_{}", names[feature]))
}

pub(super) fn check_names(by: &str, features: Option<&[String]>) -> Outcome<()> {
    let is_mean = || match (features, by.strip_prefix(MEAN)) {
        (Some(names), Some(rest)) => rest.strip_prefix('_').is_some_and(|rest| names.iter().any(|name| name == rest)),
        (None, Some(rest)) => !rest.is_empty() && rest.bytes().all(|digit| digit.is_ascii_digit()),
        (_, None) => false,
    };
    if COLUMNS.contains(&by) || is_mean() {
        return Err(Problem::format(format!(
            "the column of the groups cannot be called `{}`, like another column of the result; rename it, or write a folder",
            short(by)
        )));
    }
    Ok(())
}

pub(super) fn write(models: &GroupModels, file: &mut (dyn Write + Send)) -> io::Result<()> {
    // The group and the component of each row; no component for a group without a model.
    let of_fit = |(group, fit): (usize, &GroupFit)| match &fit.model {
        Ok(model) => (0..model.mixture.n_components()).map(|c| (group, Some(c))).collect(),
        Err(_) => vec![(group, None)],
    };
    let rows: Vec<(usize, Option<usize>)> = models.fits.iter().enumerate().flat_map(of_fit).collect();
    let d = models.models().next().map_or(0, |model| model.mixture.n_features());
    let of_row = |model: &Model| model.mixture.covariance_model().form().shape(1, d).iter().product::<usize>() + d;
    let at_a_time = (BATCH_NUMBERS / models.models().map(of_row).max().unwrap_or(1)).max(1);
    let (mut writer, mut rows) = (ParquetWriter::new(file), &rows[..]);
    loop {
        let (batch, rest) = rows.split_at(at_a_time.min(rows.len()));
        writer.write_batch(&self::batch(models, d, batch).map_err(io::Error::other)?)?;
        if rest.is_empty() {
            return writer.finish();
        }
        rows = rest;
    }
}

/// Returns rows of the table, each a group and a component.
fn batch(models: &GroupModels, d: usize, rows: &[(usize, Option<usize>)]) -> Result<RecordBatch, ArrowError> {
    let groups = models.groups.select(&rows.iter().map(|(group, _)| *group).collect::<Vec<_>>());
    let fit = |group: usize| &models.fits[group];
    let model = |group: usize| fit(group).model.as_ref().ok();
    let components = || rows.iter().map(|&(group, component)| model(group).zip(component));
    let summaries = || rows.iter().map(|&(group, _)| model(group).map(|model| &model.summary));
    let mut columns: Vec<(String, ArrayRef)> = vec![
        (models.by.clone(), ids_column(groups)),
        ("component".into(), Arc::new(Int64Array::from_iter(rows.iter().map(|(_, c)| c.map(|c| c as i64))))),
        (
            "weight".into(),
            Arc::new(Float64Array::from_iter(components().map(|at| at.map(|(model, c)| model.mixture.weights()[c])))),
        ),
    ];
    for j in 0..d {
        let means = components().map(|at| at.map(|(model, c)| model.mixture.means()[[c, j]]));
        columns.push((mean_name(models.feature_names(), j), Arc::new(Float64Array::from_iter(means))));
    }
    let mut covariances = ListBuilder::new(Float64Builder::new());
    for at in components() {
        if let Some((model, c)) = at {
            covariances.values().append_slice(&covariance(&model.mixture, c));
        }
        covariances.append(at.is_some());
    }
    let covariance_types = rows.iter().map(|&(group, _)| Some(model(group)?.mixture.covariance_model().name()));
    let errors = rows.iter().map(|&(group, _)| fit(group).model.as_ref().err());
    let n_samples = rows.iter().map(|&(group, _)| fit(group).n_samples as i64);
    let rest: [(&str, ArrayRef); 7] = [
        ("covariance", Arc::new(covariances.finish())),
        ("covariance_type", Arc::new(StringArray::from_iter(covariance_types))),
        ("n_samples", Arc::new(Int64Array::from_iter_values(n_samples))),
        ("converged", Arc::new(BooleanArray::from_iter(summaries().map(|s| s?.converged)))),
        ("n_iter", Arc::new(Int64Array::from_iter(summaries().map(|s| Some(s?.n_iter? as i64))))),
        ("lower_bound", Arc::new(Float64Array::from_iter(summaries().map(|s| s?.lower_bound)))),
        ("error", Arc::new(StringArray::from_iter(errors))),
    ];
    columns.extend(rest.map(|(name, column)| (name.into(), column)));
    let columns = columns.into_iter().map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(columns)
}

fn covariance(mixture: &Mixture, component: usize) -> Vec<f64> {
    match mixture.covariances() {
        Covariances::Tied(matrix) => matrix.iter().copied().collect(),
        covariances => {
            let d = covariances.iter().count() / mixture.n_components();
            covariances.iter().skip(component * d).take(d).collect()
        }
    }
}

/// A row; `component` is `None` for a group without a model.
struct Row {
    component: Option<usize>,
    weight: f64,
    means: Vec<f64>,
    covariance: Vec<f64>,
    covariance_type: String,
    n_samples: usize,
    summary: FitSummary,
    error: String,
}

pub(super) fn read(path: &Path) -> Outcome<GroupModels> {
    let (schema, mut batches) = read_all(path, size_of::<Row>())?;
    let (mut rows, mut groups) = (Vec::new(), None::<Ids>);
    while let Some(batch) = guarded(|| batches.next().transpose())? {
        let more = guarded(|| read_batch(&batch, &mut rows))?;
        groups = Some(match groups {
            Some(groups) => groups.and(more),
            None => more,
        });
    }
    let groups = groups.unwrap_or(Ids::Texts(Vec::new()));
    let (mut firsts, mut fits, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    let mut start = 0;
    while start < rows.len() {
        let same = |row: &usize| groups.text(*row) == groups.text(start);
        let end = start + (start..rows.len()).take_while(same).count();
        if !seen.insert(groups.text(start)) {
            let group = groups.text(start);
            return Err(Problem::format(format!("the rows of the group `{}` are not consecutive", short(&group))));
        }
        let named = |problem: Problem| Problem::format(format!("group `{}`: {problem}", short(&groups.text(start))));
        fits.push(fit(&rows[start..end]).map_err(named)?);
        firsts.push(start);
        start = end;
    }
    let by = schema.fields().first().map_or_else(String::new, |field| field.name().clone());
    Ok(GroupModels { by, groups: groups.select(&firsts), fits })
}

/// Appends the rows of a batch and returns their groups.
fn read_batch(batch: &RecordBatch, rows: &mut Vec<Row>) -> Outcome<Ids> {
    let column = |name: &str| {
        let missing = || Problem::format(format!("not a table of the models of groups: there is no column `{name}`"));
        batch.column_by_name(name).ok_or_else(missing)
    };
    let number = |name: &str| numbers(column(name)?);
    let text = |name: &str| ids(column(name)?);
    let mean = |(at, field): (usize, &arrow_schema::FieldRef)| {
        let rest = field.name().strip_prefix(MEAN)?;
        (at > 0).then_some((at, rest.strip_prefix('_').map(String::from)))
    };
    let schema = batch.schema();
    let (places, names): (Vec<usize>, Vec<Option<String>>) =
        schema.fields().iter().enumerate().filter_map(mean).unzip();
    let names: Option<Vec<String>> = names.into_iter().collect();
    let means = places.iter().map(|&at| numbers(batch.column(at))).collect::<Outcome<Vec<_>>>()?;
    let (component, weight, n_samples) = (number("component")?, number("weight")?, number("n_samples")?);
    let (converged, n_iter, bound) = (number("converged")?, number("n_iter")?, number("lower_bound")?);
    let (types, errors, lists) = (text("covariance_type")?, text("error")?, column("covariance")?);
    let list = |row: usize| {
        let values = lists.as_list_opt::<i32>().map(|lists| lists.value(row));
        let values = values.or_else(|| lists.as_list_opt::<i64>().map(|lists| lists.value(row)));
        numbers(&values.ok_or_else(|| Problem::format("the column `covariance` has no lists of numbers"))?)
    };
    let given = |value: f64| (!value.is_nan()).then_some(value);
    for row in 0..batch.num_rows() {
        let component = given(component[row]);
        rows.push(Row {
            component: component.map(|c| c as usize),
            weight: weight[row],
            means: means.iter().map(|means| means[row]).collect(),
            covariance: if component.is_some() { list(row)? } else { Vec::new() },
            covariance_type: types.text(row),
            n_samples: n_samples[row] as usize,
            summary: FitSummary {
                feature_names: names.clone(),
                converged: given(converged[row]).map(|v| v != 0.0),
                n_iter: given(n_iter[row]).map(|v| v as u64),
                lower_bound: given(bound[row]),
                lower_bounds: None,
            },
            error: errors.text(row),
        });
    }
    ids(batch.column(0))
}

fn fit(rows: &[Row]) -> Outcome<GroupFit> {
    let first = &rows[0];
    let n_samples = first.n_samples;
    if let [Row { component: None, error, .. }] = rows {
        return Ok(GroupFit { n_samples, model: Err(error.clone()) });
    }
    if !rows.iter().enumerate().all(|(c, row)| row.component == Some(c)) {
        return Err(Problem::format("its rows are not those of the components 0, 1, … in their order"));
    }
    let (k, d) = (rows.len(), first.means.len());
    let model: CovarianceModel = first.covariance_type.parse()?;
    let covariance_type = model.form();
    let covariances = match covariance_type {
        CovarianceType::Tied => first.covariance.clone(),
        _ => rows.iter().flat_map(|row| row.covariance.iter().copied()).collect(),
    };
    let shape = covariance_type.shape(k, d);
    let per_row = covariance_type.shape(1, d).iter().product::<usize>();
    if rows.iter().any(|row| row.covariance.len() != per_row) {
        return Err(Problem::format(format!("a covariance has a number of values that does not fit {d} features")));
    }
    let mixture = mixture_from_arrays(
        model,
        (vec![k], rows.iter().map(|row| row.weight).collect()),
        (vec![k, d], rows.iter().flat_map(|row| row.means.iter().copied()).collect()),
        (shape, covariances),
        None,
    )?;
    first.summary.check(&mixture)?;
    Ok(GroupFit { n_samples, model: Ok(Model::new(mixture, first.summary.clone())) })
}
