//! The checkpoints that a fit writes while it runs and at its end.
use crate::commands::training::Trainable;
use crate::input::Source;
use anyhow::Context;
use gaussmix::fit::Fit as Fitted;
use gaussmix::io::{Checkpoint, CheckpointOutput, Identity};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(10);

/// Writes checkpoints to a file, if the user named one.
pub struct CheckpointWriter<'a, 's, M> {
    output: Option<&'a CheckpointOutput>,
    source: &'a Source<'s>,
    made_with: Identity,
    /// The time of the last attempt to write a checkpoint.
    tried: Instant,
    any_written: bool,
    any_failed: bool,
    /// The checkpoint of the iteration at which the fit was stopped.
    last: Option<Checkpoint<M>>,
}

impl<'a, 's, M: Trainable> CheckpointWriter<'a, 's, M> {
    pub fn new(output: Option<&'a CheckpointOutput>, source: &'a Source<'s>, made_with: Identity) -> Self {
        Self { output, source, made_with, tried: Instant::now(), any_written: false, any_failed: false, last: None }
    }

    pub fn any_written(&self) -> bool {
        self.any_written
    }

    /// Writes a checkpoint if the last one is old enough. Only the first failure is returned. The checkpoint of the
    /// last iteration is held for [`finish`](Self::finish) instead.
    pub fn after_iteration(
        &mut self,
        present: &Fitted<M>,
        best: Option<&Fitted<M>>,
        is_last: bool,
    ) -> Option<anyhow::Error> {
        let output = self.output?;
        if is_last {
            self.last = self.checkpoint(present, best).ok();
            return None;
        }
        if self.tried.elapsed() < INTERVAL {
            return None;
        }
        let written = self.checkpoint(present, best).and_then(|checkpoint| Ok(output.write(&checkpoint)?));
        self.tried = Instant::now();
        self.any_written |= written.is_ok();
        written.err().filter(|_| !std::mem::replace(&mut self.any_failed, true))
    }

    /// Writes the last checkpoint: of the finished fit, or of the iteration at which it was stopped.
    pub fn finish(&mut self, finished: Option<&Fitted<M>>) -> anyhow::Result<()> {
        let Some(output) = self.output else { return Ok(()) };
        if let Some(fit) = finished {
            self.last = Some(self.checkpoint(fit, None)?);
        }
        let Some(last) = &self.last else { return Ok(()) };
        output.write(last).context("the checkpoint could not be written")
    }

    fn checkpoint(&self, present: &Fitted<M>, best: Option<&Fitted<M>>) -> anyhow::Result<Checkpoint<M>> {
        Ok(Checkpoint {
            made_with: self.made_with.clone(),
            present: self.source.restore_fit(present)?,
            best: best.map(|best| self.source.restore_fit(best)).transpose()?,
            feature_names: self.source.names().map(<[String]>::to_vec),
        })
    }
}
