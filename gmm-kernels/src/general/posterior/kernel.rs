use super::*;
use crate::data::QUAD;
use crate::math::{Float, float64, warp_sum};
use crate::reduce::Output;
use crate::simt::*;

/// Components whose numbers stay in registers, and others whose numbers are read before any is used.
const HELD: u32 = FEW as u32;
const AT_ONCE: u32 = 4;

/// A sample, and the components that a lane goes through: every `parts`-th from `first` on.
#[derive(Clone, Copy)]
struct Part<'a, T> {
    args: &'a PosteriorArgs<T>,
    sample: usize,
    first: u32,
    /// wₖ.
    weights: *const T,
    /// The numbers of the first components: qₖ, then terms.
    held: [T; HELD as usize],
}

/// Σₖ wₖ·2^(qₖ − maximum), the largest term, and its component.
#[derive(Clone, Copy)]
struct Terms<T> {
    sum: T,
    largest: T,
    label: u32,
}

impl<T: Float> Terms<T> {
    const NONE: Self = Self { sum: T::ZERO, largest: T::ZERO, label: 0 };

    /// Adds the terms of other components; of equal terms, the first component's counts as the largest.
    #[inline(always)]
    fn add(&mut self, other: Self) {
        self.sum = self.sum + other.sum;
        let first = other.largest == self.largest && other.label < self.label;
        if other.largest > self.largest || first {
            (self.largest, self.label) = (other.largest, other.label);
        }
    }
}

impl<T: Float> Part<'_, T> {
    /// The address of qₖ.
    #[inline(always)]
    fn q(self, k: u32) -> *mut T {
        self.args.q.wrapping_add(k as usize * self.args.stride as usize + self.sample)
    }

    /// Reads qₖ of the first components.
    /// Safety: the sample exists.
    #[inline(always)]
    unsafe fn read(mut self) -> Self {
        counted!(for i in 0..HELD {
            let k = self.first + i * self.args.parts;
            if k < self.args.k {
                // SAFETY: sample and component exist.
                self.held[i as usize] = load(self.q(k));
            }
        });
        self
    }

    /// Replaces each component's number by the value of `f`; in memory only if it is to be written.
    /// Safety: the sample exists.
    #[inline(always)]
    unsafe fn for_each(&mut self, written: bool, mut f: impl FnMut(u32, T) -> T) {
        let (k, parts) = (self.args.k, self.args.parts);
        counted!(for i in 0..HELD {
            if self.first + i * parts < k {
                self.held[i as usize] = f(self.first + i * parts, self.held[i as usize]);
            }
        });
        counted!(for first in (self.first + HELD * parts..k).step_by(AT_ONCE * parts) {
            let mut q = [T::ZERO; AT_ONCE as usize];
            counted!(for i in 0..AT_ONCE {
                if first + i * parts < k {
                    // SAFETY: sample and component exist.
                    q[i as usize] = load(self.q(first + i * parts));
                }
            });
            counted!(for i in 0..AT_ONCE {
                if first + i * parts < k {
                    let new = f(first + i * parts, q[i as usize]);
                    if written {
                        store(self.q(first + i * parts), new);
                    }
                }
            });
        });
    }

    /// wₖ.
    /// Safety: the component exists.
    #[inline(always)]
    unsafe fn weight(self, k: u32) -> T {
        T::load(self.weights.add(k as usize))
    }

    /// The largest qₖ among components with a weight.
    /// Safety: the sample exists.
    #[inline(always)]
    unsafe fn maximum(&mut self) -> T {
        let (mut top, this) = (T::LOWEST, *self);
        // SAFETY: the sample exists, and so do the components.
        self.for_each(false, |k, q| {
            if q > top && this.weight(k) > T::ZERO {
                top = q;
            }
            q
        });
        top
    }

    /// The terms; they replace qₖ if responsibilities are wanted.
    /// Safety: the sample exists.
    #[inline(always)]
    unsafe fn terms(&mut self, maximum: T) -> Terms<T> {
        let (mut terms, this) = (Terms::NONE, *self);
        // SAFETY: the sample exists, and so do the components.
        self.for_each(this.args.responsibilities != 0, |k, q| {
            let w = this.weight(k);
            // A component without weight may have a q above the maximum: it counts as 0, not as 0·∞.
            let power = if w > T::ZERO { q - maximum } else { T::LOWEST };
            let p = w * power.exp2();
            terms.sum = terms.sum + p;
            if p > terms.largest {
                (terms.largest, terms.label) = (p, k);
            }
            p
        });
        terms
    }

    /// Turns the terms into responsibilities, and writes them.
    /// Safety: the sample exists, and its terms have replaced its qₖ.
    #[inline(always)]
    unsafe fn scale(&mut self, factor: T) {
        let (args, this) = (self.args, *self);
        // SAFETY: the sample exists, and so do the components.
        self.for_each(true, |_, p| p * factor);
        counted!(for i in 0..HELD {
            let k = this.first + i * args.parts;
            if k < args.k {
                store(this.q(k), self.held[i as usize]);
            }
        });
    }
}

