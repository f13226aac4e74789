//! Inner products with a resident matrix: of few vectors by `products_few` in one launch, of more by `split_rows` and the
//! matrix units in tiles of one of three sizes.
use super::rows_at_once;
use crate::backends::cuda::device::gpu::Gpu;
use crate::backends::cuda::device::kernel::{Grid, Kernel, Launch};
use crate::backends::cuda::device::memory::{Numbers, allocate, enlarge};
use crate::backends::cuda::device::stream::{Running, Stream};
use crate::backends::cuda::device::{check_suffices, mismatch, suffices};
use crate::{Error, Result};
use cust::memory::DeviceBuffer;
use gmm_kernels::entries;
use gmm_kernels::pairwise::products::{LARGE, MEDIUM, ProductsArgs, SMALL, SplitRows, Tiling};
use gmm_kernels::pairwise::products_few::{self, ProductsFewArgs};
use gmm_kernels::pairwise::split::{self, SplitArgs, row_elements};
use gmm_kernels::simt::WARP;
use ndarray::{ArrayView2, Axis};

/// The tiles with what was measured of them on an H200, the time of a large tile being 1: the time from a tile's start to its
/// end that other tiles on the same multiprocessor hide, and the time that each of them adds.
const TILE_TIMES: [(Tiles, f64, f64); 4] = [
    (Tiles::Split(LARGE), 0.0, 1.0),
    (Tiles::Split(MEDIUM), 0.11, 0.16),
    (Tiles::Split(SMALL), 0.05, 0.07),
    // On an H100.
    (Tiles::Few, 0.045, 0.0185),
];

/// A matrix on the device, split once, and room for vectors and products.
pub struct Products {
    gpu: &'static Gpu,
    stream: Stream,
    split: Kernel<SplitArgs>,
    multiply: Vec<Multiply>,
    matrix: Split,
    vectors: Split,
    /// The vectors before they are split, and the products.
    plain: DeviceBuffer<f32>,
    products: DeviceBuffer<f32>,
}

impl Products {
    /// Takes a matrix of at least one row and one column to the device of this number.
    pub fn open(ordinal: usize, matrix: ArrayView2<'_, f32>) -> Result<Self> {
        let gpu = Gpu::open(ordinal)?;
        gpu.enter()?;
        let (m, d) = matrix.dim();
        let multiply = Multiply::all(gpu, d)?;
        let mut this = Self {
            gpu,
            stream: Stream::new()?,
            split: gpu.kernel(&entries::split_rows(), None)?,
            multiply,
            matrix: Split::none(d)?,
            vectors: Split::none(d)?,
            plain: allocate(d)?,
            products: allocate(1)?,
        };
        this.matrix.reserve(m)?;
        let rows = rows_at_once(d, 1);
        for (i, part) in matrix.axis_chunks_iter(Axis(0), rows).enumerate() {
            this.upload(part)?;
            let to = this.matrix.part(i * rows..i * rows + part.nrows())?;
            this.start_split(part.nrows(), to)?.wait()?;
        }
        this.matrix.rows = m;
        Ok(this)
    }

    /// The products of `vectors` (N, D) with the matrix's rows, (N, M).
    pub fn products(&mut self, vectors: ArrayView2<'_, f32>, out: &mut [f32]) -> Result<()> {
        self.gpu.enter()?;
        let m = self.matrix.rows;
        let rows = rows_at_once(self.matrix.d, m);
        for (vectors, out) in vectors.axis_chunks_iter(Axis(0), rows).zip(out.chunks_mut(rows * m)) {
            self.make_room(vectors.nrows())?;
            let vectors = vectors.as_standard_layout();
            let copy = self.stream.start_write(&self.plain, vectors.as_slice().unwrap_or_default())?;
            let work = copy.followed_by(self.start(vectors.nrows())?);
            self.stream.read(&self.products, out)?;
            work.wait()?;
        }
        Ok(())
    }

    /// Seconds of the split and the product of vectors that are on the device.
    pub fn seconds(&mut self, vectors: ArrayView2<'_, f32>, repeats: u32) -> Result<f64> {
        self.gpu.enter()?;
        let n = vectors.nrows();
        self.make_room(n)?;
        self.upload(vectors)?;
        self.start(n)?.wait()?;
        let seconds = self.stream.seconds(|| {
            let mut work = self.start(n)?;
            for _ in 1..repeats {
                work = work.followed_by(self.start(n)?);
            }
            Ok(work)
        })?;
        Ok(seconds / f64::from(repeats.max(1)))
    }

    /// Makes room for vectors and their products.
    fn make_room(&mut self, vectors: usize) -> Result<()> {
        enlarge(&mut self.plain, vectors * self.matrix.d)?;
        if matches!(self.multiply(vectors)?.kernel, MultiplyKernel::Split(..)) {
            self.vectors.reserve(vectors)?;
        }
        enlarge(&mut self.products, vectors * self.matrix.rows)
    }

