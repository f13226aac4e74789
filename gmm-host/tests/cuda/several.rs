//! Samples divided over devices of a real machine, the GPU and the CPU or all GPUs, against the float64 reference.
use crate::common::{Allowed, assert_close, assert_evaluators_agree, blobs, mixture, reference};
use crate::gpu_harness::Test;
use gmm_host::{
    CovarianceType, Device, Evaluator, GaussianMixtureParams, LoadOptions, Order, Samples, cuda_devices, load,
};

pub fn tests() -> Vec<Test> {
    vec![
        ("every_operation_agrees", every_operation_agrees),
        ("fits_and_bits_repeat", fits_and_bits_repeat),
        ("auto_agrees_on_however_many", auto_agrees_on_however_many),
    ]
}

/// Returns the names of this machine's combinations of devices.
fn several() -> Vec<String> {
    let gpus = cuda_devices().unwrap().len();
    let mut names = vec!["cuda:0,cpu".to_string()];
    if gpus > 1 {
        names.extend(["cuda:all".to_string(), "cuda:0,1".to_string(), "cuda:all,cpu".to_string()]);
    }
    println!("{gpus} GPUs: {}", names.join("; "));
    names
}

fn loaded<'a>(name: &str, samples: Samples<'a>) -> Box<dyn Evaluator + 'a> {
    let data = load(name.parse::<Device>().unwrap(), samples, &LoadOptions::new()).unwrap();
    let shards = data.describe().device.matches(" + ").count() + 1;
    assert!(shards > 1, "{name}: {:?}", data.describe());
    data
}

fn every_operation_agrees() {
    let x = blobs(90, 20_011, 5);
    let single = x.mapv(|v| v as f32);
    let wide = single.mapv(f64::from);
    for name in several() {
        for covariance_type in CovarianceType::ALL {
            let m = mixture(91, covariance_type, 4, 5, 0.0);
            let mut data = loaded(&name, Samples::from_f32(single.view()).unwrap());
            let mut truth = reference(wide.view());
            // float32: the tolerances of the other tests of totals and values.
            let allowed = Allowed { sample: 1e-4, total: 1e-6, statistics: 1e-4 };
            let what = format!("{name} {covariance_type}");
            assert_evaluators_agree(&what, data.as_mut(), &mut truth, &m, allowed);
            let rows = [0, 20_010, 311];
            assert_eq!(data.rows(&rows).unwrap().x, truth.rows(&rows).unwrap().x);
        }
    }
}

fn fits_and_bits_repeat() {
    let x = blobs(92, 30_000, 4).mapv(|v| v as f32);
    for name in several() {
        let samples = || Samples::from_f32(x.view()).unwrap();
        let params = GaussianMixtureParams::new(3).max_iter(20);
        let fits = [0, 1].map(|_| params.fit(loaded(&name, samples()).as_mut()).unwrap());
        assert_eq!(fits[0].mixture, fits[1].mixture, "{name}: the same bits on every run");
        let one = params.fit(load(Device::Cuda(0), samples(), &LoadOptions::new()).unwrap().as_mut()).unwrap();
        // Another start may find the components in another order; they are 10 apart.
        let [several, one] = [&fits[0], &one].map(|fit| fit.mixture.sorted(&Order::Mean(0)).unwrap());
        let off = (&several.means() - &one.means()).mapv(f64::abs);
        assert!(off.iter().all(|d| *d < 1e-3), "{name}: {off}");
    }
}

/// With long evaluations `auto` tries all GPUs if there are several; it stays there if they are measured to be faster.
fn auto_agrees_on_however_many() {
    let x = blobs(94, 1_000_000, 16).mapv(|v| v as f32);
    let m = mixture(95, CovarianceType::Full, 32, 16, 0.0);
    let samples = || Samples::from_f32(x.view()).unwrap();
    let truth = load(Device::Cuda(0), samples(), &LoadOptions::new()).unwrap().log_likelihood(&m).unwrap();
    for one_gpu in [false, true] {
        let mut auto = load(Device::Auto, samples(), &LoadOptions::new().one_gpu(one_gpu)).unwrap();
        auto.sampling().unwrap().settle();
        let total = auto.log_likelihood(&m).unwrap();
        let device = auto.describe().device;
        println!("auto, one GPU only {one_gpu}: {device}");
        assert!(!one_gpu || device.matches("cuda:").count() <= 1, "{device}");
        assert_close("auto", total, truth, 1e-6, 0.0);
        assert_eq!(auto.log_likelihood(&m).unwrap(), total, "what was chosen stays");
        let statistics = auto.statistics(&m).unwrap();
        assert_close("auto's E-step", statistics.log_likelihood(), truth, 1e-6, 0.0);
    }
}
