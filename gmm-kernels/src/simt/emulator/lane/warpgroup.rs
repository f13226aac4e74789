//! Products of a warpgroup, and bulk copies.
use super::super::here;
use super::{CachePolicy, Halves, Shared, exchange_all, pause, warp_sync, widen_halves};
use half::f16;
use std::array::from_fn;
use std::sync::atomic::{AtomicU64, Ordering};

/// A barrier in shared memory at which threads and copies arrive. Its eight bytes: phase (8 bits), threads of a phase
/// (16), threads yet to arrive (16), and bytes expected less bytes arrived, plus [`NONE`] (24).
#[derive(Clone, Copy)]
pub struct Mbarrier {
    bytes: usize,
}

/// No bytes are missing. Bytes may arrive before they are expected.
const NONE: u64 = 1 << 23;

impl Mbarrier {
    pub fn at(bytes: usize) -> Self {
        Self { bytes }
    }
    fn word(&self) -> &'static AtomicU64 {
        let place = Shared::<u64>::at(self.bytes).pointer::<u64>(0);
        // SAFETY: inside the shared memory and aligned; barriers are accessed only here.
        unsafe { AtomicU64::from_ptr(place) }
    }
    pub unsafe fn init(self, threads: u32) {
        let threads = u64::from(threads);
        self.word().store(threads << 40 | threads << 24 | NONE, Ordering::Release);
    }
    /// Changes the numbers yet to arrive, and ends the phase if they are zero.
    fn change(self, threads: u64, expected: u64, arrived: u64) {
        let update = |word: u64| {
            let (phase, all) = (word >> 56, word >> 40 & 0xffff);
            let threads = (word >> 24 & 0xffff).checked_sub(threads)?;
            let bytes = ((word & 0xff_ffff) + expected).checked_sub(arrived)?;
            let ended = threads == 0 && bytes == NONE;
            let (phase, threads) = if ended { (phase ^ 1, all) } else { (phase, threads) };
            Some(phase << 56 | all << 40 | threads << 24 | bytes)
        };
        let changed = self.word().fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
        assert!(changed.is_ok(), "more arrives at a barrier than it waits for");
    }
    pub unsafe fn expect(self, bytes: u32) {
        self.change(1, bytes.into(), 0);
    }
    pub unsafe fn arrive(self) {
        self.change(1, 0, 0);
    }
    pub unsafe fn wait(self, phase: u32) {
        while self.word().load(Ordering::Acquire) >> 56 == u64::from(phase) {
            pause();
        }
    }
}

pub fn mbarriers_ready() {}

impl Shared<Halves> {
    pub unsafe fn copy_bulk(self, from: *const Halves, bytes: u32, barrier: Mbarrier) {
        for i in 0..bytes as usize / 16 {
            self.copy4(4 * i, from.wrapping_add(4 * i), CachePolicy);
        }
        barrier.change(0, 0, bytes.into());
    }
}

/// An operand of a warpgroup's products in shared memory.
#[derive(Clone, Copy)]
pub struct Operand {
    place: Shared<Halves>,
    across: usize,
    along: usize,
}

impl Operand {
    pub fn new(place: Shared<Halves>, across: usize, along: usize) -> Self {
        Self { place, across, along }
    }
    pub fn offset(self, bytes: usize) -> Self {
        Self { place: self.place.offset(bytes / size_of::<Halves>()), ..self }
    }
    /// Number `k` along the sum of row `i`; the rows of a matrix of (8, 8) go along the sum, or across it.
    pub(super) fn number(&self, i: usize, k: usize, rows_along: bool) -> f64 {
        let (row, column) = if rows_along { (i % 8, k % 8) } else { (k % 8, i % 8) };
        let bytes = i / 8 * self.across + k / 8 * self.along + 16 * row + 2 * column;
        // SAFETY: checked; the kernel excludes races.
        let bits = unsafe { *self.place.cast::<u16>().pointer::<u16>(bytes / 2) };
        f16::from_bits(bits).to_f64()
    }
}

/// A warp's (16, 16) numbers of a first operand, in its lanes' registers.
pub(super) struct Registers([[Halves; 4]; 32]);

impl Registers {
    /// All lanes of the warp call it.
    pub(super) fn of(a: [Halves; 4]) -> Self {
        Self(exchange_all(a))
    }
    pub(super) fn number(&self, row: usize, k: usize) -> f64 {
        let register = self.0[row % 8 * 4 + k % 8 / 2][row / 8 % 2 + k / 8 * 2];
        widen_halves(register)[k % 2].into()
    }
}

/// The row and column of number `i` of this thread's part of a result.
pub(super) fn place(i: usize) -> (usize, usize) {
    let (warp, lane) = (here().thread as usize / 32 % 4, here().thread as usize % 32);
    (16 * warp + lane / 4 + 8 * (i / 2 % 2), i / 4 * 8 + 2 * (lane % 4) + i % 2)
}

pub unsafe fn more_registers<const N: u32>() {}

pub unsafe fn fewer_registers<const N: u32>() {}

/// As on the device, rounded once.
pub unsafe fn warpgroup_multiply([a_high, a_low]: [Operand; 2], [b_high, b_low]: [Operand; 2]) -> [f32; 64] {
    let sums = from_fn(|i| {
        let (row, column) = place(i);
        let products = (0..64).map(|k| {
            let [a, a_low] = [a_high, a_low].map(|a| a.number(row, k, true));
            let [b, b_low] = [b_high, b_low].map(|b| b.number(column, k, true));
            a_low * b + a * b_low + a * b
        });
        products.sum::<f64>() as f32
    });
    // The lanes of a warp continue together, when all have read their operands.
    warp_sync();
    sums
}

/// As on the device, rounded once.
pub unsafe fn warpgroup_add(c: &mut [f32; 128], a: [[Halves; 4]; 2], b: [Operand; 4], add: u32) {
    let a = a.map(Registers::of);
    for (i, c) in c.iter_mut().enumerate() {
        let (row, column) = place(i);
        let before = if add == 0 { 0.0 } else { f64::from(*c) };
        let products = (0..4).flat_map(|o| (0..16).map(move |k| (o, k)));
        let products = products.map(|(o, k)| a[o % 2].number(row, k) * b[o].number(column, k, false));
        *c = (before + products.sum::<f64>()) as f32;
    }
    warp_sync();
}

pub fn operands_ready() {}

/// As on the device, rounded once, and finished at once.
pub unsafe fn warpgroup_start<const S: usize>(
    high: &[[Halves; 4]; S],
    low: &[[Halves; 4]; S],
    b: Operand,
) -> [f32; 16] {
    let [high, low] = [high, low].map(|a| a.map(Registers::of));
    let sums = from_fn(|i| {
        let (row, column) = place(i);
        let products = (0..S).flat_map(|s| (0..16).map(move |k| (s, k))).map(|(s, k)| {
            let [a, a_low] = [&high, &low].map(|a| a[s].number(row, k));
            let [b, b_low] = [0, 256].map(|part| b.offset(512 * s + part).number(column, k, true));
            a_low * b + a * b_low + a * b
        });
        products.sum::<f64>() as f32
    });
    warp_sync();
    sums
}

/// Does nothing.
pub fn warpgroup_finish<const LEFT: usize>(_c: &mut [f32; 16]) {}
