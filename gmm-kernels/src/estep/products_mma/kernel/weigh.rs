//! `weigh`: responsibilities times products, summed over the samples.
use super::*;

struct WeighBlock<'a, const T: usize, const FULL: bool> {
    args: &'a WeighArgs,
    shape: WeighShape,
    /// The block's first component and first product.
    component: usize,
    product: usize,
    /// The two stages as they arrive: rows of exponents, maxima, factors, features, ones.
    raw: Shared<f32>,
    /// The two stages of responsibilities.
    responsibilities: Shared<Halves>,
    /// The two stages of products.
    products: Shared<Halves>,
    /// Σ r of each component and quad since the sums last moved to memory, and behind them Σ of the rounded r.
    counts: Shared<f32>,
    weights: Shared<f32>,
    /// The pairs of features of the block's products.
    factors: Shared<Halves>,
}

impl<'a, const T: usize, const FULL: bool> WeighBlock<'a, T, FULL> {
    #[inline(always)]
    fn new(args: &'a WeighArgs, shape: WeighShape) -> Self {
        let (group, part) = (block_idx() / shape.parts, block_idx() % shape.parts);
        let components = shape.components();
        let raw = Shared::<f32>::at(0);
        let mut bytes = 2 * shape.raw_stage() * size_of::<f32>();
        let responsibilities = Shared::<Halves>::at(bytes);
        bytes += 2 * shape.responsibilities_stage() * size_of::<Halves>();
        let products = Shared::<Halves>::at(bytes);
        bytes += 2 * shape.products_stage() * size_of::<Halves>();
        let counts = Shared::<f32>::at(bytes);
        let weights = counts.offset(2 * components * QUADS);
        bytes += (2 * components * QUADS + components) * size_of::<f32>();
        let factors = Shared::<Halves>::at(bytes);
        let (component, product) = (group as usize * components, part as usize * shape.part());
        Self { args, shape, component, product, raw, responsibilities, products, counts, weights, factors }
    }

    /// The warp's row (along the components) and column (along the products).
    #[inline(always)]
    fn warp(&self) -> (usize, usize) {
        let warp = thread() / WARP;
        ((warp / self.shape.product_warps) as usize, (warp % self.shape.product_warps) as usize)
    }

    /// Fills the shared memory with all that is the same for all stages. All threads of the block take part.
    /// Safety: the shared memory is not in use, except by copies.
    #[inline(always)]
    unsafe fn begin(&self) {
        let shape = self.shape;
        let components = shape.components();
        counted!(for c in (thread() as usize..2 * components * QUADS).step_by(block_dim() as usize) {
            // SAFETY: inside.
            self.counts.set(c, 0.0);
        });
        counted!(for c in (thread() as usize..components).step_by(block_dim() as usize) {
            // SAFETY: weights of all rows; inside.
            self.weights.set(c, load(self.args.weights.add(self.component + c)));
        });
        let mut c = thread() as usize;
        while FULL && c < shape.part() {
            // SAFETY: pairs of whole parts; inside.
            self.factors.set(c, load_u32(self.args.factors.add(self.product + c)));
            c += block_dim() as usize;
        }
        // The number one in both stages, or zeros for the features behind D.
        let present = self.features();
        counted!(for c in
            (thread() as usize..2 * (shape.feature_rows() - present) * QUADS).step_by(block_dim() as usize)
        {
            let (stage, row) = (c / QUADS % 2, components + 2 + present + c / QUADS / 2);
            let to = self.raw.cast::<Halves>().offset(stage * shape.raw_stage() + row * RAW_PITCH);
            // SAFETY: inside; copies do not touch these rows.
            to.set4(QUAD * (c % QUADS), if FULL { one() } else { [0; QUAD] });
        });
    }

    #[inline(always)]
    fn first_feature(&self) -> usize {
        if FULL { 0 } else { self.product / 2 }
    }

    /// Features of a stage that exist.
    #[inline(always)]
    fn features(&self) -> usize {
        let left = self.shape.d as usize - self.first_feature();
        if FULL || left < self.shape.feature_rows() { left } else { self.shape.feature_rows() }
    }

