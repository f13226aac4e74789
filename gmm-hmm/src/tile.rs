//! Rows in columns of [`LANES`], which vector instructions read, and elementary functions for them.
use gmm_host::data::View;

/// The rows of a tile.
pub(crate) const LANES: usize = 32;

/// A number for each row of a tile.
pub(crate) type Lanes = [f64; LANES];

/// Stands for no row in a list of rows.
pub(crate) const NO_ROW: usize = usize::MAX;

/// Writes [`LANES`] rows into `columns` (D, LANES), with zeros for [`NO_ROW`] and for rows with missing values. Returns
/// a bit for each row with a missing value.
#[inline(always)]
pub(crate) fn fill(view: &View<'_>, rows: &[usize], columns: &mut [Lanes]) -> u32 {
    match view {
        View::F32(x) => transpose(rows, columns, |i| x.row(i).to_slice().unwrap_or_default(), |i, j| x[[i, j]].into()),
        View::F64(x) => transpose(rows, columns, |i| x.row(i).to_slice().unwrap_or_default(), |i, j| x[[i, j]]),
    }
}

#[inline(always)]
fn transpose<'a, T: Copy + Into<f64> + 'a>(
    rows: &[usize],
    columns: &mut [Lanes],
    row: impl Fn(usize) -> &'a [T],
    at: impl Fn(usize, usize) -> f64,
) -> u32 {
    let mut missing = 0;
    for (lane, &i) in rows.iter().enumerate().take(LANES) {
        let mut seen = 0.0;
        match if i == NO_ROW { &[] } else { row(i) } {
            [] => columns.iter_mut().enumerate().for_each(|(j, column)| {
                column[lane] = if i == NO_ROW { 0.0 } else { at(i, j) };
                seen += 0.0 * column[lane];
            }),
            row => columns.iter_mut().zip(row).for_each(|(column, v)| {
                column[lane] = (*v).into();
                seen += 0.0 * column[lane];
            }),
        }
        // Infinite values are not in checked samples.
        if seen != 0.0 {
            missing |= 1 << lane;
            columns.iter_mut().for_each(|column| column[lane] = 0.0);
        }
    }
    missing
}

/// Returns eˣ for x ≤ 0, within two units in the last place, and 0 below −708. It has no branches and no fused
/// operations, so loops use vector instructions and have the same bits on every machine.
#[inline(always)]
pub(crate) fn exp(x: f64) -> f64 {
    // Adding it rounds to an integer, in the last bits of the sum.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    const LN_2: [f64; 2] = [0.693_147_180_369_123_8, 1.908_214_929_270_587_7e-10];
    // 1/n!
    const TERMS: [f64; 13] = [
        1.605_904_383_682_161_3e-10,
        2.087_675_698_786_809_8e-9,
        2.505_210_838_544_172e-8,
        2.755_731_922_398_589e-7,
        2.755_731_922_398_589e-6,
        2.480_158_730_158_73e-5,
        1.984_126_984_126_984e-4,
        1.388_888_888_888_889e-3,
        8.333_333_333_333_333e-3,
        4.166_666_666_666_666_4e-2,
        1.666_666_666_666_666_6e-1,
        0.5,
        1.0,
    ];
    let clamped = if x > -708.0 { x } else { -708.0 };
    let sum = clamped * std::f64::consts::LOG2_E + ROUND;
    let n = sum - ROUND;
    let r = clamped - n * LN_2[0] - n * LN_2[1];
    let mut p = TERMS[0];
    for term in &TERMS[1..] {
        p = p * r + term;
    }
    p = p * r + 1.0;
    let scaled = f64::from_bits(p.to_bits().wrapping_add(sum.to_bits() << 52));
    if x > -708.0 { scaled } else { 0.0 }
}

#[cfg(test)]
mod tests {
    /// Two units in the last place, from the rounding of the reduced argument and of the polynomial.
    #[test]
    fn exp_is_that_of_the_system() {
        for i in 0..200_000 {
            let x = -f64::from(i) * 0.0035;
            let (got, want) = (super::exp(x), x.exp());
            assert!((got - want).abs() <= 2.0 * f64::EPSILON * want, "{x}: {got} for {want}");
        }
        assert_eq!(super::exp(f64::NEG_INFINITY), 0.0);
        assert_eq!(super::exp(0.0), 1.0);
    }
}
