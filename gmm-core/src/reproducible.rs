//! The same bits on every CPU, by a switch.
use std::sync::atomic::{AtomicUsize, Ordering};

static LIVING: AtomicUsize = AtomicUsize::new(0);

/// While one lives, this process computes mixtures, fits, likelihoods, predictions and samples with
/// the same bits on every CPU, and with any number of threads: in registers of 512 bits, which other
/// CPUs make of narrower ones, with fused multiply-adds, which CPUs without them compute in tens of
/// times their time; and with elementary functions and matrices that do not come from the system or
/// from the instruction set. [`Device::Auto`](https://docs.rs/gmm-host/latest/gmm_host/enum.Device.html)
/// is the CPU then, and GPUs are refused.
///
/// Samples are loaded, mixtures made and both evaluated under it. It is one switch for all threads of
/// the process.
///
/// ```
/// use gmm_host::{Covariances, CovarianceType, GaussianMixtureParams, Reproducible};
/// use ndarray::Array2;
///
/// let x = Array2::from_shape_fn((1000, 2), |(i, j)| (i * (j + 2) % 97) as f64);
/// let _same = Reproducible::begin();
/// let fit = GaussianMixtureParams::new(3).covariance_type(CovarianceType::Diag).fit(&x)?;
/// # Ok::<(), gmm_host::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "it ends where it is dropped"]
pub struct Reproducible(());

impl Reproducible {
    /// Turns the switch on, until the last one is dropped.
    pub fn begin() -> Self {
        LIVING.fetch_add(1, Ordering::SeqCst);
        Self(())
    }

    /// Whether one lives.
    pub fn is_on() -> bool {
        LIVING.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Reproducible {
    fn drop(&mut self) {
        LIVING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The elementary functions whose last bits differ between systems and CPUs, of the crate `libm` under
/// [`Reproducible`].
pub trait Functions {
    /// The natural logarithm.
    fn log_e(self) -> Self;
    /// log(1 + x).
    fn log_e_1p(self) -> Self;
    /// The logarithm to base two.
    fn log_2(self) -> Self;
    /// eˣ.
    fn exp_e(self) -> Self;
    /// eˣ − 1.
    fn exp_e_m1(self) -> Self;
    /// 2ˣ.
    fn exp_2(self) -> Self;
    /// A power.
    fn power(self, exponent: Self) -> Self;
}

macro_rules! functions {
    ($($name:ident($($argument:ident)?) = $own:ident or $std:ident;)*) => {
        impl Functions for f64 {
            $(
                #[inline]
                fn $name(self, $($argument: Self)?) -> Self {
                    if Reproducible::is_on() { libm::$own(self, $($argument)?) } else { self.$std($($argument)?) }
                }
            )*
        }
    };
}

functions! {
    log_e() = log or ln;
    log_e_1p() = log1p or ln_1p;
    log_2() = log2 or log2;
    exp_e() = exp or exp;
    exp_e_m1() = expm1 or exp_m1;
    exp_2() = exp2 or exp2;
    power(exponent) = pow or powf;
}
