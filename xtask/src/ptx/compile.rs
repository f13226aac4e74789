//! Compiles the kernels with rustc's NVPTX target.
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};

const TARGET: &str = "nvptx64-nvidia-cuda";

/// The profile of the device code in the workspace's manifest: `panic = "abort"`, `lto = "fat"`, one codegen unit.
const PROFILE: &str = "ptx";

/// Options for rustc besides those of the profile.
const RUSTC_FLAGS: &[&str] = &[
    // PTX is text; it is the assembly of this target.
    "--emit=asm",
    // The oldest supported GPU (Ampere), and the oldest PTX with cache policies (driver 470 and later).
    "-Ctarget-cpu=sm_80",
    "-Ctarget-feature=+ptx74",
    // PTX needs no linker, but rustc requires one: the program `true` does nothing.
    "-Clinker-flavor=llbc",
    "-Clinker=true",
    // Needed for correctness: jump threading is unaware that barriers are convergent, and would duplicate them.
    "-Zmir-enable-passes=-JumpThreading",
    // The place of a panic is never read, and would change the text with each line added before it.
    "-Zlocation-detail=none",
    // Loops over arrays in registers must unroll fully, or the arrays land in (slow) local memory.
    "-Cllvm-args=-unroll-threshold=100000",
];

/// Environment variables that would change the compiled code; they are removed.
const FOREIGN_FLAGS: &[&str] =
    &["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS", "CARGO_TARGET_NVPTX64_NVIDIA_CUDA_RUSTFLAGS"];

/// The treatment of the compiler's warnings.
#[derive(PartialEq)]
pub enum Warnings {
    Show,
    Deny,
}

/// Returns the PTX of all kernels as rustc writes it.
pub fn compile(root: &Path, warnings: Warnings) -> Result<String> {
    let sysroot = check_toolchain(root)?;
    let target_folder = root.join("target/ptx");
    let output = target_folder.join(TARGET).join(PROFILE).join("deps");
    // Cargo does not track the assembly as an output. So the kernels are always compiled again (`core` is not), and
    // earlier output is removed.
    run(cargo(root)
        .args(["clean", "--quiet", "--package=gmm-kernels", "--target", TARGET, "--profile", PROFILE])
        .arg("--target-dir")
        .arg(&target_folder))?;
    for old in assembly_files(&output)? {
        fs::remove_file(&old).with_context(|| format!("cannot remove {}", old.display()))?;
    }
    let mut build = cargo(root);
    // The flags of this target apply to `core` too; paths must not get into the code.
    let flags = format!(
        "target.{TARGET}.rustflags=[\"--remap-path-prefix={}=\", \"--remap-path-prefix={}=rust\"]",
        root.display(),
        sysroot.display()
    );
    build
        .args(["rustc", "--quiet", "--package=gmm-kernels", "--lib", "--crate-type=cdylib", "--profile", PROFILE])
        .args(["--target", TARGET, "-Zbuild-std=core", "--config", &flags, "--target-dir"])
        .arg(&target_folder)
        .arg("--")
        .args(RUSTC_FLAGS)
        .args((warnings == Warnings::Deny).then_some("-Dwarnings"))
        // -Zbuild-std, the kernels' ABI and `asm!` for PTX are unstable; the pinned stable compiler has them all.
        .env("RUSTC_BOOTSTRAP", "1");
    for name in FOREIGN_FLAGS {
        build.env_remove(name);
    }
    run(&mut build)?;
    let files = assembly_files(&output)?;
    match files.as_slice() {
        [file] => fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display())),
        _ => bail!("expected one .s file in {}, found {}", output.display(), files.len()),
    }
}

/// Fails unless the compiler, on which the output depends, is the workspace's, with its standard library's source.
/// Returns its folder.
fn check_toolchain(root: &Path) -> Result<PathBuf> {
    let wanted = fs::read_to_string(root.join("rust-toolchain.toml")).context("cannot read rust-toolchain.toml")?;
    let wanted = wanted
        .lines()
        .find_map(|line| line.strip_prefix("channel = "))
        .context("rust-toolchain.toml names no channel")?
        .trim_matches('"');
    let ask = |argument: &[&str]| -> Result<String> {
        let output = Command::new("rustc").current_dir(root).args(argument).output().context("cannot start rustc")?;
        ensure!(output.status.success(), "rustc {} failed", argument.join(" "));
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    let version = ask(&["--version"])?;
    ensure!(
        version.split_whitespace().nth(1) == Some(wanted),
        "the committed PTX needs rustc {wanted}, but this is {version}"
    );
    let sysroot = PathBuf::from(ask(&["--print", "sysroot"])?);
    ensure!(
        sysroot.join("lib/rustlib/src/rust/library/core/src/lib.rs").is_file(),
        "the standard library's source is missing: run `rustup component add rust-src --toolchain {wanted}`"
    );
    Ok(sysroot)
}

fn assembly_files(folder: &Path) -> Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "s") {
            files.push(path);
        }
    }
    Ok(files)
}

/// Cargo, in the workspace's root.
pub fn cargo(root: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// Runs a command to its end; its failure is an error.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {:?}", command.get_program()))?;
    ensure!(status.success(), "{command:?} failed ({status})");
    Ok(())
}
