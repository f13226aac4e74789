//! Inner products and the Gaussian kernel on the CPU, by the reference and on the device `auto`.
use crate::common as checks;
use gmm_pairwise::{Device, Error, InnerProducts};
use ndarray::array;

const DEVICES: [Device; 3] = [Device::Cpu, Device::Reference, Device::Auto];

#[test]
fn pairs_agree_with_plain_loops() {
    for device in DEVICES {
        checks::pairs(device, true);
    }
}

#[test]
fn centres_agree_with_plain_loops_while_they_grow() {
    for device in DEVICES {
        checks::growing_centres(device, true);
    }
}

#[test]
fn products_agree_with_float64() {
    for device in DEVICES {
        checks::products(device, true);
    }
}

#[test]
fn any_memory_order_is_taken() {
    DEVICES.into_iter().for_each(checks::memory_orders);
}

#[test]
fn extreme_distances_give_0_and_1() {
    for device in DEVICES {
        checks::extreme_distances(device, true);
    }
}

#[test]
fn bad_input_is_refused() {
    DEVICES.into_iter().for_each(checks::bad_input);
    checks::bad_gamma();
}

#[test]
fn a_device_that_is_not_there_is_refused() {
    let x = array![[1.0f32, 2.0]];
    let error = InnerProducts::load(Device::Cuda(4711), x.view()).unwrap_err();
    assert!(matches!(error, Error::NoCudaDevice { .. }), "{error}");
}
