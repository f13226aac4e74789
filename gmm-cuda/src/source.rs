//! The origin of an evaluator's samples.
use super::arrays::DeviceArray;
use super::device::place::Element;
use super::device::samples::DeviceSamples;
use gmm_core::backends::device_parameters::Deviations;
use gmm_core::data::samples::{Rows, Samples, View};
use gmm_core::error::Result;
use ndarray::ArrayView1;

/// The samples as given: an evaluator copies them to the device, and returns here for some of them.
#[derive(Debug, Clone)]
pub(super) enum Source<'a> {
    /// On the host, for the GPU of this number.
    Host(Samples<'a>, usize),
    Device(DeviceArray),
}

impl Source<'_> {
    /// Returns whether the samples are evaluated in float64, unless a float32 kernel is requested.
    pub fn is_float64(&self) -> bool {
        match self {
            Self::Host(samples, _) => matches!(samples.view(), View::F64(_)),
            Self::Device(array) => array.is_evaluated_in_float64(),
        }
    }

    /// Makes the columns for the kernels; see [`DeviceSamples::new`].
    pub fn load<T: Element>(&self, deviations: Deviations, memory_limit: Option<usize>) -> Result<DeviceSamples<T>> {
        match self {
            Self::Host(samples, ordinal) => DeviceSamples::new(samples, *ordinal, deviations, memory_limit),
            Self::Device(array) => array.load(deviations, memory_limit),
        }
    }

    pub fn weights(&self) -> Option<ArrayView1<'_, f64>> {
        match self {
            Self::Host(samples, _) => samples.weights(),
            Self::Device(array) => array.weights(),
        }
    }

    /// Returns some samples, on the host.
    pub fn select(&self, rows: &[usize]) -> Result<Rows> {
        match self {
            Self::Host(samples, _) => samples.select(rows),
            Self::Device(array) => array.select(rows),
        }
    }
}
