//! Inner products with a resident matrix: few vectors by `products_few` in one launch, more by `split_rows` and the
//! tensor cores, in tiles of one of three sizes.
use super::launch::launch;
use super::{rows_at_once, seconds};
use gmm_host::cuda::{Grid, Kernel, Memory, Numbers, Queue, Work, require};
use gmm_host::{Error, Interrupt, Result};
use gmm_kernels::entries;
use gmm_kernels::pairwise::products::{LARGE, MEDIUM, ProductsArgs, SMALL, SplitRows, Tiling};
use gmm_kernels::pairwise::products_few::{self, ProductsFewArgs};
use gmm_kernels::pairwise::split::{self, SEGMENT, SplitArgs, row_elements};
use gmm_kernels::simt::WARP;
use ndarray::{ArrayView2, Axis};
use std::ops::RangeInclusive;

/// Times of tiles, measured on an H100.
const TILING_TIMES: [(Tiling, Times); 3] = [
    (LARGE, Times { start: 14.0, block: 0.0, hidden: 0.0, chunk: 2.6 }),
    (MEDIUM, Times { start: 6.9, block: 0.0, hidden: 0.2, chunk: 0.36 }),
    (SMALL, Times { start: 4.7, block: 0.0, hidden: 0.07, chunk: 0.2 }),
];
/// Times of `products_few` with the matrix in the second-level cache.
const FEW_TIMES: Times = Times { start: 4.0, block: 0.37, hidden: 0.0, chunk: 0.045 };
/// Microseconds of a chunk of `products_few` if each eight vectors read the matrix from memory.
const FEW_CHUNK_FROM_MEMORY: f64 = 0.095;
/// Microseconds until later blocks of a multiprocessor have their first chunks.
const NEXT_BLOCKS: f64 = 3.0;

/// A matrix on the device, split once, and room for vectors and products.
pub struct Products {
    queue: Queue,
    split: Kernel<SplitArgs>,
    multiply: Vec<Multiply>,
    matrix: Split,
    vectors: Split,
    /// The sums of the shares of tiles, and for each tile the number of finished ones: zero between launches.
    sums: Memory<f32>,
    ready: Memory<u32>,
    /// The vectors before the split, and the products.
    plain: Memory<f32>,
    products: Memory<f32>,
}

impl Products {
    /// Copies a non-empty matrix to the device of this number.
    pub fn open(ordinal: usize, matrix: ArrayView2<'_, f32>) -> Result<Self> {
        let queue = Queue::open(ordinal)?;
        let (m, d) = matrix.dim();
        let mut this = Self {
            split: queue.kernel(&entries::split_rows())?,
            multiply: Multiply::all(&queue, (m, d))?,
            matrix: Split::none(&queue, d)?,
            vectors: Split::none(&queue, d)?,
            sums: queue.memory(0)?,
            ready: queue.memory(0)?,
            plain: queue.memory(d)?,
            products: queue.memory(1)?,
            queue,
        };
        this.matrix.reserve(m)?;
        let rows = rows_at_once(d, 1);
        for (i, part) in matrix.axis_chunks_iter(Axis(0), rows).enumerate() {
            this.plain.reserve(part.len())?;
            let part = part.as_standard_layout();
            this.queue.run(|work| {
                work.upload(&this.plain, part.as_slice().unwrap_or_default())?;
                let to = this.matrix.part(i * rows..i * rows + part.nrows())?;
                this.start_split(work, part.nrows(), to)
            })?;
        }
        this.matrix.rows = m;
        Ok(this)
    }

    /// Computes the products of `vectors` (N, D) with the matrix's rows, (N, M).
    pub fn products(&mut self, vectors: ArrayView2<'_, f32>, out: &mut [f32]) -> Result<()> {
        self.products_by(vectors, out, Self::way)
    }

    /// As [`products`](Self::products), in the way that `way` returns for a number of vectors.
    pub fn products_by(
        &mut self,
        vectors: ArrayView2<'_, f32>,
        out: &mut [f32],
        way: impl Fn(&Self, usize) -> Result<Way>,
    ) -> Result<()> {
        let m = self.matrix.rows;
        let rows = rows_at_once(self.matrix.d, m);
        for (vectors, out) in vectors.axis_chunks_iter(Axis(0), rows).zip(out.chunks_mut(rows * m)) {
            Interrupt::current().check()?;
            let way = way(self, vectors.nrows())?;
            self.prepare(vectors.nrows(), way)?;
            let vectors = vectors.as_standard_layout();
            self.queue.run(|work| {
                work.upload(&self.plain, vectors.as_slice().unwrap_or_default())?;
                self.start(work, vectors.nrows(), way)?;
                work.download(&self.products, out)
            })?;
        }
        Ok(())
    }

