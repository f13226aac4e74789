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
use features::*;
use likelihoods::*;
use member::*;
use rounds::*;
use sums::*;

/// A lane's numbers for its four samples of a group: the first two of its quad, then the last two.
type Quad = [[f32; 2]; 2];

/// A lane's exponents or likelihoods of a group: for component `lane / 4` of each tile.
type Components<const N: usize> = [Quad; N];
