//! The options of every command that computes over data.
use anyhow::bail;
use clap::Args;
use gaussmix::device::{Device, LoadOptions};
use gaussmix::io::{ColumnSelection, Decimal};
use gaussmix::program::{whole_number, whole_number_or_0};
use std::path::PathBuf;
use std::str::FromStr;

/// The files of the data, and their columns that are features.
#[derive(Debug, Clone, Args)]
pub struct TableOptions {
    /// The data (samples × features): .npy (numbers of any type), .csv, .tsv or .txt (also .gz, .bz2 or .zst),
    /// .parquet, .arrow, .feather or .arrows; several files, or a folder with its subfolders, are one data set; - is
    /// standard input (CSV, .npy or an Arrow IPC stream)
    #[arg(value_name = "DATA", required = true)]
    pub data: Vec<PathBuf>,
    /// The columns to use as features, by name or by number, counted from 0; separated by commas, a name with a comma
    /// in double quotes. Default: all, or those that the model was fitted to
    #[arg(long, value_name = "NAMES")]
    columns: Vec<Names>,
    /// Columns to leave out
    #[arg(long, value_name = "NAMES", conflicts_with = "columns")]
    drop: Vec<Names>,
    /// Whether the first line of text is a header: yes or no. Default: yes if it has names, or numbers that look like
    /// names (years, equal steps), in which case a note says so
    #[arg(long, value_name = "WHETHER", value_parser = yes_or_no)]
    header: Option<bool>,
    /// Lines of text to skip before the table
    #[arg(long, value_name = "N", value_parser = whole_number_or_0, default_value_t = 0, hide_default_value = true)]
    skip_lines: usize,
    /// The last line of text to read, counted from 1 at the beginning of the file. Default: the last line of the file
    #[arg(long, value_name = "N", value_parser = whole_number)]
    last_line: Option<usize>,
    /// Texts and numbers that stand for a missing value, separated by commas, such as .,-999; added to an empty field,
    /// NA, N/A, NaN, NaT, None, null and ?
    #[arg(long, value_name = "TEXTS", allow_hyphen_values = true)]
    na_values: Vec<Names>,
    /// The decimal mark of text: . or , . Default: a point, unless the first lines show that it is a comma (1,5;2,25)
    #[arg(long, value_name = "CHARACTER", value_parser = decimal)]
    decimal: Option<Decimal>,
}

/// Texts of an option, separated by commas; a text with a comma stands in double quotes.
#[derive(Debug, Clone)]
pub struct Names(Vec<String>);

impl Names {
    /// Returns the texts of all occurrences of the option.
    pub fn all(times: &[Self]) -> Vec<String> {
        times.iter().flat_map(|names| names.0.iter().cloned()).collect()
    }
}

impl FromStr for Names {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
        match reader.records().next() {
            Some(Ok(names)) => Ok(Self(names.iter().map(String::from).collect())),
            _ => Err("name one at least".into()),
        }
    }
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("use yes or no".into()),
    }
}

fn decimal(text: &str) -> Result<Decimal, String> {
    match text {
        "." => Ok(Decimal::Point),
        "," => Ok(Decimal::Comma),
        _ => Err("use . or ,".into()),
    }
}

impl TableOptions {
    /// Returns the columns to read. `model`: the names of the features of the model used on the data; `id`: a column to
    /// keep.
    pub fn selection(&self, model: Option<Vec<String>>, id: Option<String>) -> ColumnSelection {
        let (columns, drop) = (Names::all(&self.columns), Names::all(&self.drop));
        let (decimal, header, na_values) = (self.decimal, self.header, Names::all(&self.na_values));
        let (skip_lines, last_line, more) = (self.skip_lines, self.last_line, ColumnSelection::default());
        ColumnSelection { columns, drop, id, model, decimal, header, skip_lines, last_line, na_values, ..more }
    }

    pub fn describe(&self) -> String {
        let name = |path: &PathBuf| match path.to_str() {
            Some("-") => "standard input".into(),
            _ => path.display().to_string(),
        };
        match &self.data[..] {
            [first, second] => format!("{}, {}", name(first), name(second)),
            [first, others @ ..] if !others.is_empty() => format!("{} and {} others", name(first), others.len()),
            paths => paths.iter().map(name).collect(),
        }
    }

    /// Returns the paths, for the check that no result replaces an input.
    pub fn inputs(&self) -> impl Iterator<Item = Option<&PathBuf>> {
        self.data.iter().map(Some)
    }
}

