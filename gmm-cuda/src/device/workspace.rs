//! The memory of an evaluation besides the samples: parameters for the device, and numbers between launches.
use super::memory::{Numbers, allocate, copied, locked};
use super::slots::Slots;
use super::stream::{Running, Stream};
use gmm_core::error::Result;
use gmm_driver::{DeviceBuffer, LockedBuffer, Plain};
use gmm_kernels::reduce;

/// Numbers for the device: the host's copy and their place.
#[derive(Debug)]
pub struct Upload<T: Plain> {
    host: LockedBuffer<T>,
    device: DeviceBuffer<T>,
    len: usize,
}

impl<T: Plain> Upload<T> {
    pub fn new() -> Result<Self> {
        Ok(Self { host: locked(1)?, device: allocate(1)?, len: 0 })
    }

    /// Makes `write` fill `len` numbers on the host.
    pub fn fill(&mut self, len: usize, write: impl FnOnce(&mut [T])) -> Result<()> {
        if self.host.len() < len {
            // Together, so that an error leaves two of equal lengths.
            (self.host, self.device) = (locked(len)?, allocate(len)?);
        }
        self.len = len;
        write(&mut self.host[..len]);
        Ok(())
    }

    pub fn send<'s>(&'s self, stream: &'s Stream) -> Result<Running<'s, ()>> {
        if self.len == 0 {
            return Ok(stream.idle());
        }
        Ok(stream.upload(self, |this| (&this.host, &this.device, this.len))?.borrowed())
    }

    pub fn device(&self) -> Numbers<'_, T> {
        Numbers::of(&self.device).first(self.len)
    }
}

/// A number on the device for each block of a launch. All are unwritten between launches, which restore that.
#[derive(Debug)]
pub struct BlockSums(DeviceBuffer<f64>);

impl BlockSums {
    pub fn new(blocks: usize) -> Result<Self> {
        copied(&vec![f64::from_bits(reduce::UNWRITTEN); blocks]).map(Self)
    }

    /// Makes room for at least this many blocks. The caller ensures that no work uses the numbers.
    pub fn enlarge(&mut self, blocks: usize) -> Result<()> {
        if self.0.len() < blocks {
            *self = Self::new(blocks)?;
        }
        Ok(())
    }
}

/// The place of a launch's total.
#[derive(Debug, Clone, Copy)]
pub enum Total<'a> {
    /// In the host's memory, readable as soon as it is written.
    Slot(&'a Slots),
    /// At the beginning of this memory on the device.
    Device(Numbers<'a, f64>),
}

/// The memory in which a launch forms its total.
#[derive(Debug, Clone, Copy)]
pub struct Output<'a> {
    pub blocks: &'a BlockSums,
    pub total: Total<'a>,
}

impl Output<'_> {
    /// Returns the output as a kernel's argument, for a grid of this many blocks.
    pub fn argument(&self, blocks: u32) -> Result<reduce::Output> {
        let total = match self.total {
            Total::Slot(slots) => slots.write(1, "the place of a total")?,
            Total::Device(place) => place.write(1, "the place of a total")?,
        };
        let partials = Numbers::of(&self.blocks.0).write(blocks as usize, "the sums of a launch's blocks")?;
        Ok(reduce::Output { partials, total })
    }
}

/// The memory of an evaluation besides the samples. A stream's launches use it one after the other.
#[derive(Debug)]
pub struct Workspace {
    pub totals: Slots,
    /// For launches that add up their blocks' sums themselves.
    pub blocks: BlockSums,
    /// For launches whose sums another launch adds up.
    pub partials: DeviceBuffer<f64>,
    pub parameters: Upload<f32>,
    /// The parameters that the device makes of `mixtures`.
    pub batch_parameters: DeviceBuffer<f32>,
    pub mixtures: Upload<f64>,
    /// The constants of the sets' likelihoods.
    pub offsets: Slots,
}

impl Workspace {
    pub fn new(totals: usize) -> Result<Self> {
        Ok(Self {
            totals: Slots::new(totals)?,
            blocks: BlockSums::new(1)?,
            partials: allocate(1)?,
            parameters: Upload::new()?,
            batch_parameters: allocate(1)?,
            mixtures: Upload::new()?,
            offsets: Slots::new(totals)?,
        })
    }

    /// Returns the output of a launch that writes its total to the first slot.
    pub fn output(&self) -> Output<'_> {
        Output { blocks: &self.blocks, total: Total::Slot(&self.totals) }
    }
}
