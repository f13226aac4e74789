//! Covariances with matrices over samples with missing values. The rows with the same observed columns, a pattern, form
//! a group: complete samples of these columns, which the engine of complete samples evaluates under their mixture. The
//! E-step's terms for the missing columns follow from the statistics of the observed ones ([`completion`]), without
//! another pass. A mixture is thus restricted and factorised once per group, not per row.
use super::completion;
use super::few::{FewRows, GroupRows};
use crate::backends::cpu::complete;
use crate::backends::cpu::threads::Threads;
use crate::compensated::neumaier_sum;
use crate::contract::evaluator::{
    DataFacts, Description, Evaluator, check_features, check_responsibilities, most_probable,
};
use crate::data::patterns::{Pattern, Patterns};
use crate::data::samples::{Rows, Samples, View};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::model::covariances::CovarianceType;
use crate::model::marginal::Marginal;
use crate::model::mixture::Mixture;
use crate::precision::{Operation, Precision};
use crate::simd::isa::Isa;
use crate::statistics::Statistics;
use ndarray::{Array1, Array2};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// Groups of fewer rows are evaluated row by row, which takes less time and memory than a layout.
const FEW: usize = 32;
/// The most sums of all segments. An E-step gathers the groups into segments of about equal work, each with its own
/// sums, as the engine of complete samples gathers chunks.
const SEGMENT_ELEMENTS: usize = 1 << 22;
/// The work for a group besides its rows, in rows.
const GROUP_WORK: usize = 64;

pub(in crate::backends::cpu) struct ByPattern<'a> {
    samples: Samples<'a>,
    /// The rows, group by group, in their order within each group.
    order: Arc<[usize]>,
    groups: Vec<Group<'a>>,
    isa: Isa,
    threads: Threads,
}

struct Group<'a> {
    observed: Arc<[usize]>,
    /// A range of `order`.
    rows: Range<usize>,
    weight: f64,
    /// The engine of the observed columns; `None` for few rows.
    engine: Option<Box<dyn Evaluator + 'a>>,
}

impl<'a> ByPattern<'a> {
    pub fn new(samples: Samples<'a>, threads: Threads, isa: Isa) -> Self {
        let Patterns { order, groups } = threads.install(|| Patterns::of(&samples));
        let group = |Pattern { observed, rows }| {
            let weight = rows.len() as f64;
            Group { observed: observed.into(), rows, weight, engine: None }
        };
        let mut groups: Vec<_> = groups.into_iter().map(group).collect();
        threads.install(|| {
            groups.par_iter_mut().for_each(|group| {
                let rows = &order[group.rows.clone()];
                if let Some(weights) = samples.weights() {
                    group.weight = neumaier_sum(rows.iter().map(|&row| weights[row]));
                }
                if rows.len() >= FEW && !group.observed.is_empty() {
                    let part = samples.observed(rows, &group.observed);
                    group.engine = Some(complete::engine_of_part(part, &threads, isa));
                }
            });
        });
        Self { samples, order: order.into(), groups, isa, threads }
    }

    /// Calls `work` on all threads with each group, its rows and, if any column is observed, the mixture of its
    /// columns. Returns the results in the order of the groups.
    fn map<T: Send>(
        &mut self,
        mixture: &Mixture,
        work: impl Fn(&mut Group<'a>, GroupRows<'_>, Option<&Marginal>) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        check_features(mixture, self.samples.n_features())?;
        let Self { samples, order, groups, threads, .. } = self;
        let interrupt = Interrupt::current();
        let one = |group: &mut Group<'a>| interrupt.install(|| group.evaluate(samples, order, mixture, &work));
        let results: Vec<Result<T>> = threads.install(|| groups.par_iter_mut().map(one).collect());
        results.into_iter().collect()
    }

    /// Reorders `each` values per row from the order of the groups to that of the rows.
    fn in_order<T: Copy + Default>(&self, values: Vec<Vec<T>>, each: usize) -> Vec<T> {
        let mut all = vec![T::default(); self.order.len() * each];
        for (&row, value) in self.order.iter().zip(values.iter().flat_map(|values| values.chunks_exact(each))) {
            all[row * each..][..each].copy_from_slice(value);
        }
        all
    }

