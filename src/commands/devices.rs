//! `gmm devices`: the devices and kernels of this machine.
use crate::terminal::text;
use clap::Args;
use gaussmix::kernel_names;
use serde::Serialize;

/// List the devices and kernels of this machine, and why others cannot be used
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm devices
  gmm devices --json")]
pub struct Devices {
    /// Print an array of rows `device, available, description, kernels` as JSON
    #[arg(long)]
    json: bool,
}

/// What `--json` prints for each device. The description of a device that cannot be used says why.
#[derive(Serialize)]
struct Row {
    device: String,
    available: bool,
    description: String,
    kernels: Vec<String>,
}

impl Devices {
    pub fn run(self) -> anyhow::Result<()> {
        let rows: Vec<Row> = gaussmix::devices()
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
}
