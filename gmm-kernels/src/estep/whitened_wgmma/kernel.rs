mod exponents;
mod operands;
mod respond;
mod second_moments;

use super::*;
use crate::estep::products_mma::store_sum;
use crate::estep::products_wgmma::Places;
use crate::math::{smaller, sum_over};
use crate::simt::*;
pub use exponents::*;
pub use operands::*;
pub use respond::*;
pub use second_moments::*;
