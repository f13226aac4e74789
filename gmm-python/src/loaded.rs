use gaussmix::evaluator::Evaluator;

/// An evaluator, and the shape of its samples.
pub type Loaded = (Box<dyn Evaluator>, (usize, usize));