    /// Divides the groups into segments of consecutive ones, of about equal work, independent of the threads.
    fn segments(&self, covariance_type: CovarianceType, k: usize) -> Vec<Range<usize>> {
        let d = self.samples.n_features();
        let length = k * d * if covariance_type == CovarianceType::Full { d } else { 2 };
        let most = (SEGMENT_ELEMENTS / length.max(1)).clamp(4, 64);
        let work = |group: &Group<'_>| group.rows.len() + GROUP_WORK;
        let each = self.groups.iter().map(work).sum::<usize>().div_ceil(most).max(1);
        let (mut segments, mut start, mut sum) = (Vec::new(), 0, 0);
        for (i, group) in self.groups.iter().enumerate() {
            sum += work(group);
            if sum >= each || i + 1 == self.groups.len() {
                segments.push(start..i + 1);
                (start, sum) = (i + 1, 0);
            }
        }
        segments
    }
}

impl<'a> Group<'a> {
    fn evaluate<T>(
        &mut self,
        samples: &Samples<'_>,
        order: &[usize],
        mixture: &Mixture,
        work: impl Fn(&mut Self, GroupRows<'_>, Option<&Marginal>) -> Result<T>,
    ) -> Result<T> {
        Interrupt::current().check()?;
        let rows = &order[self.rows.clone()];
        let observed = Arc::clone(&self.observed);
        let marginal = if observed.is_empty() { None } else { Some(Marginal::new(mixture, &observed)?) };
        work(self, GroupRows { samples: &samples.reborrow(), rows }, marginal.as_ref()).map_err(|error| match error {
            Error::UnreachableSample { row } => Error::UnreachableSample { row: rows[row] },
            Error::OutOfRange { component, column, precision } => {
                Error::OutOfRange { component, column: observed[column], precision }
            }
            other => other,
        })
    }

    fn log_likelihood(&mut self, rows: GroupRows<'_>, marginal: Option<&Marginal>) -> Result<f64> {
        match (marginal, &mut self.engine) {
            (None, _) => Ok(0.0),
            _ if self.weight == 0.0 => Ok(0.0),
            (Some(marginal), Some(engine)) => engine.log_likelihood(&marginal.mixture),
            (Some(marginal), None) => Ok(FewRows::new(rows, marginal).log_likelihood()),
        }
    }

    fn statistics(
        &mut self,
        rows: GroupRows<'_>,
        mixture: &Mixture,
        marginal: Option<&Marginal>,
    ) -> Result<Option<Statistics>> {
        if self.weight == 0.0 {
            return Ok(None);
        }
        let Some(marginal) = marginal else { return completion::unobserved(self.weight, mixture).map(Some) };
        let seen = match &mut self.engine {
            Some(engine) => engine.statistics(&marginal.mixture)?,
            None => FewRows::new(rows, marginal).statistics(self.weight)?,
        };
        completion::completed(seen, marginal, mixture).map(Some)
    }
}

impl<'a> Evaluator for ByPattern<'a> {
    fn data(&self) -> DataFacts<'_> {
        DataFacts::from(&self.samples)
    }

    fn describe(&self) -> Description {
        let (threads, isa, groups) = (self.threads.count(), self.isa.name(), self.groups.len());
        let plural = |n: usize| if n == 1 { "" } else { "s" };
        let float = match self.samples.view() {
            View::F32(_) => "float32",
            View::F64(_) => "float64",
        };
        let (of_threads, of_groups) = (plural(threads), plural(groups));
        let patterns = format!("{groups} pattern{of_groups} of missing values");
        Description::new(format!("cpu ({threads} thread{of_threads}, {isa}, {float}, {patterns})"), isa)
    }

