//! A folder with a model file for each group, and a table of them.
use super::contents::{GroupFit, GroupModels};
use crate::io::data::short;
use crate::io::model::{Model, ModelOutput};
use crate::io::{Ids, Output, Problem, Result};
use gmm_mcmc::temporary::is_temporary;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

pub(super) const TABLE: &str = "groups.csv";
/// The name of a group's file holds at most this many characters of the group.
const MAX_NAME: usize = 80;
/// Names of devices on Windows, with any extension; `COM` and `LPT` with a digit.
const DEVICES: [&str; 4] = ["con", "prn", "aux", "nul"];

/// Checks that a folder holds only files that a call with these groups writes.
pub(super) fn check_content(folder: &Path, groups: &Ids) -> Result<()> {
    let problem = |e| Problem::io("read it")(e).at(folder);
    let entries = match folder.read_dir() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(problem)?,
    };
    let own: HashSet<String> = file_names(groups).chain([TABLE.into()]).collect();
    for entry in entries {
        let name = entry.map_err(problem)?.file_name();
        let name = name.to_string_lossy();
        if !own.contains(&*name) && !is_temporary(&name) {
            let what = "the folder has `{}`, which is not a model of these groups; empty it, or name another";
            return Err(Problem::format(what.replace("{}", &short(&name))).at(folder));
        }
    }
    Ok(())
}

/// Writes the models into a folder, in place of those of an interrupted call; the table comes last. After an error
/// neither the table nor a written file remains.
pub(super) fn write(folder: &Path, models: &GroupModels) -> Result<()> {
    let is_new = !folder.is_dir();
    if is_new {
        fs::create_dir(folder).map_err(|e| Problem::io("make the folder")(e).at(folder))?;
    }
    // Without its table a folder is not read while its models are replaced.
    let table = folder.join(TABLE);
    if table.exists() {
        fs::remove_file(&table).map_err(|e| Problem::io("replace it")(e).at(&table))?;
    }
    let mut written = Vec::new();
    fill(folder, models, &mut written).inspect_err(|_| {
        // Files that cannot be removed stay; the error to report is that of writing.
        written.iter().for_each(|path| drop(fs::remove_file(path)));
        if is_new {
            drop(fs::remove_dir(folder));
        }
    })
}

fn fill(folder: &Path, models: &GroupModels, written: &mut Vec<PathBuf>) -> Result<()> {
    let table = folder.join(TABLE);
    let mut rows =
        vec![["group", "file", "n_samples", "converged", "n_iter", "lower_bound", "error"].map(String::from)];
    for ((row, fit), name) in models.fits.iter().enumerate().zip(file_names(&models.groups)) {
        let (group, n_samples) = (models.groups.text(row), fit.n_samples.to_string());
        rows.push(match &fit.model {
            Err(error) => [group, String::new(), n_samples, String::new(), String::new(), String::new(), error.clone()],
            Ok(model) => {
                let summary = &model.summary;
                let path = folder.join(&name);
                ModelOutput::create(&path)?.write_with_summary(model, summary)?;
                written.push(path);
                let converged = summary.converged.map_or(String::new(), |converged| converged.to_string());
                let n_iter = summary.n_iter.map_or(String::new(), |n| n.to_string());
                let bound = summary.lower_bound.map_or(String::new(), |bound| format!("{bound:?}"));
                [group, name, n_samples, converged, n_iter, bound, String::new()]
            }
        });
    }
    Output::create(&table)?.write(|file| {
        let mut text = csv::Writer::from_writer(file);
        rows.iter().try_for_each(|row| text.write_record(row))?;
        text.flush()
    })
}

/// Returns recognisable names for the files of the groups: portable characters, and unique even where case is ignored.
fn file_names(groups: &Ids) -> impl Iterator<Item = String> {
    // `numbers` holds the number to try next for a taken name.
    let (mut taken, mut numbers) = (HashSet::new(), HashMap::new());
    (0..groups.len()).map(move |row| {
        let safe = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
        let mut name: String = groups.text(row).chars().take(MAX_NAME).map(safe).collect();
        let stem = name.split('.').next().unwrap_or_default().to_ascii_lowercase();
        let is_port = stem.len() == 4 && (stem.starts_with("com") || stem.starts_with("lpt"));
        if stem.is_empty() || is_port || DEVICES.contains(&&stem[..]) {
            name.insert(0, '_');
        }
        let mut free = name.clone();
        while !taken.insert(free.to_ascii_lowercase()) {
            let number = numbers.entry(name.to_ascii_lowercase()).or_insert(2usize);
            free = format!("{name}-{number}");
            *number += 1;
        }
        free + ".json"
    })
}

pub(super) fn read(folder: &Path) -> Result<GroupModels> {
    let table = folder.join(TABLE);
    let rows = read_table(&table).map_err(|problem| problem.at(&table))?;
    let (mut groups, mut fits) = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len()));
    for Row { group, file, n_samples, error } in rows {
        let model = if file.is_empty() { Err(error) } else { Ok(Model::read(folder.join(file))?) };
        groups.push(Some(group));
        fits.push(GroupFit { n_samples, model });
    }
    Ok(GroupModels { by: "group".into(), groups: Ids::Texts(groups), fits })
}

struct Row {
    group: String,
    file: String,
    n_samples: usize,
    error: String,
}

fn read_table(path: &Path) -> std::result::Result<Vec<Row>, Problem> {
    let wrong = |e: csv::Error| Problem::format(format!("not a table of groups: {e}"));
    let file = fs::File::open(path).map_err(Problem::io("open it"))?;
    let mut reader = csv::Reader::from_reader(file);
    let header = reader.headers().map_err(wrong)?.clone();
    let place = |name: &str| {
        let missing = || Problem::format(format!("not a table of groups: there is no column `{name}`"));
        header.iter().position(|found| found == name).ok_or_else(missing)
    };
    let (group, file, n_samples, error) = (place("group")?, place("file")?, place("n_samples")?, place("error")?);
    let mut seen = HashSet::new();
    let read = |(number, record): (usize, csv::Result<csv::StringRecord>)| {
        let record = record.map_err(wrong)?;
        let row = Row {
            group: record[group].into(),
            file: record[file].into(),
            n_samples: record[n_samples].parse().map_err(|_| {
                let what = short(&record[n_samples]);
                Problem::format(format!("row {number} (counted from 0): `{what}` is not a number of samples"))
            })?,
            error: record[error].into(),
        };
        if !seen.insert(row.group.clone()) {
            return Err(Problem::format(format!("the group `{}` appears twice", short(&row.group))));
        }
        if !row.file.is_empty() && Path::new(&row.file).file_name().is_none_or(|name| name != &row.file[..]) {
            return Err(Problem::format(format!("`{}` is not a file of the folder", short(&row.file))));
        }
        Ok(row)
    };
    reader.records().enumerate().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_safe_and_distinct() {
        let long = "x".repeat(300);
        let groups = ["../x", "a/b", "A_B", "a_b-2", "", "NUL.a", "com1", &long, "ok-1.5"];
        let names: Vec<String> = file_names(&Ids::Texts(groups.map(|group| Some(group.into())).to_vec())).collect();
        let cut = format!("{}.json", &long[..MAX_NAME]);
        let wanted = ["_.._x", "a_b", "A_B-2", "a_b-2-2", "_", "_NUL.a", "_com1"].map(|name| format!("{name}.json"));
        assert_eq!(names[..7], wanted);
        assert_eq!(names[7..], [cut, "ok-1.5.json".into()]);
    }
}
