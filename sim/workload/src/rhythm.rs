//! The workload's round: allocations, a burst of kernels, a wait, a pause.

use std::time::{Duration, Instant};

use gpushare_workload::{Buffer, Context, Error};

use crate::NAME;
use crate::note::note;
use crate::options::Options;
use crate::report::{Report, Times};

/// Number of pieces that `--churn` keeps before it frees the oldest.
const CHURNED: usize = 4;

/// Runs rounds until the time is over, or without end.
pub fn run(context: &Context, options: &Options) -> anyhow::Result<Report> {
    let start = Instant::now();
    let stream = context.stream()?;
    let kernel = context.spin_kernel()?;
    let mut memory = Memory::new(context);
    let mut report = Report {
        schema_version: 1,
        device: context.device()?.name,
        ..Report::default()
    };
    let mut bursts = Times::default();
    // Held to the end. While the allocation is refused, each round tries it again.
    let mut steady = Vec::new();

    while options.seconds.is_none_or(|limit| start.elapsed() < limit) {
        if steady.is_empty() && options.memory > 0 {
            steady.extend(memory.take(options.memory)?);
        }
        memory.round(options)?;
        let burst = Instant::now();
        for _ in 0..options.burst {
            let time = Duration::from_micros(options.kernel_us);
            stream.launch_wide(&kernel, time, options.blocks)?;
            report.launches += 1;
        }
        stream.synchronize()?;
        report.synchronizations += 1;
        bursts.add(burst.elapsed());
        std::thread::sleep(Duration::from_micros(options.gap_us));
    }

    report.elapsed_ns = nanoseconds(start.elapsed());
    report.longest_burst_ns = bursts.longest_ns();
    report.burst_p50_ns = bursts.quantile_ns(0.5);
    report.burst_p99_ns = bursts.quantile_ns(0.99);
    (report.free_bytes, report.total_bytes) = context.memory()?;
    (report.allocations, report.refusals) = (memory.allocations, memory.refusals);
    report.peak_bytes = memory.peak;
    Ok(report)
}

/// The memory of `--churn` and `--until-oom`, with its counters.
struct Memory<'c> {
    context: &'c Context,
    pieces: std::collections::VecDeque<Buffer>,
    held: u64,
    peak: u64,
    allocations: u64,
    refusals: u64,
}

impl<'c> Memory<'c> {
    fn new(context: &'c Context) -> Self {
        Self {
            context,
            pieces: std::collections::VecDeque::new(),
            held: 0,
            peak: 0,
            allocations: 0,
            refusals: 0,
        }
    }

    fn round(&mut self, options: &Options) -> Result<(), Error> {
        if options.churn && self.pieces.len() == CHURNED {
            self.give_back(1);
        }
        if options.churn || options.until_oom {
            match self.take(options.piece)? {
                Some(piece) => self.pieces.push_back(piece),
                None => self.give_back(self.pieces.len()),
            }
        }
        Ok(())
    }

    fn give_back(&mut self, count: usize) {
        self.held -= self
            .pieces
            .drain(..count)
            .map(|piece| piece.bytes())
            .sum::<u64>();
    }

    /// Allocates. A refusal is reported and is not an error.
    fn take(&mut self, bytes: u64) -> Result<Option<Buffer>, Error> {
        match self.context.alloc(bytes) {
            Ok(buffer) => {
                self.allocations += 1;
                self.held += bytes;
                self.peak = self.peak.max(self.held);
                Ok(Some(buffer))
            }
            Err(error) if error.is_out_of_memory() => {
                // Reported once, because every round may be refused.
                if self.refusals == 0 {
                    let mib = bytes >> 20;
                    note(
                        NAME,
                        &format_args!("{mib} MiB refused, continuing: {error}"),
                    );
                }
                self.refusals += 1;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
