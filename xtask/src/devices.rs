//! Times whole commands, from the start of the process to its end: `--device auto` beside the best other device.
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

/// Times whole commands on each device.
#[derive(Args)]
pub struct Options {
    /// The program
    #[arg(long, default_value = "target/release/gmm")]
    gmm: PathBuf,
    /// Largest number of samples; the smallest is 10
    #[arg(long, default_value_t = 10_000_000)]
    most: usize,
    /// Runs of each command; the fastest counts
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// The devices from which `auto` chooses
    #[arg(long, value_delimiter = ',', default_value = "cpu,cuda")]
    devices: Vec<String>,
    /// Fail if `auto` takes more than this times the best of the devices
    #[arg(long)]
    limit: Option<f64>,
}

const D: usize = 13;

pub fn run(options: &Options) -> Result<()> {
    ensure!(options.runs > 0 && !options.devices.is_empty(), "give at least one run and one device");
    let folder = std::env::temp_dir().join(format!("gmm-devices-{}", std::process::id()));
    std::fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
    let worst = measure(options, &folder);
    std::fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let worst = worst?;
    println!("worst ratio {worst:.2}");
    match options.limit {
        Some(limit) if worst > limit => bail!("`auto` takes up to {worst:.2} times as long as the best device"),
        _ => Ok(()),
    }
}

/// Prints a line for each command and number of samples. Returns the worst ratio.
fn measure(options: &Options, folder: &Path) -> Result<f64> {
    let model = folder.join("model.json");
    let mut worst: f64 = 0.0;
    println!("{:<10} {:>10} {:>9} {} {:>6}", "command", "N", "auto", header(&options.devices), "ratio");
    for n in (1..).map(|power| 10usize.saturating_pow(power)).take_while(|n| *n <= options.most) {
        let data = folder.join("data.npy");
        write_samples(&data, n).with_context(|| data.display().to_string())?;
        let k = 8.min(n / 2).to_string();
        // The first command writes the model that the last one reads.
        let commands: [(&str, &[&str]); 4] = [
            ("fit diag", &["fit", "DATA", "-k", &k, "--covariance-type", "diag", "-o", "MODEL"]),
            ("fit full", &["fit", "DATA", "-k", &k]),
            ("predict", &["predict", "MODEL", "DATA", "-o", "LABELS"]),
            ("score", &["score", "MODEL", "DATA"]),
        ];
        for (name, words) in commands {
            let time = |device: &str| -> Result<f64> {
                let mut fastest = f64::INFINITY;
                for _ in 0..options.runs {
                    let place = |word: &&str| match *word {
                        "DATA" => data.clone(),
                        "MODEL" => model.clone(),
                        "LABELS" => folder.join("labels.npy"),
                        word => word.into(),
                    };
                    let begin = Instant::now();
                    let output = Command::new(&options.gmm)
                        .args(words.iter().map(place))
                        .args(["--device", device])
                        .stdout(Stdio::null())
                        .output()
                        .with_context(|| format!("cannot run {}", options.gmm.display()))?;
                    fastest = fastest.min(begin.elapsed().as_secs_f64());
                    if !output.status.success() {
                        let (status, why) = (output.status, String::from_utf8_lossy(&output.stderr));
                        bail!("gmm {name} --device {device}, N={n}: {status}: {}", why.trim());
                    }
                }
                Ok(fastest)
            };
            let times: Vec<f64> = options.devices.iter().map(|device| time(device)).collect::<Result<_>>()?;
            let auto = time("auto")?;
            let ratio = auto / times.iter().copied().fold(f64::INFINITY, f64::min);
            worst = worst.max(ratio);
            let others: Vec<String> = times.iter().map(|time| format!("{:>9}", milliseconds(*time))).collect();
            println!("{name:<10} {n:>10} {:>9} {} {ratio:>6.2}", milliseconds(auto), others.join(" "));
        }
    }
    Ok(worst)
}

fn header(devices: &[String]) -> String {
    devices.iter().map(|device| format!("{device:>9}")).collect::<Vec<_>>().join(" ")
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.1} ms", seconds * 1e3)
}

/// Writes float32 samples of eight overlapping clusters as `.npy`, the same for the same N.
fn write_samples(path: &Path, n: usize) -> Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({n}, {D}), }}");
    // The header ends with a line feed, at a multiple of 64 bytes.
    let padded = (10 + header.len() + 1).next_multiple_of(64) - 10;
    header.push_str(&" ".repeat(padded - 1 - header.len()));
    header.push('\n');
    file.write_all(b"\x93NUMPY\x01\x00")?;
    file.write_all(&u16::try_from(header.len())?.to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut uniform = || {
        // xorshift64*
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 40) as f32 / (1u32 << 24) as f32
    };
    for i in 0..n {
        for j in 0..D {
            let noise = uniform() + uniform() + uniform() - 1.5;
            let centre = if (i + j) % 8 < 4 { 1.0 } else { -1.0 };
            file.write_all(&(centre + 2.0 * noise).to_le_bytes())?;
        }
    }
    Ok(file.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_an_npy_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        write_samples(&path, 1000).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let start = bytes.len() - 1000 * D * 4;
        assert_eq!((start % 64, bytes[start - 1]), (0, b'\n'));
        assert!(String::from_utf8_lossy(&bytes[10..start]).contains("(1000, 13)"));
        assert!(bytes[start..].chunks_exact(4).all(|v| f32::from_le_bytes([v[0], v[1], v[2], v[3]]).abs() <= 4.0));
    }
}
