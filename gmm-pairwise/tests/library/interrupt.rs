//! Computations that are interrupted.
use gmm_pairwise::{Centres, Device, Error, GaussianKernel, InnerProducts, Interrupt, RowPairs};
use ndarray::Array2;

#[test]
fn an_interrupt_ends_what_takes_long() {
    // Threads multiply one vector with a matrix; the crate `gemm` multiplies several.
    let (x, one, matrix) = (Array2::<f64>::ones((600, 500)), Array2::ones((1, 500)), Array2::ones((600, 500)));
    let kernel = GaussianKernel::new(1e-3).unwrap();
    for device in [Device::Cpu, Device::Reference, Device::Auto] {
        let mut products = InnerProducts::load(device, matrix.view()).unwrap();
        let mut pairs = RowPairs::load(device, x.view(), matrix.view()).unwrap();
        let mut centres = Centres::load(device, matrix.view()).unwrap();
        let mut compute = || {
            [
                products.products(x.view()).err(),
                products.products(one.view()).err(),
                pairs.gaussian(&kernel).err(),
                centres.gaussian(&kernel, x.view()).err(),
            ]
        };
        let interrupt = Interrupt::default();
        interrupt.raise();
        for (i, error) in interrupt.install(&mut compute).into_iter().enumerate() {
            assert!(matches!(error, Some(Error::Interrupted)), "{device}, {i}: {error:?}");
        }
        // An interrupt ends only the work it was raised for.
        assert!(compute().iter().all(Option::is_none), "{device}");
    }
}
