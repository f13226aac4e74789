//! Assembles the PTX with NVIDIA's assembler, and reports kernels that it refuses or that use local memory.
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::{env, thread};

use anyhow::{Context, Result, bail};
use gmm_ptx::{Entry, WARPGROUP_TARGET};
use regex::Regex;
use tempfile::NamedTempFile;

/// The GPUs for which the PTX is assembled: the oldest supported one, and the one whose speed is measured.
const ARCHITECTURES: &[&str] = &["sm_80", "sm_90"];

/// The GPUs for which an entry is assembled.
fn architectures(entry: &Entry) -> &'static [&'static str] {
    if entry.text.contains(&format!(".target {WARPGROUP_TARGET}\n")) { &[WARPGROUP_TARGET] } else { ARCHITECTURES }
}

/// Kernels that may use local memory: the readable baseline, which need not be fast.
const MAY_USE_LOCAL_MEMORY: &[&str] = &["pair"];

/// Bytes of stack that these kernels may have: they fill all registers with sums, and ptxas stores two or three numbers
/// of the launch's start on the stack, outside of the working loops. `products_large` keeps four numbers there on
/// sm_80, none on sm_90. The largest `fused_mma` keep up to sixteen beside 128 sums, kernels for teams up to 40, the
/// one for missing values ten beside 96 sums. `noisy_sums_d64` keeps a thread's nine numbers beside 72 entries of a
/// triangle, on sm_80 only, and `chain_posteriors_k32_f32` one number beside its 64.
const LOOKED_AT: &[(&str, u32)] = &[
    ("tiled16", 16),
    ("products_large", 16),
    ("fused_mma_d16_k64", 64),
    ("fused_mma_d32_k64", 56),
    ("fused_mma_team_d32_k32", 8),
    ("fused_mma_team_d32_k64", 160),
    ("fused_mma_expanded_p112_k32", 8),
    ("fused_mma_observed_team_d32_k32", 40),
    ("noisy_sums_d64", 72),
    ("chain_posteriors_k32_f32", 8),
];

/// The report of ptxas about one entry on one architecture.
pub struct Report {
    entry: String,
    architecture: &'static str,
    /// The properties of the kernel, or the reason for its refusal.
    outcome: Result<Properties, String>,
}

#[derive(Debug, PartialEq)]
struct Properties {
    registers: u32,
    /// Bytes of stack frame, spill stores and spill loads, of the kernel and of the functions that it calls.
    stack: u32,
    spill_stores: u32,
    spill_loads: u32,
    /// Instructions that every device refuses: see [`malformed`].
    malformed: u32,
}

impl Report {
    /// The reasons why this entry must not be used.
    pub fn problems(&self) -> Vec<String> {
        let place = format!("{} on {}", self.entry, self.architecture);
        match &self.outcome {
            Err(message) => vec![format!("{place}: ptxas refuses it: {message}")],
            Ok(p) if p.malformed > 0 => vec![format!(
                "{place}: ptxas makes {} illegal instructions of its copies into shared memory; the address must be in a \
                 register of each thread (`Shared::in_thread_register`)",
                p.malformed
            )],
            Ok(p)
                if MAY_USE_LOCAL_MEMORY.contains(&self.entry.as_str())
                    || p.stack + p.spill_stores + p.spill_loads == 0
                    || LOOKED_AT.iter().any(|(entry, most)| *entry == self.entry && p.stack <= *most) =>
            {
                vec![]
            }
            Ok(p) => vec![format!(
                "{place}: {} bytes of stack, {} of spill stores, {} of spill loads in a fast kernel",
                p.stack, p.spill_stores, p.spill_loads
            )],
        }
    }
}

