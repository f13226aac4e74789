//! The features of a model, as options name them.
use anyhow::{Context, bail};
use gaussmix::io;
use gaussmix::model::Mixture;
use std::path::PathBuf;

/// Finds a feature by its name in the model, or else by its number, counted from 0.
pub fn feature(names: Option<&[String]>, n_features: usize, text: &str) -> anyhow::Result<usize> {
    if let Some(feature) = names.and_then(|names| names.iter().position(|name| name == text)) {
        return Ok(feature);
    }
    match text.parse() {
        Ok(number) if number < n_features => Ok(number),
        _ => {
            let numbers = format!("0 to {}", n_features - 1);
            let known =
                names.map_or_else(|| numbers.clone(), |names| format!("{}, or {numbers}", io::names_in_words(names)));
            bail!("there is no feature `{text}`; the features are {known}")
        }
    }
}

/// Splits NAME=VALUE at the last `=`.
pub fn given(text: &str) -> anyhow::Result<(&str, f64)> {
    let (name, value) =
        text.rsplit_once('=').with_context(|| format!("`{text}` must be FEATURE=VALUE, such as height=1.8"))?;
    let value = value.trim().parse().with_context(|| format!("`{text}`: `{value}` is not a number"))?;
    Ok((name, value))
}

pub fn names_of(names: Option<&[String]>, features: impl IntoIterator<Item = usize>) -> Option<Vec<String>> {
    names.map(|names| features.into_iter().map(|feature| names[feature].clone()).collect())
}

/// Reads mixtures, which must have the same features, and the names of the features, if a file has them.
pub fn read_alike(files: &[&PathBuf]) -> anyhow::Result<(Vec<Mixture>, Option<Vec<String>>)> {
    let mut common: Option<(&PathBuf, Vec<String>)> = None;
    let mut mixtures = Vec::new();
    for file in files {
        let (mixture, summary) = io::read_model_with_summary(file)?;
        mixtures.push(mixture);
        match (&common, summary.feature_names) {
            (Some((first, names)), Some(others)) if *names != others => bail!(
                "the features of {} are {}, and those of {} are {}; bring them to one order with gmm marginal",
                first.display(),
                names.join(", "),
                file.display(),
                others.join(", ")
            ),
            (None, Some(names)) => common = Some((file, names)),
            _ => {}
        }
    }
    Ok((mixtures, common.map(|(_, names)| names)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_has_a_name_and_a_number() {
        let names = ["b".to_string(), "a=b".to_string(), "0".to_string()];
        let find = |text| feature(Some(&names), 3, text).map_err(|e| e.to_string());
        assert_eq!([find("b"), find("a=b"), find("1"), find("0")], [Ok(0), Ok(1), Ok(1), Ok(2)]);
        assert_eq!(find("c").unwrap_err(), "there is no feature `c`; the features are b, a=b, 0, or 0 to 2");
        assert_eq!(feature(None, 2, "1").unwrap(), 1);
        assert_eq!(feature(None, 2, "2").unwrap_err().to_string(), "there is no feature `2`; the features are 0 to 1");
    }

    #[test]
    fn a_value_stands_behind_the_last_sign() {
        assert_eq!(given("a=b=-1e3").unwrap(), ("a=b", -1000.0));
        assert!(given("height").unwrap_err().to_string().contains("FEATURE=VALUE"));
        assert!(given("height=tall").unwrap_err().to_string().contains("`tall` is not a number"));
    }
}
