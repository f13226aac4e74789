//! Chores of the gmm workspace.
fn main() {}
