use crate::{median, normal};
use clap::Args;
use gaussmix::Error;
use gaussmix::device::Device;
use gaussmix::pairwise::{Centres, GaussianKernel, InnerProducts, RowPairs};
use gaussmix_cli::bench::text;

/// Launches back to back.
const LAUNCHES: u32 = 10;

/// Time comparisons of vectors with vectors: a launch by the device's clock, and a call
///
/// Inner products with a matrix of M rows, the Gaussian kernel of pairs of rows, and of rows with M centres. The rate
/// is of the launch, or of the call if the device has no clock.
#[derive(Debug, Args)]
pub struct Pairwise {
    #[arg(long, default_value = "cpu")]
    device: Device,
}

/// The row of a case; `work`, with its unit, is the work done per second.
fn row(
    name: &str,
    shape: [usize; 3],
    launch: Result<f64, Error>,
    call: f64,
    (work, unit): (f64, &str),
) -> Result<Vec<String>, Error> {
    let (launch, seconds) = match launch {
        Ok(seconds) => (text::seconds(seconds), seconds),
        Err(Error::Unsupported { .. }) => ("–".into(), call),
        Err(error) => return Err(error),
    };
    let [n, d, m] = shape.map(|size| text::grouped(size as u64));
    Ok(vec![name.into(), n, d, m, launch, text::seconds(call), format!("{:.3} T{unit}/s", work / seconds / 1e12)])
}

impl Pairwise {
    pub fn run(self) -> anyhow::Result<()> {
        let mut rows = Vec::new();
        let few = [1, 2, 4, 8, 16, 32, 64, 128, 256, 500, 1000, 50_000].map(|n| [n, 1000, 1000]);
        for shape @ [n, d, m] in few.into_iter().chain([1, 8, 64, 2000].map(|n| [n, 40_000, 2000])) {
            let (vectors, matrix) = (normal(n, d)?, normal(m, d)?);
            let mut resident = InnerProducts::load(self.device, matrix.view())?;
            let launch = resident.kernel_seconds(vectors.view(), LAUNCHES);
            let mut out = vec![0.0; n * m];
            let call = median(|_| resident.products_into(vectors.view(), &mut out))?;
            rows.push(row("products", shape, launch, call, (2.0 * (n * d * m) as f64, "FLOP"))?);
        }
        let kernel = GaussianKernel::new(0.1)?;
        for shape @ [n, d, _] in [1000, 1_000_000, 10_000_000].map(|n| [n, 20, 1]) {
            let (a, b) = (normal(n, d)?, normal(n, d)? + 0.01);
            let mut pairs = RowPairs::load(self.device, a.view(), b.view())?;
            let launch = pairs.kernel_seconds(&kernel, LAUNCHES);
            let mut out = vec![0.0; n];
            let call = median(|_| pairs.gaussian_into(&kernel, &mut out))?;
            rows.push(row("pairs", shape, launch, call, (8.0 * (n * d) as f64, "B"))?);
        }
        for shape @ [n, d, m] in [[1000, 20, 10], [1000, 20, 1000], [100_000, 20, 1000]] {
            let (x, centres) = (normal(n, d)?, normal(m, d)?);
            let mut centres = Centres::load(self.device, centres.view())?;
            let launch = centres.kernel_seconds(&kernel, x.view(), LAUNCHES);
            let call = median(|_| centres.gaussian(&kernel, x.view()).map(drop))?;
            rows.push(row("centres", shape, launch, call, (2.0 * (n * d * m) as f64, "FLOP"))?);
        }
        text::print(text::table(&["", "N", "D", "M", "launch", "call", "rate"], rows, 1))
    }
}
