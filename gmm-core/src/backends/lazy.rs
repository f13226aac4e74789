//! Evaluators that are made when they are first needed.
use crate::contract::evaluator::Evaluator;
use crate::error::Result;
use std::sync::Arc;

/// An evaluator that [`get`](Self::get) makes when it is first called.
pub struct Lazy<'a, E> {
    made: Option<E>,
    make: Arc<dyn Fn() -> Result<E> + Send + Sync + 'a>,
}

impl<'a, E: Evaluator + 'a> Lazy<'a, E> {
    /// An evaluator that `make` makes when it is first asked for.
    pub fn new(make: impl Fn() -> Result<E> + Send + Sync + 'a) -> Self {
        Self { made: None, make: Arc::new(make) }
    }

    /// One of the same samples, which is not made.
    pub fn anew(&self) -> Self {
        Self { made: None, make: Arc::clone(&self.make) }
    }

    /// One that shares the samples of this one where it is made.
    pub fn share(&self) -> Result<Lazy<'_, Box<dyn Evaluator + '_>>> {
        let (made, make) = (self.made.as_ref().map(E::share).transpose()?, Arc::clone(&self.make));
        Ok(Lazy { made, make: Arc::new(move || Ok(Box::new(make()?))) })
    }

    /// The evaluator, if it is made.
    pub fn made(&self) -> Option<&E> {
        self.made.as_ref()
    }

    /// The evaluator.
    pub fn get(&mut self) -> Result<&mut E> {
        let made = match self.made.take() {
            Some(made) => made,
            None => (self.make)()?,
        };
        Ok(self.made.insert(made))
    }
}
