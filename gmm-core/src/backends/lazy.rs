//! Evaluators made when first needed.
use crate::contract::evaluator::Evaluator;
use crate::error::Result;
use std::sync::Arc;

/// An evaluator that the first call of [`get`](Self::get) makes.
pub struct Lazy<'a, E> {
    made: Option<E>,
    make: Arc<dyn Fn() -> Result<E> + Send + Sync + 'a>,
}

impl<'a, E: Evaluator + 'a> Lazy<'a, E> {
    /// Takes the function that makes the evaluator.
    pub fn new(make: impl Fn() -> Result<E> + Send + Sync + 'a) -> Self {
        Self { made: None, make: Arc::new(make) }
    }

    /// Returns an unmade evaluator of the same samples.
    pub fn anew(&self) -> Self {
        Self { made: None, make: Arc::clone(&self.make) }
    }

    /// Returns an evaluator that shares the samples of this one, if made.
    pub fn share(&self) -> Result<Lazy<'_, Box<dyn Evaluator + '_>>> {
        let (made, make) = (self.made.as_ref().map(E::share).transpose()?, Arc::clone(&self.make));
        Ok(Lazy { made, make: Arc::new(move || Ok(Box::new(make()?))) })
    }

    /// Returns the evaluator, if made.
    pub fn made(&self) -> Option<&E> {
        self.made.as_ref()
    }

    /// Returns the evaluator, and makes it if needed.
    pub fn get(&mut self) -> Result<&mut E> {
        let made = match self.made.take() {
            Some(made) => made,
            None => (self.make)()?,
        };
        Ok(self.made.insert(made))
    }
}
