//! The totals of many parameter sets. Sets near to each other are evaluated by their differences from one of them.
use super::{Float32, Planned};
use crate::device::mismatch;
use crate::device::samples::{Chunk, MAX_TOTALS, Pass};
use crate::device::stream::finite;
use crate::families::{candidates, usable};
use crate::likelihood::{NearSets, Sets, Work};
use crate::options::Requested;
use crate::plan::family::Family;
use crate::plan::task::{Digits, Operation, Task};
use gmm_core::backends::device_parameters::frame_offset;
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::error::Result;
use gmm_core::model::mixture::Mixture;
use gmm_kernels::entries;

/// Fewest parameter sets whose nearness is used without a request.
const FEWEST_NEAR_SETS: usize = 16;
impl Float32<'_> {
    /// Returns the totals of the sets near to the reference, by kernels that compare them to it; None for the others.
    pub fn near_totals(&mut self, task: &Task, near: NearSets<'_>) -> Result<Vec<Option<f64>>> {
        let sets = near.sets;
        let none = vec![None; sets.len()];
        let planned = match self.plans.get(task) {
            Some(planned) if !planned.compares_sets() => return Ok(none),
            planned => planned.is_some(),
        };
        if !planned || self.had_far_sets {
            let are_near = self.are_near(near)?;
            self.had_far_sets = are_near.contains(&false);
            if !are_near.contains(&true) {
                return Ok(none);
            }
        }
        // A plan is made by timing all kernels that can do the task.
        let parameters: Vec<_> =
            if planned { Vec::new() } else { sets.iter().filter_map(|set| self.parameters(set).ok()).collect() };
        let plan = match self.plan(task, &parameters, Some(near))? {
            Planned::By(plan) if plan.variant.family.facts().compares_sets => plan,
            _ => return Ok(none),
        };
        for pass in self.data.passes() {
            plan.prepare(&mut pass.workspace, Sets::Near(near))?;
        }
        let mut totals = vec![(0.0, 0.0); sets.len()];
        self.data.for_each_chunk(
            |_, Chunk { pass, columns, started }| {
                let Pass { stream, workspace, .. } = pass;
                let running = plan.start(Work { stream, workspace, columns, scores: None }, Sets::Near(near))?;
                Ok((started.followed_by(running), workspace))
            },
            |(running, workspace)| {
                let offsets = running.first_numbers(&workspace.offsets, sets.len())?;
                Ok((running.numbers(&workspace.totals, sets.len())?, offsets))
            },
            |(sums, offsets)| {
                for ((total, sum), offset) in totals.iter_mut().zip(sums).zip(offsets) {
                    *total = (total.0 + sum, offset);
                }
            },
        )?;
        let common = frame_offset(task.d, near.frame.log2_scale);
        let of_set = |(log2, offset): (f64, f64)| {
            offset.is_finite().then(|| self.total(&plan, log2, offset + common)).transpose()
        };
        let totals: Vec<_> = totals.into_iter().map(of_set).collect::<Result<_>>()?;
        finite(totals.iter().copied().flatten().collect())?;
        self.had_far_sets = totals.contains(&None);
        Ok(totals)
    }

    /// Returns which of the sets are near to the reference.
    fn are_near(&mut self, near: NearSets<'_>) -> Result<Vec<bool>> {
        let kernel = self.data.gpu().kernel(&entries::batch_parameters(), None)?;
        let Pass { stream, workspace, .. } = &mut self.data.passes()[0];
        near.prepare(workspace)?;
        let offsets = near.start(kernel, stream, workspace)?.numbers(&workspace.offsets, near.sets.len())?;
        Ok(offsets.into_iter().map(f64::is_finite).collect())
    }

    fn takes_batches(&self, task: &Task) -> bool {
        let batches = |family: &dyn Family| family.has(Operation::Totals);
        self.requested.and_then(Requested::family).is_none_or(batches)
            && !candidates(task, None, &self.data.gpu().limits).is_empty()
    }

    /// Returns whether a usable kernel compares sets of this task to a reference.
    fn can_compare(&self, task: &Task) -> bool {
        let limits = &self.data.gpu().limits;
        let requested = self.requested.and_then(Requested::family);
        usable(task, requested, limits)
            .iter()
            .any(|family| family.facts().compares_sets && family.problem(task, limits).is_none())
    }

    /// Writes the totals of sets of one task: near sets by kernels that compare them to the reference, the others
    /// together, or one by one if no kernel takes several sets of their size.
    pub(super) fn batch(&mut self, task: &Task, sets: &[Mixture], totals: &mut [f64]) -> Result<()> {
        let fixed = self.batch_reference.clone();
        let requested = self.requested.and_then(Requested::family);
        let compares = fixed.is_some()
            || sets.len() >= FEWEST_NEAR_SETS
            || requested.is_some_and(|family| family.facts().compares_sets);
        let fits = |reference: &&Mixture| self.task(Operation::Totals, reference) == *task;
        let reference = fixed.as_deref().filter(fits).unwrap_or(&sets[0]);
        let near_task = Task { digits: Digits::Expandable, ..*task };
        let compares = compares && (self.plans.contains_key(&near_task) || self.can_compare(&near_task));
        let mut near_totals = vec![None; sets.len()];
        if compares {
            let (frame, n) = (self.data.frame().clone(), self.data.n());
            for (sets, totals) in sets.chunks(MAX_TOTALS).zip(near_totals.chunks_mut(MAX_TOTALS)) {
                let near = NearSets { frame: &frame, reference, sets, n };
                totals.copy_from_slice(&self.near_totals(&near_task, near)?);
            }
        }
        let mut others = Vec::new();
        for (place, total) in near_totals.into_iter().enumerate() {
            match total {
                Some(total) => totals[place] = total,
                None => others.push(place),
            }
        }
        if !others.is_empty() && !self.takes_batches(task) {
            for place in others {
                totals[place] = self.log_likelihood(&sets[place])?;
            }
            return Ok(());
        }
        for places in others.chunks(MAX_TOTALS) {
            let sets: Vec<_> = places.iter().map(|&place| self.parameters(&sets[place])).collect::<Result<_>>()?;
            let Planned::By(plan) = self.plan(task, &sets, None)? else {
                return Err(mismatch("the kernel of a batch", vec![sets.len()], vec![0]));
            };
            let some = self.totals(&plan, &sets)?;
            places.iter().zip(some).for_each(|(&place, total)| totals[place] = total);
        }
        Ok(())
    }
}
