//! `split_rows`, `products_…`, `gaussian_pairs` and `gaussian_centres`. The tolerances are those
//! that `crate::pairwise` promises.
use crate::backends::cuda::device::layout;
use cust::memory::bytemuck;
use gmm_kernels::data;
use gmm_kernels::pairwise::centres::{self, CentresArgs, gaussian_centres};
use gmm_kernels::pairwise::pairs::{PairsArgs, gaussian_pairs};
use gmm_kernels::pairwise::products::{self, ProductsArgs, SplitRows, Tiling};
use gmm_kernels::pairwise::products_few::{self, ProductsFewArgs, products_few};
use gmm_kernels::pairwise::split::{self, CHUNK, SplitArgs, row_elements, split_rows};
use gmm_kernels::simt::emulator::{Memory, launch};
use ndarray::Array2;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

fn normal(seed: u64, n: usize, d: usize, shift: f32) -> Array2<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    Array2::from_shape_simple_fn((n, d), || shift + rng.sample::<f32, _>(StandardNormal))
}

/// Split rows: their numbers, aligned to 16 bytes, and their scales.
type Split = (Vec<u128>, Vec<f32>);

fn split(x: &Array2<f32>) -> Split {
    let (rows, d) = x.dim();
    let (mut halves, mut scales) = (vec![u128::MAX; rows * row_elements(d) / 4], vec![f32::NAN; rows]);
    let mut memory = Memory::new();
    let args = SplitArgs {
        x: memory.read("x", x.as_slice().unwrap()),
        rows: rows as u64,
        d: d as u32,
        halves: memory.write("halves", bytemuck::cast_slice_mut(&mut halves)),
        scales: memory.write("scales", &mut scales),
    };
    // SAFETY: the arguments of this kernel, with the arrays of `memory`.
    unsafe { launch((2, 1), split::threads(d), split::SHARED_BYTES, &memory, split_rows, args) };
    (halves, scales)
}

/// Split rows for a kernel.
fn rows<'a>(memory: &mut Memory<'a>, (halves, scales): &'a Split) -> SplitRows {
    SplitRows {
        halves: memory.read("halves of rows", bytemuck::cast_slice(halves)),
        scales: memory.read("scales of rows", scales),
        rows: scales.len() as u32,
    }
}

/// The products by tiles of all sizes, which give the same bits.
fn multiply(vectors: &Array2<f32>, matrix: &Array2<f32>) -> Array2<f32> {
    let [large, medium, small] = products::TILINGS.map(|tiling| multiply_by(tiling, 1, vectors, matrix));
    assert_eq!(large, medium);
    assert_eq!(large, small);
    large
}

/// The products in tiles whose chunks are divided among so many blocks.
fn multiply_by(tiling: Tiling, parts: usize, vectors: &Array2<f32>, matrix: &Array2<f32>) -> Array2<f32> {
    let ((n, d), m) = (vectors.dim(), matrix.nrows());
    let (vectors, matrix) = (split(vectors), split(matrix));
    let tiles = tiling.tiles(n, m);
    let mut sums = vec![u128::MAX; tiles * parts * tiling.products() / 4];
    let mut ready = vec![0; tiles];
    let mut out = vec![f32::NAN; n * m];
    let mut memory = Memory::new();
    let args = ProductsArgs {
        vectors: rows(&mut memory, &vectors),
        matrix: rows(&mut memory, &matrix),
        chunks: d.div_ceil(CHUNK) as u32,
        parts: parts as u32,
        sums: memory.write("sums", bytemuck::cast_slice_mut(&mut sums)),
        ready: memory.write("ready", &mut ready),
        products: memory.write("products", &mut out),
    };
    let grid = ((tiles * parts) as u32, 1);
    let kernel = match tiling {
        products::LARGE => products::products_large,
        products::MEDIUM => products::products_medium,
        _ => products::products_small,
    };
    // SAFETY: the arguments of this kernel, with the arrays of `memory`.
    unsafe { launch(grid, tiling.threads, tiling.shared_bytes(), &memory, kernel, args) };
    assert!(ready.iter().all(|&ready| ready == 0));
    Array2::from_shape_vec((n, m), out).unwrap()
}

