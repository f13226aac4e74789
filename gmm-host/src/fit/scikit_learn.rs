//! k-means and k-means++ as scikit-learn makes them, so that equal random numbers give an equal start.
//!
//! Draws and nearest centres follow the formulas, number types and, where possible, the order of
//! `sklearn.cluster.KMeans(n_clusters=K, n_init=1)` and `sklearn.cluster.kmeans_plusplus` (versions 1.3 to 1.9). The
//! order of a sum over many samples depends on the processor in both, so results differ where two numbers are equal but
//! for rounding: two centres equally near a sample, or a random number at the border between two samples.
use super::points::{Distance, Number, Points, plus_plus, running, trials, weighted_sum, wide};
use gmm_core::data::samples::View;
use gmm_core::error::{Error, Result};
use gmm_core::interrupt::Interrupt;
use gmm_core::model::covariances::{CovarianceType, Covariances};
use gmm_core::model::linalg::product;
use gmm_core::statistics::{CentredSums, Statistics};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis};

/// scikit-learn's default limits: Lloyd's iterations, and the centres' squared move over the columns' mean variance.
const MAX_ITER: usize = 300;
const TOL: f64 = 1e-4;

/// Returns the number of uniform random numbers that a start with K centres takes.
///
/// ```
/// // The first centre takes one, each of the others 2 + ⌊ln 3⌋.
/// assert_eq!(gmm_host::scikit_learn::n_uniforms(3), 7);
/// ```
pub fn n_uniforms(k: usize) -> usize {
    1 + k.saturating_sub(1) * trials(k)
}

/// Returns the cluster of each sample (N,) by k-means: `KMeans(k, n_init=1, random_state=r).fit(x,
/// sample_weight=weights).labels_`.
///
/// `uniforms` are the first [`n_uniforms`] numbers of `r.random_sample`. Large work runs on all threads of rayon's
/// pool; their number does not change the result.
///
/// ```
/// use gmm_host::{View, scikit_learn::kmeans};
/// use ndarray::array;
///
/// let x = array![[1.0, 2.0], [1.0, 4.0], [1.0, 0.0], [10.0, 2.0], [10.0, 4.0], [10.0, 0.0]];
/// // np.random.RandomState(0).random_sample(3)
/// let uniforms = [0.5488135039273248, 0.7151893663724195, 0.6027633760716439];
/// assert_eq!(kmeans(View::F64(x.view()), None, 2, &uniforms)?, [1, 1, 1, 0, 0, 0]);
/// # Ok::<(), gmm_host::Error>(())
/// ```
///
/// # Errors
/// [`Error::TooFewSamples`] for fewer samples than clusters, [`Error::ShapeMismatch`] for another number of weights or
/// of uniforms, [`Error::EmptyData`], [`Error::ZeroSampleWeights`], [`Error::Interrupted`].
pub fn kmeans(x: View<'_>, weights: Option<ArrayView1<'_, f64>>, k: usize, uniforms: &[f64]) -> Result<Vec<usize>> {
    match x {
        View::F32(x) => labels(x, weights, k, uniforms),
        View::F64(x) => labels(x, weights, k, uniforms),
    }
}

/// Returns the rows (K,) that k-means++ chooses as centres: `kmeans_plusplus(x, k, sample_weight=weights,
/// random_state=r)[1]`.
///
/// # Errors
/// As [`kmeans`], which has the same arguments.
pub fn kmeans_plusplus(
    x: View<'_>,
    weights: Option<ArrayView1<'_, f64>>,
    k: usize,
    uniforms: &[f64],
) -> Result<Vec<usize>> {
    match x {
        View::F32(x) => chosen(x, weights, k, uniforms),
        View::F64(x) => chosen(x, weights, k, uniforms),
    }
}

/// Returns the statistics of clusters, the samples with the same label (N,), with the log-likelihood 0.
///
/// # Errors
/// [`Error::ShapeMismatch`] for another number of labels or weights than samples, [`Error::NoSuchRow`] for a label that
/// is not below K, [`Error::NonFiniteStatistic`] for sums that are not finite.
pub fn statistics(
    x: View<'_>,
    weights: Option<ArrayView1<'_, f64>>,
    labels: &[usize],
    k: usize,
    covariance_type: CovarianceType,
) -> Result<Statistics> {
    match x {
        View::F32(x) => clusters(x, weights, labels, k, covariance_type),
        View::F64(x) => clusters(x, weights, labels, k, covariance_type),
    }
}