    /// Returns the seconds of the split and the product of vectors on the device.
    pub fn seconds(&mut self, vectors: ArrayView2<'_, f32>, repeats: u32) -> Result<f64> {
        let n = vectors.nrows();
        let way = self.way(n)?;
        self.prepare(n, way)?;
        let vectors = vectors.as_standard_layout();
        self.queue.run(|work| work.upload(&self.plain, vectors.as_slice().unwrap_or_default()))?;
        seconds(&self.queue, repeats, |work| self.start(work, n, way))
    }

    fn prepare(&mut self, vectors: usize, way: Way) -> Result<()> {
        self.plain.reserve(vectors * self.matrix.d)?;
        if let Kernels::Split(_, tiling) = way.kernels {
            self.vectors.reserve(vectors)?;
            if way.shares > 1 {
                let tiles = tiling.tiles(vectors, self.matrix.rows);
                self.sums.reserve(tiles * way.shares * tiling.products())?;
                self.ready.reserve_zeros(tiles)?;
            }
        }
        self.products.reserve(vectors * self.matrix.rows)
    }

    /// Enqueues the split of the first `rows` uploaded rows.
    fn start_split<'a>(&'a self, work: &Work<'a>, rows: usize, to: Halves<'a>) -> Result<()> {
        let most = 64 * self.queue.limits().multiprocessors as usize;
        let grid = Grid::new(rows.min(most) as u32, split::threads(to.d), split::SHARED_BYTES);
        work.launch(self.split, grid, SplitLaunch { plain: self.plain.numbers(), to })
    }

    fn way(&self, n: usize) -> Result<Way> {
        let fastest = self.ways(n).min_by(|(_, a), (_, b)| a.total_cmp(b));
        fastest.map(|(way, _)| way).ok_or_else(too_little_shared)
    }

    /// Returns all ways to multiply n vectors, with their expected times.
    pub fn ways(&self, n: usize) -> impl Iterator<Item = (Way, f64)> {
        let multiprocessors = self.queue.limits().multiprocessors as usize;
        let task = Task { n, m: self.matrix.rows, chunks: self.matrix.d.div_ceil(SEGMENT), multiprocessors };
        self.multiply.iter().flat_map(move |multiply| multiply.ways(task))
    }

    /// Enqueues the multiplication of the first `n` uploaded vectors.
    fn start<'a>(&'a self, work: &Work<'a>, n: usize, way: Way) -> Result<()> {
        let matrix = self.matrix.part(0..self.matrix.rows)?;
        let (plain, products) = (self.plain.numbers(), self.products.numbers());
        match way.kernels {
            Kernels::Few(kernel) => {
                let threads = products_few::threads(matrix.d);
                let blocks = products_few::blocks(n, matrix.rows) as u32;
                let grid = Grid::new(blocks, threads, products_few::shared_bytes(threads));
                work.launch(kernel, grid, FewLaunch { vectors: plain, n, matrix, products })
            }
            Kernels::Split(kernel, tiling) => {
                let vectors = self.vectors.part(0..n)?;
                self.start_split(work, n, vectors)?;
                let blocks = tiling.tiles(n, matrix.rows) * way.shares;
                let grid = Grid::new(blocks as u32, tiling.threads, tiling.shared_bytes());
                let (sums, ready) = (self.sums.numbers(), self.ready.numbers());
                let launch = ProductsLaunch { tiling, vectors, matrix, shares: way.shares, sums, ready, products };
                work.launch(kernel, grid, launch)
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Kernels {
    /// For vectors as they are.
    Few(Kernel<ProductsFewArgs>),
    /// For vectors split by `split_rows`, in tiles of this size.
    Split(Kernel<ProductsArgs>, Tiling),
}

/// The expected times of kernels, in microseconds.
#[derive(Clone, Copy)]
struct Times {
    /// Of the launches and the first blocks, for any number of chunks.
    start: f64,
    /// Of each block on the multiprocessor, for any number of chunks.
    block: f64,
    /// Of a chunk, hidden by other blocks on the same multiprocessor.
    hidden: f64,
    /// Of a chunk of each block on the multiprocessor.
    chunk: f64,
}

/// (n, m) products of rows of `chunks` chunks.
#[derive(Clone, Copy)]
struct Task {
    n: usize,
    m: usize,
    chunks: usize,
    multiprocessors: usize,
}

#[derive(Debug, Clone, Copy)]
pub struct Way {
    kernels: Kernels,
    /// The blocks that share the chunks of a tile.
    shares: usize,
}

struct Multiply {
    kernels: Kernels,
    times: Times,
    /// The blocks that a multiprocessor runs at once.
    at_once: usize,
}

impl Multiply {
    /// Returns the kernels for M rows of D numbers whose tiles fit the device's shared memory.
    fn all(queue: &Queue, (m, d): (usize, usize)) -> Result<Vec<Self>> {
        let (limits, mut all) = (queue.limits(), Vec::new());
        let few = queue.kernel(&entries::products_few())?;
        if few.most_shared() >= products_few::shared_bytes(products_few::threads(d)) {
            let cached = m * row_elements(d) * size_of::<u32>() <= limits.l2;
            let chunk = if cached { FEW_TIMES.chunk } else { FEW_CHUNK_FROM_MEMORY };
            all.push(Self {
                kernels: Kernels::Few(few),
                times: Times { chunk, ..FEW_TIMES },
                // Later blocks are not waited for.
                at_once: usize::MAX,
            });
        }
        for (tiling, times) in TILING_TIMES {
            let kernel = queue.kernel(&entries::products(tiling))?;
            if kernel.most_shared() >= tiling.shared_bytes() {
                let at_once = limits.blocks_by_shared(tiling.shared_bytes()).max(1) as usize;
                all.push(Self { kernels: Kernels::Split(kernel, tiling), times, at_once });
            }
        }
        if all.is_empty() { Err(too_little_shared()) } else { Ok(all) }
    }

    /// Returns the ways of these kernels to compute products, with their expected times.
    fn ways(&self, task: Task) -> impl Iterator<Item = (Way, f64)> {
        let most_shares = match self.kernels {
            Kernels::Few(_) => 1,
            Kernels::Split(_, tiling) => tiling.most_shares.min(task.chunks),
        };
        (1..=most_shares).map(move |shares| (Way { kernels: self.kernels, shares }, self.time(task, shares)))
    }

    /// Returns the expected time of the multiprocessor with the most blocks, as many at once as fit.
    fn time(&self, Task { n, m, chunks, multiprocessors }: Task, shares: usize) -> f64 {
        let (tiles, products) = match self.kernels {
            Kernels::Few(_) => (products_few::blocks(n, m), 0),
            Kernels::Split(_, tiling) => (tiling.tiles(n, m), tiling.products()),
        };
        let Times { start, block, hidden, chunk } = self.times;
        let blocks = (tiles * shares).div_ceil(multiprocessors);
        let rounds = blocks.div_ceil(self.at_once) as f64;
        let of_chunks = chunks.div_ceil(shares) as f64 * (rounds * hidden + blocks as f64 * chunk);
        // Leave the sums of the shares, wait for all, and add them.
        let of_shares = if shares == 1 { 0.0 } else { 1.0 + shares as f64 * (0.2 + 5e-5 * products as f64) };
        start + (rounds - 1.0) * NEXT_BLOCKS + blocks as f64 * block + of_chunks + of_shares
    }
}

fn too_little_shared() -> Error {
    Error::Unsupported {
        what: format!(
            "{} bytes of shared memory for a block, which inner products need,",
            products_few::shared_bytes(products_few::threads(1))
        ),
        backend: "this GPU",
        remedy: "use the device `cpu`",
    }
}

struct Split {
    halves: Memory<u32>,
    scales: Memory<f32>,
    rows: usize,
    d: usize,
}

impl Split {
    fn none(queue: &Queue, d: usize) -> Result<Self> {
        Ok(Self { halves: queue.memory(row_elements(d))?, scales: queue.memory(1)?, rows: 0, d })
    }

    fn reserve(&mut self, rows: usize) -> Result<()> {
        self.halves.reserve(rows * row_elements(self.d))?;
        self.scales.reserve(rows)
    }

    fn part(&self, rows: std::ops::Range<usize>) -> Result<Halves<'_>> {
        let row = row_elements(self.d);
        Ok(Halves {
            halves: self.halves.numbers().part(rows.start * row..rows.end * row)?,
            scales: self.scales.numbers().part(rows.clone())?,
            rows: rows.len(),
            d: self.d,
        })
    }
}

const ROWS: RangeInclusive<usize> = 1..=i32::MAX as usize;

/// Some split rows, with all the numbers they need.
#[derive(Clone, Copy)]
struct Halves<'a> {
    halves: Numbers<'a, u32>,
    scales: Numbers<'a, f32>,
    rows: usize,
    d: usize,
}

