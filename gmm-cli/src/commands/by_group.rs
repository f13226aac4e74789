//! Evaluates the mixtures of groups over rows, for `gmm predict --by` and `gmm score --by`.
use crate::input::{DataOptions, Groups, Input, Source};
use crate::terminal::{ProgressLine, text};
use anyhow::{Context, bail};
use gaussmix::evaluator::{Evaluator, evaluate_each};
use gaussmix::io::{ColumnSelection, Columns, GroupModels, IdColumn, Model, TableNumber, TableOutput};
use std::collections::HashMap;
use std::convert::Infallible;
use std::path::Path;

pub fn read_model(path: &Path) -> anyhow::Result<Model> {
    if path.join("groups.csv").is_file() || path.extension().is_some_and(|end| end.eq_ignore_ascii_case("parquet")) {
        bail!(
            "{}: has a model for each of many groups; --by names the column of the data with the groups",
            path.display()
        );
    }
    Ok(Model::read(path)?)
}

pub struct GroupModelFile<'a> {
    path: &'a Path,
    models: GroupModels,
}

impl<'a> GroupModelFile<'a> {
    pub fn read(path: &'a Path) -> anyhow::Result<Self> {
        let models = GroupModels::read(path)?;
        let features = |model: &Model| (model.mixture.n_features(), model.summary.feature_names.clone());
        let mut all = models.models().map(features);
        let first = all.next();
        if first.is_none() {
            bail!("{}: it has no model: all fits failed", path.display());
        }
        if all.any(|other| Some(other) != first) {
            bail!("{}: the models of the groups have different features", path.display());
        }
        drop(all);
        Ok(Self { path, models })
    }

    pub fn n_components(&self) -> usize {
        self.models.models().map(|model| model.mixture.n_components()).max().unwrap_or(0)
    }

    /// Opens the data, whose column `by` names the groups.
    pub fn open<'d>(&self, data: &'d DataOptions, by: &str) -> anyhow::Result<Input<'d>> {
        data.check_one_device()?;
        let names = self.models.feature_names().map(<[String]>::to_vec);
        Input::open(data, None, &ColumnSelection { by: Some(by.into()), ..data.table.selection(names, None) })
    }

    pub fn divide<'s>(&'s self, source: &'s Source<'s>, by: &'s str) -> anyhow::Result<ByGroup<'s>> {
        let groups = Groups::new(source, by)?;
        let known: HashMap<String, usize> =
            (0..self.models.fits.len()).map(|fit| (self.models.groups.text(fit), fit)).collect();
        let model = |group: usize| {
            let name = groups.names.text(group);
            let Some(&fit) = known.get(&name) else {
                let row = groups.of_row.iter().position(|&of| of == group).unwrap_or(0);
                bail!(
                    "{}: row {row} (counted from 0) has the group `{name}`, for which {} has no model; leave the group's rows out, or fit again",
                    source.name(),
                    self.path.display()
                );
            };
            Ok(self.models.fits[fit].model.as_ref().ok())
        };
        let models = (0..groups.names.len()).map(model).collect::<anyhow::Result<_>>()?;
        Ok(ByGroup { path: self.path, source, by, groups, models })
    }
}

/// Data divided into groups, and the model of each.
pub struct ByGroup<'s> {
    path: &'s Path,
    source: &'s Source<'s>,
    by: &'s str,
    pub groups: Groups<'s>,
    /// `None` if the fit failed (G,).
    models: Vec<Option<&'s Model>>,
}

impl ByGroup<'_> {
    /// Returns the number of rows whose group has no model because its fit failed.
    pub fn n_without_model(&self) -> usize {
        let sets = self.models.iter().zip(&self.groups.sets);
        sets.filter(|(model, _)| model.is_none()).map(|(_, set)| set.n_samples()).sum()
    }

    pub fn note_without_model(&self) {
        let without = self.n_without_model();
        if without > 0 {
            let (without, n) = (text::grouped(without as u64), text::grouped(self.groups.of_row.len() as u64));
            text::note(format_args!("no model for {without} of {n} samples: the fits to their groups had failed"));
        }
    }

    /// Evaluates each group with its model (G,); `None` without a model.
    pub fn evaluate<T: Send>(
        &self,
        evaluate: impl Fn(&mut dyn Evaluator, &Model) -> gaussmix::Result<T> + Sync,
    ) -> anyhow::Result<Vec<Option<T>>> {
        let _line = ProgressLine::start("evaluating the models");
        let sets = &self.groups.sets;
        let work = |group: usize| {
            let of_sample = |model: &Model| {
                let (k, d) = model.mixture.means().dim();
                model.mixture.covariance_type().multiply_adds(k, d)
            };
            sets[group].n_samples() as f64 * self.models[group].map_or(0, of_sample) as f64
        };
        let results = evaluate_each(sets, self.source.device(), work, |group, open| {
            self.models[group].map(|model| evaluate(open()?.as_mut(), model)).transpose()
        });
        let named = |(group, result): (usize, gaussmix::Result<Option<T>>)| {
            let error = |error| self.source.advise(self.groups.error(group, error), false);
            result.map_err(error).with_context(|| {
                let name = self.groups.names.text(group);
                format!("{} over {}, group `{name}`", self.path.display(), self.source.name())
            })
        };
        results.into_iter().enumerate().map(named).collect()
    }

    /// Writes the values of all rows in their order, with the column of the groups if the format has one. The values of
    /// groups without a model are `missing`.
    pub fn write<T: TableNumber + Copy>(
        &self,
        output: &TableOutput,
        columns: &Columns,
        values: &[Option<Vec<T>>],
        missing: T,
    ) -> anyhow::Result<()> {
        let width = columns.width();
        let mut all = vec![missing; self.groups.of_row.len() * width];
        // The number of rows written for each group.
        let mut done = vec![0; values.len()];
        for (row, &group) in self.groups.of_row.iter().enumerate() {
            if let Some(values) = &values[group] {
                let of_row = values.len() / self.groups.sets[group].n_samples();
                let from = done[group] * of_row;
                all[row * width..][..of_row].copy_from_slice(&values[from..from + of_row]);
                done[group] += 1;
            }
        }
        let mut read = |rows| self.source.ids(rows);
        let ids = output.check_ids().is_ok().then_some(IdColumn { name: self.by, read: &mut read });
        let all = std::iter::once(Ok::<_, Infallible>(all));
        output.write_with_ids(self.groups.of_row.len(), columns, ids, all)?.map_err(|never| match never {})?;
        Ok(())
    }
}
