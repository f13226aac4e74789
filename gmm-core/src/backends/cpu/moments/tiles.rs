//! The moments of covariances without matrices, and of small matrices around the frame's zero: for some features and a
//! tile of groups of samples at a time, so that sums stay in registers.
use super::layout::Layout;
use super::responsibilities::responsibilities;
use super::sums::Sums;
use crate::backends::cpu::exponents::GROUP;
use crate::backends::cpu::real::Real;
use crate::backends::device_parameters::{DeviceParameters, Matrices};
use crate::model::linalg::triangle;
use crate::simd::isa::vectorize;
use crate::simd::lane::elements;
use pulp::{Simd, WithSimd};

/// The groups of samples waiting for a full tile.
pub(super) struct Tiles<'a, T: Real, S: Simd> {
    parameters: &'a DeviceParameters<T>,
    /// The centres of the moments, (K, width).
    centres: &'a [T::Reg<S>],
    held: usize,
    /// The samples from the tile's first on.
    x: &'a [T::Reg<S>],
}

impl<'a, T: Real, S: Simd> Tiles<'a, T, S> {
    /// `x` are the registers of all samples.
    pub fn new(parameters: &'a DeviceParameters<T>, centres: &'a [T::Reg<S>], x: &'a [T::Reg<S>]) -> Self {
        Self { parameters, centres, held: 0, x }
    }

    /// Puts the responsibilities of a group into the tile; a full tile's moments are formed at once. A single register
    /// is a tile of its own. `terms` and `share` are as for [`responsibilities`].
    #[inline(always)]
    pub fn hold<const REGISTERS: usize>(
        &mut self,
        simd: S,
        sums: &mut Sums<T>,
        x: &[T::Reg<S>],
        terms: &[[T::Reg<S>; REGISTERS]],
        share: &[T::Reg<S>; REGISTERS],
    ) {
        if REGISTERS != GROUP {
            self.release(simd, sums);
        }
        let (group, tile) = (self.held, sums.layout.tile);
        let Sums { spread, rows, present, .. } = &mut *sums;
        let counts = T::registers_mut::<S>(spread);
        let rows = T::registers_mut::<S>(rows).chunks_exact_mut(tile * GROUP);
        for (((terms, count), row), present) in terms.iter().zip(counts).zip(rows).zip(present) {
            let r = responsibilities::<T, S, REGISTERS>(simd, terms, share, count);
            let mut most = r[0];
            for &r in &r[1..] {
                most = T::max(simd, most, r);
            }
            *present |= u32::from(T::any_above(simd, most, T::NEGLIGIBLE)) << group;
            row[group * REGISTERS..][..REGISTERS].copy_from_slice(&r);
        }
        self.held += 1;
        if REGISTERS != GROUP {
            self.moments_of_tile::<REGISTERS>(simd, sums, x);
        } else if self.held == tile {
            self.release(simd, sums);
        }
    }

    /// Adds the moments of the tile's groups.
    #[inline(always)]
    pub fn release(&mut self, simd: S, sums: &mut Sums<T>) {
        let length = self.held * GROUP * self.parameters.n_features;
        let (x, rest) = self.x.split_at(length);
        self.x = rest;
        self.moments_of_tile::<GROUP>(simd, sums, x);
    }

    /// Adds the moments of the tile's groups, whose samples are `x` (`held`·REGISTERS, D), and empties the tile.
    #[inline(always)]
    fn moments_of_tile<const REGISTERS: usize>(&mut self, simd: S, sums: &mut Sums<T>, x: &[T::Reg<S>]) {
        let groups = std::mem::take(&mut self.held);
        if groups > 0 {
            let Sums { layout, spread, rows, present, .. } = sums;
            let tile = Tile::<T, REGISTERS> {
                x: elements::<T, S>(x),
                shares: rows,
                present,
                groups,
                parameters: self.parameters,
                centres: elements::<T, S>(self.centres),
                sums: spread,
                layout: *layout,
            };
            add_tile(simd, tile);
        }
    }
}

/// The factors of the responsibilities in a sum, for some features of a sample.
#[derive(Clone, Copy)]
enum Products {
    Features,
    Squares,
    /// The features times this one: a row of a lower triangle.
    WithFeature(usize),
}

struct Tile<'a, T, const REGISTERS: usize> {
    /// The samples (`groups`·REGISTERS, D).
    x: &'a [T],
    /// The responsibilities (K, `tile` groups).
    shares: &'a [T],
    /// For each component, a bit for each group with non-negligible responsibilities; all are cleared.
    present: &'a mut [u32],
    groups: usize,
    parameters: &'a DeviceParameters<T>,
    /// The centres of the moments, (K, width).
    centres: &'a [T],
    sums: &'a mut [T],
    layout: Layout,
}