/// The products by the kernel for few vectors, by so many threads of a block.
fn multiply_few(vectors: &Array2<f32>, matrix: &Array2<f32>, threads: u32) -> Array2<f32> {
    let (n, m) = (vectors.nrows(), matrix.nrows());
    // Aligned as device memory is.
    let mut aligned = vec![0u128; vectors.len().div_ceil(4)];
    let numbers = &mut bytemuck::cast_slice_mut(&mut aligned)[..vectors.len()];
    numbers.copy_from_slice(vectors.as_slice().unwrap());
    let matrix = split(matrix);
    let mut out = vec![f32::NAN; n * m];
    let mut memory = Memory::new();
    let args = ProductsFewArgs {
        vectors: memory.read("vectors", numbers),
        n: n as u32,
        d: vectors.ncols() as u32,
        matrix: rows(&mut memory, &matrix),
        products: memory.write("products", &mut out),
    };
    let grid = (products_few::blocks(n, m) as u32, 1);
    // SAFETY: the arguments of this kernel, with the arrays of `memory`.
    unsafe { launch(grid, threads, products_few::shared_bytes(threads), &memory, products_few, args) };
    Array2::from_shape_vec((n, m), out).unwrap()
}

#[test]
fn products_have_the_accuracy_of_float32() {
    // Even and odd M; tiles that are not full, and two along each side; one to four chunks.
    for (n, d, m, shift) in
        [(3, 1, 1, 0.0), (257, 20, 3, 0.0), (5, 33, 130, 1.0), (70, 100, 65, 10.0), (3, 700, 2, 0.0)]
    {
        let (vectors, matrix) = (normal(1, n, d, shift), normal(2, m, d, -shift));
        // Blocks of fewer and of more warps than there are chunks.
        let few = [64, 256].map(|threads| multiply_few(&vectors, &matrix, threads));
        // In fewer parts than chunks, in as many, and in more, some of which have none.
        let divided = [(products::MEDIUM, 2), (products::SMALL, 5)]
            .map(|(tiling, parts)| multiply_by(tiling, parts, &vectors, &matrix));
        let kernels = [
            ("tiles", &multiply(&vectors, &matrix)),
            ("divided medium tiles", &divided[0]),
            ("divided small tiles", &divided[1]),
            ("few, 64 threads", &few[0]),
            ("few", &few[1]),
        ];
        for (kernel, got) in kernels {
            let (v, w) = (vectors.mapv(f64::from), matrix.mapv(f64::from));
            let size = v.mapv(f64::abs).dot(&w.t().mapv(f64::abs));
            let error: f64 = got.iter().zip(&v.dot(&w.t())).map(|(&got, truth)| (f64::from(got) - truth).powi(2)).sum();
            let ratio = (error / size.iter().map(|v| v * v).sum::<f64>()).sqrt();
            // The emulator does not truncate, so that what is left are the parts l·l and the
            // roundings of l, and of the sums.
            assert!(ratio < 3e-7, "{kernel} N={n} D={d} M={m}: {ratio:e}");
        }
    }
}

/// Rows of zeros, of the largest, the smallest and subnormal numbers, and rows that span a wide
/// range.
#[test]
fn products_of_extreme_rows() {
    let rows =
        [[0.0; 3], [3.0e38, -1e38, 1e30], [1e-38, 2e-38, 0.0], [1e-44, 0.0, 3e-43], [1.0, 1e-9, 1e9], [3e38, 0.0, 0.0]];
    let x = Array2::from(rows.to_vec());
    let ones = Array2::from(vec![[1.0f32, 1.0, 1.0], [1e-3, 0.0, 0.0], [0.0, 0.0, 1e20]]);
    let truth = x.mapv(f64::from).dot(&ones.mapv(f64::from).t());
    let (tiles, few) = (multiply(&x, &ones), multiply_few(&x, &ones, 64));
    for ((i, j), &truth) in truth.indexed_iter() {
        // Of the row's largest number 2⁻²² for each of three numbers; a product below the normal
        // numbers loses its digits.
        let largest =
            x.row(i).iter().fold(0.0f32, |m, v| m.max(v.abs())) * ones.row(j).iter().fold(0.0, |m: f32, v| m.max(*v));
        let allowed = f64::from(largest) * 3.0 * 2f64.powi(-22) + f64::from(f32::MIN_POSITIVE) * 2f64.powi(-20);
        for (kernel, got) in [("tiles", tiles[[i, j]]), ("few", few[[i, j]])] {
            let what = format!("{kernel}, row {i} with {j}: {got:e} for {truth:e}");
            if truth.abs() > f64::from(f32::MAX) {
                assert!(got.is_infinite(), "{what}");
            } else {
                assert!((f64::from(got) - truth).abs() <= allowed, "{what}");
            }
        }
    }
}