fn clusters<T: Number>(
    x: ArrayView2<'_, T>,
    weights: Option<ArrayView1<'_, f64>>,
    labels: &[usize],
    k: usize,
    covariance_type: CovarianceType,
) -> Result<Statistics> {
    let (n, d) = x.dim();
    for (what, got) in [("the labels", labels.len()), ("the weights", weights.map_or(n, |weights| weights.len()))] {
        if got != n {
            return Err(Error::ShapeMismatch { what, expected: vec![n], got: vec![got] });
        }
    }
    if let Some(&row) = labels.iter().find(|&&label| label >= k) {
        return Err(Error::NoSuchRow { row, n_samples: k });
    }
    let mut of_cluster = vec![Vec::new(); k];
    // A row without weight may be anywhere.
    let counted = labels.iter().enumerate().filter(|(i, _)| weights.is_none_or(|weights| weights[*i] > 0.0));
    counted.for_each(|(i, &c)| of_cluster[c].push(i));
    let (mut counts, mut centres) = (Array1::zeros(k), Array2::zeros((k, d)));
    let mut second = Covariances::zeros(covariance_type, k, d);
    for (c, cluster) in of_cluster.iter().enumerate() {
        let w: Array1<f64> = cluster.iter().map(|&i| weights.map_or(1.0, |weights| weights[i])).collect();
        counts[c] = w.sum();
        if counts[c] <= 0.0 {
            continue;
        }
        // Differences from the cluster's first sample lose nothing for data far from the origin.
        let origin = x.row(cluster[0]).mapv(wide);
        let mut rows = Array2::from_shape_fn((cluster.len(), d), |(i, j)| wide(x[[cluster[i], j]]) - origin[j]);
        let mean = w.dot(&rows) / counts[c];
        rows -= &mean;
        centres.row_mut(c).assign(&(origin + mean));
        let weighted = &rows * &w.insert_axis(Axis(1));
        match &mut second {
            Covariances::Full(v) => v.index_axis_mut(Axis(0), c).assign(&product(weighted.t(), rows.view())),
            Covariances::Tied(v) => *v += &product(weighted.t(), rows.view()),
            Covariances::Diag(v) => v.row_mut(c).assign(&(weighted * rows).sum_axis(Axis(0))),
            Covariances::Spherical(v) => v[c] = (weighted * rows).sum(),
        }
    }
    let (weight, first) = (counts.sum(), Array2::zeros((k, d)));
    Statistics::from_centred_sums(CentredSums { weight, log_likelihood: 0.0, centres, counts, first, second })
}

fn labels<T: Number>(
    x: ArrayView2<'_, T>,
    weights: Option<ArrayView1<'_, f64>>,
    k: usize,
    uniforms: &[f64],
) -> Result<Vec<usize>> {
    let weights = checked(x, weights, k, uniforms)?;
    let (mut rows, d) = (rows_of(x), x.ncols());
    let tol = T::from_f64(TOL) * centre(&mut rows, d);
    let seeds = seeds(&rows, d, &weights, k, uniforms);
    let points = Points::new(rows, d, weights, Distance::LessNorm);
    let centres = seeds.iter().flat_map(|&seed| points.row(seed)).copied().collect();
    lloyd(&points, centres, tol)
}

fn chosen<T: Number>(
    x: ArrayView2<'_, T>,
    weights: Option<ArrayView1<'_, f64>>,
    k: usize,
    uniforms: &[f64],
) -> Result<Vec<usize>> {
    let weights = checked(x, weights, k, uniforms)?;
    Ok(seeds(&rows_of(x), x.ncols(), &weights, k, uniforms))
}

/// Checks the arguments and returns the weights in the type of the samples.
fn checked<T: Number>(
    x: ArrayView2<'_, T>,
    weights: Option<ArrayView1<'_, f64>>,
    k: usize,
    uniforms: &[f64],
) -> Result<Vec<T>> {
    let (n, d) = x.dim();
    if n == 0 || d == 0 {
        return Err(Error::EmptyData { rows: n, columns: d });
    }
    if n < k || k == 0 {
        return Err(Error::TooFewSamples { n_samples: n, n_components: k });
    }
    if uniforms.len() != n_uniforms(k) {
        let (expected, got) = (vec![n_uniforms(k)], vec![uniforms.len()]);
        return Err(Error::ShapeMismatch { what: "the uniform numbers", expected, got });
    }
    let Some(weights) = weights else { return Ok(vec![T::one(); n]) };
    if weights.len() != n {
        return Err(Error::ShapeMismatch { what: "the weights", expected: vec![n], got: vec![weights.len()] });
    }
    if weights.iter().all(|w| *w <= 0.0) {
        return Err(Error::ZeroSampleWeights);
    }
    Ok(weights.iter().map(|&w| T::from_f64(w)).collect())
}

