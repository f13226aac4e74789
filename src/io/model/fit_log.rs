//! Finished fits of many, in a file from which the call continues.
use super::json::{read_bytes, text_of};
use crate::io::{Identity, Output, Problem, Result, extension};
use gmm_host::Fit;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A checkpoint of many fits: a file that grows by a line for each finished fit.
///
/// The first line holds the data and the options of the fits, each later line the name of a set of samples and its fit.
/// An incomplete line, left when the program was killed, is ignored.
///
/// ```
/// use gaussmix::data::Samples;
/// use gaussmix::fit::{Fit, GaussianMixtureParams};
/// use gaussmix::io::{FitLog, Identity};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("fits.jsonl");
/// let made_with = Identity::default().with("k", 1);
/// let (log, ended): (_, Vec<(String, Fit)>) = FitLog::open(&path, &made_with)?;
/// assert!(ended.is_empty());
/// let x = ndarray::arr2(&[[0.1], [0.3], [0.7]]);
/// let fit = GaussianMixtureParams::new(1).fit(&Samples::from_f64(x.view())?)?;
/// log.add("the first set", &fit)?;
///
/// let (_, ended) = FitLog::open(&path, &made_with)?;
/// let (set, found): &(String, Fit) = &ended[0];
/// assert_eq!((&set[..], &found.mixture), ("the first set", &fit.mixture));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FitLog {
    path: PathBuf,
    /// Open for appending.
    file: Mutex<File>,
}

/// Finished fits, each with the name of its set.
type Ended<M> = Vec<(String, Fit<M>)>;

#[derive(Serialize, Deserialize)]
struct Head<I> {
    made_with: I,
}

#[derive(Serialize)]
struct Written<'a, M> {
    set: &'a str,
    fit: &'a Fit<M>,
}

#[derive(Deserialize)]
struct Read<M> {
    set: String,
    fit: Fit<M>,
}

impl FitLog {
    /// Creates the file, or opens an existing one and returns its fits, each with the name of its set. Errors: as
    /// [`Output::create`]; also if the name does not end in `.jsonl`, or the file is something else, or belongs to fits
    /// with other data or options.
    pub fn open<M: DeserializeOwned>(path: impl AsRef<Path>, made_with: &Identity) -> Result<(Self, Ended<M>)> {
        let path = path.as_ref();
        if extension(path) != "jsonl" {
            return Err(Problem::format("the name of a checkpoint of many fits must end in .jsonl").at(path));
        }
        let output = Output::create(path)?;
        let read = || {
            let mut bytes = if path.exists() { read_bytes(path)? } else { Vec::new() };
            let (length, end) = (bytes.len(), bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1));
            if end == 0 && length > 0 {
                return Err(Problem::format("not a checkpoint of many fits: line 1 has no end"));
            }
            // The incomplete line may end within a character.
            bytes.truncate(end);
            Ok((text_of(bytes)?, length))
        };
        let (whole, length) = read().map_err(|problem| problem.at(path))?;
        let ended = parse(&whole, made_with).map_err(|problem| problem.at(path))?;
        if whole.is_empty() {
            let head = line(&Head { made_with }).map_err(|problem| problem.at(path))?;
            output.write(|file| file.write_all(&head))?;
        }
        let append = || {
            let file = File::options().append(true).open(path)?;
            if whole.len() < length {
                file.set_len(whole.len() as u64)?;
            }
            Ok(file)
        };
        let file = append().map_err(|error| Problem::io("write it")(error).at(path))?;
        Ok((Self { path: path.into(), file: Mutex::new(file) }, ended))
    }

    /// Returns the path as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds the fit of a set. Several threads may add at the same time.
    ///
    /// # Errors
    /// Errors of the system, such as a full disk. Earlier fits are kept.
    pub fn add<M: Serialize>(&self, set: &str, fit: &Fit<M>) -> Result<()> {
        let add = || {
            let line = line(&Written { set, fit })?;
            let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            let before = file.metadata().map_err(Problem::io("write it"))?.len();
            // A partial line would spoil the next one.
            file.write_all(&line).map_err(|error| {
                let _ = file.set_len(before);
                Problem::io("write it")(error)
            })
        };
        add().map_err(|problem: Problem| problem.at(&self.path))
    }
}