/// Rows in the kernels' layout, with large numbers behind the last one.
fn columns(x: &Array2<f32>) -> Vec<u128> {
    let (n, d) = x.dim();
    let stride = layout::stride(n);
    let mut data = vec![0u128; d * stride / 4];
    let numbers: &mut [f32] = bytemuck::cast_slice_mut(&mut data);
    layout::transpose(x.view(), numbers);
    numbers.chunks_exact_mut(stride).for_each(|column| column[n..].fill(7e3));
    data
}

fn argument<'a>(memory: &mut Memory<'a>, x: &'a [u128], n: usize) -> data::Columns {
    let stride = layout::stride(n) as u64;
    data::Columns { x: memory.read("rows", bytemuck::cast_slice(x)), stride, n: n as u64, cached_quads: 0 }
}

fn assert_value(what: &str, got: f32, gamma: f64, a: ndarray::ArrayView1<f32>, b: ndarray::ArrayView1<f32>) {
    let square: f64 = a.iter().zip(b).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum();
    let truth = (-gamma * square).exp();
    let allowed =
        truth * (gamma * square + 1.0) * (a.len() as f64 + 8.0) * 2f64.powi(-24) + f64::from(f32::MIN_POSITIVE);
    assert!((f64::from(got) - truth).abs() <= allowed, "{what}: {got:e} for {truth:e}");
}

#[test]
fn the_gaussian_kernel_of_pairs() {
    for (n, d, shift) in [(1, 1, 0.0), (7, 3, 1e3), (300, 20, 0.0), (130, 6, 1e3)] {
        let (a, b) = (normal(3, n, d, shift), normal(4, n, d, shift));
        let gamma = 0.5 / d as f64;
        let (x, y) = (columns(&a), columns(&b));
        let mut values = vec![u128::MAX; n.div_ceil(4)];
        let mut memory = Memory::new();
        let args = PairsArgs {
            a: argument(&mut memory, &x, n),
            b: argument(&mut memory, &y, n),
            d: d as u32,
            factor: super::super::pairwise::factor(gamma),
            values: memory.write("values", bytemuck::cast_slice_mut(&mut values)),
        };
        // SAFETY: the arguments of this kernel, with the arrays of `memory`.
        unsafe { launch((2, 1), 32, 0, &memory, gaussian_pairs, args) };
        let values: &[f32] = bytemuck::cast_slice(&values);
        for (i, &value) in values[..n].iter().enumerate() {
            assert_value(&format!("N={n} D={d} pair {i}"), value, gamma, a.row(i), b.row(i));
        }
    }
}

#[test]
fn the_gaussian_kernel_with_centres() {
    for (n, d, m, shift) in [(1, 1, 1, 0.0), (130, 3, 66, 1e3), (9, 20, 8, 0.0)] {
        let (a, c) = (normal(5, n, d, shift), normal(6, m, d, shift));
        let gamma = 0.5 / d as f64;
        let (x, y) = (columns(&a), columns(&c));
        let mut values = vec![u128::MAX; (n * m).div_ceil(4)];
        let mut memory = Memory::new();
        let args = CentresArgs {
            x: argument(&mut memory, &x, n),
            centres: argument(&mut memory, &y, m),
            d: d as u32,
            factor: super::super::pairwise::factor(gamma),
            values: memory.write("values", bytemuck::cast_slice_mut(&mut values)),
        };
        let grid = (m.div_ceil(centres::TILE_CENTRES) as u32, n.div_ceil(centres::TILE_ROWS) as u32);
        // SAFETY: the arguments of this kernel, with the arrays of `memory`.
        unsafe { launch(grid, centres::THREADS, 0, &memory, gaussian_centres, args) };
        let values: &[f32] = bytemuck::cast_slice(&values);
        for (i, j) in (0..n).flat_map(|i| (0..m).map(move |j| (i, j))) {
            assert_value(
                &format!("N={n} D={d} M={m} row {i}, centre {j}"),
                values[i * m + j],
                gamma,
                a.row(i),
                c.row(j),
            );
        }
    }
}
