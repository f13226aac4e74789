use super::*;
use crate::chain::LEAST;
use crate::chain::group::{Chunk, Group, densities, most, power, scale_of};
use crate::math::Float;
use crate::simt::*;

/// The transitions and start of all groups, and the densities of this one.
#[derive(Clone, Copy)]
struct Memory {
    /// a (C, C).
    transitions: Shared<f64>,
    /// π (C,).
    start: Shared<f64>,
    /// ([`AHEAD`], C).
    densities: Shared<f64>,
}

impl Memory {
    /// Safety: all threads of the block call it, once.
    #[inline(always)]
    unsafe fn new<const C: usize>(parameters: *const f64) -> Self {
        let transitions = Shared::<f64>::at(0);
        let start = transitions.offset(C * C);
        let thread = thread_idx() as usize;
        counted!(for i in (thread..C * C).step_by(block_dim() as usize) {
            // SAFETY: C·C numbers in both places.
            unsafe { transitions.set(i, f64::load(parameters.wrapping_add(2 * C + i))) };
        });
        if thread < C {
            // SAFETY: C numbers in both places.
            unsafe { start.set(thread, f64::load(parameters.wrapping_add(C + thread))) };
        }
        barrier!();
        Self { transitions, start, densities: start.offset(C + thread / C * (AHEAD * C)) }
    }
}

/// A row of a chunk's matrix: `numbers` times 2^`power`.
struct Row<const C: usize> {
    numbers: [f64; C],
    power: i32,
    lost: bool,
}

impl<const C: usize> Row<C> {
    /// Multiplies by the transitions and the densities of the `r`-th row in memory; `from_start`: becomes π times them.
    /// Safety: the memory holds them.
    #[inline(always)]
    unsafe fn multiply(&mut self, memory: Memory, r: usize, from_start: bool, watched: bool) {
        let mut next = [0.0; C];
        // SAFETY: inside the arrays in memory.
        unsafe {
            if from_start {
                counted!(for j in (0..C).step_by(2) {
                    [next[j], next[j + 1]] = memory.start.get_pair(j);
                });
            } else {
                counted!(for i in 0..C {
                    counted!(for j in (0..C).step_by(2) {
                        let [a, b] = memory.transitions.get_pair(i * C + j);
                        next[j] = fma64(self.numbers[i], a, next[j]);
                        next[j + 1] = fma64(self.numbers[i], b, next[j + 1]);
                    });
                });
            }
        }
        let mut sums = [0.0; 2];
        counted!(for j in (0..C).step_by(2) {
            // SAFETY: as above.
            let densities = unsafe { memory.densities.get_pair(r * C + j) };
            counted!(for l in 0..2 {
                let v = next[j + l] * densities[l];
                self.lost |= watched && next[j + l] > 0.0 && v < LEAST;
                sums[l] += v;
                next[j + l] = v;
            });
        });
        let sum = sums[0] + sums[1];
        if sum > LEAST {
            let scale = scale_of(sum);
            counted!(for j in 0..C {
                self.numbers[j] = next[j] * power(scale);
            });
            self.power += 1023 - scale as i32;
        } else {
            // A sum of zero is exact if nothing was lost.
            self.lost |= !(watched && sum == 0.0);
            self.numbers = [0.0; C];
        }
    }
}

#[inline(always)]
unsafe fn body<T: Float, const C: usize>(args: &ProductsArgs<T>) {
    let Group { number, lane } = Group::new::<C>();
    let chain = &args.chain;
    // SAFETY: all threads are here; the chunk exists if its number is below theirs.
    let (memory, chunk, factor) = unsafe {
        let memory = Memory::new::<C>(chain.parameters);
        (memory, Chunk::load(chain, number, number < args.n), f64::load(chain.parameters.wrapping_add(lane as usize)))
    };
    let watched = chain.watched != 0;
    let mut row = Row { numbers: [0.0; C], power: 0, lost: false };
    counted!(for j in 0..C {
        row.numbers[j] = if j as u32 == lane { 1.0 } else { 0.0 };
    });
    // The bound is the same for all lanes of the warp, so that all take part in exchanges.
    let rounds = most(chunk.rows);
    counted!(for n in (0..rounds).step_by(AHEAD as u32) {
        // SAFETY: rows of the chunk.
        let (densities, largest) = unsafe { densities::<T, C, false>(chain, chunk, lane, n, factor) };
        warp_sync();
        counted!(for r in 0..AHEAD {
            // A row that no state reaches, or none.
            row.lost |= largest[r] == f64::NEG_INFINITY && n + (r as u32) < chunk.rows;
            // SAFETY: a place for each lane, which no lane reads now.
            unsafe { memory.densities.set(r * C + lane as usize, densities[r]) };
        });
        warp_sync();
        let rest = chunk.rows.saturating_sub(n) as usize;
        // C³ multiply-adds for each row: code for one row.
        counted!(for r in 0..opaque(AHEAD as u32) as usize {
            not_unrolled();
            if r < rest {
                // SAFETY: the densities were written before `warp_sync`.
                unsafe { row.multiply(memory, r, chunk.begins && n == 0 && r == 0, watched) };
            }
        });
    });
    if number < args.n {
        let at = number as usize * C + lane as usize;
        // States behind the last have no row.
        let lost = row.lost && lane < chain.k;
        // SAFETY: a row and a number for each lane.
        unsafe {
            counted!(for j in 0..C {
                store(args.matrices.add(at * C + j), row.numbers[j]);
            });
            store(args.powers.add(at), if lost { f64::NAN } else { row.power as f64 });
        }
    }
}

kernels! {
    /// Computes each chunk's matrix.
    chain_products_k04_f32: ProductsArgs<f32> = body::<f32, 4>;
    chain_products_k08_f32: ProductsArgs<f32> = body::<f32, 8>;
    chain_products_k16_f32: ProductsArgs<f32> = body::<f32, 16>;
    chain_products_k32_f32: ProductsArgs<f32> = body::<f32, 32>;
    chain_products_k04_f64: ProductsArgs<f64> = body::<f64, 4>;
    chain_products_k08_f64: ProductsArgs<f64> = body::<f64, 8>;
    chain_products_k16_f64: ProductsArgs<f64> = body::<f64, 16>;
    chain_products_k32_f64: ProductsArgs<f64> = body::<f64, 32>;
}
