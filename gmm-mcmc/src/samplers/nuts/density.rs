use crate::error::{Error, Result};
use crate::target::Target;
use nuts_rs::{CpuLogpFunc, CpuMathError, HasDims, LogpError};
use rand::Rng;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

#[derive(Debug, Clone)]
pub(super) struct Evaluated {
    pub point: Vec<f64>,
    pub log_density: f64,
    pub gradient: Vec<f64>,
}

/// A target in the form that `nuts-rs` takes. After warm-up trajectories run in the coordinates θ/scale.
pub(super) struct Density<'a> {
    pub target: &'a mut dyn Target,
    /// Receives the target's error, because `nuts-rs` passes on only its text.
    pub failure: &'a RefCell<Option<Error>>,
    /// An evaluation that need not be repeated.
    pub known: Option<Evaluated>,
    /// The evaluations of this warm-up; `None` after warm-up.
    pub record: Option<Record<'a>>,
    /// The metric, as a scale of each coordinate; empty during warm-up, when `nuts-rs` has its own.
    pub scale: &'a [f64],
    /// Receives the target's count of evaluations, because the sampler borrows the target itself.
    pub evaluations: &'a Cell<u64>,
}

/// The evaluations of a warm-up. Those from before an interruption are read first; then new ones are appended.
pub(super) struct Record<'a> {
    pub numbers: &'a mut Vec<f64>,
    pub read: usize,
}

/// The reason why `nuts-rs` gets no log density.
#[derive(Debug, thiserror::Error)]
pub(super) enum DensityError {
    #[error("the density is 0 here")]
    Impossible,
    #[error("the evaluation failed")]
    Failed,
}

impl LogpError for DensityError {
    fn is_recoverable(&self) -> bool {
        matches!(self, Self::Impossible)
    }
}

impl HasDims for Density<'_> {
    fn dim_sizes(&self) -> HashMap<String, u64> {
        HashMap::from([("unconstrained_parameter".into(), self.target.dim() as u64)])
    }
}

impl Density<'_> {
    /// Writes the gradient by the coordinates θ/scale to `scaled`.
    fn scaled(&self, gradient: &[f64], scaled: &mut [f64]) {
        scaled.iter_mut().zip(gradient).zip(self.scale).for_each(|((s, g), scale)| *s = g * scale);
    }
}

impl CpuLogpFunc for Density<'_> {
    type LogpError = DensityError;
    type FlowParameters = ();
    type ExpandedVector = Vec<f64>;

    fn dim(&self) -> usize {
        self.target.dim()
    }

    fn logp(&mut self, position: &[f64], gradient: &mut [f64]) -> Result<f64, DensityError> {
        if let Some(known) = self.known.as_ref().filter(|k| k.point == position) {
            gradient.copy_from_slice(&known.gradient);
            return Ok(known.log_density);
        }
        // A value of an earlier attempt at this warm-up, or a new one.
        let value = match &mut self.record {
            Some(record) if record.read < record.numbers.len() => {
                let numbers = &record.numbers[record.read..record.read + 1 + gradient.len()];
                gradient.copy_from_slice(&numbers[1..]);
                Ok(numbers[0])
            }
            _ => self.target.log_density_gradient(position, gradient),
        };
        self.evaluations.set(self.target.evaluations());
        if let (Some(record), Ok(v)) = (&mut self.record, &value) {
            if record.read == record.numbers.len() {
                record.numbers.push(*v);
                record.numbers.extend_from_slice(gradient);
            }
            record.read += 1 + gradient.len();
        }
        match value {
            Ok(v) if v.is_finite() && gradient.iter().all(|g| g.is_finite()) => Ok(v),
            Ok(_) => Err(DensityError::Impossible),
            Err(e) => {
                self.failure.replace(Some(e));
                Err(DensityError::Failed)
            }
        }
    }

    fn expand_vector<R: Rng + ?Sized>(&mut self, _: &mut R, _: &[f64]) -> Result<Vec<f64>, CpuMathError> {
        Ok(Vec::new())
    }

    fn inv_transform_normalize(
        &mut self,
        _: &(),
        position: &[f64],
        gradient: &[f64],
        scaled_position: &mut [f64],
        scaled_gradient: &mut [f64],
    ) -> Result<f64, DensityError> {
        scaled_position.iter_mut().zip(position).zip(self.scale).for_each(|((s, p), scale)| *s = p / scale);
        self.scaled(gradient, scaled_gradient);
        Ok(0.0)
    }

    fn init_from_untransformed_position(
        &mut self,
        _: &(),
        position: &[f64],
        gradient: &mut [f64],
        scaled_position: &mut [f64],
        scaled_gradient: &mut [f64],
        _: Option<f64>,
    ) -> Result<(f64, f64), DensityError> {
        let log_density = self.logp(position, gradient)?;
        self.inv_transform_normalize(&(), position, gradient, scaled_position, scaled_gradient)?;
        Ok((log_density, 0.0))
    }

    fn init_from_transformed_position(
        &mut self,
        _: &(),
        position: &mut [f64],
        gradient: &mut [f64],
        scaled_position: &[f64],
        scaled_gradient: &mut [f64],
        _: Option<f64>,
    ) -> Result<(f64, f64), DensityError> {
        position.iter_mut().zip(scaled_position).zip(self.scale).for_each(|((p, s), scale)| *p = s * scale);
        let log_density = self.logp(position, gradient)?;
        self.scaled(gradient, scaled_gradient);
        Ok((log_density, 0.0))
    }

    fn init_transformation<R: Rng + ?Sized>(
        &mut self,
        _: &mut R,
        _: &[f64],
        _: &[f64],
        _: u64,
    ) -> Result<(), DensityError> {
        Ok(())
    }

    fn new_transformation<R: Rng + ?Sized>(&mut self, _: &mut R, _: usize, _: u64) -> Result<(), DensityError> {
        Ok(())
    }

    fn transformation_id(&self, _: &()) -> Result<i64, DensityError> {
        Ok(0)
    }
}
