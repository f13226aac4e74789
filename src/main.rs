//! Command line of gmm.
fn main() {}
