//! The plan of an evaluation: which kernels can make it, in which shapes of launch, and which of
//! these is the fastest.
//!
//! | family | operation | covariances | K, D | sample weights |
//! |---|---|---|---|---|
//! | `small_k` | total | all | K ≤ 8, D ≤ 16 | yes |
//! | `batch` | total, totals of many parameter sets | diagonal | D ≤ 16, K as shared memory allows | no |
//! | `batch_tensor_cores` | totals of many parameter sets | diagonal, sets near to each other | D ≤ 28, K as shared memory allows | no |
//! | `batch_warpgroup` | the same, on compute capability 9.0 | | | |
//! | `tiled8`, `tiled16` | total, scores | all | any | yes |
//! | `pair` | total, scores | diagonal | any | no |
//! | `fused` | E-step | all | K ≤ 32, D ≤ 16 | yes |
//! | `fused_tensor_cores` | E-step | all, where expanded squares keep their digits | K ≤ 64, D ≤ 32; matrices: K ≤ 8, D ≤ 15 | yes |
//! | `tensor_cores` | E-step | all, where expanded squares keep their digits | any, as shared memory allows | yes |
//! | `warpgroup` | E-step | diagonal, where expanded squares keep their digits; compute capability 9.0 | D ≤ 128 | yes |
//! | `whitened` | E-step | matrices, where expanded squares keep their digits | D up to 350 | yes |
//! | `weighted_sums` | E-step | all | any, as shared memory allows | yes |
//! | `general` | all | all | any | yes |
//!
//! Samples with missing values are taken by `small_k`, `tiled8`, `fused_tensor_cores` (K ≤ 32) and
//! `general`, under diagonal covariances.
//!
//! In float64 `fused` makes the E-step of diagonal covariances, and `general` all else. `general`
//! alone gives labels and responsibilities; in float32 it makes the E-steps that the others cannot.
//! Each family says this of itself
//! ([`family::Family`]); [`families`] is the list of them and chooses the candidates, [`timing`]
//! chooses among these by measured time.
pub mod families;
pub mod family;
pub mod task;
pub mod timing;
