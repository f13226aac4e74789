//! Interruption of a computation.
use crate::error::{Error, Result};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    static CURRENT: RefCell<Interrupt> = RefCell::default();
}

/// A flag that another thread raises to end a computation: long loops check it and return [`Error::Interrupted`]. A
/// clone is the same flag.
///
/// ```
/// use gmm_host::{Covariances, Error, Interrupt, Mixture};
/// use ndarray::array;
///
/// let mixture = Mixture::new(array![1.0], array![[0.0]], Covariances::Spherical(array![1.0]))?;
/// let interrupt = Interrupt::default();
/// interrupt.raise();
/// let result = interrupt.install(|| mixture.kl_divergence(&mixture, 1_000_000, 0));
/// assert!(matches!(result, Err(Error::Interrupted)));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Raises the flag.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Runs `work` under this flag.
    pub fn install<T>(&self, work: impl FnOnce() -> T) -> T {
        struct Before(Interrupt);
        impl Drop for Before {
            fn drop(&mut self) {
                CURRENT.replace(std::mem::take(&mut self.0));
            }
        }
        let _before = Before(CURRENT.replace(self.clone()));
        work()
    }

    /// Returns the flag installed on this thread, or one that is never raised. Parallel loops take it before they
    /// begin, because other threads have none.
    pub fn current() -> Self {
        CURRENT.with_borrow(Self::clone)
    }

    /// Checks whether the flag is raised.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if it is.
    pub fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }
}
