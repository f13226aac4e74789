//! What to do about data that is too much for the arithmetic.
use gmm::Error;

/// How the data reached the engine.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances {
    pub float64: bool,
    pub standardized: bool,
    /// Whether the command has `--standardize`.
    pub fit: bool,
}

/// The error with advice that was not followed already.
pub fn advise(error: Error, circumstances: Circumstances) -> anyhow::Error {
    let Circumstances { float64, standardized, fit } = circumstances;
    let advice = match &error {
        Error::UnreachableSample { .. } => match (fit, standardized) {
            (false, _) => "is the model of data in these units? If so, leave the sample out",
            (true, false) => "use --standardize, another start, or leave the sample out",
            (true, true) => "use another start, or leave the sample out",
        },
        Error::NonFiniteStatistic { .. } => match (fit && !standardized, float64) {
            (true, false) => "use --standardize, or float64 data",
            (true, true) => {
                "use --standardize, or divide the data by a constant, until squares of its values are finite"
            }
            (false, false) => "use float64 data",
            (false, true) => "divide the data by a constant, until squares of its values are finite",
        },
        Error::OutOfRange { .. } => match float64 {
            false => "use float64 data on the CPU, or --device reference",
            true => "use --device reference, or leave out the samples that are so far away",
        },
        _ => return error.into(),
    };
    // The engine's own advice, which is for all data, comes after the semicolon.
    let text = error.to_string();
    let fact = text.split_once("; ").map_or(text.as_str(), |(fact, _)| fact);
    anyhow::anyhow!("{fact}; {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_advised_that_is_so_already() {
        let errors: [fn() -> Error; 3] = [
            || Error::UnreachableSample { row: 3 },
            || Error::NonFiniteStatistic { what: "the count", component: 1, value: f64::NAN },
            || Error::OutOfRange { component: 1, column: 2, precision: "float64" },
        ];
        let facts = ["row 3 (counted from 0) is infinitely far", "the count of component 1", "column 2"];
        for (error, fact) in errors.iter().zip(facts) {
            for (float64, standardized, fit) in [
                (false, false, false),
                (false, false, true),
                (false, true, true),
                (true, false, true),
                (true, true, true),
            ] {
                let text = advise(error(), Circumstances { float64, standardized, fit }).to_string();
                let (said, advice) = text.split_once("; ").unwrap();
                assert!(said.contains(fact) && !advice.is_empty(), "{text}");
                assert!(!(float64 && advice.contains("float64")), "{text}");
                assert!(!((standardized || !fit) && advice.contains("standardi")), "{text}");
            }
        }
        let other = Error::EmptyData { rows: 0, columns: 1 };
        let text = other.to_string();
        let same = advise(other, Circumstances { float64: true, standardized: true, fit: true });
        assert_eq!(same.to_string(), text);
    }
}
