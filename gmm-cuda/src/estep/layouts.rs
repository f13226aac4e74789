//! A mixture in the layouts that E-step kernels read.
use super::fused_layout::FusedLayout;
use super::tensor_cores_layout::TensorCoresLayout;
use super::weighted_sums_layout::WeightedSumsLayout;
use crate::device::mismatch;
use crate::device::samples::DeviceSamples;
use crate::plan::task::{Multiplies, Task};
use gmm_core::backends::device_parameters::DeviceParameters;
use gmm_core::data::frame::Frame;
use gmm_core::error::Result;
use gmm_core::model::mixture::Mixture;
use std::cell::{Cell, OnceCell};
use std::sync::Arc;

/// The memory of an earlier mixture's parameters and products' coefficients, because fresh memory is slow to get.
pub type Spare = (Option<DeviceParameters<f32>>, Vec<f32>);

/// A mixture in the frame of the samples, and its layouts, each made when a family first reads it.
pub struct Layouts<'a> {
    pub mixture: &'a Mixture,
    frame: Frame,
    parameters: Arc<DeviceParameters<f32>>,
    /// For the coefficients of products.
    memory: Cell<Vec<f32>>,
    fused: OnceCell<FusedLayout<f32>>,
    features: OnceCell<TensorCoresLayout>,
    products: OnceCell<TensorCoresLayout>,
    weighted_sums: OnceCell<WeightedSumsLayout>,
}

impl<'a> Layouts<'a> {
    pub fn new(data: &DeviceSamples<f32>, mixture: &'a Mixture, (parameters, memory): Spare) -> Result<Self> {
        let parameters = Arc::new(data.parameters_in(parameters, mixture)?);
        Ok(Self::of(mixture, data.frame(), parameters, memory, OnceCell::new()))
    }

    /// Returns the layouts of a `tied` mixture for [linear](Task::is_linear) tasks, whose families read this one.
    pub fn linear(mixture: &'a Mixture, frame: &Frame, layout: TensorCoresLayout) -> Self {
        Self::of(mixture, frame, layout.parameters().clone(), Vec::new(), layout.into())
    }

    fn of(
        mixture: &'a Mixture,
        frame: &Frame,
        parameters: Arc<DeviceParameters<f32>>,
        memory: Vec<f32>,
        products: OnceCell<TensorCoresLayout>,
    ) -> Self {
        Self {
            mixture,
            frame: frame.clone(),
            parameters,
            memory: memory.into(),
            fused: OnceCell::new(),
            features: OnceCell::new(),
            products,
            weighted_sums: OnceCell::new(),
        }
    }

    /// Checks that the kernels of a task can read this mixture.
    pub fn check(&self, task: &Task) -> Result<()> {
        let got = (self.parameters.n_components, self.parameters.n_features, self.parameters.has_triangles());
        if got != (task.k, task.d, task.full()) {
            return Err(mismatch("a mixture for an E-step", vec![task.k, task.d], vec![got.0, got.1]));
        }
        Ok(())
    }

    pub fn fused(&self) -> &FusedLayout<f32> {
        let of = || FusedLayout::<f32>::new(self.mixture.covariance_type(), self.parameters.clone());
        self.fused.get_or_init(of)
    }

    /// Returns the layout for the tensor cores, by the factors that they multiply.
    pub fn tensor_cores(&self, multiplies: Multiplies) -> &TensorCoresLayout {
        match multiplies {
            Multiplies::Features => self
                .features
                .get_or_init(|| TensorCoresLayout::of_features(self.mixture, self.parameters.clone(), &self.frame)),
            Multiplies::Products => self.products.get_or_init(|| {
                TensorCoresLayout::of_products(self.memory.take(), self.mixture, self.parameters.clone(), &self.frame)
            }),
        }
    }

    pub fn weighted_sums(&self) -> &WeightedSumsLayout {
        self.weighted_sums.get_or_init(|| WeightedSumsLayout::new(self.mixture, self.parameters.clone(), &self.frame))
    }

    pub fn into_memory(self) -> Spare {
        let Self { parameters, memory, products, .. } = self;
        let coefficients = products.into_inner().map_or_else(|| memory.into_inner(), TensorCoresLayout::into_memory);
        (Arc::into_inner(parameters), coefficients)
    }
}