impl Halves<'_> {
    fn argument(&self) -> Result<SplitRows> {
        let (halves, what) = (self.rows * row_elements(self.d), "split rows");
        let (halves, scales) = (self.halves.read(halves, what)?, self.scales.read(self.rows, what)?);
        Ok(SplitRows { halves, scales, rows: self.rows as u32 })
    }
}

#[derive(Clone, Copy)]
struct SplitLaunch<'a> {
    plain: Numbers<'a, f32>,
    to: Halves<'a>,
}

launch!(SplitLaunch<'_>, SplitArgs, "split_rows", |launch, grid, what| {
    let Halves { halves, scales, rows, d } = launch.to;
    grid.require_shared(what, split::SHARED_BYTES)?;
    Ok(SplitArgs {
        x: launch.plain.read(rows * d, what)?,
        rows: rows as u64,
        d: d as u32,
        halves: halves.write(rows * row_elements(d), what)?,
        scales: scales.write(rows, what)?,
    })
});

#[derive(Clone, Copy)]
struct ProductsLaunch<'a> {
    tiling: Tiling,
    vectors: Halves<'a>,
    matrix: Halves<'a>,
    /// The blocks that share the chunks of a tile; if several, `sums` holds their sums, and `ready` the number of
    /// finished ones for each tile.
    shares: usize,
    sums: Numbers<'a, f32>,
    ready: Numbers<'a, u32>,
    products: Numbers<'a, f32>,
}

