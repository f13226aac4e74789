//! The interface between backends and their users.
pub mod draw;
pub mod evaluator;
pub mod labels;
pub mod markov;
pub mod metropolis;
pub mod sampling;
