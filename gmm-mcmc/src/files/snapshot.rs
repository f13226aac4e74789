//! The saved state of a run, except the numbers of its draws.
use crate::rows::Rows;
use crate::run::Chains;
use crate::samplers::{Settings, State};
use crate::target::{RunIdentity, Variable};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The largest magnitude of a saved number. The sum of two larger ones could be infinite.
const LARGEST: f64 = 1e300;

/// The state of a run, except the numbers of its draws and the evaluations of an interrupted warm-up.
#[derive(Serialize, Deserialize)]
pub(super) struct Snapshot {
    settings: Settings,
    identity: RunIdentity,
    variables: Vec<Variable>,
    warmed: usize,
    /// Whether evaluations of an interrupted NUTS warm-up are saved instead of draws.
    interrupted_warm_up: bool,
    drawn: usize,
    state: State,
}

/// The data saved beside a [`Snapshot`].
pub(super) enum Layout {
    /// The evaluations of an interrupted NUTS warm-up.
    Evaluations,
    Draws {
        chains: usize,
        drawn: usize,
        width: usize,
    },
}

impl Snapshot {
    pub fn of(run: &Chains) -> Self {
        Self {
            settings: run.settings.clone(),
            identity: run.identity.clone(),
            variables: run.variables.clone(),
            warmed: run.warmed,
            interrupted_warm_up: !run.recorded().is_empty(),
            drawn: run.drawn(),
            state: run.state.clone(),
        }
    }

    /// Checks a snapshot that was read from a file, and returns the layout of the data beside it. Errors: the
    /// contradiction.
    pub fn layout(&self) -> Result<Layout, String> {
        self.state.check(&self.settings)?;
        if self.interrupted_warm_up {
            if self.drawn > 0 || !matches!(self.state, State::Nuts(_)) {
                return Err("it is of an interrupted warm-up and has draws".into());
            }
            return Ok(Layout::Evaluations);
        }
        let size = |v: &Variable| v.shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n));
        let statistics = self.settings.sampler.statistics().len();
        let width = self.variables.iter().try_fold(statistics, |sum, v| sum.checked_add(size(v)?));
        let width = width.ok_or("its variables are too large")?;
        Ok(Layout::Draws { chains: self.settings.chains, drawn: self.drawn, width })
    }

    /// Returns the names and shapes of the numbers in a row: statistics, then variables.
    pub fn columns(&self) -> impl Iterator<Item = (&str, &[usize])> {
        let statistics = self.settings.sampler.statistics().iter().map(|name| (*name, &[][..]));
        statistics.chain(self.variables.iter().map(|v| (v.name.as_str(), v.shape.as_slice())))
    }

    /// Returns the run with these rows of draws, whose number and lengths must be those of [`layout`](Self::layout).
    /// Errors: a number that cannot have been drawn, with its place.
    pub fn with_draws(self, rows: Rows) -> Result<Chains, String> {
        for (i, row) in rows.iter().enumerate() {
            if let Some(number) = row.iter().position(|v| !v.is_finite() || v.abs() > LARGEST) {
                let (draw, chain) = (i / self.settings.chains, i % self.settings.chains);
                return Err(self.impossible(chain, draw, number, row[number]));
            }
        }
        Ok(Chains::restore(self.settings, self.identity, self.variables, self.state, self.warmed, rows))
    }

    fn impossible(&self, chain: usize, draw: usize, mut number: usize, value: f64) -> String {
        let mut name = "";
        for (column, shape) in self.columns() {
            let size: usize = shape.iter().product();
            name = column;
            if number < size {
                break;
            }
            number -= size;
        }
        format!(
            "`{name}`, chain {chain}, draw {draw}, number {number} (all counted from 0) is {value:e}, which cannot have been \
             drawn; start afresh"
        )
    }

    /// Returns the run with these evaluations of an interrupted NUTS warm-up. Errors: the reason why they cannot belong
    /// to this run.
    pub fn with_evaluations(mut self, recorded: Vec<f64>) -> Result<Chains, String> {
        let chains = self.settings.chains;
        let dim = self.state.points().0.first().map_or(0, Vec::len);
        if !recorded.len().is_multiple_of(dim + 1) || self.warmed >= chains {
            return Err("the evaluations of its warm-up are damaged; start afresh".into());
        }
        if let State::Nuts(nuts) = &mut self.state {
            nuts.set_recorded(recorded);
        }
        let width = self.columns().map(|(_, shape)| shape.iter().product::<usize>()).sum();
        let rows = Rows::new(chains, width);
        Ok(Chains::restore(self.settings, self.identity, self.variables, self.state, self.warmed, rows))
    }
}

/// Decodes the bytes of a state file, which begin with the name of its format. Errors: another format, or bytes that
/// cannot be decoded.
pub(super) fn decode<T: DeserializeOwned>(format: &str, bytes: &[u8]) -> Result<T, String> {
    let (found, rest) = postcard::take_from_bytes::<&str>(bytes).unwrap_or(("", &[]));
    if found != format {
        return Err(format!("it is of another version, not `{format}`; start afresh"));
    }
    postcard::from_bytes(rest).map_err(|e| format!("its state is damaged ({e})"))
}

pub(super) fn numbers(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect()
}
