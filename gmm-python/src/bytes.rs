//! Statistics and mixtures as bytes: a magic word, the covariance model, K and D, and numbers in float64, all little
//! endian. Symmetric matrices are stored as lower triangles, row by row.
use gaussmix::model::{CovarianceModel, CovarianceType, Covariances};
use ndarray::{ArrayView2, ArrayViewMut2};

/// The beginning; its last byte is the version.
pub type Magic = [u8; 8];

/// Writes numbers, and then `matrices` of K components over D features.
pub fn write(
    magic: &Magic,
    model: CovarianceModel,
    (k, d): (usize, usize),
    numbers: impl Iterator<Item = f64>,
    matrices: &Covariances,
) -> Vec<u8> {
    let kind = CovarianceModel::ALL.iter().position(|m| *m == model).unwrap_or_default();
    let size = 8 * (k * d + k + 2 + triangles(matrices.covariance_type(), k, d).unwrap_or(0));
    let mut bytes = Vec::with_capacity(magic.len() + 24 + size);
    bytes.extend(magic);
    [kind, k, d].into_iter().for_each(|n| bytes.extend((n as u64).to_le_bytes()));
    let mut push = |v: f64| bytes.extend(v.to_le_bytes());
    numbers.for_each(&mut push);
    let mut push_triangle = |matrix: ArrayView2<'_, f64>| {
        matrix.outer_iter().enumerate().for_each(|(i, row)| row.iter().take(i + 1).for_each(|v| push(*v)));
    };
    match matrices {
        Covariances::Full(v) => v.outer_iter().for_each(push_triangle),
        Covariances::Tied(v) => push_triangle(v.view()),
        others => others.iter().for_each(push),
    }
    bytes
}

pub struct Read {
    pub model: CovarianceModel,
    pub k: usize,
    pub d: usize,
    pub numbers: Vec<f64>,
    pub matrices: Covariances,
}

/// Reads the bytes of [`write()`]; `n_numbers` of K and D is the count of numbers before the matrices. `None` if the
/// bytes have another length or kind.
pub fn read(magic: &Magic, bytes: &[u8], n_numbers: impl Fn(usize, usize) -> Option<usize>) -> Option<Read> {
    let (head, rest) = bytes.strip_prefix(magic.as_slice())?.split_at_checked(24)?;
    let mut sizes =
        head.chunks_exact(8).map(|b| b.try_into().ok().and_then(|b| usize::try_from(u64::from_le_bytes(b)).ok()));
    let (kind, k, d) = (sizes.next()??, sizes.next()??, sizes.next()??);
    let model = *CovarianceModel::ALL.get(kind)?;
    let covariance_type = model.form();
    let first = n_numbers(k, d)?;
    let total = first.checked_add(triangles(covariance_type, k, d)?)?;
    if k == 0 || d == 0 || rest.len() != total.checked_mul(8)? {
        return None;
    }
    let mut numbers = rest.chunks_exact(8).filter_map(|b| b.try_into().ok().map(f64::from_le_bytes));
    let before = numbers.by_ref().take(first).collect();
    let mut matrices = Covariances::zeros(covariance_type, k, d);
    let mut fill = |mut matrix: ArrayViewMut2<'_, f64>| {
        for i in 0..d {
            for (j, v) in numbers.by_ref().take(i + 1).enumerate() {
                matrix[[i, j]] = v;
                matrix[[j, i]] = v;
            }
        }
    };
    match &mut matrices {
        Covariances::Full(v) => v.outer_iter_mut().for_each(fill),
        Covariances::Tied(v) => fill(v.view_mut()),
        others => *others = Covariances::from_vec(covariance_type, k, d, numbers.collect()).ok()?,
    }
    Some(Read { model, k, d, numbers: before, matrices })
}

/// Returns the count of numbers written for matrices.
fn triangles(covariance_type: CovarianceType, k: usize, d: usize) -> Option<usize> {
    let triangle = || Some(d.checked_mul(d.checked_add(1)?)? / 2);
    match covariance_type {
        CovarianceType::Full => triangle()?.checked_mul(k),
        CovarianceType::Tied => triangle(),
        CovarianceType::Diag => k.checked_mul(d),
        CovarianceType::Spherical => Some(k),
    }
}
