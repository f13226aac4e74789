//! Exact solution of the transport problem of a few weights.
use crate::error::Result;
use crate::interrupt::Interrupt;
use ndarray::Array2;

/// Returns the plan w ≥ 0 (K, L) of the least Σᵢⱼ wᵢⱼ cᵢⱼ, for costs c ≥ 0 (K, L), whose rows sum to the supply (K,)
/// and whose columns sum to the demand (L,). Supply and demand have equal sums.
///
/// Finds one shortest path after the other (as in Kuhn's Hungarian method): the prices u and v keep cᵢⱼ − uᵢ − vⱼ ≥ 0,
/// with 0 wherever w > 0, so the plan is the cheapest at all times. Each path empties a source, fills a
/// sink, or undoes a flow.
///
/// # Errors
/// [`Error::Interrupted`](crate::error::Error::Interrupted).
pub(super) fn cheapest_plan(costs: &Array2<f64>, supply: Vec<f64>, mut demand: Vec<f64>) -> Result<Array2<f64>> {
    let (k, l) = costs.dim();
    let mut plan = Array2::zeros((k, l));
    let (mut u, mut v) = (vec![0.0; k], vec![0.0; l]);
    for (source, mut supply) in supply.into_iter().enumerate() {
        while supply > 0.0 {
            Interrupt::current().check()?;
            let Some(tree) = Tree::grow(costs, &plan, &u, &v, source, &demand) else {
                // Only rounding errors are left.
                break;
            };
            for (u, distance) in u.iter_mut().zip(&tree.sources) {
                *u += (tree.length - distance).max(0.0);
            }
            for (v, distance) in v.iter_mut().zip(&tree.sinks) {
                *v -= (tree.length - distance).max(0.0);
            }
            let path = tree.path();
            let brought = path.iter().map(|(_, _, back)| back.map_or(f64::INFINITY, |j| plan[[j.0, j.1]]));
            let brought = brought.fold(supply.min(demand[tree.end]), f64::min);
            for (i, j, back) in path {
                plan[[i, j]] += brought;
                if let Some(back) = back {
                    plan[[back.0, back.1]] -= brought;
                }
            }
            supply -= brought;
            demand[tree.end] -= brought;
        }
    }
    Ok(plan)
}

/// The shortest paths from a source to the nearest sink with demand left. Undoing a flow has the reduced cost 0.
struct Tree {
    /// The distances of the sources and sinks; infinite beyond the end.
    sources: Vec<f64>,
    sinks: Vec<f64>,
    /// The predecessors: a sink for each source, and a source for each sink.
    before_source: Vec<Option<usize>>,
    before_sink: Vec<usize>,
    end: usize,
    length: f64,
}

/// The source and sink of a step of a path, and the (source, sink) whose flow the previous step undoes to supply this
/// one.
type Step = (usize, usize, Option<(usize, usize)>);

impl Tree {
    fn grow(
        costs: &Array2<f64>,
        plan: &Array2<f64>,
        u: &[f64],
        v: &[f64],
        source: usize,
        demand: &[f64],
    ) -> Option<Self> {
        let (k, l) = costs.dim();
        let mut sources = vec![f64::INFINITY; k];
        sources[source] = 0.0;
        let (mut before_source, mut before_sink) = (vec![None; k], vec![source; l]);
        // Distances over the sources reached so far, and the final ones.
        let (mut nearest, mut sinks) = (vec![f64::INFINITY; l], vec![f64::INFINITY; l]);
        let mut reached = vec![source];
        loop {
            for i in reached.drain(..) {
                for j in (0..l).filter(|j| sinks[*j].is_infinite()) {
                    let distance = sources[i] + (costs[[i, j]] - u[i] - v[j]).max(0.0);
                    if distance < nearest[j] {
                        (nearest[j], before_sink[j]) = (distance, i);
                    }
                }
            }
            let open = (0..l).filter(|j| sinks[*j].is_infinite() && nearest[*j] < f64::INFINITY);
            let end = open.min_by(|a, b| nearest[*a].total_cmp(&nearest[*b]))?;
            let length = nearest[end];
            sinks[end] = length;
            if demand[end] > 0.0 {
                return Some(Self { sources, sinks, before_source, before_sink, end, length });
            }
            reached.extend((0..k).filter(|i| sources[*i].is_infinite() && plan[[*i, end]] > 0.0));
            for i in &reached {
                (sources[*i], before_source[*i]) = (length, Some(end));
            }
        }
    }

    /// Returns the steps to the end, the last one first.
    fn path(&self) -> Vec<Step> {
        let (mut steps, mut sink) = (Vec::new(), self.end);
        loop {
            let source = self.before_sink[sink];
            let back = self.before_source[source];
            steps.push((source, sink, back.map(|j| (source, j))));
            match back {
                Some(before) => sink = before,
                None => return steps,
            }
        }
    }
}
