//! Data larger than memory: chunks that are loaded one after the other.
use super::parts;
use crate::compensated::neumaier_sum;
use crate::contract::draw::{Draw, Drawn};
use crate::contract::evaluator::{
    DataFacts, Description, Evaluator, cannot_share, check_features, check_responsibilities, data_facts, shift_row,
};
use crate::contract::markov::Markov;
use crate::contract::sampling::Sampling;
use crate::data::samples::{Rows, Samples, check_rows};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::model::mixture::Mixture;
use crate::precision::{Operation, Precision};
use crate::statistics::Statistics;
use ndarray::{Array1, Array2};

/// Makes the evaluator of one chunk, given its index.
pub type Load<'a> = Box<dyn FnMut(usize) -> Result<Box<dyn Evaluator + 'a>> + Send + 'a>;

/// An evaluator of chunks, one of which is in memory at a time. A fit, or any other use of an [`Evaluator`], can thus
/// use more data than fits into memory; each pass reads all data once.
///
/// ```
/// use gmm_host::{ChunkedEvaluator, CpuEvaluator, Evaluator, Samples};
/// use ndarray::Array2;
///
/// // In a real program the chunks come from a file.
/// let x = Array2::<f32>::zeros((8, 2));
/// let samples = Samples::from_f32(x.view())?;
/// let data = ChunkedEvaluator::of_samples(samples, 3, |chunk| Ok(Box::new(CpuEvaluator::new(chunk)?)))?;
/// assert_eq!((data.n_samples(), data.n_chunks()), (8, 3));
/// # Ok::<(), gmm_host::Error>(())
/// ```
pub struct ChunkedEvaluator<'a> {
    n_features: usize,
    /// The first row of each chunk, and N at the end.
    starts: Vec<usize>,
    total_weight: f64,
    /// Of the samples, or of the chunks loaded so far.
    has_noise: bool,
    load: Load<'a>,
    loaded: Option<(usize, Box<dyn Evaluator + 'a>)>,
    settled: bool,
    batch_reference: Option<Mixture>,
    description: Description,
}

impl<'a> ChunkedEvaluator<'a> {
    /// Takes the number of features, the number of samples in each chunk, and a function that loads a chunk. The
    /// function is called in each pass and must return the same samples each time, as many as stated.
    ///
    /// # Errors
    /// [`Error::EmptyData`] without features or chunks, or with an empty chunk.
    pub fn new(
        n_features: usize,
        chunk_sizes: Vec<usize>,
        load: impl FnMut(usize) -> Result<Box<dyn Evaluator + 'a>> + Send + 'a,
    ) -> Result<Self> {
        let mut starts = vec![0];
        let mut n = 0;
        for &size in &chunk_sizes {
            n += size;
            starts.push(n);
        }
        if n_features == 0 || n == 0 || chunk_sizes.contains(&0) {
            return Err(Error::EmptyData { rows: chunk_sizes.iter().copied().min().unwrap_or(0), columns: n_features });
        }
        let description = Description::new("chunks, none loaded yet", "none");
        let (total_weight, load) = (n as f64, Box::new(load));
        Ok(Self {
            n_features,
            starts,
            total_weight,
            has_noise: false,
            load,
            loaded: None,
            settled: false,
            batch_reference: None,
            description,
        })
    }

    /// Divides samples that are not in memory, for example a mapped file, into chunks of `rows` rows (the last may be
    /// smaller). `load` makes the evaluator of a chunk.
    ///
    /// # Errors
    /// [`Error::EmptyData`] for chunks of zero rows.
    pub fn of_samples(
        samples: Samples<'a>,
        rows: usize,
        mut load: impl FnMut(Samples<'a>) -> Result<Box<dyn Evaluator + 'a>> + Send + 'a,
    ) -> Result<Self> {
        let (n, d) = (samples.n_samples(), samples.n_true_values());
        let sizes = (0..n).step_by(rows.max(1)).map(|start| rows.min(n - start)).collect();
        let (total_weight, has_noise) = (samples.total_weight(), samples.noise().is_some());
        let chunks = Self::new(d, sizes, move |i| load(samples.rows(i * rows..n.min((i + 1) * rows))))?;
        Ok(Self { has_noise, ..chunks.with_total_weight(total_weight) })
    }

    /// Sets the total weight of all samples, for chunks whose samples have weights.
    #[must_use]
    pub fn with_total_weight(self, total_weight: f64) -> Self {
        Self { total_weight, ..self }
    }

    /// Returns the number of chunks.
    pub fn n_chunks(&self) -> usize {
        self.starts.len() - 1
    }

    fn chunk(&mut self, index: usize) -> Result<&mut (dyn Evaluator + 'a)> {
        Interrupt::current().check()?;
        // An unwanted chunk is dropped before the next one is loaded, which needs its memory.
        let chunk = match self.loaded.take().filter(|(loaded, _)| *loaded == index) {
            Some((_, chunk)) => chunk,
            None => self.loaded_anew(index)?,
        };
        Ok(self.loaded.insert((index, chunk)).1.as_mut())
    }

    fn loaded_anew(&mut self, index: usize) -> Result<Box<dyn Evaluator + 'a>> {
        let mut chunk = (self.load)(index)?;
        let expected = vec![self.starts[index + 1] - self.starts[index], self.n_features];
        let got = vec![chunk.n_samples(), chunk.n_features()];
        if got != expected {
            return Err(Error::ShapeMismatch { what: "a chunk, as loaded,", expected, got });
        }
        self.has_noise |= chunk.data().has_noise;
        if let Some(sampling) = chunk.sampling() {
            if self.settled {
                sampling.settle();
            }
            if let Some(reference) = &self.batch_reference {
                sampling.fix_batch_reference(reference);
            }
        }
        Ok(chunk)
    }

