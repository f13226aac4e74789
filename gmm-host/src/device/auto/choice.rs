//! The rules by which the device `auto` chooses from measured times, between the CPU and the GPU, and between one GPU
//! and all of them. "CPU" here is the side on which evaluations begin, "GPU" the other side.
use gmm_core::model::covariances::CovarianceType;
use gmm_core::precision::Precision;
use std::collections::HashMap;
use std::time::Duration;

/// The costs of a move, and the evaluations that do not pay for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// The time to start the GPU, without the layout of the samples.
    pub start: Duration,
    /// A kind of evaluation that takes the CPU no longer than this stays there.
    pub quick: Duration,
    /// Whether the first evaluation of a kind is slower than others and does not count.
    pub first_is_slow: bool,
}

impl Rules {
    /// From the CPU to a GPU: driver, context and modules (0.31 s on an H200), the longer end of the process (0.06 s),
    /// and a margin, because the number of evaluations to come is a guess. The least time of a GPU's answer is 15 µs.
    pub const TO_A_GPU: Self =
        Self { start: Duration::from_millis(500), quick: Duration::from_micros(15), first_is_slow: false };
    /// From one GPU to all, whose contexts and modules are made at the same time. Starting all and waiting for all
    /// takes some tens of microseconds. The first evaluation of a kind on a GPU includes the choice of its kernel.
    pub const TO_ALL_GPUS: Self =
        Self { start: Duration::from_millis(500), quick: Duration::from_micros(100), first_is_slow: true };
}

/// A longer evaluation is timed only once.
pub(super) const LONG: Duration = Duration::from_millis(50);
/// The E-steps that a fit is expected to need.
const E_STEPS: u32 = 20;
/// The evaluations that a settled evaluator is expected to make: those of a few Markov chains.
const CHAIN: u32 = 30_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Method {
    LogLikelihood,
    LogLikelihoodBatch,
    ScoreSamples,
    Statistics,
    Metropolis,
}

/// Evaluations of one kind take about the same time, and are all made on the same side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    pub method: Method,
    pub n_components: usize,
    pub covariance_type: CovarianceType,
    pub precision: Precision,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Cpu,
    Gpu,
    Reference,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct OnCpu {
    pub count: u32,
    pub fastest: Duration,
}

/// The measurements so far, and the chosen sides.
#[derive(Debug, Clone)]
pub(super) struct Choices {
    /// The time of the CPU's layout of the samples; the GPU's is expected to take as long.
    pub layout: Duration,
    pub rules: Rules,
    pub on_cpu: HashMap<Kind, OnCpu>,
    /// The time of all evaluations on the CPU except scores.
    pub cpu_time: Duration,
    /// The sides of the kinds that have been decided.
    pub sides: HashMap<Kind, Side>,
}

impl Choices {
    pub fn new(layout: Duration, rules: Rules) -> Self {
        Self { layout, rules, on_cpu: HashMap::new(), cpu_time: Duration::ZERO, sides: HashMap::new() }
    }

    pub fn is_made(&self, kind: Kind) -> bool {
        self.sides.contains_key(&kind)
    }

    /// Returns the side of a kind: the CPU until decided otherwise.
    pub fn side(&self, kind: Kind) -> Side {
        self.sides.get(&kind).copied().unwrap_or(Side::Cpu)
    }

    pub fn choose(&mut self, kind: Kind, side: Side) {
        self.sides.insert(kind, side);
    }

    /// Counts an evaluation on the CPU. A kind that is quick there stays there.
    pub fn count(&mut self, kind: Kind, time: Duration) {
        let on_cpu = self.on_cpu.entry(kind).or_insert(OnCpu { count: 0, fastest: Duration::MAX });
        if kind.method != Method::ScoreSamples && !(self.rules.first_is_slow && on_cpu.count == 0) {
            self.cpu_time += time;
        }
        *on_cpu = OnCpu { count: on_cpu.count.saturating_add(1), fastest: on_cpu.fastest.min(time) };
        if on_cpu.fastest < self.rules.quick {
            self.choose(kind, Side::Cpu);
        }
    }

    /// Returns the fastest evaluation of a kind on the CPU, or `None` if there was none.
    pub fn fastest(&self, kind: Kind) -> Option<Duration> {
        self.on_cpu.get(&kind).map(|on_cpu| on_cpu.fastest)
    }

    /// Returns the CPU's expected time for future evaluations of a kind: as many as so far, or the rest of a fit.
    fn expected(&self, kind: Kind) -> Duration {
        let counted = |on_cpu: &&OnCpu| !(self.rules.first_is_slow && on_cpu.count == 1);
        self.on_cpu.get(&kind).filter(counted).map_or(Duration::ZERO, |on_cpu| {
            let fit = if kind.method == Method::Statistics { E_STEPS.saturating_sub(on_cpu.count) } else { 0 };
            on_cpu.fastest.saturating_mul(on_cpu.count.max(fit))
        })
    }

    /// Returns whether the CPU should need longer than a GPU costs for as many evaluations again, of this kind or of
    /// all.
    pub fn start_pays(&self, kind: Kind) -> bool {
        kind.method != Method::ScoreSamples && self.expected(kind).max(self.cpu_time) > self.rules.start + self.layout
    }

    /// Returns whether future evaluations of a kind should take the CPU longer than the layout on a started GPU.
    pub fn layout_pays(&self, kind: Kind) -> bool {
        kind.method != Method::ScoreSamples && self.expected(kind) > self.layout
    }

    /// Returns whether Markov chains would take the CPU longer than a GPU costs, at `fastest` per evaluation.
    pub fn chains_pay(&self, kind: Kind, fastest: Duration) -> bool {
        kind.method != Method::ScoreSamples && fastest.saturating_mul(CHAIN) > self.rules.start + self.layout
    }
}
