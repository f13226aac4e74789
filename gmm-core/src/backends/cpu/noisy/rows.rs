//! The numbers of one sample.
use crate::data::patterns::gather;
use crate::data::samples::Samples;
use crate::data::true_values::observed;
use crate::model::linalg::triangle;

/// A sample: its values, and the columns that they are in.
#[derive(Default)]
pub(super) struct Row {
    pub columns: Vec<usize>,
    pub x: Vec<f64>,
    /// The lower triangle of its noise.
    pub noise: Vec<f64>,
    /// The rows (C, D) of its projection; empty without one.
    pub projection: Vec<f64>,
}

impl Row {
    /// Reads a sample, without its noise if the mixture is of measurements.
    pub fn read(&mut self, samples: &Samples<'_>, row: usize, has_noise: bool) {
        if samples.missing().is_some() || self.columns.is_empty() {
            self.columns = observed(samples, row);
        }
        let c = self.columns.len();
        self.x.resize(c, 0.0);
        gather(samples, row, &self.columns, &mut self.x);
        self.noise.resize(triangle(c), 0.0);
        let Some(noise) = samples.noise() else { return };
        if has_noise {
            noise.write(row, &self.columns, &mut self.noise);
        }
        if let Some(projection) = noise.projection(row) {
            self.projection.clear();
            self.columns.iter().for_each(|&j| self.projection.extend(projection.row(j)));
        }
    }
}