/// The data, and where and how to compute.
#[derive(Debug, Args)]
pub struct DataOptions {
    #[command(flatten)]
    pub table: TableOptions,
    /// Where to compute: auto, cpu, cuda, cuda:N or reference; over several devices at once cuda:all, or a list such as
    /// cuda:0,2 or cuda:0,cpu
    #[arg(long, default_value = "auto")]
    pub device: Device,
    /// Compute with this kernel (code variant) instead of the device's choice; `gmm devices` lists the kernels
    #[arg(long, value_name = "NAME")]
    pub kernel: Option<String>,
    /// Always compute in float64. By default float32 data is computed in float32, except for models that need more
    /// digits
    #[arg(long, conflicts_with = "kernel")]
    pub float64: bool,
    /// Treat NaN in the data as a missing value, and so a field of text that is empty or listed in --na-values, and a
    /// null of Parquet or Arrow
    ///
    /// The likelihood of a sample is then that of its observed values, which is exact if values are missing at random.
    #[arg(long)]
    pub missing: bool,
    /// Take the data for measurements with this noise, and the model for the density of the true values: a file with the
    /// variances of each row (D columns) or its covariance row by row (D² columns), or one covariance for all rows (D rows)
    #[arg(long, value_name = "FILE")]
    pub noise: Option<PathBuf>,
    /// Memory that the data and its copies may take, such as 500M or 8G. Larger files are read in chunks, again for
    /// each pass (with `--device auto` on the CPU). Default: half of the machine's memory
    #[arg(long, value_name = "SIZE", value_parser = size_in_bytes)]
    pub memory: Option<u64>,
}

impl DataOptions {
    /// Returns the options of data that is not brought to a device.
    pub fn on_host(table: TableOptions, missing: bool, memory: Option<u64>) -> Self {
        Self { table, device: Device::Cpu, kernel: None, float64: false, missing, noise: None, memory }
    }

    pub fn load_options(&self) -> LoadOptions {
        LoadOptions::new().kernel(self.kernel.clone()).float64(self.float64).tuning_file(tuning_file())
    }

    /// Refuses several devices at once, because each group is computed on one device.
    pub fn check_one_device(&self) -> anyhow::Result<()> {
        match self.device {
            Device::Several(_) => bail!("--by: each group is computed on one device; name one with --device"),
            _ => Ok(()),
        }
    }

    pub fn memory_limit(&self) -> u64 {
        self.memory.unwrap_or_else(gaussmix::memory::half)
    }
}

/// Returns the path of the file in which this program remembers the fastest kernels measured on a GPU:
/// `gmm/cuda-tuning.json` in the user's cache folder, or the value of the environment variable `GMM_TUNING_FILE`, or
/// `None` if that is empty.
pub fn tuning_file() -> Option<PathBuf> {
    match std::env::var_os("GMM_TUNING_FILE") {
        Some(path) if path.is_empty() => None,
        Some(path) => Some(path.into()),
        None => Some(dirs::cache_dir()?.join("gmm").join("cuda-tuning.json")),
    }
}

/// Parses 1000, 500k, 64M, 8G or 2T, also as 8GB or 8GiB; the units are powers of 1024.
pub fn size_in_bytes(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches('b').trim_end_matches('i');
    let (digits, unit) = match digits.chars().last().and_then(|c| "kmgt".find(c)) {
        Some(power) => (&digits[..digits.len() - 1], 1024f64.powi(power as i32 + 1)),
        None => (digits, 1.0),
    };
    let value = digits.parse::<f64>().ok().map(|v| v * unit).filter(|v| (1.0..1e18).contains(v));
    value.map(|v| v as u64).ok_or_else(|| "must be a size such as 500M or 8G".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, value) in [("1000", 1000), ("1k", 1024), ("1.5M", 3 << 19), ("8GiB", 8 << 30), ("2tb", 2 << 40)] {
            assert_eq!(size_in_bytes(text), Ok(value), "{text}");
        }
        for bad in ["", "0", "-1", "M", "x", "1e30", "nan", "8Gx"] {
            assert!(size_in_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_may_have_commas() {
        let names = |text: &str| text.parse::<Names>().map(|names| names.0);
        assert_eq!(names("a,b c,0").unwrap(), ["a", "b c", "0"]);
        assert_eq!(names("\"length, mm\",\"5\"\"\"").unwrap(), ["length, mm", "5\""]);
        assert!(names("").is_err());
    }

    #[test]
    fn the_machine_has_memory() {
        assert!(gaussmix::memory::half() > 1 << 26);
    }
}
