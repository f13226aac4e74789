//! Times whole commands, from the start of the process to its end: `--device auto` beside the best other device.
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

/// Eight overlapping clusters in 13 dimensions.
const CLUSTERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/speech8.json");

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
        let gmm = |words: &[&str]| -> Result<()> {
            let place = |word: &&str| match *word {
                "DATA" => data.clone(),
                "MODEL" => model.clone(),
                "LABELS" => folder.join("labels.npy"),
                word => word.into(),
            };
            let output = Command::new(&options.gmm)
                .args(words.iter().map(place))
                .stdout(Stdio::null())
                .output()
                .with_context(|| format!("cannot run {}", options.gmm.display()))?;
            let (status, why) = (output.status, String::from_utf8_lossy(&output.stderr));
            ensure!(status.success(), "gmm {}, N={n}: {status}: {}", words.join(" "), why.trim());
            Ok(())
        };
        gmm(&["sample", CLUSTERS, "-n", &n.to_string(), "--float32", "-o", "DATA"])?;
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
                    let begin = Instant::now();
                    gmm(&[words, &["--device", device]].concat())?;
                    fastest = fastest.min(begin.elapsed().as_secs_f64());
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
