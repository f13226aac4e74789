//! `batch_parameters`: parameters of near sets, made on the device.
use super::batch_mma_layout::{bundles_of, loss, numbers, sections, write};
use crate::device::kernel::{Grid, Kernel};
use crate::device::launch::launch;
use crate::device::memory::{Numbers, enlarge};
use crate::device::require;
use crate::device::slots::Slots;
use crate::device::stream::{Running, Stream};
use crate::device::workspace::Workspace;
use gmm_core::data::frame::{Float, Frame};
use gmm_core::error::Result;
use gmm_core::model::mixture::Mixture;
use gmm_kernels::likelihood::batch_mma::{MAX_FEATURES, SETS};
use gmm_kernels::likelihood::batch_parameters::{BLOCK, BatchParametersArgs, shared_bytes};

/// Sets to be evaluated by their differences from a reference of the same K and D; all have diagonals.
#[derive(Debug, Clone, Copy)]
pub struct NearSets<'a> {
    pub frame: &'a Frame,
    pub reference: &'a Mixture,
    pub sets: &'a [Mixture],
    /// The samples over which their totals keep their digits.
    pub n: usize,
}

impl NearSets<'_> {
    pub fn k(&self) -> usize {
        self.reference.n_components()
    }

    pub fn d(&self) -> usize {
        self.reference.n_features()
    }

    pub fn prepare(&self, workspace: &mut Workspace) -> Result<()> {
        let (k, d, sets) = (self.k(), self.d(), self.sets.len());
        let [.., last] = sections(k, d, sets);
        enlarge(&mut workspace.batch_parameters, last.end)?;
        workspace.mixtures.fill(numbers(k, d, sets), |to| write(self.frame, self.reference, self.sets, to))
    }

    /// Starts to copy the sets to the device and to make their parameters. The workspace's first offsets get the
    /// constants of near sets, and ∞ for the others, which the reference replaces.
    pub fn start<'a>(
        &self,
        kernel: Kernel<BatchParametersArgs>,
        stream: &'a Stream,
        workspace: &'a Workspace,
    ) -> Result<Running<'a, ()>> {
        let (loss, most) = loss(self.n);
        let launch = BatchParameters {
            mixtures: workspace.mixtures.device(),
            k: self.k(),
            d: self.d(),
            sets: self.sets.len(),
            loss,
            most,
            parameters: Numbers::of(&workspace.batch_parameters),
            offsets: &workspace.offsets,
        };
        workspace.offsets.clear(self.sets.len());
        let sent = workspace.mixtures.send(stream)?;
        Ok(sent.followed_by(stream.launch(kernel, launch.grid(), launch)?).borrowed())
    }
}

#[derive(Clone, Copy)]
struct BatchParameters<'a> {
    /// The frame, the reference and the sets.
    mixtures: Numbers<'a, f64>,
    k: usize,
    d: usize,
    sets: usize,
    loss: f64,
    most: f64,
    /// The [`sections`].
    parameters: Numbers<'a, f32>,
    offsets: &'a Slots,
}

impl BatchParameters<'_> {
    /// Returns a block for each place of each four.
    fn grid(&self) -> Grid {
        Grid::new((SETS * bundles_of(self.sets)) as u32, BLOCK, shared_bytes(self.k))
    }
}

launch!(BatchParameters<'_>, BatchParametersArgs, "batch_parameters", |launch, grid, what| {
    let (k, d, sets) = (launch.k, launch.d, launch.sets);
    let [coefficients, weights, reference] = sections(k, d, sets);
    let blocks = (SETS * bundles_of(sets)) as u32;
    require(what, sets > 0 && d <= MAX_FEATURES && (grid.blocks, grid.threads) == ((blocks, 1), BLOCK))?;
    grid.require_shared(what, shared_bytes(k))?;
    Ok(BatchParametersArgs {
        k: k as u32,
        d: d as u32,
        sets: sets as u32,
        mixtures: launch.mixtures.read(numbers(k, d, sets), what)?,
        max_deviation: f32::MAX_DEVIATION,
        loss: launch.loss,
        most: launch.most,
        coefficients: launch.parameters.write_part(coefficients)?,
        weights: launch.parameters.write_part(weights)?,
        reference: launch.parameters.write_part(reference)?,
        offsets: launch.offsets.write(sets, what)?,
    })
});
