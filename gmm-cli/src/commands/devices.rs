//! `gmm devices`: the devices and kernels of this machine.
use crate::terminal::text;
use clap::Args;
use gaussmix::device::kernel_names;
use serde::Serialize;

/// List the devices and kernels of this machine, and the reasons why others cannot be used
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm devices
  gmm devices --json
  gmm devices --kernels")]
pub struct Devices {
    /// List the abilities of each kernel of the CUDA backend instead (needs no GPU)
    #[cfg(feature = "cuda")]
    #[arg(long)]
    kernels: bool,

    /// Print an array of rows `device, available, description, kernels` as JSON
    #[arg(long)]
    json: bool,
}

/// A device as `--json` prints it. If it cannot be used, the description says why.
#[derive(Serialize)]
struct Row {
    device: String,
    available: bool,
    description: String,
    kernels: Vec<String>,
}

impl Devices {
    pub fn run(self) -> anyhow::Result<()> {
        #[cfg(feature = "cuda")]
        if self.kernels {
            return self.print_kernels();
        }
        let rows: Vec<Row> = gaussmix::device::devices()
            .into_iter()
            .map(|(device, found)| Row {
                device: device.to_string(),
                available: found.is_ok(),
                description: found.unwrap_or_else(|e| e.to_string()),
                kernels: kernel_names(&device),
            })
            .collect();
        let line = |r: &Row| vec![r.device.clone(), yes(r.available), r.kernels.join(", "), r.description.clone()];
        let heads = ["device", "usable", "kernels", "description"];
        text::report(self.json, &rows, || text::table(&heads, rows.iter().map(line), usize::MAX))
    }

    #[cfg(feature = "cuda")]
    fn print_kernels(&self) -> anyhow::Result<()> {
        let kernel = |kernel: gaussmix::cuda::CudaKernel| Kernel {
            name: kernel.name,
            unit: kernel.unit,
            about: kernel.about,
            operations: kernel.operations,
            covariance_types: kernel.covariance_types.iter().map(ToString::to_string).collect(),
            sizes: kernel.sizes,
            weights: kernel.weights,
            missing_values: kernel.missing_values,
        };
        let kernels: Vec<Kernel> = gaussmix::cuda::cuda_kernels().into_iter().map(kernel).collect();
        let line = |kernel: &Kernel| {
            vec![
                kernel.name.into(),
                kernel.unit.clone(),
                kernel.operations.join(", "),
                kernel.covariance_types.join(", "),
                kernel.sizes.clone(),
                yes(kernel.weights),
                yes(kernel.missing_values),
                kernel.about.into(),
            ]
        };
        let heads = ["kernel", "unit", "operations", "covariances", "K, D", "weights", "missing", "computes"];
        text::report(self.json, &kernels, || text::table(&heads, kernels.iter().map(line), usize::MAX))
    }
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.into()
}

/// A kernel as `--kernels --json` prints it.
#[cfg(feature = "cuda")]
#[derive(Serialize)]
struct Kernel {
    name: &'static str,
    unit: String,
    about: &'static str,
    operations: Vec<String>,
    covariance_types: Vec<String>,
    sizes: String,
    weights: bool,
    missing_values: bool,
}
