use super::*;

/// A warp's samples in its two stages in shared memory.
pub(crate) struct Stages<'a, const D: usize> {
    pub(crate) columns: &'a Columns,
    /// (2, D, [`TILE`]).
    pub(crate) ring: Shared<f32>,
    pub(crate) lane: usize,
    pub(crate) cached: CachePolicy,
    pub(crate) streamed: CachePolicy,
}

impl<const D: usize> Stages<'_, D> {
    /// Starts to copy the quads from `base` on, one for each lane, to a stage; past the end it copies nothing.
    /// Safety: no lane reads the stage.
    #[inline(always)]
    pub(crate) unsafe fn fetch(&self, base: u32, stage: usize) {
        self.fetch_by::<false>(base, stage)
    }

    /// As [`fetch`](Self::fetch). `THREAD` keeps the copies' address in a register of each thread, needed if ring and
    /// stage are uniform in the block ([`Shared::in_thread_register`]). All lanes take part.
    /// Safety: as for [`fetch`](Self::fetch).
    #[inline(always)]
    pub(crate) unsafe fn fetch_by<const THREAD: bool>(&self, base: u32, stage: usize) {
        let columns = self.columns;
        let place =
            if THREAD { self.ring.offset(stage * D * TILE + QUAD * self.lane).in_thread_register() } else { self.ring };
        if base < columns.quads() {
            let last = columns.quads() - 1;
            // Past the end the last quad is read again, with likelihoods of zero.
            let quad = if base + (self.lane as u32) < last { base + self.lane as u32 } else { last };
            let policy = if quad < columns.cached_quads { self.cached } else { self.streamed };
            // One column after the other: the addresses of all columns at once would take registers.
            let quads = opaque((columns.stride / QUAD as u64) as u32) as usize;
            let mut from = columns.quad(quad, 0);
            counted!(for j in 0..D {
                // SAFETY: the quad exists, and the ring has a place for each lane, feature and stage.
                if THREAD {
                    place.copy4(j * TILE, from, policy);
                } else {
                    self.ring.copy4((stage * D + j) * TILE + QUAD * self.lane, from, policy);
                }
                from = from.wrapping_add(QUAD * quads);
            });
        }
        copies_commit();
    }

    /// The samples of a stage, (D, [`TILE`]).
    #[inline(always)]
    pub(crate) fn stage(&self, stage: usize) -> Shared<f32> {
        self.ring.offset(stage * D * TILE)
    }
}