    /// Starts to copy the samples' stage `number` to stage 0 or 1.
    /// Safety: no thread reads the stage.
    #[inline(always)]
    unsafe fn fetch(&self, stage: usize, number: u32) {
        let (args, shape, policy) = (self.args, self.shape, policy_keep());
        let quad = thread() as usize % QUADS;
        let to = self.raw.offset(stage * shape.raw_stage() + QUAD * quad).in_thread_register();
        let components = shape.components();
        let Exponents { q, normalisers, stride } = args.exponents;
        let sample = number as usize * STAGE + QUAD * quad;
        let step = block_dim() as usize / QUADS;
        let first = thread() as usize / QUADS;
        let mut row = first;
        let mut from = q.wrapping_add((self.component + row) * stride as usize + sample).cast_const();
        while row < components {
            // SAFETY: exponents exist for whole stages; the stage has a place for each.
            to.copy4(row * RAW_PITCH, from, policy);
            row += step;
            from = from.wrapping_add(step * stride as usize);
        }
        if first < 2 {
            let from = normalisers.wrapping_add(first * stride as usize + sample);
            to.copy4((components + first) * RAW_PITCH, from, policy);
        }
        counted!(for feature in (first..self.features()).step_by(step) {
            let from = args.columns.quad((sample / QUAD) as u32, self.first_feature() + feature);
            // SAFETY: columns extend to whole stages; the stage has a place for each.
            to.copy4((components + 2 + feature) * RAW_PITCH, from, policy);
        });
        copies_commit();
    }

    /// Splits the features that this thread has copied to a stage, in place. `left` of the stage's samples exist; the
    /// memory behind them may hold anything, so features become zero there.
    /// Safety: this thread's copies have arrived; no other thread reads the stage.
    #[inline(always)]
    unsafe fn split(&self, stage: usize, left: u64) {
        let shape = self.shape;
        let quad = thread() as usize % QUADS;
        let x = self.raw.offset(stage * shape.raw_stage() + (shape.components() + 2) * RAW_PITCH + QUAD * quad);
        let step = block_dim() as usize / QUADS;
        counted!(for row in (thread() as usize / QUADS..self.features()).step_by(step) {
            // SAFETY: places that only this thread uses now.
            let mut v = x.get4(row * RAW_PITCH);
            if left < STAGE as u64 {
                counted!(for p in 0..QUAD {
                    v[p] = if ((QUAD * quad + p) as u64) < left { v[p] } else { 0.0 };
                });
            }
            x.cast::<Halves>().set4(row * RAW_PITCH, split_feature(v));
        });
    }

    /// Turns the exponents that have arrived in a stage into responsibilities, and counts them.
    /// Safety: the stage has arrived for all threads; no thread reads the stage's responsibilities.
    #[inline(always)]
    unsafe fn respond(&self, stage: usize) {
        let shape = self.shape;
        let components = shape.components();
        let quad = thread() as usize % QUADS;
        let raw = self.raw.offset(stage * shape.raw_stage() + QUAD * quad);
        let (top, mut factor) = (raw.get4(components * RAW_PITCH), raw.get4((components + 1) * RAW_PITCH));
        counted!(for p in 0..QUAD {
            factor[p] *= RESPONSIBILITY_SCALE;
        });
        let mut component = thread() as usize / QUADS;
        let mut from = raw.offset(component * RAW_PITCH);
        let mut to =
            self.responsibilities.offset(stage * shape.responsibilities_stage() + component * STAGE_PITCH + 2 * quad);
        let mut counts = self.counts.offset(thread() as usize);
        let step = block_dim() as usize / QUADS;
        // Whole warps take part: the number of places is a multiple of the warp size.
        while component < components {
            // SAFETY: places that only this thread uses.
            let q = from.get4(0);
            let w = self.weights.get(component);
            let (halves, sum, rounded) = responsibilities(w, &q, &top, &factor);
            to.set2(0, halves);
            counts.set(0, counts.get(0) + sum);
            let places = components * QUADS;
            counts.set(places, counts.get(places) + rounded);
            component += step;
            from = from.offset(step * RAW_PITCH);
            to = to.offset(step * STAGE_PITCH);
            counts = counts.offset(step * QUADS);
        }
    }