    fn map<T>(&mut self, mixture: &Mixture, f: impl Fn(&mut (dyn Evaluator + 'a)) -> Result<T>) -> Result<Vec<T>> {
        check_features(mixture, self.n_features)?;
        let mut results = Vec::with_capacity(self.n_chunks());
        for index in 0..self.n_chunks() {
            let start = self.starts[index];
            let chunk = self.chunk(index)?;
            results.push(f(chunk).map_err(|e| shift_row(e, start))?);
        }
        self.describe_chunks();
        Ok(results)
    }

    fn describe_chunks(&mut self) {
        if let Some((_, chunk)) = &self.loaded {
            let of_chunk = chunk.describe();
            let device = format!("{} in {} chunks", of_chunk.device, self.n_chunks());
            self.description = Description { device, ..of_chunk };
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl Evaluator for ChunkedEvaluator<'_> {
    data_facts!();

    /// Without weights, which each chunk holds.
    fn data(&self) -> DataFacts<'_> {
        let n = self.starts.last().copied().unwrap_or(0);
        let Self { total_weight, has_noise, n_features, .. } = *self;
        DataFacts { total_weight, has_noise, ..DataFacts::new(n, n_features) }
    }

    fn share(&self) -> Result<Box<dyn Evaluator + '_>> {
        Err(cannot_share())
    }

    fn describe(&self) -> Description {
        self.description.clone()
    }

    /// The precision of the loaded chunk; chunks may differ.
    fn precision(&self, mixture: &Mixture, operation: Operation) -> Precision {
        self.loaded.as_ref().map_or(Precision::Float64, |(_, chunk)| chunk.precision(mixture, operation))
    }

    fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64> {
        Ok(neumaier_sum(self.map(mixture, |chunk| chunk.log_likelihood(mixture))?))
    }

    fn log_likelihood_batch(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>> {
        let Some(first) = mixtures.first() else { return Ok(Vec::new()) };
        Ok(parts::totals(mixtures.len(), &self.map(first, |chunk| chunk.log_likelihood_batch(mixtures))?))
    }

    fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>> {
        let chunks = self.map(mixture, |chunk| chunk.score_samples(mixture))?;
        Ok(chunks.into_iter().flatten().collect())
    }

    fn statistics(&mut self, mixture: &Mixture) -> Result<Statistics> {
        check_features(mixture, self.n_features)?;
        let (k, d) = mixture.means().dim();
        // Merging each chunk at once keeps at most two statistics in memory.
        let mut total = Statistics::empty(mixture.covariance_type(), k, d);
        for index in 0..self.n_chunks() {
            let start = self.starts[index];
            let chunk = self.chunk(index)?;
            total.merge(&chunk.statistics(mixture).map_err(|e| shift_row(e, start))?)?;
        }
        self.describe_chunks();
        Ok(total)
    }

    fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
        check_rows(rows, self.n_samples())?;
        let starts = self.starts.clone();
        parts::rows(&starts, self.n_features, rows, |part, rows| self.chunk(part)?.rows(rows))
    }

    fn draw(&mut self, draw: &Draw<'_>) -> Result<Vec<Drawn>> {
        let mut drawn = Vec::new();
        for index in 0..self.n_chunks() {
            let start = self.starts[index];
            let of_chunk = self.chunk(index)?.draw(&draw.from_row(start)).map_err(|e| shift_row(e, start))?;
            drawn = draw.least([drawn, of_chunk].concat());
        }
        self.describe_chunks();
        Ok(drawn)
    }

    fn predict(&mut self, mixture: &Mixture) -> Result<Vec<usize>> {
        Ok(self.map(mixture, |chunk| chunk.predict(mixture))?.concat())
    }

    fn predict_proba(&mut self, mixture: &Mixture) -> Result<Array2<f64>> {
        check_responsibilities(self.n_samples(), mixture.n_components())?;
        parts::stacked(&self.map(mixture, |chunk| chunk.predict_proba(mixture))?)
    }
    fn sampling(&mut self) -> Option<&mut dyn Sampling> {
        Some(self)
    }

    fn markov(&mut self) -> Option<&mut dyn Markov> {
        None
    }
}

/// One useful share only: two would read the chunks twice.
impl Sampling for ChunkedEvaluator<'_> {
    /// Later chunks are settled as they are loaded.
    fn settle(&mut self) {
        if let Some(sampling) = self.loaded.as_mut().and_then(|(_, chunk)| chunk.sampling()) {
            sampling.settle();
        }
        self.settled = true;
    }

    fn fix_batch_reference(&mut self, mixture: &Mixture) {
        if let Some(sampling) = self.loaded.as_mut().and_then(|(_, chunk)| chunk.sampling()) {
            sampling.fix_batch_reference(mixture);
        }
        self.batch_reference = Some(mixture.clone());
    }
}
