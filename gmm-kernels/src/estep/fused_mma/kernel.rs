//! The code of the `fused_mma` kernels.
mod block;
mod diagonal;
mod expanded;
mod features;
mod full;
mod likelihoods;
mod member;
mod rounds;
mod sums;

use super::*;
use crate::data::QUAD;
use crate::simt::*;
use block::*;
pub use diagonal::*;
pub use expanded::*;
use features::*;
pub use full::*;
use likelihoods::*;
use member::*;
use rounds::*;
use sums::*;

/// Numbers of a lane for its four of a group's samples: the first two of its quad, then the others.
type Quad = [[f32; 2]; 2];

/// What a lane has of a group's exponents and likelihoods: of the component `lane / 4` of each
/// tile.
type Components<const N: usize> = [Quad; N];
