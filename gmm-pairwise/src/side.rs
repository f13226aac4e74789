//! The place of a computation: the device that the user names, or for `Auto` the side measured to be faster.
use crate::gpu;
use gmm_host::{Device, Error, Result};
use std::fmt;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// `Auto` starts a GPU after this time of computing on the CPU: the cost of a GPU for a process, with a margin, because
/// the number of later computations is unknown.
const GPU_START: Duration = Duration::from_millis(500);
/// Computations below this time stay on the CPU: a GPU needs about as long to answer.
const QUICK: Duration = Duration::from_micros(15);
/// The trials of a size on each side before a choice: the first takes longer.
const TRIALS: u32 = 3;
/// Computations above this time run on the CPU only once.
const LONG: Duration = Duration::from_millis(50);

/// A computation with data resident in a device.
pub trait Task {
    type Gpu;

    /// Returns the fused multiply-adds, or numbers read, which predict the time of tasks on one data set.
    fn size(&self) -> usize;
    fn has_gpu(&self) -> bool;
    /// Fails for numbers that are not finite.
    fn on_cpu(&mut self) -> Result<()>;
    /// As [`on_cpu`](Self::on_cpu), in float64 on one core.
    fn on_reference(&mut self) -> Result<()>;
    /// Fails for numbers that are not finite, and if the driver fails.
    fn on_gpu(&mut self, gpu: &mut Self::Gpu) -> Result<()>;
    fn open(&self, ordinal: usize) -> Result<Self::Gpu>;
}

/// The side of a data set.
pub enum Side<G> {
    Cpu,
    Reference,
    /// A GPU, with the data copied to it.
    Gpu(G),
    Auto(Auto<G>),
}

impl<G> fmt::Debug for Side<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "Cpu",
            Self::Reference => "Reference",
            Self::Gpu(_) => "Gpu",
            Self::Auto(_) => "Auto",
        })
    }
}

impl<G> Side<G> {
    /// `open` copies the resident data to the GPU of this number.
    pub fn new(device: Device, open: impl FnOnce(usize) -> Result<G>) -> Result<Self> {
        let unsupported = |what| Error::Unsupported { what, backend: "this operation", remedy: "name one device" };
        Ok(match device {
            Device::Auto => {
                Self::Auto(Auto { gpu: Gpu::Unopened, cpu_time: Duration::ZERO, sizes: vec![[UNTIMED; 2]; CLASSES] })
            }
            Device::Cpu => Self::Cpu,
            Device::Reference => Self::Reference,
            Device::Cuda(ordinal) => Self::Gpu(open(ordinal)?),
            Device::Several(devices) => {
                return Err(unsupported(format!("products and kernels of rows on several devices (`{devices}`)")));
            }
            other => return Err(unsupported(format!("products and kernels of rows on the device `{other}`"))),
        })
    }

    pub fn run(&mut self, task: &mut impl Task<Gpu = G>) -> Result<()> {
        match self {
            Self::Cpu => task.on_cpu(),
            Self::Reference => task.on_reference(),
            Self::Gpu(gpu) => task.on_gpu(gpu),
            Self::Auto(auto) => auto.run(task),
        }
    }
}

pub struct Auto<G> {
    gpu: Gpu<G>,
    cpu_time: Duration,
    /// Times by [`class`]: on the CPU, on the GPU.
    sizes: Vec<[Times; 2]>,
}

enum Gpu<G> {
    Unopened,
    /// A thread is starting the driver.
    Starting(JoinHandle<Result<()>>),
    /// There is no GPU, or it failed.
    Absent,
    Ready(G),
}

#[derive(Clone, Copy)]
struct Times {
    fastest: Duration,
    /// The number of trials, up to [`TRIALS`].
    trials: u32,
}

const UNTIMED: Times = Times { fastest: Duration::MAX, trials: 0 };

impl Times {
    fn count(&mut self, time: Duration) {
        *self = Self { fastest: self.fastest.min(time), trials: TRIALS.min(self.trials + 1) };
    }
}