/// Runs `tile` compiled for `S`, without inlining it here.
#[inline(never)]
fn add_tile<T: Real, S: Simd, const REGISTERS: usize>(simd: S, tile: Tile<'_, T, REGISTERS>) {
    vectorize(simd, tile);
}

impl<T: Real, const REGISTERS: usize> WithSimd for Tile<'_, T, REGISTERS> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        match self.parameters.gaps {
            None if self.layout.around_zero => self.add_around_zero(simd),
            None => self.add::<S, false>(simd),
            Some(_) => self.add::<S, true>(simd),
        }
        self.present.fill(0);
    }
}

impl<T: Real, const REGISTERS: usize> Tile<'_, T, REGISTERS> {
    /// Takes some features at a time, whose registers stay in the first-level cache for all components.
    #[inline(always)]
    fn add<S: Simd, const GAPS: bool>(&mut self, simd: S) {
        let d = self.parameters.n_features;
        // More features at a time need more registers than some instruction sets have.
        let most = if S::REGISTER_COUNT >= 32 { 4 } else { 2 };
        let mut start = 0;
        while start < d {
            // Equal widths, because narrow steps do not hide the latency of the sums.
            let width = (d - start).div_ceil((d - start).div_ceil(most));
            match width {
                1 => self.add_features::<S, GAPS, 1>(simd, start),
                2 => self.add_features::<S, GAPS, 2>(simd, start),
                3 => self.add_features::<S, GAPS, 3>(simd, start),
                _ => self.add_features::<S, GAPS, 4>(simd, start),
            }
            start += width;
        }
    }

    /// As [`add`](Self::add), around zero: products of features are formed once for several components.
    #[inline(always)]
    fn add_around_zero<S: Simd>(&mut self, simd: S) {
        let d = self.parameters.n_features;
        self.add_row::<S>(simd, Products::Features, d);
        match self.parameters.matrices {
            Matrices::Diagonal => self.add_row::<S>(simd, Products::Squares, d),
            _ => {
                for i in 0..d {
                    self.add_row::<S>(simd, Products::WithFeature(i), i + 1);
                }
            }
        }
    }

    /// Adds the products with the first `length` features, some at a time, so that sums stay in registers.
    #[inline(always)]
    fn add_row<S: Simd>(&mut self, simd: S, products: Products, length: usize) {
        let most = if S::REGISTER_COUNT >= 32 { 3 } else { 2 };
        let mut start = 0;
        while start < length {
            let width = (length - start).div_ceil((length - start).div_ceil(most));
            match width {
                1 => self.add_products_of_all::<S, 1>(simd, products, start),
                2 => self.add_products_of_all::<S, 2>(simd, products, start),
                _ => self.add_products_of_all::<S, 3>(simd, products, start),
            }
            start += width;
        }
    }

    /// As [`add_products`](Self::add_products), for all components, as many together as registers hold their sums.
    #[inline(always)]
    fn add_products_of_all<S: Simd, const WIDTH: usize>(&mut self, simd: S, products: Products, start: usize) {
        let k = self.parameters.n_components;
        let mut c = 0;
        while S::REGISTER_COUNT >= 32 && c + 8 <= k {
            self.add_products::<S, 8, WIDTH>(simd, c, products, start);
            c += 8;
        }
        while c + 4 <= k {
            self.add_products::<S, 4, WIDTH>(simd, c, products, start);
            c += 4;
        }
        while c + 2 <= k {
            self.add_products::<S, 2, WIDTH>(simd, c, products, start);
            c += 2;
        }
        if c < k {
            self.add_products::<S, 1, WIDTH>(simd, c, products, start);
        }
    }

    /// Adds the products with the features from `start` on, for the components from `c` on.
    #[inline(always)]
    fn add_products<S: Simd, const COMPONENTS: usize, const WIDTH: usize>(
        &mut self,
        simd: S,
        c: usize,
        products: Products,
        start: usize,
    ) {
        let (k, d) = (self.parameters.n_components, self.parameters.n_features);
        let present = self.present[c..][..COMPONENTS].iter().fold(0, |all, present| all | present);
        let tile = self.layout.tile * GROUP;
        let mut shares = [&T::registers::<S>(self.shares)[..0]; COMPONENTS];
        for (i, shares) in shares.iter_mut().enumerate() {
            *shares = &T::registers::<S>(self.shares)[(c + i) * tile..][..self.groups * REGISTERS];
        }
        let mut sums = [[T::splat(simd, T::from_f64(0.0)); WIDTH]; COMPONENTS];
        let groups = T::registers::<S>(self.x).chunks_exact(REGISTERS * d).take(self.groups);
        for (group, x) in groups.enumerate() {
            if present >> group & 1 == 0 {
                continue;
            }
            for g in 0..REGISTERS {
                let x = &x[g * d..][..d];
                let mut product = [x[0]; WIDTH];
                product.copy_from_slice(&x[start..][..WIDTH]);
                for product in &mut product {
                    *product = match products {
                        Products::Features => *product,
                        Products::Squares => T::mul(simd, *product, *product),
                        Products::WithFeature(i) => T::mul(simd, *product, x[i]),
                    };
                }
                for i in 0..COMPONENTS {
                    let share = shares[i][group * REGISTERS + g];
                    for w in 0..WIDTH {
                        sums[i][w] = T::mul_add(simd, share, product[w], sums[i][w]);
                    }
                }
            }
        }
        let (at, length) = match products {
            Products::Features => (k + start, d),
            Products::Squares => (k + k * d + start, d),
            Products::WithFeature(i) => (k + k * d + triangle(i) + start, triangle(d)),
        };
        let totals = T::registers_mut::<S>(self.sums);
        for i in 0..COMPONENTS {
            let totals = &mut totals[at + (c + i) * length..][..WIDTH];
            for w in 0..WIDTH {
                totals[w] = T::add(simd, totals[w], sums[i][w]);
            }
        }
    }

    /// Adds all components' moments of the features from `start` on; with missing values also counts.
    #[inline(always)]
    fn add_features<S: Simd, const GAPS: bool, const WIDTH: usize>(&mut self, simd: S, start: usize) {
        let (k, d) = (self.parameters.n_components, self.parameters.n_features);
        let x = T::registers::<S>(self.x);
        let (_, moments) = T::registers_mut::<S>(self.sums).split_at_mut(k);
        let (first, moments) = moments.split_at_mut(k * d);
        let (second, counts) = moments.split_at_mut(k * d);
        let components = self.present.iter().zip(T::registers::<S>(self.shares).chunks_exact(self.layout.tile * GROUP));
        for (c, (&present, shares)) in components.enumerate() {
            if present == 0 {
                continue;
            }
            let at = c * d + start;
            // Alternate registers of sums, because a single sum waits for each addition; with missing values there are
            // three sums per feature, and no registers left.
            let parts = if GAPS { 1 } else { 2 };
            let zero = [T::splat(simd, T::from_f64(0.0)); WIDTH];
            let (mut centre, mut a, mut b, mut n) = (zero, [zero; 2], [zero; 2], zero);
            let centres = &self.centres[c * self.layout.width + start..][..WIDTH];
            for w in 0..WIDTH {
                centre[w] = T::splat(simd, centres[w]);
            }
            a[0].copy_from_slice(&first[at..][..WIDTH]);
            b[0].copy_from_slice(&second[at..][..WIDTH]);
            if GAPS {
                n.copy_from_slice(&counts[at..][..WIDTH]);
            }
            let groups = shares.chunks_exact(REGISTERS).zip(x.chunks_exact(REGISTERS * d));
            for (group, (shares, x)) in groups.take(self.groups).enumerate() {
                if present >> group & 1 == 0 {
                    continue;
                }
                for g in 0..REGISTERS {
                    let row = &x[g * d + start..][..WIDTH];
                    for w in 0..WIDTH {
                        // A subtraction spares the multipliers, the busiest units of the processor.
                        let mut deviation = T::sub(simd, row[w], centre[w]);
                        let mut share = shares[g];
                        if GAPS {
                            let observed = T::is_number(simd, row[w]);
                            deviation = T::only(simd, observed, deviation);
                            share = T::only(simd, observed, share);
                            n[w] = T::add(simd, n[w], share);
                        }
                        let u = T::mul(simd, share, deviation);
                        let part = g % parts;
                        a[part][w] = T::add(simd, a[part][w], u);
                        b[part][w] = T::mul_add(simd, u, deviation, b[part][w]);
                    }
                }
            }
            for w in 0..WIDTH {
                first[at + w] = T::add(simd, a[0][w], a[1][w]);
                second[at + w] = T::add(simd, b[0][w], b[1][w]);
            }
            if GAPS {
                counts[at..][..WIDTH].copy_from_slice(&n);
            }
        }
    }
}
