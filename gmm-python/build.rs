//! Tells macOS's linker that the interpreter's functions come from the process that loads the
//! module; maturin does so too, cargo alone would not.
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    pyo3_build_config::add_extension_module_link_args();
}