fn rows_of<T: Number>(x: ArrayView2<'_, T>) -> Vec<T> {
    match x.as_slice() {
        Some(rows) => rows.to_vec(),
        None => x.iter().copied().collect(),
    }
}

/// Subtracts from each column its mean; returns the mean of the columns' variances.
fn centre<T: Number>(rows: &mut [T], d: usize) -> T {
    let n = T::from_f64((rows.len() / d) as f64);
    let means: Vec<T> = column_sums(rows, d, |v| v).into_iter().map(|sum| sum / n).collect();
    for row in rows.chunks_exact_mut(d) {
        for (v, mean) in row.iter_mut().zip(&means) {
            *v -= *mean;
        }
    }
    let squares = column_sums(rows, d, |v| v * v);
    squares.into_iter().fold(T::zero(), |sum, v| sum + v / n) / T::from_f64(d as f64)
}

/// Returns the sum of `term` over each column, in NumPy's order: row by row, or pairwise for a single column.
fn column_sums<T: Number>(rows: &[T], d: usize, term: impl Fn(T) -> T + Copy) -> Vec<T> {
    if d == 1 {
        return vec![pairwise_sum(rows, term)];
    }
    let mut sums = vec![T::zero(); d];
    for row in rows.chunks_exact(d) {
        for (sum, v) in sums.iter_mut().zip(row) {
            *sum += term(*v);
        }
    }
    sums
}

/// Returns NumPy's sum of contiguous numbers: halves are added, down to 128 numbers, which are added in eight sums.
fn pairwise_sum<T: Number>(values: &[T], term: impl Fn(T) -> T + Copy) -> T {
    let n = values.len();
    if n < 8 {
        return values.iter().fold(T::zero(), |sum, v| sum + term(*v));
    }
    if n > 128 {
        let half = n / 2 - n / 2 % 8;
        return pairwise_sum(&values[..half], term) + pairwise_sum(&values[half..], term);
    }
    let (eights, rest) = values.as_chunks::<8>();
    let mut sums = eights[0].map(term);
    for eight in &eights[1..] {
        for (sum, v) in sums.iter_mut().zip(eight) {
            *sum += term(*v);
        }
    }
    let sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    rest.iter().fold(sum, |sum, v| sum + term(*v))
}

fn seeds<T: Number>(rows: &[T], d: usize, weights: &[T], k: usize, uniforms: &[f64]) -> Vec<usize> {
    // Products of float32 are formed in float64 too; only the distance is rounded.
    let points = Points::new(rows.iter().map(|&v| wide(v)).collect(), d, Vec::new(), Distance::LessNorm);
    let (first, others) = uniforms.split_at(1);
    let mut draws = std::iter::once(first).chain(others.chunks_exact(trials(k)));
    let candidates = |nearest: &[T]| match draws.next().unwrap_or_default() {
        [uniform] => vec![by_weight(weights, *uniform)],
        uniforms => {
            let potential = wide(weighted_sum(nearest, weights));
            let running = running(weights.iter().zip(nearest).map(|(w, v)| *w * *v));
            let drawn = |uniform: &f64| running.partition_point(|&sum| wide(sum) < uniform * potential);
            uniforms.iter().map(|uniform| drawn(uniform).min(nearest.len() - 1)).collect()
        }
    };
    plus_plus(&points, k, weights, vec![T::infinity(); weights.len()], candidates)
}

/// Returns the row that `choice` of NumPy's `RandomState` draws with probabilities proportional to the weights.
fn by_weight<T: Number>(weights: &[T], uniform: f64) -> usize {
    let total = pairwise_sum(weights, |w| w);
    let running = running(weights.iter().map(|&w| wide(w / total)));
    let sum = running.last().copied().unwrap_or(0.0);
    running.partition_point(|running| running / sum <= uniform).min(running.len() - 1)
}

/// Makes Lloyd's iterations from `centres` (K, D); returns the cluster of each sample.
fn lloyd<T: Number>(points: &Points<T>, mut centres: Vec<T>, tol: T) -> Result<Vec<usize>> {
    let mut before = Vec::new();
    for _ in 0..MAX_ITER {
        Interrupt::current().check()?;
        let labels = points.labels(&centres);
        if labels == before {
            return Ok(labels);
        }
        let moved = moved(points, &centres, &labels);
        let shift = |(a, b): (&[T], &[T])| squared_distance(a, b).sqrt();
        let shifts = moved.chunks_exact(points.d).zip(centres.chunks_exact(points.d)).map(shift);
        let shift = shifts.fold(T::zero(), |sum, shift| sum + shift * shift);
        (centres, before) = (moved, labels);
        if shift <= tol {
            break;
        }
    }
    Ok(points.labels(&centres))
}