    /// float64 if any group needs it.
    fn precision(&self, mixture: &Mixture, operation: Operation) -> Precision {
        let needs_float64 = |group: &Group<'_>| {
            let Some(engine) = &group.engine else { return false };
            let marginal = Marginal::new(mixture, &group.observed);
            marginal.is_ok_and(|m| engine.precision(&m.mixture, operation) == Precision::Float64)
        };
        let float64 = matches!(self.samples.view(), View::F64(_));
        let known = mixture.n_features() == self.n_features();
        match float64 || known && self.groups.iter().any(needs_float64) {
            true => Precision::Float64,
            false => Precision::Float32,
        }
    }

    fn share(&self) -> Result<Box<dyn Evaluator + '_>> {
        let mut groups = Vec::with_capacity(self.groups.len());
        for group in &self.groups {
            groups.push(Group {
                observed: Arc::clone(&group.observed),
                rows: group.rows.clone(),
                weight: group.weight,
                engine: group.engine.as_ref().map(|engine| engine.share()).transpose()?,
            });
        }
        Ok(Box::new(ByPattern {
            samples: self.samples.reborrow(),
            order: Arc::clone(&self.order),
            groups,
            isa: self.isa,
            threads: self.threads.clone(),
        }))
    }

    fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64> {
        Ok(neumaier_sum(self.map(mixture, Group::log_likelihood)?))
    }

    fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>> {
        let scores = self.map(mixture, |group, rows, marginal| match (marginal, &mut group.engine) {
            (None, _) => Ok(vec![0.0; rows.rows.len()]),
            (Some(marginal), Some(engine)) => Ok(engine.score_samples(&marginal.mixture)?.to_vec()),
            (Some(marginal), None) => Ok(FewRows::new(rows, marginal).score_samples()),
        })?;
        Ok(self.in_order(scores, 1).into())
    }

    fn statistics(&mut self, mixture: &Mixture) -> Result<Statistics> {
        check_features(mixture, self.n_features())?;
        let (k, d) = mixture.means().dim();
        let segments = self.segments(mixture.covariance_type(), k);
        let Self { samples, order, groups, threads, .. } = self;
        let mut parts = Vec::with_capacity(segments.len());
        let mut rest = &mut groups[..];
        for segment in segments {
            let (part, others) = rest.split_at_mut(segment.len());
            parts.push(part);
            rest = others;
        }
        let empty = || Statistics::empty(mixture.covariance_type(), k, d);
        let sum_up = |part: &mut [Group<'a>]| {
            let mut sum = empty();
            for group in part {
                let evaluate = |group: &mut Group<'a>, rows: GroupRows<'_>, marginal: Option<&Marginal>| {
                    group.statistics(rows, mixture, marginal)
                };
                if let Some(statistics) = group.evaluate(samples, order, mixture, evaluate)? {
                    sum.merge(&statistics)?;
                }
            }
            Ok(sum)
        };
        let interrupt = Interrupt::current();
        let sum_up = |part: &mut [Group<'a>]| interrupt.install(|| sum_up(part));
        let sums: Vec<Result<Statistics>> = threads.install(|| parts.into_par_iter().map(sum_up).collect());
        let mut total = empty();
        for sum in sums {
            total.merge(&sum?)?;
        }
        Ok(total)
    }

    fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
        self.samples.select(rows)
    }

    fn predict(&mut self, mixture: &Mixture) -> Result<Vec<usize>> {
        let weights = mixture.weights().to_vec();
        let labels = self.map(mixture, |group, rows, marginal| match (marginal, &mut group.engine) {
            (None, _) => Ok(vec![most_probable(&weights); rows.rows.len()]),
            (Some(marginal), Some(engine)) => engine.predict(&marginal.mixture),
            (Some(marginal), None) => Ok(FewRows::new(rows, marginal).predict()),
        })?;
        Ok(self.in_order(labels, 1))
    }

    fn predict_proba(&mut self, mixture: &Mixture) -> Result<Array2<f64>> {
        check_responsibilities(self.n_samples(), mixture.n_components())?;
        let shares = (&mixture.weights() / mixture.weights().sum()).to_vec();
        let r = self.map(mixture, |group, rows, marginal| match (marginal, &mut group.engine) {
            (None, _) => Ok(shares.repeat(rows.rows.len())),
            (Some(marginal), Some(engine)) => Ok(engine.predict_proba(&marginal.mixture)?.into_raw_vec_and_offset().0),
            (Some(marginal), None) => Ok(FewRows::new(rows, marginal).predict_proba()),
        })?;
        let (n, k) = (self.n_samples(), mixture.n_components());
        let r = Array2::from_shape_vec((n, k), self.in_order(r, k));
        r.map_err(|_| Error::ShapeMismatch { what: "responsibilities", expected: vec![n, k], got: vec![] })
    }
}
