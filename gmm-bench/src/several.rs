use crate::{median, normal};
use clap::Args;
use gaussmix::cuda::cuda_devices;
use gaussmix::data::Samples;
use gaussmix::device::{Device, DeviceSet, LoadOptions, load};
use gaussmix::model::CovarianceType;
use gaussmix_cli::bench::{mixtures, text};

/// N, D and K.
const CASES: [(usize, usize, usize); 3] = [(200_000_000, 13, 8), (10_000_000, 13, 8), (8_000_000, 128, 1024)];
/// Mixtures used in turn.
const SETS: usize = 4;

/// Time totals and E-steps over one, two, four ... GPUs
///
/// Diagonal covariances; each time is followed by its share of the linear gain.
#[derive(Debug, Args)]
pub struct Several {
    /// Most gigabytes of samples of a case
    #[arg(long, default_value = "11")]
    gigabytes: f64,
}

impl Several {
    pub fn run(self) -> anyhow::Result<()> {
        let gpus = cuda_devices()?.len();
        let mut rows = Vec::new();
        for (n, d, k) in CASES.into_iter().filter(|&(n, d, _)| (4 * n * d) as f64 <= self.gigabytes * 1e9) {
            let x = normal(n, d)?;
            let mixtures = mixtures(SETS, [k, d], CovarianceType::Diag)?;
            let mut one = None;
            for count in (0..).map(|i| 1 << i).take_while(|count| *count <= gpus) {
                let device = if count == 1 { Device::Cuda(0) } else { Device::Several(DeviceSet::cuda(0..count)) };
                let mut data = load(device, Samples::from_f32(x.view())?, &LoadOptions::new())?;
                let total = median(|i| data.log_likelihood(&mixtures[i % SETS]).map(drop))?;
                let e_step = median(|i| data.statistics(&mixtures[i % SETS]).map(drop))?;
                let [total_of_one, e_step_of_one] = *one.get_or_insert([total, e_step]);
                let share = |one: f64, time: f64| format!("{:.2}", one / time / count as f64);
                let shape = [n, d, k, count].map(|size| text::grouped(size as u64));
                let of_total = [text::seconds(total), share(total_of_one, total)];
                let of_e_step = [text::seconds(e_step), share(e_step_of_one, e_step)];
                rows.push([&shape[..], &of_total, &of_e_step].concat());
            }
        }
        let header = ["N", "D", "K", "GPUs", "total", "share", "E-step", "share"];
        text::print(text::table(&header, rows, 0))
    }
}
