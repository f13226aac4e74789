use gaussmix::evaluator::Evaluator;

pub type Loaded = (Box<dyn Evaluator>, (usize, usize));