    /// Forms the products of a stage that has arrived. Each thread takes a quad of samples, and two products at a time.
    /// Safety: as for [`Self::respond`].
    #[inline(always)]
    unsafe fn form(&self, stage: usize) {
        let shape = self.shape;
        let quad = thread() as usize % QUADS;
        let x = self.raw.cast::<Halves>();
        let x = x.offset(stage * shape.raw_stage() + (shape.components() + 2) * RAW_PITCH + QUAD * quad);
        let step = block_dim() as usize / QUADS;
        let mut row = thread() as usize / QUADS;
        let mut to = self.products.offset(stage * shape.products_stage() + 2 * row * STAGE_PITCH + 2 * quad);
        let low = shape.part() * STAGE_PITCH;
        while row < shape.part() / 2 {
            // SAFETY: two features of each sample; the stage has room for the products.
            let (first, second) = if FULL {
                let (a, b) = (self.factors.get(2 * row), self.factors.get(2 * row + 1));
                let first = product(x.get4((a & 0xffff) as usize), x.get4((a >> 16) as usize));
                (first, product(x.get4((b & 0xffff) as usize), x.get4((b >> 16) as usize)))
            } else {
                let x = x.get4(row * RAW_PITCH);
                (product(x, one()), product(x, x))
            };
            set_product(to, low, first);
            set_product(to.offset(STAGE_PITCH), low, second);
            row += step;
            to = to.offset(2 * step * STAGE_PITCH);
        }
    }

    /// Adds a stage's responsibilities times its products to the warp's sums. All lanes of the warp call it.
    /// Safety: both are in the stage, for all threads.
    #[inline(always)]
    unsafe fn multiply(&self, sums: &mut TileSums<T>, stage: usize) {
        let shape = self.shape;
        let (row_of_warps, column_of_warps) = self.warp();
        let lane = (thread() % WARP) as usize;
        let responsibilities = self
            .responsibilities
            .offset(stage * shape.responsibilities_stage() + row_of_warps * T * TILE * STAGE_PITCH)
            .offset(row_of_a(STAGE_PITCH));
        let row = lane % 8 + 8 * (lane / 16);
        let products = self
            .products
            .offset(stage * shape.products_stage() + (column_of_warps * COLUMNS + row) * STAGE_PITCH)
            .offset(4 * (lane / 8 % 2));
        let mut r = [[[0; 4]; T]; 2];
        counted!(for t in 0..T {
            r[0][t] = responsibilities.matrices(t * TILE * STAGE_PITCH);
            r[1][t] = responsibilities.matrices(t * TILE * STAGE_PITCH + 8);
        });
        counted!(for n in (0..COLUMN_TILES).step_by(2) {
            let high = products.offset(8 * n * STAGE_PITCH);
            let low = high.offset(shape.part() * STAGE_PITCH);
            let mut added = [[[0.0f32; 4]; 2]; T];
            counted!(for half in 0..2 {
                multiply_tiles(&mut added, &r[half], low.matrices(8 * half));
            });
            counted!(for half in 0..2 {
                multiply_tiles(&mut added, &r[half], high.matrices(8 * half));
            });
            counted!(for t in 0..T {
                counted!(for i in 0..4 {
                    sums[t][n][i] += added[t][0][i];
                    sums[t][n + 1][i] += added[t][1][i];
                });
            });
        });
    }

    /// Moves the warp's sums to memory in float64, replacing or adding, and leaves zeros.
    /// Safety: `to` has a slice's sums; no other block uses the places of this block's components and products.
    #[inline(always)]
    unsafe fn move_sums(&self, sums: &mut TileSums<T>, to: *mut f64, add: bool) {
        let (row_of_warps, column_of_warps) = self.warp();
        let lane = (thread() % WARP) as usize;
        let row = self.component + row_of_warps * T * TILE + lane / 4;
        let column = self.product + column_of_warps * COLUMNS + 2 * (lane % 4);
        let step = opaque(self.shape.products() as u32) as usize;
        counted!(for t in 0..T {
            counted!(for h in 0..2 {
                let to = to.wrapping_add((row + t * TILE + 8 * h) * step + column);
                counted!(for n in 0..COLUMN_TILES {
                    counted!(for p in 0..2 {
                        let to = to.wrapping_add(8 * n + p);
                        store_sum(to, sums[t][n][2 * h + p], add);
                        sums[t][n][2 * h + p] = 0.0;
                    });
                });
            });
        });
    }