    /// Takes rows to the device.
    fn upload(&mut self, rows: ArrayView2<'_, f32>) -> Result<()> {
        enlarge(&mut self.plain, rows.len())?;
        let rows = rows.as_standard_layout();
        self.stream.write(&self.plain, rows.as_slice().unwrap_or_default())
    }

    /// Starts to split the first `rows` rows that were uploaded.
    fn start_split<'a>(&'a self, rows: usize, to: Halves<'a>) -> Result<Running<'a, SplitLaunch<'a>>> {
        let most = 64 * self.gpu.limits.multiprocessors as usize;
        let grid = Grid::new(rows.min(most) as u32, split::threads(to.d), split::SHARED_BYTES);
        self.stream.launch(self.split, grid, SplitLaunch { plain: Numbers::of(&self.plain), to })
    }

    /// The kernel for n vectors.
    fn multiply(&self, n: usize) -> Result<&Multiply> {
        let multiprocessors = self.gpu.limits.multiprocessors as usize;
        let time = |multiply: &&Multiply| multiply.time(n, self.matrix.rows, multiprocessors);
        self.multiply.iter().min_by(|a, b| time(a).total_cmp(&time(b))).ok_or_else(too_little_shared)
    }

    /// Starts to multiply the first `n` vectors that were uploaded.
    fn start(&self, n: usize) -> Result<Running<'_, ()>> {
        let matrix = self.matrix.part(0..self.matrix.rows)?;
        let (plain, products) = (Numbers::of(&self.plain), Numbers::of(&self.products));
        match self.multiply(n)?.kernel {
            MultiplyKernel::Few(kernel) => {
                let threads = products_few::threads(matrix.d);
                let blocks = products_few::blocks(n, matrix.rows) as u32;
                let grid = Grid::new(blocks, threads, products_few::shared_bytes(threads));
                let launch = FewLaunch { vectors: plain, n, matrix, products };
                Ok(self.stream.launch(kernel, grid, launch)?.borrowed())
            }
            MultiplyKernel::Split(kernel, tiling) => {
                let vectors = self.vectors.part(0..n)?;
                let split = self.start_split(n, vectors)?;
                let grid = Grid::new(tiling.blocks(n, matrix.rows) as u32, tiling.threads, tiling.shared_bytes());
                let launch = ProductsLaunch { tiling, vectors, matrix, products };
                Ok(split.followed_by(self.stream.launch(kernel, grid, launch)?).borrowed())
            }
        }
    }
}

/// How products are divided among blocks, and by which kernel they are computed.
#[derive(Clone, Copy)]
enum Tiles {
    /// Of vectors as they are.
    Few,
    /// Of vectors that `split_rows` has split.
    Split(Tiling),
}

enum MultiplyKernel {
    Few(Kernel<ProductsFewArgs>),
    Split(Kernel<ProductsArgs>, Tiling),
}

/// A kernel of products, for one tiling.
struct Multiply {
    kernel: MultiplyKernel,
    /// These two: see [`TILE_TIMES`].
    latency: f64,
    tile_time: f64,
}

impl Multiply {
    /// Those for rows of D numbers whose tiles fit the device's shared memory.
    fn all(gpu: &Gpu, d: usize) -> Result<Vec<Self>> {
        let mut all = Vec::new();
        for (tiles, latency, tile_time) in TILE_TIMES {
            let (kernel, fits) = match tiles {
                Tiles::Few => {
                    let kernel = gpu.kernel(&entries::products_few(), None)?;
                    let shared = products_few::shared_bytes(products_few::threads(d));
                    (MultiplyKernel::Few(kernel), kernel.most_shared() >= shared)
                }
                Tiles::Split(tiling) => {
                    let kernel = gpu.kernel(&entries::products(tiling), None)?;
                    (MultiplyKernel::Split(kernel, tiling), kernel.most_shared() >= tiling.shared_bytes())
                }
            };
            if fits {
                all.push(Self { kernel, latency, tile_time });
            }
        }
        if all.is_empty() { Err(too_little_shared()) } else { Ok(all) }
    }

