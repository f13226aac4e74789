//! The kernels as PTX, embedded.

/// The PTX that holds an entry, `None` if there is no such kernel. A file for each, so that the driver compiles only
/// what is launched.
#[cfg(not(feature = "rust-cuda"))]
pub(crate) fn ptx_for(entry: &str) -> Option<&'static str> {
    /// (entry, PTX), sorted by entry; written by `cargo xtask ptx`.
    const INDEX: &[(&str, &str)] = include!("../../../../../gmm-kernels/ptx/index.rs");
    INDEX.binary_search_by_key(&entry, |(name, _)| name).ok().map(|found| INDEX[found].1)
}

/// The PTX that holds an entry, `None` if there is no such kernel. rust-cuda makes one module of all kernels.
#[cfg(feature = "rust-cuda")]
pub(crate) fn ptx_for(entry: &str) -> Option<&'static str> {
    const MODULE: &str = include_str!(concat!(env!("OUT_DIR"), "/gmm_kernels.ptx"));
    MODULE.contains(&format!(".entry {entry}(")).then_some(MODULE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_found_by_its_name() {
        assert!(ptx_for("pair").is_some_and(|ptx| ptx.contains(".visible .entry pair(")));
        assert!(ptx_for("pai").is_none() && ptx_for("").is_none());
    }
}
