//! The kernels as machine code for common GPUs: `gmm-machine-code/cards`, assembled from the committed PTX.
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use gmm_ptx::WARPGROUP_TARGET;
use gmm_ptx::machine_code::{Archive, Cubin, pack};

use super::compare::archive_file;

/// The GPUs that have machine code. Later ones of the same major version run it too: `sm_80` runs on 8.6 and 8.9,
/// `sm_100` on 10.3.
const CARDS: &[&str] = &["sm_80", "sm_90", "sm_100", "sm_120"];
/// The card that runs warpgroup products.
const WARPGROUP_CARD: &str = "sm_90";

/// One kernel for each way to assemble, which the check assembles again and compares byte by byte.
const SAMPLE: &[&str] = &["fused_raw_k08_d04", "small_k_d04", "reduce_sets", "warpgroup_weigh"];

/// The limits of registers that `gmm-cuda` sets for a kernel; `None` is no limit. The driver compiles the PTX for
/// limits that are not here.
fn registers(name: &str) -> Vec<Option<u32>> {
    let starts = |with: &[&str]| with.iter().any(|start| name.starts_with(start));
    let ends = |with: &[&str]| with.iter().any(|end| name.ends_with(end));
    // A multiprocessor's 65,536 registers, for one or two blocks: see each family's shapes.
    if starts(&["metropolis"]) {
        vec![None, Some(128)]
    } else if starts(&["warpgroup_respond"]) {
        vec![Some(64), Some(128)]
    } else if starts(&["small_k_observed", "batch_d", "fused_diag", "fused_raw", "weighted_sums", "fused_mma_full"])
        || starts(&["warpgroup_exponents", "warpgroup_weigh", "warpgroup_outer"])
        || name == "whiten"
    {
        vec![Some(168)]
    } else if starts(&["small_k"]) {
        vec![Some(120)]
    } else if starts(&["batch_mma", "batch_wgmma"]) {
        vec![Some(if ends(&["_s1", "_s2"]) { 120 } else { 160 })]
    } else if starts(&["fit_"]) {
        vec![if starts(&["fit_full_d16"]) { None } else { Some(128) }]
    } else if starts(&["fused_mma_observed"]) {
        vec![Some(if ends(&["_k08"]) { 168 } else { 255 })]
    } else if starts(&["fused_mma_expanded"]) {
        vec![Some(match () {
            () if ends(&["_p016_k32", "_p016_k64", "_k16"]) => 128,
            () if ends(&["_p112_k32"]) => 255,
            () => 168,
        })]
    } else if starts(&["fused_mma"]) {
        vec![Some(if ends(&["_k08", "_k16"]) { 128 } else { 255 })]
    } else if starts(&["warpgroup_whiten"]) {
        vec![Some(if ends(&["_d32", "_d64"]) { 128 } else { 168 })]
    } else if name == "density_wide_f64" {
        vec![Some(168)]
    } else if starts(&["accumulate"]) {
        vec![Some(match name {
            "accumulate_diag_f32" | "accumulate_observed_f32" => 128,
            "accumulate_full_f32" | "accumulate_diag_f64" | "accumulate_wide_f64" => 168,
            _ => 255,
        })]
    } else if starts(&["exponents", "weigh_", "marginals"]) || name == "outer" {
        vec![Some(128)]
    } else {
        vec![None]
    }
}

fn file(root: &Path, card: &str) -> PathBuf {
    root.join("gmm-machine-code/cards").join(card)
}

/// The file that keeps a cubin until it is in an archive, so that an interrupted run can continue.
fn kept(root: &Path, card: &str, cubin: (&str, Option<u32>, u32)) -> PathBuf {
    let (name, registers, ptx) = cubin;
    root.join("target/machine-code").join(card).join(format!("{name}.{}.{ptx:08x}", registers.unwrap_or(0)))
}

/// A kernel for a card's archive.
struct Wanted {
    name: String,
    /// The limit of registers.
    registers: Option<u32>,
    /// The CRC-32 of the PTX.
    checksum: u32,
    text: String,
}

/// Returns the kernels for a card's archive.
fn wanted(ptx: &gmm_ptx::Archive<'_>, card: &str) -> Result<Vec<Wanted>> {
    let mut names: Vec<_> = ptx.names().map(str::to_owned).collect();
    names.sort_unstable();
    let mut all = Vec::new();
    for name in names {
        let text = ptx.text(&name)?.with_context(|| format!("no PTX of {name}"))?;
        let checksum = ptx.checksum(&name).with_context(|| format!("no checksum of {name}"))?;
        if of_warpgroups(&text) && card != WARPGROUP_CARD {
            continue;
        }
        let with_limit = |registers| Wanted { name: name.clone(), registers, checksum, text: text.clone() };
        all.extend(registers(&name).into_iter().map(with_limit));
    }
    Ok(all)
}

fn of_warpgroups(text: &str) -> bool {
    text.contains(&format!(".target {WARPGROUP_TARGET}\n"))
}