    /// The time expected for (n, m) products: of the multiprocessor that has the most tiles.
    fn time(&self, n: usize, m: usize, multiprocessors: usize) -> f64 {
        let blocks = match self.kernel {
            MultiplyKernel::Few(_) => products_few::blocks(n, m),
            MultiplyKernel::Split(_, tiling) => tiling.blocks(n, m),
        };
        self.latency + blocks.div_ceil(multiprocessors) as f64 * self.tile_time
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

/// Room for split rows of D numbers.
struct Split {
    halves: DeviceBuffer<u32>,
    scales: DeviceBuffer<f32>,
    rows: usize,
    d: usize,
}

impl Split {
    fn none(d: usize) -> Result<Self> {
        Ok(Self { halves: allocate(row_elements(d))?, scales: allocate(1)?, rows: 0, d })
    }

    fn reserve(&mut self, rows: usize) -> Result<()> {
        enlarge(&mut self.halves, rows * row_elements(self.d))?;
        enlarge(&mut self.scales, rows)
    }

    fn part(&self, rows: std::ops::Range<usize>) -> Result<Halves<'_>> {
        let row = row_elements(self.d);
        Ok(Halves {
            halves: Numbers::of(&self.halves).part(rows.start * row..rows.end * row)?,
            scales: Numbers::of(&self.scales).part(rows.clone())?,
            rows: rows.len(),
            d: self.d,
        })
    }
}

/// Some split rows: as many numbers as they need.
#[derive(Clone, Copy)]
struct Halves<'a> {
    halves: Numbers<'a, u32>,
    scales: Numbers<'a, f32>,
    rows: usize,
    d: usize,
}

impl Halves<'_> {
    fn argument(&self) -> SplitRows {
        SplitRows { halves: self.halves.pointer(), scales: self.scales.pointer(), rows: self.rows as u32 }
    }
}

#[derive(Clone, Copy)]
struct SplitLaunch<'a> {
    plain: Numbers<'a, f32>,
    to: Halves<'a>,
}

// SAFETY: `Halves` has what its rows need; the plain rows and the shared memory are checked here.
unsafe impl Launch for SplitLaunch<'_> {
    type Argument = SplitArgs;

    fn argument(&self, grid: &Grid) -> Result<SplitArgs> {
        let needed = vec![self.to.rows * self.to.d, split::SHARED_BYTES];
        check_suffices("a launch of `split_rows`", needed, vec![self.plain.len(), grid.shared])?;
        Ok(SplitArgs {
            x: self.plain.pointer(),
            rows: self.to.rows as u64,
            d: self.to.d as u32,
            halves: self.to.halves.pointer_mut(),
            scales: self.to.scales.pointer_mut(),
        })
    }
}

#[derive(Clone, Copy)]
struct ProductsLaunch<'a> {
    tiling: Tiling,
    vectors: Halves<'a>,
    matrix: Halves<'a>,
    products: Numbers<'a, f32>,
}

// SAFETY: `Halves` has what its rows need; that there are rows of one length, a place for each product, and the grid and
// shared memory of the kernel is checked here. Rows begin at multiples of 128 bytes.
unsafe impl Launch for ProductsLaunch<'_> {
    type Argument = ProductsArgs;

    fn argument(&self, grid: &Grid) -> Result<ProductsArgs> {
        let (n, m, d) = (self.vectors.rows, self.matrix.rows, self.vectors.d);
        let needed = vec![1, 1, n * m, self.tiling.shared_bytes()];
        let got = vec![n, m, self.products.len(), grid.shared];
        let too_many = n.max(m) > i32::MAX as usize;
        if self.matrix.d != d || grid.threads != self.tiling.threads || too_many || !suffices(&got, &needed) {
            return Err(mismatch("a launch of `products`", needed, got));
        }
        Ok(ProductsArgs {
            vectors: self.vectors.argument(),
            matrix: self.matrix.argument(),
            chunks: (row_elements(d) / row_elements(1)) as u32,
            products: self.products.pointer_mut(),
        })
    }
}

#[derive(Clone, Copy)]
struct FewLaunch<'a> {
    /// (n, D).
    vectors: Numbers<'a, f32>,
    n: usize,
    matrix: Halves<'a>,
    products: Numbers<'a, f32>,
}

// SAFETY: `Halves` has what its rows need; the vectors, their number, a place for each product, and the grid and shared memory of
// the kernel are checked here. Vectors begin where memory was allocated, at a multiple of 256 bytes.
unsafe impl Launch for FewLaunch<'_> {
    type Argument = ProductsFewArgs;

    fn argument(&self, grid: &Grid) -> Result<ProductsFewArgs> {
        let (n, m, d) = (self.n, self.matrix.rows, self.matrix.d);
        let needed = vec![1, 1, n * d, n * m, products_few::shared_bytes(grid.threads)];
        let got = vec![n, m, self.vectors.len(), self.products.len(), grid.shared];
        let too_many = n.max(m) > i32::MAX as usize;
        if !grid.threads.is_multiple_of(WARP) || too_many || !suffices(&got, &needed) {
            return Err(mismatch("a launch of `products_few`", needed, got));
        }
        Ok(ProductsFewArgs {
            vectors: self.vectors.pointer(),
            n: n as u32,
            d: d as u32,
            matrix: self.matrix.argument(),
            products: self.products.pointer_mut(),
        })
    }
}
