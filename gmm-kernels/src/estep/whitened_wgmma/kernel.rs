mod exponents;
mod operands;
mod respond;
mod second_moments;

use super::*;
use crate::estep::products_mma::kernel::store_sum;
use crate::estep::products_wgmma::kernel::Places;
use crate::math::{smaller, sum_over};
use crate::simt::*;
