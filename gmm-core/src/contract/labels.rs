//! Knowledge about the components of samples before a fit.
use crate::error::{Error, Result};
use ndarray::ArrayView2;
use std::collections::HashMap;
use std::sync::Arc;

/// The components that may have generated each sample: one (a label), some, or any.
///
/// ```
/// use gmm_host::Labels;
///
/// let labels = Labels::new(&[Some(1), None, Some(0)], 3)?;
/// assert_eq!((labels.n_samples(), labels.n_components()), (3, 3));
/// assert_eq!(labels.allowed(0), [1]);
/// assert_eq!(labels.allowed(1), [0, 1, 2]);
/// # Ok::<(), gmm_host::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Labels(Arc<Inner>);

#[derive(Debug, PartialEq, Eq)]
struct Inner {
    n_components: usize,
    /// The distinct sets of components, each ascending.
    sets: Vec<Vec<usize>>,
    rows: Vec<Vec<usize>>,
    /// The number of each sample's set, and the sample's place in that set's rows.
    places: Vec<(usize, usize)>,
}

impl Labels {
    /// Takes the component of each sample, counted from 0, if known.
    ///
    /// # Errors
    /// [`Error::BadParameter`] for a label not below K.
    pub fn new(labels: &[Option<usize>], n_components: usize) -> Result<Self> {
        let known = |(row, label): (usize, &Option<usize>)| match label {
            Some(label) if *label >= n_components => {
                Err(bad(format!("{label} in row {row}"), "a label is the number of a component, from 0 to K − 1"))
            }
            Some(label) => Ok(vec![*label]),
            None => Ok((0..n_components).collect()),
        };
        Self::from_sets(labels.iter().enumerate().map(known), n_components)
    }

    /// Takes the components that each sample may belong to, as a mask (N, K).
    ///
    /// # Errors
    /// [`Error::BadParameter`] for a sample without an allowed component.
    pub fn from_mask(mask: ArrayView2<'_, bool>) -> Result<Self> {
        let allowed = |(row, mask): (usize, ndarray::ArrayView1<'_, bool>)| {
            let set: Vec<usize> = mask.iter().enumerate().filter(|(_, allowed)| **allowed).map(|(c, _)| c).collect();
            match set.is_empty() {
                true => Err(bad(format!("no component in row {row}"), "allow each sample at least one component")),
                false => Ok(set),
            }
        };
        Self::from_sets(mask.outer_iter().enumerate().map(allowed), mask.ncols())
    }

    fn from_sets(of_samples: impl Iterator<Item = Result<Vec<usize>>>, n_components: usize) -> Result<Self> {
        let mut numbers: HashMap<Vec<usize>, usize> = HashMap::new();
        let (mut rows, mut places): (Vec<Vec<usize>>, _) = (Vec::new(), Vec::new());
        for (row, set) in of_samples.enumerate() {
            let number = *numbers.entry(set?).or_insert(rows.len());
            if number == rows.len() {
                rows.push(Vec::new());
            }
            places.push((number, rows[number].len()));
            rows[number].push(row);
        }
        let mut sets = vec![Vec::new(); rows.len()];
        numbers.into_iter().for_each(|(set, number)| sets[number] = set);
        Ok(Self(Arc::new(Inner { n_components, sets, rows, places })))
    }

    /// Returns N.
    pub fn n_samples(&self) -> usize {
        self.0.places.len()
    }

    /// Returns K.
    pub fn n_components(&self) -> usize {
        self.0.n_components
    }

    /// Returns the components that this sample may belong to, ascending.
    pub fn allowed(&self, row: usize) -> &[usize] {
        &self.0.sets[self.0.places[row].0]
    }

    /// Returns the sets of components, in the order of their first samples.
    pub fn sets(&self) -> &[Vec<usize>] {
        &self.0.sets
    }

    /// Returns the rows of the samples of a set, ascending.
    pub fn rows_of(&self, set: usize) -> &[usize] {
        &self.0.rows[set]
    }

    /// Returns the number of a sample's set, and its place among the set's samples.
    pub fn place(&self, row: usize) -> (usize, usize) {
        self.0.places[row]
    }
}

fn bad(value: String, remedy: &'static str) -> Error {
    Error::BadParameter { name: "labels", value, remedy }
}
