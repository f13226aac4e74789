//! The data and options of saved work.
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Longer values (hashes, for example) are not shown in an error.
const MAX_SHOWN: usize = 60;

/// The data and the options of saved work, by name: those that change the course of a fit or of a sampler's run. Saved
/// work can continue only if all of them are the same.
///
/// ```
/// use gaussmix::io::Identity;
///
/// let saved = Identity::default().with("k", 3).with("seed", 0);
/// assert_eq!(saved.check(&saved), Ok(()));
/// let now = Identity::default().with("k", 3).with("seed", 1);
/// assert_eq!(saved.check(&now), Err("seed was 0 and is 1 now".into()));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Identity(Map<String, Value>);

impl Identity {
    /// Returns the members of a value that serialises to a JSON object, for example settings.
    ///
    /// # Errors
    /// If the value serialises to something else.
    pub fn of(settings: &impl Serialize) -> serde_json::Result<Self> {
        serde_json::from_value(serde_json::to_value(settings)?)
    }

    /// Adds a value. A number that is not finite counts as null.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.insert(name.into(), value.into());
        self
    }

    /// Adds the values of another identity.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Renames the values to the command line's names of options.
    #[must_use]
    pub fn with_names_of_options(self) -> Self {
        Self(self.0.into_iter().map(|(name, value)| (name.replace('_', "-"), value)).collect())
    }

    /// Leaves out values that make no difference.
    #[must_use]
    pub fn without(mut self, names: &[&str]) -> Self {
        self.0.retain(|name, _| !names.contains(&name.as_str()));
        self
    }

    /// Checks that work with this identity may continue with `now`.
    ///
    /// # Errors
    /// Names all differences, with both values if they are short.
    pub fn check(&self, now: &Self) -> Result<(), String> {
        let names: std::collections::BTreeSet<&String> = self.0.keys().chain(now.0.keys()).collect();
        let differs = |name: &&String| {
            let (before, now) = (self.0.get(*name), now.0.get(*name));
            let is_array = [before, now].into_iter().flatten().any(|value| value.is_object() || value.is_array());
            (before != now).then(|| match (text(before), text(now)) {
                (before, now) if before.len().max(now.len()) <= MAX_SHOWN && !is_array => {
                    format!("{name} was {before} and is {now} now")
                }
                _ => format!("{name} differs"),
            })
        };
        let all: Vec<String> = names.iter().filter_map(differs).collect();
        if all.is_empty() { Ok(()) } else { Err(all.join("; ")) }
    }
}

fn text(value: Option<&Value>) -> String {
    match value {
        None => "not known".into(),
        Some(Value::Null) => "none".into(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_differs_is_named() {
        let hash = |c: &str| c.repeat(64);
        let saved = Identity::default().with("data", "150 × 4").with("values of the data", hash("a"));
        let saved = saved.with("reg-covar", 1e-6).with("init", Value::Null).with("freeze", "none");
        let back: Identity = serde_json::from_str(&serde_json::to_string(&saved).unwrap()).unwrap();
        assert_eq!(saved.check(&back), Ok(()));
        let now = saved.clone().with("values of the data", hash("b")).with("reg-covar", 0.1).with("init", hash("c"));
        let now = now.with("new", true);
        let expected = "init differs; new was not known and is true now; reg-covar was 1e-6 and is 0.1 now; \
                        values of the data differs";
        assert_eq!(back.check(&now), Err(expected.into()));
        assert!(now.check(&saved).unwrap_err().contains("new was true and is not known now"));
    }

    #[test]
    fn settings_are_compared_by_member() {
        #[derive(Serialize)]
        struct Settings {
            seed: u64,
            sampler: Option<f64>,
        }
        let of = |seed, sampler| Identity::of(&Settings { seed, sampler }).unwrap();
        assert_eq!(of(1, Some(0.8)).check(&of(1, Some(0.8))), Ok(()));
        assert_eq!(
            of(1, Some(0.8)).check(&of(2, None)),
            Err("sampler was 0.8 and is none now; seed was 1 and is 2 now".into())
        );
        assert!(Identity::of(&3).is_err());
    }
}