    /// As [`Self::move_sums`], for the counts. All threads of the block take part; no other block has its components.
    /// Safety: as for [`Self::move_sums`].
    #[inline(always)]
    unsafe fn move_counts(&self, to: *mut f64, add: bool) {
        // Eight neighbouring lanes counted the quads of a component; whole warps meet here.
        const { assert!(QUADS == 8) };
        let places = self.shape.components() * QUADS;
        let to = to.wrapping_add(self.shape.rows() * self.shape.products() + self.component);
        counted!(for c in (thread() as usize..places).step_by(block_dim() as usize) {
            // SAFETY: only this thread counts in these places.
            let sums = [self.counts.get(c), self.counts.get(places + c)];
            self.counts.set(c, 0.0);
            self.counts.set(places + c, 0.0);
            let sums = sums_of_quads::<QUADS>(sums);
            if c.is_multiple_of(QUADS) {
                counted!(for kind in 0..2 {
                    let to = to.wrapping_add(kind * self.shape.rows() + c / QUADS);
                    store_sum(to, sums[kind], add);
                });
            }
        });
    }
}

#[inline(always)]
unsafe fn body<const T: usize, const FULL: bool>(args: &WeighArgs) {
    let shape = WeighShape { full: FULL, tiles: T as u32, ..args.shape };
    let block = WeighBlock::<T, FULL>::new(args, shape);
    // Of two warps that share a scheduler, one prepares the next stage while the other multiplies.
    let turn = opaque(thread_idx() / (4 * WARP) % 2);
    let n = args.columns.n;
    // The stages of all slices, and this block's current one.
    let all = n.div_ceil(STAGE as u64) as u32;
    let left = |number: u32| n - u64::from(number) * STAGE as u64;
    let mut number = block_idx_y();
    if number < all {
        // SAFETY: at the start no stage is in use.
        block.fetch(0, number);
    }
    block.begin();
    copies_wait();
    if number < all {
        // SAFETY: this thread's copies have arrived.
        block.split(0, left(number));
    }
    barrier!();
    if number < all {
        // SAFETY: the stage has arrived for all threads.
        block.respond(0);
        block.form(0);
        if number + args.slices < all {
            // SAFETY: stage 1 is not in use.
            block.fetch(1, number + args.slices);
        }
    }
    let to = args.sums.wrapping_add(block_idx_y() as usize * shape.sums());
    let mut add = args.add != 0;
    let mut sums = [[[0.0f32; 4]; COLUMN_TILES]; T];
    let mut stage = 0;
    let mut since_move = 0;
    while number < all {
        let next = number + args.slices;
        copies_wait();
        if next < all {
            // SAFETY: this thread's copies have arrived; others read the stage after the barrier.
            block.split(stage ^ 1, left(next));
        }
        barrier!();
        let after = next + args.slices;
        if after < all {
            // SAFETY: this stage's raw numbers were used before the barrier.
            block.fetch(stage, after);
        }
        let moves = since_move + 1 == FLUSH || next >= all;
        if moves && block.product == 0 {
            // SAFETY: places for the counts. The current stage was counted before the barrier; the next is counted
            // afterwards, by each thread in its own places.
            block.move_counts(to, add);
        }
        counted!(for phase in 0..opaque(2) {
            if phase == turn {
                if next < all {
                    // SAFETY: the next stage has arrived, and the barrier made it visible; no thread multiplies it now.
                    block.respond(stage ^ 1);
                    block.form(stage ^ 1);
                }
            } else {
                // SAFETY: the barrier made the stage visible.
                block.multiply(&mut sums, stage);
            }
        });
        stage ^= 1;
        number = next;
        since_move += 1;
        if moves {
            since_move = 0;
            // SAFETY: a place for each sum.
            block.move_sums(&mut sums, to, add);
            add = true;
        }
    }
}

kernels! {
    /// Sums squares (`diag`) or products (`full`), with 16 (`m1`) or 32 (`m2`) components per warp.
    weigh_diag_m1: WeighArgs = body::<1, false>;
    weigh_diag_m2: WeighArgs = body::<2, false>;
    weigh_full_m1: WeighArgs = body::<1, true>;
    weigh_full_m2: WeighArgs = body::<2, true>;
}