// Rows begin at multiples of 128 bytes, sums at an allocation.
launch!(ProductsLaunch<'_>, ProductsArgs, "products", |launch, grid, what| {
    let (n, m, d) = (launch.vectors.rows, launch.matrix.rows, launch.vectors.d);
    let (tiling, shares) = (launch.tiling, launch.shares);
    let tiles = tiling.tiles(n, m);
    let [sums, ready] = if shares == 1 { [0, 0] } else { [tiles * shares * tiling.products(), tiles] };
    let blocks = ((tiles * shares) as u32, 1);
    require(what, launch.matrix.d == d && ROWS.contains(&n) && ROWS.contains(&m))?;
    require(what, (1..=tiling.most_shares).contains(&shares))?;
    require(what, (grid.threads, grid.blocks) == (tiling.threads, blocks))?;
    grid.require_shared(what, tiling.shared_bytes())?;
    Ok(ProductsArgs {
        vectors: launch.vectors.argument()?,
        matrix: launch.matrix.argument()?,
        segments: d.div_ceil(SEGMENT) as u32,
        shares: shares as u32,
        sums: launch.sums.write(sums, what)?,
        ready: launch.ready.write(ready, what)?,
        products: launch.products.write(n * m, what)?,
    })
});

#[derive(Clone, Copy)]
struct FewLaunch<'a> {
    /// (n, D).
    vectors: Numbers<'a, f32>,
    n: usize,
    matrix: Halves<'a>,
    products: Numbers<'a, f32>,
}

// Vectors begin at an allocation.
launch!(FewLaunch<'_>, ProductsFewArgs, "products_few", |launch, grid, what| {
    let (n, m, d) = (launch.n, launch.matrix.rows, launch.matrix.d);
    let warps = (grid.threads / WARP) as usize;
    require(what, ROWS.contains(&n) && ROWS.contains(&m))?;
    require(what, grid.threads.is_multiple_of(WARP) && warps <= products_few::MOST_WARPS)?;
    grid.require_shared(what, products_few::shared_bytes(grid.threads))?;
    Ok(ProductsFewArgs {
        vectors: launch.vectors.read(n * d, what)?,
        n: n as u32,
        d: d as u32,
        matrix: launch.matrix.argument()?,
        products: launch.products.write(n * m, what)?,
    })
});
