//! Loops in the machine's vector instructions, chosen at run time: an operation is written once, over the registers of
//! any instruction set ([`WithSimd`]), and [`Isa::run`] runs it compiled for one of them.
//!
//! ```
//! use gmm_host::simd::{Isa, Lane, Simd, WithSimd, lanes};
//!
//! /// Replaces each number x by 2^x.
//! struct Exp2<'a>(&'a mut [f64]);
//!
//! impl WithSimd for Exp2<'_> {
//!     type Output = ();
//!
//!     #[inline(always)]
//!     fn with_simd<S: Simd>(self, simd: S) {
//!         let whole = self.0.len() - self.0.len() % lanes::<f64, S>();
//!         let (whole, rest) = self.0.split_at_mut(whole);
//!         for x in f64::registers_mut::<S>(whole) {
//!             *x = <f64 as Lane>::exp2(simd, *x);
//!         }
//!         rest.iter_mut().for_each(|x| *x = f64::exp2(*x));
//!     }
//! }
//!
//! let mut x = [1.0; 33];
//! Isa::best().run(Exp2(&mut x));
//! assert_eq!(x, [2.0; 33]);
//! ```
pub mod isa;
pub mod lane;

pub use isa::{Isa, vectorize};
pub use lane::{Lane, elements, elements_mut, fuses, lanes};
pub use pulp::{Simd, WithSimd};
