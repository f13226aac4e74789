//! The cells of a map, and the cliffs among them.
use super::floor::Task;
use crate::commands::bench::errors::Errors;
use gaussmix::model::CovarianceType;
use serde::Serialize;

/// A cell is a cliff if it takes more than this multiple of its share of a neighbour's time.
const STEEP: f64 = 1.6;

/// A cell as `--json` prints it.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    pub device: String,
    pub task: Task,
    pub covariance_type: &'static str,
    pub n: usize,
    pub d: usize,
    pub k: usize,
    pub seconds: f64,
    /// The least possible time.
    pub floor: f64,
    pub ratio: f64,
    /// The family of the kernels that ran, and all known details of their launch.
    pub family: String,
    pub kernel: String,
    /// The steepest step from a neighbour, if it is a cliff.
    pub cliff: Option<Cliff>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<Errors>,
}

/// A neighbour beside which a cell takes too long.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cliff {
    pub d: usize,
    pub k: usize,
    /// The cell's time, as a multiple of its share of the neighbour's time.
    pub times: f64,
}

/// The cells of a task under one covariance type.
#[derive(Debug)]
pub struct Map {
    pub task: Task,
    pub covariance_type: CovarianceType,
    /// The rows, ascending.
    pub d: Vec<usize>,
    /// The columns, ascending.
    pub k: Vec<usize>,
    pub cells: Vec<Cell>,
}

impl Map {
    pub fn cell(&self, d: usize, k: usize) -> Option<&Cell> {
        self.cells.iter().find(|cell| (cell.d, cell.k) == (d, k))
    }

    /// Finds the cliffs: cells that take more than [`STEEP`] times their share of the time of a neighbour, which is one
    /// step away in D or K. The share is the ratio of the floors, at least 1, because less work need not take less
    /// time.
    pub fn find_cliffs(&mut self) {
        let cliffs: Vec<_> = self.cells.iter().map(|cell| self.cliff(cell)).collect();
        self.cells.iter_mut().zip(cliffs).for_each(|(cell, cliff)| cell.cliff = cliff);
    }

    fn cliff(&self, cell: &Cell) -> Option<Cliff> {
        let of_d = beside(&self.d, cell.d).map(|d| (d, cell.k));
        let of_k = beside(&self.k, cell.k).map(|k| (cell.d, k));
        let steps = of_d.chain(of_k).filter_map(|(d, k)| {
            let neighbour = self.cell(d, k)?;
            let share = (cell.floor / neighbour.floor).max(1.0);
            Some(Cliff { d, k, times: cell.seconds / (share * neighbour.seconds) })
        });
        steps.filter(|step| step.times > STEEP).max_by(|a, b| a.times.total_cmp(&b.times))
    }
}

fn beside(all: &[usize], value: usize) -> impl Iterator<Item = usize> {
    let of = move |pair: &[usize]| match *pair {
        [a, b] if a == value => Some(b),
        [a, b] if b == value => Some(a),
        _ => None,
    };
    all.windows(2).filter_map(of)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Returns a map of EM under diagonal covariances from times and floors in microseconds, row by row; a time of 0
    /// means not measured.
    pub(in super::super) fn map(d: &[usize], k: &[usize], times: &[f64], floors: &[f64]) -> Map {
        let covariance_type = CovarianceType::Diag;
        let places = d.iter().flat_map(|&d| k.iter().map(move |&k| (d, k)));
        let all = places.zip(times.iter().zip(floors)).filter(|(_, (time, _))| **time > 0.0);
        let cells = all.map(|((d, k), (&time, &floor))| Cell {
            device: "cuda".into(),
            task: Task::Em,
            covariance_type: covariance_type.name(),
            n: 1_000_000,
            d,
            k,
            seconds: time * 1e-6,
            floor: floor * 1e-6,
            ratio: time / floor,
            family: if d < 40 { "fused_mma" } else { "products_mma" }.into(),
            kernel: String::new(),
            cliff: None,
            errors: None,
        });
        let mut map = Map { task: Task::Em, covariance_type, d: d.into(), k: k.into(), cells: cells.collect() };
        map.find_cliffs();
        map
    }

    #[test]
    fn a_cliff_is_a_step_beyond_the_share_of_the_work() {
        // Measured on an H100, where other kernels run at 40 features than at 32.
        let map = map(
            &[32, 40, 64],
            &[2, 8],
            &[71.0, 49.0, 340.0, 343.0, 464.0, 473.0],
            &[42.7, 42.7, 53.3, 53.3, 85.3, 85.3],
        );
        let of = |d, k| map.cell(d, k).unwrap().cliff.clone();
        let steep = |cliff: Option<Cliff>| cliff.map(|Cliff { d, k, times }| (d, k, (100.0 * times).round() / 100.0));
        // 340 / (71 · 53.3 / 42.7), and 343 / (49 · 53.3 / 42.7).
        assert_eq!(steep(of(40, 2)), Some((32, 2, 3.84)));
        assert_eq!(steep(of(40, 8)), Some((32, 8, 5.61)));
        // 64 features take less than their share of the time of 40.
        assert_eq!([of(64, 2), of(64, 8), of(32, 2), of(32, 8)], [None, None, None, None]);
    }

    #[test]
    fn less_work_that_takes_longer_is_a_cliff_too() {
        let map = map(&[2, 13], &[8], &[170.0, 100.0], &[10.0, 20.0]);
        assert_eq!(map.cells[0].cliff, Some(Cliff { d: 13, k: 8, times: 1.7 }));
        assert_eq!(map.cells[1].cliff, None);
    }

    #[test]
    fn only_measured_cells_one_step_away_are_neighbours() {
        // The middle was not measured; the ends are two steps apart.
        let map = map(&[2], &[2, 8, 16], &[10.0, 0.0, 1000.0], &[10.0, 10.0, 10.0]);
        assert!(map.cells.len() == 2 && map.cells.iter().all(|cell| cell.cliff.is_none()));
        assert_eq!(beside(&[2, 8, 16], 8).collect::<Vec<_>>(), [2, 16]);
        assert_eq!(beside(&[2, 8, 16], 16).collect::<Vec<_>>(), [8]);
    }
}
