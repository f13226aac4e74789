//! Tests of the library without a GPU, by module: `cargo test -p gmm-host --test library fit::`.
#![allow(missing_docs)]
#[path = "../common/mod.rs"]
mod common;

mod arrays;
mod between;
mod conditional;
mod estep;
mod fit;
mod gradient;
mod labels;
mod likelihood;
#[cfg(feature = "linfa")]
mod linfa;
mod many;
mod missing;
mod models;
mod noise;
mod noise_component;
mod one_dimension;
mod posterior;
mod prior;
mod regression;
mod score_function;
#[cfg(feature = "serde")]
mod serde;
mod sharded;
mod standard;
mod starts;
mod statistics;
mod variational;
