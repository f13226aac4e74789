//! The kernels as machine code for common GPUs: `gmm-machine-code/cards`, assembled from the
//! committed PTX for a release.
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use gmm_ptx::machine_code::{Archive, Cubin, pack};
use gmm_ptx::{Entry, WARPGROUP_TARGET};

use super::assemble::{find, run_ptxas};
use super::compare::committed;

/// The GPUs that have machine code. Later ones of the same major version run it too: `sm_80` runs on 8.6 and 8.9,
/// `sm_100` on 10.3.
const CARDS: &[&str] = &["sm_80", "sm_90", "sm_100", "sm_120"];
/// The card that runs warpgroup products.
const WARPGROUP_CARD: &str = "sm_90";

/// A kernel of each way to assemble, which the check assembles.
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
    } else if starts(&["density"]) {
        vec![Some(match () {
            () if name == "density_wide_f64" || name == "density_tall_f64" => 255,
            () if starts(&["density_full"]) || ends(&["f32"]) => 128,
            () => 168,
        })]
    } else if starts(&["posterior"]) {
        vec![Some(96)]
    } else if starts(&["accumulate"]) {
        vec![Some(match name {
            "accumulate_diag_f32" | "accumulate_observed_f32" => 128,
            "accumulate_full_f32" => 168,
            _ => 255,
        })]
    } else if starts(&["exponents", "weigh_", "marginals"]) || name == "outer" {
        vec![Some(128)]
    } else {
        vec![None]
    }
}

/// The kernels that a card's archive is to hold, each with its limits of registers.
fn wanted<'a>(entries: &'a [Entry], card: &str) -> impl Iterator<Item = (&'a Entry, Option<u32>)> {
    let runs = move |entry: &&Entry| card == WARPGROUP_CARD || !of_warpgroups(&entry.text);
    let with_limits = |entry: &'a Entry| registers(&entry.name).into_iter().map(move |limit| (entry, limit));
    entries.iter().filter(runs).flat_map(with_limits)
}

fn of_warpgroups(text: &str) -> bool {
    text.contains(&format!(".target {WARPGROUP_TARGET}\n"))
}

fn assemble(ptxas: &Path, card: &str, registers: Option<u32>, text: &str) -> Result<Vec<u8>> {
    let limit = registers.map(|registers| registers.to_string());
    let mut options = vec!["--gpu-name", if of_warpgroups(text) { WARPGROUP_TARGET } else { card }];
    options.extend(limit.iter().flat_map(|limit| ["--maxrregcount", limit]));
    match run_ptxas(ptxas, &options, text)? {
        Ok((code, _)) => Ok(fs::read(code.path())?),
        Err(answer) => bail!("ptxas refuses a kernel for {card}: {}", answer.trim()),
    }
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
    let ptxas = find("ptxas", "GMM_PTXAS", root)?;
    let version = version(&ptxas)?;
    let entries = committed(root)?;
    for card in CARDS {
        let file = root.join("gmm-machine-code/cards").join(card);
        // An archive that cannot be read, or of another assembler, is made anew.
        let bytes = fs::read(&file).unwrap_or_default();
        let present = Archive::open(&bytes).ok().filter(|archive| archive.assembler() == version);
        let (mut cubins, mut assembled) = (Vec::new(), 0);
        for (entry, registers) in wanted(&entries, card) {
            let (name, ptx) = (entry.name.clone(), entry.checksum());
            let old = present.as_ref().filter(|archive| archive.checksum(&name, registers) == Some(ptx));
            let code = if let Some(code) = old.map(|archive| archive.code(&name, registers)).transpose()?.flatten() {
                code
            } else {
                assembled += 1;
                assemble(&ptxas, card, registers, &entry.text)?
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

/// Fails unless a few kernels can be assembled for every card, and come out of an archive.
pub fn check(root: &Path, entries: &[Entry]) -> Result<()> {
    let ptxas = find("ptxas", "GMM_PTXAS", root)?;
    let version = version(&ptxas)?;
    for card in CARDS {
        let mut cubins = Vec::new();
        for (entry, registers) in wanted(entries, card).filter(|(entry, _)| SAMPLE.contains(&&*entry.name)) {
            let code = assemble(&ptxas, card, registers, &entry.text)?;
            cubins.push(Cubin { name: entry.name.clone(), registers, ptx: entry.checksum(), code });
        }
        let packed = pack(&version, cubins.clone())?;
        let archive = Archive::open(&packed)?;
        for Cubin { name, registers, code, .. } in cubins {
            if archive.code(&name, registers)? != Some(code) {
                bail!("{card}: other machine code of {name} comes out of an archive");
            }
        }
    }
    Ok(())
}
