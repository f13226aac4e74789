//! Advice for errors about data that is too large, too far away or too precise for the arithmetic.
use gaussmix::Error;

/// Treatments the data has had already, which are therefore not advised.
#[derive(Debug, Clone, Copy)]
pub struct Treatment {
    pub float64: bool,
    pub standardized: bool,
    pub can_standardize: bool,
}

/// Replaces the advice in an error of the engine by advice that the user has not followed yet. Uses the features'
/// names, if any.
pub fn advise(error: Error, treatment: Treatment, names: Option<&[String]>) -> anyhow::Error {
    let Treatment { float64, standardized, can_standardize } = treatment;
    if let Error::NotPositiveDefinite { pivot, .. } = &error {
        let name = names.and_then(|names| names.get(*pivot)).map_or_else(|| pivot.to_string(), Clone::clone);
        let standardize = if can_standardize && !standardized { ", use --standardize" } else { "" };
        return anyhow::anyhow!(
            "{}; column `{name}` is constant there or a combination of those before it: leave it out with \
             --drop {name}{standardize}, or use a larger --reg-covar or fewer components",
            fact(&error)
        );
    }
    let advice = match &error {
        Error::UnreachableSample { .. } => match (can_standardize, standardized) {
            (false, _) => "is the model of data in these units? If so, leave the sample out",
            (true, false) => "use --standardize, another start, or leave the sample out",
            (true, true) => "use another start, or leave the sample out",
        },
        Error::NonFiniteStatistic { .. } => match (can_standardize && !standardized, float64) {
            (true, false) => "use --standardize, or float64 data",
            (true, true) => {
                "use --standardize, or divide the data by a constant, until squares of its values are finite"
            }
            (false, false) => "use float64 data",
            (false, true) => "divide the data by a constant, until squares of its values are finite",
        },
        _ => return error.into(),
    };
    anyhow::anyhow!("{}; {advice}", fact(&error))
}

/// Replaces the advice in an error about the values of a feature by options of this program. `option` is the feature as
/// `--drop` takes it.
pub fn about_values(error: Error, option: &str) -> anyhow::Error {
    match &error {
        Error::NonFiniteSample { value, .. } if value.is_infinite() => anyhow::anyhow!(
            "{}; leave the column out with --drop {option}; if it stands for a missing value, --na-values {value} \
             --missing says so",
            fact(&error)
        ),
        Error::UnobservedColumn { .. } => {
            anyhow::anyhow!("{}; leave the column out with --drop {option}", fact(&error))
        }
        _ => error.into(),
    }
}

/// Returns the engine's text up to the semicolon: its advice does not know this program's options.
fn fact(error: &Error) -> String {
    let text = error.to_string();
    text.split_once("; ").map_or(text.clone(), |(fact, _)| fact.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_advised_that_was_done_already() {
        let errors: [fn() -> Error; 2] = [
            || Error::UnreachableSample { row: 3 },
            || Error::NonFiniteStatistic { what: "the count", component: 1, value: f64::NAN },
        ];
        let facts = ["row 3 (counted from 0) is infinitely far", "the count of component 1"];
        for (error, fact) in errors.iter().zip(facts) {
            for (float64, standardized, can_standardize) in [
                (false, false, false),
                (false, false, true),
                (false, true, true),
                (true, false, true),
                (true, true, true),
            ] {
                let text = advise(error(), Treatment { float64, standardized, can_standardize }, None).to_string();
                let (said, advice) = text.split_once("; ").unwrap();
                assert!(said.contains(fact) && !advice.is_empty(), "{text}");
                assert!(!(float64 && advice.contains("float64")), "{text}");
                assert!(!((standardized || !can_standardize) && advice.contains("standardi")), "{text}");
            }
        }
        let other = Error::EmptyData { rows: 0, columns: 1 };
        let text = other.to_string();
        let treated = Treatment { float64: true, standardized: true, can_standardize: true };
        assert_eq!(advise(other, treated, None).to_string(), text);
    }

    #[test]
    fn a_column_that_follows_from_others_is_named() {
        let names = ["left".to_string(), "total".into()];
        for (standardized, names, name) in
            [(false, Some(&names[..]), "total"), (true, Some(&names[..]), "total"), (true, None, "1")]
        {
            let treatment = Treatment { float64: true, standardized, can_standardize: true };
            let text = advise(Error::NotPositiveDefinite { component: None, pivot: 1 }, treatment, names).to_string();
            assert!(text.contains(&format!("column `{name}` is constant there or a combination")), "{text}");
            assert_eq!(text.contains("--standardize"), !standardized, "{text}");
        }
    }
}
