//! The functions that gmm-host defines under the names of the CUDA driver's are seen by gmm-host
//! alone. A process can hold another library that uses CUDA, and that one must reach the driver
//! itself. build.rs has these tests linked with `-rdynamic`, so that whatever is not hidden is
//! exported, as in a program that exports everything.
use std::path::Path;
use std::process::Command;

use libloading::os::unix::{Library, RTLD_NOW};

/// Stands in for NVIDIA's driver; no other library gives its answers.
const DRIVER: &str = r#"
    #[unsafe(no_mangle)] pub extern "C" fn cuInit(flags: u32) -> i32 { 4242 + flags as i32 }
    #[unsafe(no_mangle)] pub extern "C" fn cuDriverGetVersion(version: &mut i32) -> i32 { *version = 4711; 0 }
"#;

/// Stands in for another library that uses CUDA, linked to the driver in the usual way.
const SECOND_USER: &str = r#"
    unsafe extern "C" { fn cuInit(flags: u32) -> i32; fn cuDriverGetVersion(version: &mut i32) -> i32; }
    #[unsafe(no_mangle)] pub extern "C" fn second_init() -> i32 { unsafe { cuInit(1) } }
    #[unsafe(no_mangle)] pub extern "C" fn second_version() -> i32 {
        let mut version = 0;
        unsafe { cuDriverGetVersion(&mut version) };
        version
    }
"#;

fn compile(source: &str, folder: &Path, name: &str, arguments: &[&str]) {
    let file = folder.join(format!("{name}.rs"));
    std::fs::write(&file, source).unwrap();
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition=2024", "--crate-type=cdylib", "--out-dir"]).arg(folder).arg("-L").arg(folder);
    assert!(rustc.args(arguments).arg(&file).status().unwrap().success());
}

type Answer = unsafe extern "C" fn() -> i32;

#[test]
fn another_cuda_user_reaches_the_driver() {
    // gmm-host calls the driver first, as in a program that starts with it.
    let before = gmm_host::cuda_devices();

    let folder = tempfile::tempdir().unwrap();
    compile(DRIVER, folder.path(), "standin", &["-Clink-arg=-Wl,-soname,libstandin.so"]);
    compile(SECOND_USER, folder.path(), "second", &["-ldylib=standin", "-Clink-arg=-Wl,-rpath,$ORIGIN"]);
    // SAFETY: the libraries' only initialisers are those that Rust generates.
    let second = unsafe { Library::open(Some(folder.path().join("libsecond.so")), RTLD_NOW) }.unwrap();
    // SAFETY: both functions have this signature.
    let (init, version) = unsafe {
        let get = |name: &str| second.get::<Answer>(name.as_bytes()).unwrap();
        (get("second_init")(), get("second_version")())
    };
    assert_eq!((init, version), (4243, 4711), "its calls must reach the driver");

    // gmm-host's calls do not go to the library that was loaded in the meantime.
    assert_eq!(format!("{before:?}"), format!("{:?}", gmm_host::cuda_devices()));
}

#[test]
fn no_function_of_the_driver_is_exported() {
    // The functions are part of this executable, because this call needs them.
    let _ = gmm_host::cuda_devices();
    let this = Library::this();
    // The executable does export: otherwise this test could not fail.
    // SAFETY: nothing is called.
    assert!(unsafe { this.get::<Answer>(b"exported_by_this_test") }.is_ok());
    for name in ["cuInit", "cuGetErrorString", "cuDeviceGetCount", "cuLaunchKernel", "cuMemAlloc_v2", "cuStreamQuery"] {
        // SAFETY: nothing is called.
        assert!(unsafe { this.get::<Answer>(name.as_bytes()) }.is_err(), "{name} is exported");
    }
}

#[unsafe(no_mangle)]
extern "C" fn exported_by_this_test() -> i32 {
    0
}