/// Returns the means (K, D) of the samples with the same label. An empty cluster gets a sample far from its centre.
fn moved<T: Number>(points: &Points<T>, centres: &[T], labels: &[usize]) -> Vec<T> {
    let d = points.d;
    let mut sums = vec![T::zero(); centres.len()];
    let mut counts = vec![T::zero(); centres.len() / d];
    for ((row, &label), &w) in points.iter().zip(labels).zip(&points.weights) {
        counts[label] += w;
        for (sum, v) in sums[label * d..][..d].iter_mut().zip(row) {
            *sum += *v * w;
        }
    }
    let empty: Vec<usize> = (0..counts.len()).filter(|&c| counts[c] == T::zero()).collect();
    if !empty.is_empty() {
        for (&new, far) in empty.iter().zip(farthest(points, centres, labels, empty.len())) {
            let (old, w) = (labels[far], points.weights[far]);
            for (j, v) in points.row(far).iter().enumerate() {
                sums[old * d + j] -= *v * w;
                sums[new * d + j] = *v * w;
            }
            counts[new] = w;
            counts[old] -= w;
        }
    }
    let fullest = (0..counts.len()).fold(0, |best, c| if counts[c] > counts[best] { c } else { best });
    for (c, count) in counts.iter().enumerate() {
        if *count > T::zero() {
            let factor = T::one() / *count;
            sums[c * d..][..d].iter_mut().for_each(|v| *v *= factor);
        } else {
            // As in scikit-learn, this is whatever stands there now: the largest cluster's centre, or still its sum.
            sums.copy_within(fullest * d..(fullest + 1) * d, c * d);
        }
    }
    sums
}

/// Returns the rows that are farthest from their centres, the farthest first; none if all are at their centres.
fn farthest<T: Number>(points: &Points<T>, centres: &[T], labels: &[usize], count: usize) -> Vec<usize> {
    let distance = |(row, &label): (&[T], &usize)| {
        row.iter().zip(&centres[label * points.d..]).fold(T::zero(), |sum, (v, c)| sum + (*v - *c) * (*v - *c))
    };
    let distances: Vec<T> = points.iter().zip(labels).map(distance).collect();
    if distances.iter().all(|v| *v == T::zero()) {
        return Vec::new();
    }
    let mut order: Vec<usize> = (0..distances.len()).collect();
    order.sort_by(|&a, &b| wide(distances[b]).total_cmp(&wide(distances[a])));
    order.truncate(count);
    order
}

