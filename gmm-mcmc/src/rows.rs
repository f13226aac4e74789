//! The numbers of a run's draws.

/// The most numbers of a block: 4 MiB.
const BLOCK: usize = 1 << 19;

/// A row of numbers for each draw of each chain, in the order of the draws: one of each chain, then the next one of
/// each.
///
/// They are in blocks, which do not move as more come. A growing vector sometimes copies all rows, which took an
/// ensemble of 430 walkers as long as thirty iterations.
#[derive(Debug, Clone)]
pub(crate) struct Rows {
    chains: usize,
    width: usize,
    /// Whole rows, [`at_once`](Self::at_once) in each block but the last.
    blocks: Vec<Vec<f64>>,
}

impl Rows {
    /// Returns an empty store for rows of `width` numbers.
    pub fn new(chains: usize, width: usize) -> Self {
        Self { chains, width, blocks: Vec::new() }
    }

    fn at_once(&self) -> usize {
        (BLOCK / self.width).max(1)
    }

    /// Appends the next row, whose parts have [`width`](Self::width) numbers together.
    pub fn push<'p>(&mut self, parts: impl IntoIterator<Item = &'p [f64]>) {
        let full = self.at_once() * self.width;
        if self.blocks.last().is_none_or(|block| block.len() == full) {
            // The first block grows, because a run may be short.
            let room = if self.blocks.is_empty() { 0 } else { full };
            self.blocks.push(Vec::with_capacity(room));
        }
        if let Some(block) = self.blocks.last_mut() {
            parts.into_iter().for_each(|part| block.extend_from_slice(part));
        }
    }

    /// Returns the count of numbers in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the number of draws of each chain.
    pub fn drawn(&self) -> usize {
        let last = self.blocks.last().map_or(0, |block| block.len() / self.width);
        (self.blocks.len().saturating_sub(1) * self.at_once() + last) / self.chains
    }

    /// Returns all rows, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &[f64]> {
        self.blocks.iter().flat_map(|block| block.chunks_exact(self.width))
    }

    pub fn of_chain(&self, chain: usize) -> impl Iterator<Item = &[f64]> {
        let at_once = self.at_once();
        (0..self.drawn()).map(move |draw| {
            let row = draw * self.chains + chain;
            &self.blocks[row / at_once][row % at_once * self.width..][..self.width]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_in_order_and_by_chain_whatever_blocks_they_are_in() {
        // One row in a block, blocks that end within a draw, and one block.
        for (chains, width, draws) in [(3, BLOCK + 1, 2), (7, BLOCK / 10, 9), (2, 3, 5)] {
            let mut rows = Rows::new(chains, width);
            assert_eq!((rows.drawn(), rows.iter().count()), (0, 0));
            for row in 0..chains * draws {
                let numbers = vec![row as f64; width];
                rows.push([&numbers[..1], &numbers[1..]]);
                assert_eq!(rows.drawn(), (row + 1) / chains);
            }
            assert!(rows.iter().all(|row| row.len() == width));
            assert!(rows.iter().map(|row| row[width - 1]).eq((0..chains * draws).map(|row| row as f64)));
            for chain in 0..chains {
                let expected = (0..draws).map(|draw| (draw * chains + chain) as f64);
                assert!(rows.of_chain(chain).map(|row| row[0]).eq(expected), "{chains} chains, {width} numbers");
            }
        }
    }
}
