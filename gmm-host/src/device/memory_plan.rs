//! The part of a data set that is in memory at a time.

/// The most bytes of a chunk. Larger chunks are not faster.
const MAX_CHUNK_BYTES: u64 = 256 << 20;

/// The memory that a data set takes.
///
/// ```
/// use gmm_host::Footprint;
///
/// // A file of 10⁶ samples of 10 numbers in float64, half of which 64 MiB could hold as they are.
/// let file = Footprint { n_samples: 1_000_000, bytes: 80_000_000, held: 0, in_device: 1, is_read: false };
/// let plan = file.within(64 << 20, || false);
/// assert!(plan.chunk_rows.is_some_and(|rows| (rows as u64 * 80) * 3 <= 64 << 20));
/// assert_eq!(file.within(1 << 30, || false).chunk_rows, None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    /// N.
    pub n_samples: usize,
    /// The bytes of all values.
    pub bytes: u64,
    /// The bytes that are in memory in any case.
    pub held: u64,
    /// The number of copies of the values in a device: one, in its own layout.
    pub in_device: u64,
    /// Whether the values are in memory already. Otherwise, they are read into memory before they go to a device.
    pub is_read: bool,
}

/// The part of a data set that is in memory at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryPlan {
    /// The samples of a chunk, or `None` if all samples fit in memory.
    pub chunk_rows: Option<usize>,
    /// The bytes that some samples' values may take in a pass that looks at each sample once.
    pub part: u64,
    /// The least bytes that the plan can do with, one sample at a time.
    pub least: u64,
}

impl Footprint {
    /// Returns a plan of at most `memory` bytes, or of [`MemoryPlan::least`] if that is more. `on_gpus` returns whether
    /// GPUs have room for the copy in a device's layout, so that it does not take this memory.
    pub fn within(self, memory: u64, on_gpus: impl FnOnce() -> bool) -> MemoryPlan {
        let Self { n_samples, bytes, held, in_device, is_read } = self;
        let copies = bytes.saturating_mul(in_device + u64::from(!is_read));
        // One more part of this size is left for the device's other memory.
        let parts = 2 + in_device;
        let (row, part) = ((bytes / n_samples.max(1) as u64).max(1), memory.saturating_sub(held) / parts);
        let part = if part < row { memory / parts } else { part };
        let fits = |copies: u64| held.saturating_add(copies) <= memory;
        let whole = fits(copies) || fits(copies - bytes) && on_gpus();
        let rows = || usize::try_from(part.min(MAX_CHUNK_BYTES) / row).unwrap_or(usize::MAX).clamp(1, n_samples.max(1));
        MemoryPlan { chunk_rows: (!whole).then(rows), part, least: held.saturating_add(parts.saturating_mul(row)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLES: Footprint = Footprint { n_samples: 1000, bytes: 10_000, held: 0, in_device: 1, is_read: true };

    #[test]
    fn whole_where_it_fits_and_chunks_in_three_parts_otherwise() {
        let rows = |footprint: Footprint, memory| footprint.within(memory, || false).chunk_rows;
        assert_eq!(rows(SAMPLES, 10_000), None);
        assert_eq!(rows(SAMPLES, 9_999), Some(333));
        assert_eq!(rows(SAMPLES, 0), Some(1));
        // Values still to be read take room too, and so do held bytes.
        assert_eq!(rows(Footprint { is_read: false, ..SAMPLES }, 19_999), Some(666));
        assert_eq!(rows(Footprint { is_read: false, ..SAMPLES }, 20_000), None);
        assert_eq!(rows(Footprint { held: 3_000, ..SAMPLES }, 12_999), Some(333));
        assert_eq!(rows(Footprint { in_device: 2, ..SAMPLES }, 19_999), Some(499));
        // No chunk exceeds the maximum.
        let large = Footprint { n_samples: 1 << 40, bytes: 1 << 50, ..SAMPLES };
        assert_eq!(rows(large, 1 << 49), Some(1 << 18));
        assert_eq!(rows(Footprint { n_samples: 0, bytes: 0, ..SAMPLES }, 0), None);
    }

    #[test]
    fn what_gpus_hold_is_not_in_this_memory() {
        let file = Footprint { is_read: false, ..SAMPLES };
        assert_eq!(file.within(10_000, || true).chunk_rows, None);
        assert!(file.within(9_999, || true).chunk_rows.is_some());
        assert!(file.within(20_000, || panic!("not asked where it fits anyway")).chunk_rows.is_none());
    }

    #[test]
    fn the_least_memory_is_that_of_one_sample_in_each_part() {
        let footprint = Footprint { held: 100, in_device: 2, ..SAMPLES };
        let least = footprint.within(1, || false).least;
        assert_eq!(least, 140);
        assert_eq!(footprint.within(least, || false), MemoryPlan { chunk_rows: Some(1), part: 10, least });
        // With less, the plan ignores held bytes.
        assert_eq!(footprint.within(least - 1, || false).part, 34);
    }
}