/// Adds four squares at a time, as scikit-learn does.
fn squared_distance<T: Number>(a: &[T], b: &[T]) -> T {
    let square = |i: usize| (a[i] - b[i]) * (a[i] - b[i]);
    let whole = a.len() / 4 * 4;
    let fours = (0..whole).step_by(4).map(|i| square(i) + square(i + 1) + square(i + 2) + square(i + 3));
    fours.chain((whole..a.len()).map(square)).fold(T::zero(), |sum, v| sum + v)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gmm_core::simd::isa::Isa;
    use ndarray::array;

    /// These sums round differently in another order.
    #[test]
    fn sums_are_made_in_numpys_order() {
        // The first eight of ten numbers are added in pairs of pairs, the rest after them.
        let v = [1e16, 1.0, -1e16, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.25];
        assert_eq!(pairwise_sum(&v, |v| v), ((1e16 + 1.0) + (-1e16 + 1.0)) + 4.0 + 0.5 + 0.25);
        // Rows are added one after the other.
        assert_eq!(column_sums(&[1e16, 1.0, 1.0, 2.0, -1e16, 3.0], 2, |v| v), [0.0, 6.0]);
        assert_eq!(crate::fit::points::squared_norm(&[3.0f64, 4.0, 12.0]), 169.0);
    }

    #[test]
    fn centres_without_samples_move_to_the_farthest() {
        let x = array![[0.0], [1.0], [2.0], [50.0]];
        let points = Points::new(rows_of(x.view()), 1, vec![1.0; 4], Distance::LessNorm);
        // The centre at 1000 has no sample; 50 is the sample farthest from its centre, which keeps the other samples.
        assert_eq!(moved(&points, &[0.0, 1000.0], &[0, 0, 0, 0]), [1.0, 50.0]);
        assert_eq!(lloyd(&points, vec![0.0, 1000.0], 0.0).unwrap(), [0, 0, 0, 1]);
    }

    /// With more centres than different rows, each sample gets the first of equal centres, as in scikit-learn.
    #[test]
    fn equal_rows_share_the_first_centre() {
        let x = Array2::from_elem((20, 2), 0.25f32);
        assert_eq!(kmeans(View::F32(x.view()), None, 2, &[0.5, 0.1, 0.9]).unwrap(), [0; 20]);
    }

    /// Instruction sets and threads give one result; 60,000 rows are divided among threads.
    #[test]
    fn every_instruction_set_gives_the_same_labels() {
        let x = Array2::from_shape_fn((60_000, 5), |(i, j)| ((i * (2 * j + 3)) as f64).sin() + (i % 4) as f64 * 3.0);
        let rows = rows_of(x.view());
        let of = |isa: Isa| {
            let points = Points { isa, ..Points::new(rows.clone(), 5, vec![1.0; 60_000], Distance::LessNorm) };
            lloyd(&points, rows[..20].to_vec(), 1e-4).unwrap()
        };
        let one = of(Isa::best());
        assert!((0..4).all(|c| one.contains(&c)));
        for isa in Isa::available() {
            assert_eq!(of(isa), one, "{}", isa.name());
        }
    }

    /// Moments of small integers match those by hand, also far from the origin.
    #[test]
    fn statistics_of_labels_are_those_of_the_clusters() {
        let x = array![[1e9, 0.0], [1e9 + 2.0, 0.0], [5.0, 7.0], [1e9 + 4.0, 6.0]];
        let weights = array![1.0, 2.0, 3.0, 1.0];
        let of = |t| statistics(View::F64(x.view()), Some(weights.view()), &[0, 0, 2, 0], 3, t).unwrap();
        let full = of(CovarianceType::Full);
        assert_eq!(full.counts(), array![4.0, 0.0, 3.0]);
        assert_eq!(full.means().row(0), array![1e9 + 2.0, 1.5]);
        assert_eq!(full.means().row(2), array![5.0, 7.0]);
        // Around the mean: (−2, −1.5), twice (0, −1.5), (2, 4.5).
        let Covariances::Full(scatter) = full.scatter() else { panic!("{full:?}") };
        assert_eq!(scatter.index_axis(Axis(0), 0), array![[8.0, 12.0], [12.0, 27.0]]);
        let Covariances::Tied(scatter) = of(CovarianceType::Tied).scatter().clone() else { panic!() };
        assert_eq!(scatter, array![[8.0, 12.0], [12.0, 27.0]]);
        let Covariances::Diag(scatter) = of(CovarianceType::Diag).scatter().clone() else { panic!() };
        assert_eq!(scatter.row(0), array![8.0, 27.0]);
        let Covariances::Spherical(scatter) = of(CovarianceType::Spherical).scatter().clone() else { panic!() };
        assert_eq!(scatter[0], 35.0);
        let wrong = statistics(View::F64(x.view()), None, &[0, 0, 3, 0], 3, CovarianceType::Diag);
        assert!(matches!(wrong, Err(Error::NoSuchRow { row: 3, n_samples: 3 })));
    }

    /// Rows without weight may be anywhere.
    #[test]
    fn statistics_of_rows_without_weight() {
        let x = array![[1e20, 1e20], [1.0, 2.0], [1.5, 2.5], [9.0, 8.0], [9.5, 8.0]];
        let weights = array![0.0, 1.0, 1.0, 1.0, 1.0];
        let of = |x, weights, labels| statistics(View::F64(x), weights, labels, 1, CovarianceType::Full).unwrap();
        let few = x.slice(ndarray::s![1.., ..]);
        assert_eq!(of(x.view(), Some(weights.view()), &[0; 5]), of(few, None, &[0; 4]));
    }

    #[test]
    fn wrong_arguments_and_interrupts_are_errors() {
        let x = array![[0.0], [1.0]];
        let of = |weights, k, uniforms: &[f64]| kmeans(View::F64(x.view()), weights, k, uniforms);
        assert!(matches!(of(None, 3, &[0.0; 7]), Err(Error::TooFewSamples { n_samples: 2, n_components: 3 })));
        assert!(matches!(of(None, 2, &[0.0; 2]), Err(Error::ShapeMismatch { .. })));
        let (short, zero) = (array![1.0], array![0.0, 0.0]);
        assert!(matches!(of(Some(short.view()), 2, &[0.0; 3]), Err(Error::ShapeMismatch { .. })));
        assert!(matches!(of(Some(zero.view()), 2, &[0.0; 3]), Err(Error::ZeroSampleWeights)));
        let interrupt = Interrupt::default();
        interrupt.raise();
        assert!(matches!(interrupt.install(|| of(None, 2, &[0.0; 3])), Err(Error::Interrupted)));
    }
}