/// Results of the warps that share samples, a place for each thread.
#[derive(Clone, Copy)]
struct Exchange {
    maxima: Shared<f64>,
    sums: Shared<f64>,
    largest: Shared<f64>,
    labels: Shared<u32>,
    parts: u32,
}

impl Exchange {
    #[inline(always)]
    fn new(parts: u32) -> Self {
        let threads = block_dim() as usize;
        let maxima = Shared::at(FINISH_SHARED_BYTES);
        let (sums, largest) = (maxima.offset(threads), maxima.offset(2 * threads));
        Self { maxima, sums, largest, labels: maxima.offset(3 * threads).cast(), parts }
    }

    /// The place of a part of this thread's sample.
    #[inline(always)]
    fn place(self, part: u32) -> usize {
        let first = thread_idx() / WARP / self.parts * self.parts;
        ((first + part) * WARP + thread_idx() % WARP) as usize
    }

    /// The largest of all parts' maxima.
    /// Safety: all threads of the block call it, alternately with [`Self::terms`].
    #[inline(always)]
    unsafe fn maximum<T: Float>(self, own: T) -> T {
        // SAFETY: a place for each thread. The previous round's maxima were read before the barrier in `terms`.
        self.maxima.set(thread_idx() as usize, own.wide());
        barrier!();
        let mut top = T::LOWEST;
        counted!(for part in 0..self.parts {
            // SAFETY: the barrier made them visible.
            let other = T::narrow(self.maxima.get(self.place(part)));
            top = if other > top { other } else { top };
        });
        top
    }

    /// The terms of all parts, added up in order; without their labels unless these are wanted.
    /// Safety: as for [`Self::maximum`].
    #[inline(always)]
    unsafe fn terms<T: Float>(self, own: Terms<T>, labels: bool) -> Terms<T> {
        let place = thread_idx() as usize;
        // SAFETY: a place for each thread. The previous round's terms were read before the barrier in `maximum`.
        self.sums.set(place, own.sum.wide());
        if labels {
            self.largest.set(place, own.largest.wide());
            self.labels.set(place, own.label);
        }
        barrier!();
        let mut terms = Terms::NONE;
        counted!(for part in 0..self.parts {
            let place = self.place(part);
            // SAFETY: the barrier made them visible.
            let sum = T::narrow(self.sums.get(place));
            let (mut largest, mut label) = (T::ZERO, 0);
            if labels {
                (largest, label) = (T::narrow(self.largest.get(place)), self.labels.get(place));
            }
            terms.add(Terms { sum, largest, label });
        });
        terms
    }
}

#[inline(always)]
unsafe fn body<T: Float>(args: &PosteriorArgs<T>) {
    let exchange = Exchange::new(args.parts);
    let (warp, lane) = (thread_idx() / WARP, thread_idx() % WARP);
    let (tile, part) = (warp / args.parts, warp % args.parts);
    let samples = block_dim() / args.parts;
    let mut total = 0.0;
    // The bounds are the same for all threads, so that all take part in the exchanges.
    counted!(for first in (block_idx() * samples..args.n).step_by(grid_dim() * samples) {
        let i = first + tile * WARP + lane;
        let exists = i < args.n;
        // Threads past the last sample read the last one.
        let last = if exists { i as usize } else { args.n as usize - 1 };
        // SAFETY: the sample exists, with a place in each array that is not null; all threads take part.
        let weights = args.weights.add(args.of_quads.offset(last / QUAD));
        let first = if exists { part } else { args.k };
        let mut own = Part { args, sample: last, first, weights, held: [T::ZERO; HELD as usize] }.read();
        let maximum = exchange.maximum(own.maximum());
        let Terms { sum, label, .. } = exchange.terms(own.terms(maximum), !args.labels.is_null());
        // All exponents are −∞ if the sample is infinitely far from every component.
        let unreachable = maximum == T::LOWEST;
        let sample_weights = args.sample_weights;
        let weight = if sample_weights.is_null() { T::ONE } else { T::load(sample_weights.add(last)) };
        if exists && part == 0 {
            let score = if unreachable { f64::NEG_INFINITY } else { maximum.wide() + float64::log2(sum.wide()) };
            if weight > T::ZERO {
                total += weight.wide() * score;
            }
            if !args.scores.is_null() {
                store(args.scores.add(last), score);
            }
            if !args.labels.is_null() {
                store(args.labels.add(last), label);
            }
        }
        if args.responsibilities != 0 {
            // The sum of an infinitely distant sample is zero. Without weight it does not count.
            own.scale(if weight > T::ZERO { weight / sum } else { T::ZERO });
        }
    });
    // SAFETY: all threads end here, and the shared memory is not in use.
    let sum = Output::block_total(warp_sum(total));
    if thread_idx() == 0 {
        // `load_fresh` reads only under the condition. A compiler may move `load` in front of it, where no sum has been
        // written yet. SAFETY: a place for each block.
        let to = args.partials.add(block_idx() as usize);
        store(to, if args.add != 0 { load_fresh(to) + sum } else { sum });
    }
}

kernels! {
    /// Computes scores, labels, responsibilities, and each block's total.
    posterior_f32: PosteriorArgs<f32> = body;
    posterior_f64: PosteriorArgs<f64> = body;
}
