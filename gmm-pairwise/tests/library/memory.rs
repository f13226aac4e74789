//! A request for more memory than available is an error before anything is allocated.
use gmm_pairwise::{Centres, Device, Error, GaussianKernel, InnerProducts, Result};
use ndarray::array;

/// More than any machine has, in bytes as in elements.
const MANY: usize = 1 << 45;

/// Checks the error, and that its text says how much is requested and what to do.
fn refused<T>(what: &str, result: Result<T>) {
    match result {
        Err(error @ Error::Memory { .. }) => {
            let text = error.to_string();
            assert!(text.starts_with(what) && text.contains("of memory") && text.contains("; "), "{text}");
        }
        Err(other) => panic!("{what}: {other}"),
        Ok(_) => panic!("{what}: no error"),
    }
}

#[test]
fn products_and_kernels() {
    let few = array![[1.0f32, 2.0]];
    // Rows that repeat one row in memory.
    let rows = few.broadcast((MANY, 2)).unwrap();
    for device in [Device::Cpu, Device::Reference, Device::Auto] {
        let mut matrix = InnerProducts::load(device, few.view()).unwrap();
        refused("the products, of shape [35184372088832, 1], take", matrix.products(rows));
        assert_eq!(matrix.products(few.view()).unwrap(), array![[5.0]]);
        let mut centres = Centres::load(device, few.view()).unwrap();
        let kernel = GaussianKernel::new(1.0).unwrap();
        refused("the kernel's values", centres.gaussian(&kernel, rows));
        assert_eq!(centres.gaussian(&kernel, few.view()).unwrap(), array![[1.0]]);
    }
}