impl<G> Auto<G> {
    fn run(&mut self, task: &mut impl Task<Gpu = G>) -> Result<()> {
        let class = class(task.size());
        let [cpu, gpu] = self.sizes[class];
        if cpu.fastest < QUICK {
            return task.on_cpu();
        }
        self.advance(task);
        let cpu_is_timed = cpu.trials == TRIALS || cpu.trials > 0 && cpu.fastest > LONG;
        let on_gpu = cpu_is_timed && (gpu.trials < TRIALS || gpu.fastest < cpu.fastest);
        let begin = Instant::now();
        if on_gpu && let Gpu::Ready(gpu) = &mut self.gpu {
            match task.on_gpu(gpu) {
                Ok(()) => {
                    self.sizes[class][1].count(begin.elapsed());
                    return Ok(());
                }
                // The CPU takes over.
                Err(Error::Cuda { .. } | Error::NoCudaDevice { .. } | Error::Unsupported { .. }) => {
                    self.gpu = Gpu::Absent
                }
                Err(error) => return Err(error),
            }
        }
        let begin = Instant::now();
        task.on_cpu()?;
        let time = begin.elapsed();
        self.cpu_time += time;
        self.sizes[class][0].count(time);
        Ok(())
    }

    /// Starts the GPU if it is time, and copies the resident data once it is ready.
    fn advance(&mut self, task: &impl Task<Gpu = G>) {
        self.gpu = match std::mem::replace(&mut self.gpu, Gpu::Absent) {
            Gpu::Unopened if self.cpu_time > GPU_START && task.has_gpu() => {
                let starter = std::thread::Builder::new().name("start of the GPU".into()).spawn(gpu::start);
                starter.map_or(Gpu::Absent, Gpu::Starting)
            }
            Gpu::Starting(starter) if starter.is_finished() => match starter.join() {
                Ok(Ok(())) => task.open(0).map_or(Gpu::Absent, Gpu::Ready),
                _ => Gpu::Absent,
            },
            other => other,
        }
    }
}

/// Returns the class of a size: a class spans a factor of √2.
fn class(size: usize) -> usize {
    let size = size.max(1) as u128;
    (size * size).ilog2() as usize
}

const CLASSES: usize = 2 * usize::BITS as usize;

#[cfg(test)]
mod tests {
    use super::*;

    struct Sleep {
        cpu: Duration,
        gpu: Duration,
        on_gpu: u32,
        on_cpu: u32,
    }

    impl Task for Sleep {
        type Gpu = ();

        fn size(&self) -> usize {
            1000
        }

        fn has_gpu(&self) -> bool {
            true
        }

        fn on_cpu(&mut self) -> Result<()> {
            self.on_cpu += 1;
            std::thread::sleep(self.cpu);
            Ok(())
        }

        fn on_reference(&mut self) -> Result<()> {
            self.on_cpu()
        }

        fn on_gpu(&mut self, _: &mut ()) -> Result<()> {
            self.on_gpu += 1;
            std::thread::sleep(self.gpu);
            Ok(())
        }

        fn open(&self, _: usize) -> Result<()> {
            Ok(())
        }
    }

    fn auto(gpu: Gpu<()>) -> Auto<()> {
        Auto { gpu, cpu_time: Duration::ZERO, sizes: vec![[UNTIMED; 2]; CLASSES] }
    }

    #[test]
    fn the_faster_side_is_chosen_after_the_trials() {
        let ms = Duration::from_millis;
        for (cpu, gpu, faster_gpu) in [(ms(20), ms(2), true), (ms(2), ms(20), false)] {
            let (mut auto, mut task) = (auto(Gpu::Ready(())), Sleep { cpu, gpu, on_gpu: 0, on_cpu: 0 });
            for _ in 0..10 {
                auto.run(&mut task).unwrap();
            }
            // The trials on both sides, then the faster one.
            let expected = if faster_gpu { (TRIALS, 10 - TRIALS) } else { (10 - TRIALS, TRIALS) };
            assert_eq!((task.on_cpu, task.on_gpu), expected);
        }
    }

    #[test]
    fn quick_tasks_and_short_jobs_never_start_a_gpu() {
        let mut task = Sleep { cpu: Duration::from_millis(1), gpu: Duration::ZERO, on_gpu: 0, on_cpu: 0 };
        let mut auto = auto(Gpu::Unopened);
        for _ in 0..10 {
            auto.run(&mut task).unwrap();
        }
        assert!(matches!(auto.gpu, Gpu::Unopened) && task.on_cpu == 10);
    }

    #[test]
    fn classes_are_half_octaves() {
        let octave: Vec<usize> = (1 << 20..1 << 21).step_by(1 << 12).map(class).collect();
        assert_eq!((octave[0], octave.last().copied()), (40, Some(41)));
        assert_eq!(class(0), 0);
        assert_eq!(class(usize::MAX), CLASSES - 1);
    }
}