/// Assembles each entry for each architecture.
pub fn assemble_all(root: &Path, entries: &[Entry]) -> Result<Vec<Report>> {
    let (ptxas, nvdisasm) = (find("ptxas", "GMM_PTXAS", root)?, find("nvdisasm", "GMM_NVDISASM", root)?);
    let of_entry = |entry| architectures(entry).iter().map(move |architecture| (entry, *architecture));
    let jobs = entries.iter().flat_map(of_entry);
    let jobs = Mutex::new(jobs.enumerate().collect::<VecDeque<_>>());
    let done = Mutex::new(Vec::new());
    let work = || -> Result<()> {
        while let Some((number, (entry, architecture))) = jobs.lock().ok().and_then(|mut jobs| jobs.pop_front()) {
            let outcome = assemble(&ptxas, &nvdisasm, entry, architecture)?;
            let report = Report { entry: entry.name.clone(), architecture, outcome };
            done.lock().map_err(|_| anyhow::anyhow!("another job panicked"))?.push((number, report));
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..thread::available_parallelism()?.get()).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|_| bail!("a job panicked")))
    })?;
    let mut done = done.into_inner().map_err(|_| anyhow::anyhow!("a job panicked"))?;
    done.sort_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, report)| report).collect())
}

/// Finds the tool that the environment variable names, or the one on the path, or the one that CI installs below
/// `target/`.
pub fn find(tool: &str, variable: &str, root: &Path) -> Result<PathBuf> {
    if let Some(path) = env::var_os(variable) {
        return Ok(path.into());
    }
    let name = format!("{tool}{}", env::consts::EXE_SUFFIX);
    let on_path = env::var_os("PATH").into_iter().flat_map(|path| env::split_paths(&path).collect::<Vec<_>>());
    let libraries = root.join("target/cuda-venv/lib");
    let pythons = libraries.read_dir().into_iter().flatten().filter_map(|python| Some(python.ok()?.path()));
    let installed = pythons.map(|python| python.join("site-packages/nvidia/cu13/bin"));
    on_path.chain(installed).map(|folder| folder.join(&name)).find(|file| file.is_file()).with_context(|| {
        format!(
            "{tool} was not found: name it in {variable}, or put it on the PATH, or install it with\n  \
             python3 -m venv target/cuda-venv\n  \
             target/cuda-venv/bin/pip install --no-deps nvidia-cuda-nvcc==13.0.88 nvidia-cuda-nvdisasm==13.5.37\n  \
             chmod +x target/cuda-venv/lib/python3*/site-packages/nvidia/cu13/bin/*"
        )
    })
}

