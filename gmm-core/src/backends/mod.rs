//! Evaluators that need no device, and code shared by all evaluators.
pub mod chunked;
pub mod cpu;
pub mod device_parameters;
pub mod enough_digits;
pub mod labelled;
pub mod lazy;
pub mod missing;
pub mod noisy;
pub mod noisy_reference;
pub mod parts;
pub mod reference;
pub mod sharded;