fn assemble(ptxas: &Path, card: &str, registers: Option<u32>, text: &str) -> Result<Vec<u8>> {
    let cannot = || format!("cannot run {}", ptxas.display());
    let code = tempfile::NamedTempFile::new()?;
    let mut command = Command::new(ptxas);
    command.args(["--gpu-name", if of_warpgroups(text) { WARPGROUP_TARGET } else { card }]);
    if let Some(registers) = registers {
        command.args(["--maxrregcount", &registers.to_string()]);
    }
    command.args(["-", "--output-file"]).arg(code.path());
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().with_context(cannot)?;
    // It reads all of its input before it answers; if it ends early, its answer says why.
    let _ = child.stdin.take().with_context(cannot)?.write_all(text.as_bytes());
    let output = child.wait_with_output().with_context(cannot)?;
    if !output.status.success() {
        bail!("ptxas refuses a kernel for {card}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(fs::read(code.path())?)
}

/// The line of `ptxas --version` that names the release.
fn version(ptxas: &Path) -> Result<String> {
    let output =
        Command::new(ptxas).arg("--version").output().with_context(|| format!("cannot run {}", ptxas.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.contains("release")).context("ptxas does not say its version")?;
    Ok(line.to_owned())
}

/// Assembles the kernels that the archives lack, one at a time, and writes the archives that change.
pub fn write(root: &Path) -> Result<()> {
    let ptxas = super::assemble::find("ptxas", "GMM_PTXAS", root)?;
    let version = version(&ptxas)?;
    let bytes = fs::read(archive_file(root))?;
    let ptx = gmm_ptx::Archive::open(&bytes)?;
    for card in CARDS {
        let file = file(root, card);
        let bytes = fs::read(&file).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(Vec::new()),
            _ => Err(error),
        })?;
        // An archive that is unreadable, or of another assembler, is replaced.
        let present = Archive::open(&bytes).ok().filter(|archive| archive.assembler() == version);
        let (mut cubins, mut assembled) = (Vec::new(), 0);
        for Wanted { name, registers, checksum: ptx, text } in wanted(&ptx, card)? {
            let old = present.as_ref().filter(|archive| archive.checksum(&name, registers) == Some(ptx));
            let kept = kept(root, card, (&name, registers, ptx));
            let code = if let Some(code) = old.map(|archive| archive.code(&name, registers)).transpose()?.flatten() {
                code
            } else if let Ok(code) = fs::read(&kept) {
                assembled += 1;
                code
            } else {
                assembled += 1;
                let code = assemble(&ptxas, card, registers, &text)?;
                let folder = kept.parent().context("no folder")?;
                fs::create_dir_all(folder)?;
                let mut temporary = tempfile::NamedTempFile::new_in(folder)?;
                temporary.write_all(&code)?;
                temporary.persist(&kept)?;
                code
            };
            cubins.push(Cubin { name, registers, ptx, code });
        }
        let count = cubins.len();
        let packed = pack(&version, cubins)?;
        if packed != bytes {
            let folder = file.parent().context("the archive has no folder")?;
            fs::create_dir_all(folder)?;
            fs::write(&file, packed).with_context(|| format!("cannot write {}", file.display()))?;
        }
        println!("{card}: {count} kernels, {assembled} of them new; {} bytes", fs::metadata(&file)?.len());
    }
    Ok(())
}

/// Returns the faults of the committed machine code. All checksums of the PTX are compared, and a few kernels are
/// assembled again.
pub fn problems(root: &Path) -> Result<Vec<String>> {
    let ptxas = super::assemble::find("ptxas", "GMM_PTXAS", root)?;
    let version = version(&ptxas)?;
    let bytes = fs::read(archive_file(root))?;
    let ptx = gmm_ptx::Archive::open(&bytes)?;
    let mut problems = Vec::new();
    for card in CARDS {
        let bytes = fs::read(file(root, card)).with_context(|| format!("cannot read the machine code for {card}"))?;
        let archive = Archive::open(&bytes)?;
        if archive.assembler() != version {
            problems.push(format!("{card}: machine code from {}, but ptxas is {version}", archive.assembler()));
            continue;
        }
        let wanted = wanted(&ptx, card)?;
        if archive.kernels().count() != wanted.len() {
            problems.push(format!(
                "{card}: expected machine code of {} kernels, found {}",
                wanted.len(),
                archive.kernels().count()
            ));
        }
        for Wanted { name, registers, checksum, text } in wanted {
            if archive.checksum(&name, registers) != Some(checksum) {
                problems.push(format!("{card}: the machine code of {name} was made from other PTX"));
            } else if SAMPLE.contains(&name.as_str())
                && archive.code(&name, registers)? != Some(assemble(&ptxas, card, registers, &text)?)
            {
                problems.push(format!("{card}: ptxas makes other machine code from {name}"));
            }
        }
    }
    if !problems.is_empty() {
        problems.push("run `cargo xtask machine-code` and commit what it writes".into());
    }
    Ok(problems)
}

/// Fails if the committed machine code has faults.
pub fn check(root: &Path) -> Result<()> {
    let problems = problems(root)?;
    if !problems.is_empty() {
        bail!("the machine code fails its checks:\n  {}", problems.join("\n  "));
    }
    println!("the committed machine code was made from the committed PTX");
    Ok(())
}
