//! Tests of the program `gmm`: each runs it as a user does, and inspects its output and files.
//!
//! They are one test program, which links the library once. Tests that need a GPU are in `tests/cuda.rs`.
mod bad_input;
mod between;
mod cli;
mod common;
mod files;
mod fit;
mod forms;
mod groups;
mod hmm;
mod labels;
mod limits;
mod mcmc;
mod missing;
mod moves;
mod parts;
mod signals;
mod starts;
mod tables;
mod variational;
mod workflow;
