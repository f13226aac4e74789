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
        if self.json {
            return text::print_json(&rows);
        }
        let lines = rows.into_iter().map(|r| {
            vec![r.device, if r.available { "yes" } else { "no" }.into(), r.kernels.join(", "), r.description]
        });
        Ok(text::print(text::table(&["device", "usable", "kernels", "description"], lines, usize::MAX))?)
    }

    #[cfg(feature = "cuda")]
    fn print_kernels(&self) -> anyhow::Result<()> {
        let kernels = gaussmix::cuda::cuda_kernels().into_iter().map(|kernel| Kernel {
            name: kernel.name,
            unit: kernel.unit,
            about: kernel.about,
            operations: kernel.operations,
            covariance_types: kernel.covariance_types.iter().map(ToString::to_string).collect(),
            sizes: kernel.sizes,
            weights: kernel.weights,
            missing_values: kernel.missing_values,
        });
        if self.json {
            return text::print_json(&kernels.collect::<Vec<_>>());
        }
        let yes = |is: bool| String::from(if is { "yes" } else { "no" });
        let lines = kernels.map(|kernel| {
            let types = kernel.covariance_types.join(", ");
            let operations = kernel.operations.join(", ");
            let (weights, missing) = (yes(kernel.weights), yes(kernel.missing_values));
            vec![
                kernel.name.into(),
                kernel.unit,
                operations,
                types,
                kernel.sizes,
                weights,
                missing,
                kernel.about.into(),
            ]
        });
        let heads = ["kernel", "unit", "operations", "covariances", "K, D", "weights", "missing", "computes"];
        Ok(text::print(text::table(&heads, lines, usize::MAX))?)
    }
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
