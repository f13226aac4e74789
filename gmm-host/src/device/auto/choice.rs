//! The rules by which the device `auto` chooses between the CPU and the GPU, and between one GPU
//! and all of them, from the times that it has measured. The side that evaluations begin on is
//! called the CPU here, and the other one the GPU.
use gmm_core::model::covariances::CovarianceType;
use gmm_core::precision::Precision;
use std::collections::HashMap;
use std::time::Duration;

/// What a move costs, and what it is not made for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// What the start of the GPU costs besides the layout of the samples.
    pub start: Duration,
    /// A kind of evaluation that the CPU does in this time stays there.
    pub quick: Duration,
    /// Whether the first evaluation of a kind takes longer than others, so that it does not count.
    pub first_is_slow: bool,
}

impl Rules {
    /// From the CPU to a GPU. What a process pays for a GPU: driver, context and modules (0.31 s on
    /// an H200), the longer end of the process (0.06 s), and a margin, because the number of
    /// evaluations to come is a guess. A GPU needs 15 µs to answer at all.
    pub const TO_A_GPU: Self =
        Self { start: Duration::from_millis(500), quick: Duration::from_micros(15), first_is_slow: false };
    /// From one GPU to all. Their contexts and modules are made at the same time. To have all of
    /// them begin, and to wait for all, takes some tens of microseconds. The first evaluation of a
    /// kind on a GPU includes the choice of its kernel.
    pub const TO_ALL_GPUS: Self =
        Self { start: Duration::from_millis(500), quick: Duration::from_micros(100), first_is_slow: true };
}

/// An evaluation that takes longer than this is timed once only.
pub(super) const LONG: Duration = Duration::from_millis(50);
/// The number of E-steps that a fit is expected to need.
const E_STEPS: u32 = 20;
/// The number of evaluations that a settled evaluator is expected to make: what a few Markov chains
/// need.
const CHAIN: u32 = 30_000;

/// The methods of an evaluator that are timed.
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

/// Where evaluations of a kind are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Cpu,
    Gpu,
    Reference,
}

/// The evaluations of a kind that were made on the CPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct OnCpu {
    pub count: u32,
    pub fastest: Duration,
}

/// What has been measured so far, and the sides that were chosen.
#[derive(Debug, Clone)]
pub(super) struct Choices {
    /// The time that the CPU's layout of the samples took; the GPU's is expected to take as long.
    pub layout: Duration,
    pub rules: Rules,
    /// Evaluations on the CPU, by kind.
    pub on_cpu: HashMap<Kind, OnCpu>,
    /// The time of all evaluations on the CPU except scores.
    pub cpu_time: Duration,
    /// The kinds that have been decided about.
    pub sides: HashMap<Kind, Side>,
}

impl Choices {
    pub fn new(layout: Duration, rules: Rules) -> Self {
        Self { layout, rules, on_cpu: HashMap::new(), cpu_time: Duration::ZERO, sides: HashMap::new() }
    }

    pub fn is_made(&self, kind: Kind) -> bool {
        self.sides.contains_key(&kind)
    }

    /// The side of a kind: the CPU, as long as nothing else is decided.
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

    /// The fastest evaluation of a kind on the CPU; none before the first, or if the CPU does not
    /// have the kind.
    pub fn fastest(&self, kind: Kind) -> Option<Duration> {
        self.on_cpu.get(&kind).map(|on_cpu| on_cpu.fastest)
    }

    /// The time that the CPU is expected to need for the evaluations of a kind that are still to
    /// come: as many as there were, or the rest of a fit.
    fn expected(&self, kind: Kind) -> Duration {
        let counted = |on_cpu: &&OnCpu| !(self.rules.first_is_slow && on_cpu.count == 1);
        self.on_cpu.get(&kind).filter(counted).map_or(Duration::ZERO, |on_cpu| {
            let fit = if kind.method == Method::Statistics { E_STEPS.saturating_sub(on_cpu.count) } else { 0 };
            on_cpu.fastest.saturating_mul(on_cpu.count.max(fit))
        })
    }

    /// Whether the CPU is expected to need longer than a GPU costs: for evaluations of this kind,
    /// or for evaluations of all kinds, of which as many are expected as there were.
    pub fn start_pays(&self, kind: Kind) -> bool {
        kind.method != Method::ScoreSamples && self.expected(kind).max(self.cpu_time) > self.rules.start + self.layout
    }

    /// Whether evaluations of a kind are expected to take the CPU longer than the layout of the
    /// samples on a GPU that has been started.
    pub fn layout_pays(&self, kind: Kind) -> bool {
        kind.method != Method::ScoreSamples && self.expected(kind) > self.layout
    }

    /// Whether Markov chains of evaluations that take `fastest` each would take the CPU longer than
    /// a GPU costs.
    pub fn chains_pay(&self, kind: Kind, fastest: Duration) -> bool {
        kind.method != Method::ScoreSamples && fastest.saturating_mul(CHAIN) > self.rules.start + self.layout
    }
}
