//! The devices, and samples laid out in them.
pub(crate) mod auto;
pub(crate) mod gpus;
pub(crate) mod load;
pub(crate) mod memory_plan;
pub(crate) mod names;

pub use load::{LoadOptions, devices, kernel_names, load, load_chunks};
pub use memory_plan::{Footprint, MemoryPlan};
pub use names::{Device, DeviceSet};
