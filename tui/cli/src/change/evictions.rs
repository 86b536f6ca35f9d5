//! The report of a requested eviction, after its end.

use std::io::Write;
use std::thread::sleep;
use std::time::{Duration, Instant};

use shm_layout::{Phase, Residence, SegmentDir, SlotId};

use crate::{Done, segments};
use gpushare_base::text::eviction;
use gpushare_base::text::exit::Exit;
use gpushare_base::text::units::{short_size, short_time};
use gpushare_sample::{ProcessSample, ProcessState};

/// Interval between two checks.
const LOOK: Duration = Duration::from_millis(100);
/// Maximum time for a process to begin. It checks for an order twice a second, but later on a busy machine.
const TO_BEGIN: Duration = Duration::from_secs(15);
/// The longest expected time that is believed: 80 GiB at 5 GB/s.
const MOST_EXPECTED: Duration = Duration::from_secs(16);
/// Time for which a refusal must last before it is reported, because it may be older than the edit.
const TO_REFUSE: Duration = Duration::from_millis(1500);

/// Waits until each process is evicted, has refused, or has ended, and reports it. Fails if one is not evicted.
pub fn report(dir: &SegmentDir, slots: &[SlotId], out: &mut dyn Write) -> Done {
    let began = Instant::now();
    let mut left = slots.to_vec();
    let mut all = true;
    while !left.is_empty() {
        let sample = segments::sample(dir)?;
        let mut waiting = Vec::new();
        for slot in left {
            let Some(process) = sample.process(slot) else {
                continue;
            };
            match look(process, began.elapsed()) {
                Look::Evicted => {
                    let took = short_time(process.residence.swap_ns);
                    let size = short_size(process.evicted_bytes());
                    writeln!(out, "{}: evicted, {size} in {took}", process.shown_pid())?;
                }
                Look::Stays(why) => {
                    all = false;
                    writeln!(out, "{}: paused, {why}", process.shown_pid())?;
                }
                Look::Wait => waiting.push(slot),
            }
        }
        left = waiting;
        if !left.is_empty() {
            sleep(LOOK);
        }
    }
    Ok(if all { Exit::Done } else { Exit::Failed })
}

/// Returns the maximum time of a step: a multiple of its expected time, with a margin for a busy machine. The process says how
/// long it expects, and may be lying.
fn longest(at: &Residence) -> Duration {
    let expected = Duration::from_nanos(at.expected_ns).min(MOST_EXPECTED);
    expected.saturating_mul(5) + TO_BEGIN * 2
}

enum Look {
    Evicted,
    Stays(String),
    Wait,
}

fn look(process: &ProcessSample, elapsed: Duration) -> Look {
    let at = &process.residence;
    match (at.phase, at.why) {
        (Phase::Evicted, _) if at.is_in_part && elapsed < longest(at) => Look::Wait,
        (Phase::Evicted, _) => Look::Evicted,
        _ if process.state == ProcessState::Stopped && elapsed >= TO_REFUSE => {
            Look::Stays("not evicted while it is stopped; it will be when it continues".to_owned())
        }
        (Phase::Evicting, _) if elapsed >= longest(at) => {
            Look::Stays("on its way for long; gpushare ps tells how it goes on".to_owned())
        }
        (Phase::Evicting, _) => Look::Wait,
        (Phase::Resident, Some(why)) if elapsed >= TO_REFUSE => {
            let later = if why.may_pass() {
                "; it will be when that has passed"
            } else {
                ""
            };
            Look::Stays(format!("{}{later}", eviction::refusal(why, at.code)))
        }
        (Phase::Lost, why) => Look::Stays(eviction::lost(why, at.code, process.evicted_bytes())),
        _ if elapsed >= TO_BEGIN => Look::Stays(
            "not evicted: its keeper does not answer; is it stopped, or older than this program?"
                .to_owned(),
        ),
        _ => Look::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_says_it_needs_for_ever_is_waited_for_a_few_minutes_at_most() {
        let at = Residence {
            expected_ns: u64::MAX,
            ..Residence::default()
        };
        assert!(
            longest(&at) < Duration::from_secs(120),
            "{:?}",
            longest(&at)
        );
    }
}