fn line(value: &impl Serialize) -> std::result::Result<Vec<u8>, Problem> {
    let mut line = serde_json::to_vec(value).map_err(|error| Problem::format(error.to_string()))?;
    line.push(b'\n');
    Ok(line)
}

fn parse<M: DeserializeOwned>(text: &str, now: &Identity) -> std::result::Result<Ended<M>, Problem> {
    let mut lines = text.lines().enumerate();
    let Some((_, head)) = lines.next() else { return Ok(Vec::new()) };
    let Head::<Identity> { made_with } = serde_json::from_str(head)
        .map_err(|error| Problem::format(format!("not a checkpoint of many fits: line 1: {error}")))?;
    made_with.check(now).map_err(|differences| {
        Problem::format(format!(
            "belongs to other fits: {differences}; give the same data and options, or name another checkpoint"
        ))
    })?;
    let fit = |(number, line)| {
        let Read { set, fit } = serde_json::from_str(line)
            .map_err(|error| Problem::format(format!("line {} is damaged: {error}; remove it", number + 1)))?;
        Ok((set, fit))
    };
    lines.map(fit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gmm_host::{BayesianGaussianMixtureParams, GaussianMixtureParams, Samples, VariationalMixture};

    #[test]
    fn fits_come_back_bit_for_bit_and_others_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.jsonl");
        let made_with = Identity::default().with("k", 2).with("tol", 1.0 / 3.0);
        let x = ndarray::Array2::from_shape_fn((50, 2), |(i, j)| (i as f64 * 0.7 + j as f64).sin());
        let samples = Samples::from_f64(x.view()).unwrap();
        let fits: Vec<Fit> = (1..4).map(|k| GaussianMixtureParams::new(k).n_init(2).fit(&samples).unwrap()).collect();
        let open = || FitLog::open(&path, &made_with);
        let (log, none): (_, Vec<(String, Fit)>) = open().unwrap();
        assert!(none.is_empty());
        log.add("a \"1\"\n", &fits[0]).unwrap();
        log.add("b", &fits[1]).unwrap();
        drop(log);
        // An incomplete line, here cut within a character, is written anew.
        File::options().append(true).open(&path).unwrap().write_all(b"{\"set\":\"\xc3").unwrap();
        let (log, some): (_, Vec<(String, Fit)>) = open().unwrap();
        assert_eq!(some.len(), 2);
        log.add("c", &fits[2]).unwrap();
        let (_, all): (_, Vec<(String, Fit)>) = open().unwrap();
        assert_eq!(all.iter().map(|(set, _)| &set[..]).collect::<Vec<_>>(), ["a \"1\"\n", "b", "c"]);
        for ((_, read), written) in all.iter().zip(&fits) {
            assert_eq!(format!("{read:?}"), format!("{written:?}"));
        }

        let refused = |made_with: &Identity, part: &str| {
            let error = FitLog::open::<gmm_host::Mixture>(&path, made_with).unwrap_err().to_string();
            assert!(error.contains("c.jsonl: ") && error.contains(part), "{error}");
        };
        refused(&Identity::default().with("k", 3).with("tol", 1.0 / 3.0), "k was 2 and is 3 now");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replacen("\"weights\"", "\"heights\"", 2)).unwrap();
        refused(&made_with, "line 2 is damaged");
        for other in ["x,y\n1,2\n", r#"{"my":"own notes"}"#] {
            std::fs::write(&path, other).unwrap();
            refused(&made_with, "not a checkpoint of many fits");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), other);
        }
        let other = FitLog::open::<gmm_host::Mixture>(folder.path().join("c.json"), &made_with);
        assert!(other.unwrap_err().to_string().contains(".jsonl"));
    }

    #[test]
    fn posteriors_come_back_bit_for_bit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.jsonl");
        let x = ndarray::Array2::from_shape_fn((50, 2), |(i, j)| (i as f64 * 0.7 + j as f64).sin());
        let fit = BayesianGaussianMixtureParams::new(3).fit(Samples::from_f64(x.view()).unwrap()).unwrap();
        let (log, _) = FitLog::open::<VariationalMixture>(&path, &Identity::default()).unwrap();
        log.add("all", &fit).unwrap();
        let (_, read) = FitLog::open::<VariationalMixture>(&path, &Identity::default()).unwrap();
        assert_eq!((read.len(), format!("{:?}", read[0].1)), (1, format!("{fit:?}")));
    }
}