/// Assembles a text. Returns a file with the machine code and the answer of `ptxas`, or only the answer if it refuses.
pub fn run_ptxas(ptxas: &Path, options: &[&str], text: &str) -> Result<Result<(NamedTempFile, String), String>> {
    let cannot = || format!("cannot run {}", ptxas.display());
    let code = NamedTempFile::new()?;
    let mut child = Command::new(ptxas)
        .args(options)
        .args(["-", "--output-file"])
        .arg(code.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(cannot)?;
    // It reads all of its input before it answers, so the pipes cannot block each other; if it ends early, its answer
    // says why.
    let _ = child.stdin.take().with_context(cannot)?.write_all(text.as_bytes());
    let output = child.wait_with_output().with_context(cannot)?;
    let answer = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(if output.status.success() { Ok((code, answer)) } else { Err(answer) })
}

fn assemble(ptxas: &Path, nvdisasm: &Path, entry: &Entry, architecture: &str) -> Result<Result<Properties, String>> {
    let (code, answer) = match run_ptxas(ptxas, &["--verbose", "--gpu-name", architecture], &entry.text)? {
        Ok(assembled) => assembled,
        Err(answer) => return Ok(Err(answer.trim().replace('\n', "; "))),
    };
    let disassembly = Command::new(nvdisasm).arg("--print-code").arg(code.path()).output();
    let disassembly = disassembly.with_context(|| format!("cannot run {}", nvdisasm.display()))?;
    if !disassembly.status.success() {
        bail!("nvdisasm: {}", String::from_utf8_lossy(&disassembly.stderr).trim());
    }
    let malformed = malformed(&String::from_utf8_lossy(&disassembly.stdout))?;
    Ok(Ok(Properties { malformed, ..properties(&answer)? }))
}

/// Counts the instructions whose descriptor, a pair of uniform registers, begins at an odd one. ptxas 13.0 writes them
/// for a copy with a cache policy to an address with a uniform part, and the device reports an illegal instruction.
fn malformed(disassembly: &str) -> Result<u32> {
    Ok(Regex::new(r"desc\[UR\d*[13579]\]")?.find_iter(disassembly).count() as u32)
}

/// Reads the answer of `ptxas --verbose` for a module of one entry.
fn properties(answer: &str) -> Result<Properties> {
    let numbers = |pattern: &str| -> Result<Vec<u32>> {
        let mut all = Vec::new();
        for found in Regex::new(pattern)?.captures_iter(answer) {
            all.push(found[1].parse()?);
        }
        if all.is_empty() {
            bail!("cannot read the answer of ptxas:\n{answer}");
        }
        Ok(all)
    };
    Ok(Properties {
        registers: numbers(r"Used (\d+) registers")?.into_iter().max().unwrap_or_default(),
        stack: numbers(r"(\d+) bytes stack frame")?.iter().sum(),
        spill_stores: numbers(r"(\d+) bytes spill stores")?.iter().sum(),
        spill_loads: numbers(r"(\d+) bytes spill loads")?.iter().sum(),
        malformed: 0,
    })
}

/// A row for each entry, with its registers, and any stack and spills.
pub fn table(reports: &[Report]) -> String {
    let width = reports.iter().map(|report| report.entry.len()).max().unwrap_or(0).max("registers".len());
    let mut text = format!("{:width$}", "registers");
    for architecture in ARCHITECTURES {
        // Writing to a string does not fail.
        let _ = write!(text, "  {architecture:>6}");
    }
    for row in reports.chunk_by(|a, b| a.entry == b.entry) {
        let _ = write!(text, "\n{:width$}", row[0].entry);
        for architecture in ARCHITECTURES {
            // Warpgroup kernels are in the column of their base architecture.
            let report = row.iter().find(|report| report.architecture.trim_end_matches('a') == *architecture);
            let _ = match report.map(|report| &report.outcome) {
                Some(Ok(properties)) => write!(text, "  {:>6}", properties.registers),
                Some(Err(_)) | None => write!(text, "  {:>6}", "-"),
            };
        }
        if row.iter().any(|report| report.outcome.as_ref().is_ok_and(|p| p.stack + p.spill_stores + p.spill_loads > 0))
        {
            text.push_str("  local memory");
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'small_k' for 'sm_90'
ptxas info    : Function properties for small_k
    48 bytes stack frame, 16 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 166 registers, used 1 barriers, 1240 bytes cmem[0]
";

    /// As nvdisasm 13.0 printed them; the device refused the first with error 715.
    #[test]
    fn descriptors_at_odd_registers_are_malformed() {
        let refused = "/*03d0*/ LDGSTS.E.BYPASS.128 [R13+UR0+0x280], desc[UR1][R4.64] ;";
        let taken = "/*0c40*/ LDGSTS.E.BYPASS.128 [R17+0x280], desc[UR12][R8.64] ;";
        assert_eq!(malformed(&format!("{refused}\n{taken}\n{refused}")).unwrap(), 2);
        assert_eq!(malformed(taken).unwrap(), 0);
    }

    fn report(entry: &str, outcome: Result<Properties, String>) -> Report {
        Report { entry: entry.into(), architecture: "sm_90", outcome }
    }

    #[test]
    fn local_memory_is_a_problem_of_fast_kernels_only() {
        let found = || properties(ANSWER).unwrap();
        assert_eq!(found(), Properties { registers: 166, stack: 48, spill_stores: 16, spill_loads: 20, malformed: 0 });
        assert_eq!(report("small_k", Ok(found())).problems().len(), 1);
        assert!(report("pair", Ok(found())).problems().is_empty());
        let clean = |malformed| Properties { registers: 9, stack: 0, spill_stores: 0, spill_loads: 0, malformed };
        assert!(report("small_k", Ok(clean(0))).problems().is_empty());
        assert_eq!(report("pair", Ok(clean(1))).problems().len(), 1);
        assert_eq!(report("pair", Err("no".into())).problems().len(), 1);
        assert!(properties("something else").is_err());
    }
}
