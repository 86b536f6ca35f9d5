//! Crashes: lost contexts grouped into faults, with the affected processes and the possible culprits.
//!
//! An illegal operation in a kernel destroys the context of its process. Under MPS all clients of the server lose their
//! contexts, and the driver returns the same error to each, in no order (measured on an H100, driver 580.159.04). Only
//! one conclusion is possible: a client whose last work was submitted long before did not cause the fault.

use std::collections::HashSet;

use shm_layout::{Loss, What};

use super::{EventLine, Sample, SlotId, Who};
use gpushare_base::text::losses::cause;
use gpushare_base::text::units::short_time;

/// Losses within this time belong to one fault. A client learns of the loss at its next driver call, and each client
/// with work calls soon.
const TOGETHER_NS: u64 = 60_000_000_000;
/// A process that had submitted nothing for this long had no work on the device when a fault was reported. The driver
/// takes some tenths of a second to report it.
const IDLE_MS: u64 = 2_000;
/// The error code after a failed remote call to the server, which has ended.
const RPC_FAILURE: u16 = 806;
/// The error code after an operator had the server end this client.
const TERMINATED: u16 = 810;

/// A process that lost its context.
#[derive(Clone, Debug, PartialEq)]
struct Victim {
    slot: SlotId,
    pid: u32,
    /// Pid and name.
    title: String,
    lives: bool,
    mps: bool,
    loss: Loss,
}

/// A fault, with the contexts that it destroyed.
#[derive(Clone, Debug, PartialEq)]
pub struct Crash {
    /// The device number.
    pub gpu: usize,
    /// The process to look at: the culprit if it is certain, else the first reported one that still exists.
    pub who: Who,
    /// The fault and the action that helps.
    pub sentence: String,
    /// Time of the first report.
    pub time_ns: u64,
    /// Set if a process that lost its context still runs.
    pub goes_on: bool,
}

/// Returns the faults of existing processes and those in the events, the newest last.
pub fn crashes<'e>(
    sample: &Sample,
    events: impl Iterator<Item = &'e EventLine> + Clone,
) -> Vec<Crash> {
    let mut crashes = Vec::new();
    for gpu in sample.gpus() {
        let mut victims = victims(sample, events.clone(), gpu);
        victims.sort_by_key(|victim| victim.loss.time_ns);
        while let Some(first) = victims.first().cloned() {
            let with = |victim: &Victim| {
                let near = victim.loss.time_ns - first.loss.time_ns <= TOGETHER_NS;
                victim.slot == first.slot
                    || first.is_of_a_server() && victim.is_of_a_server() && near
            };
            let together = victims.extract_if(.., |victim| with(victim)).collect();
            crashes.push(crash(sample, gpu, together));
        }
    }
    crashes.sort_by_key(|crash| crash.time_ns);
    crashes
}

impl Victim {
    /// Reports whether other processes lost their contexts by the same fault.
    fn is_of_a_server(&self) -> bool {
        self.mps && self.loss.code != TERMINATED
    }

    /// Reports whether the process had work on the device when the fault was first reported.
    fn had_work(&self, told_ns: u64) -> bool {
        let later_ms = (self.loss.time_ns - told_ns) / 1_000_000;
        u64::from(self.loss.idle_ms) < later_ms + IDLE_MS
    }
}

fn victims<'e>(
    sample: &Sample,
    events: impl Iterator<Item = &'e EventLine>,
    gpu: usize,
) -> Vec<Victim> {
    let mut victims = Vec::new();
    for (process, holding) in sample.holdings(gpu) {
        if let (Some(slot), Some(loss)) = (process.slot(), holding.loss) {
            victims.push(Victim {
                slot,
                pid: process.shown_pid(),
                title: process.pid_and_name(),
                lives: true,
                mps: holding.mps() == Some(true),
                loss,
            });
        }
    }
    let known: HashSet<SlotId> = victims.iter().map(|victim| victim.slot).collect();
    for event in events.filter(|event| event.gpu == Some(gpu)) {
        let What::Lost {
            code,
            call,
            mps,
            idle_ms,
            ns_pid,
        } = event.what
        else {
            continue;
        };
        let Some(slot) = event.slot.filter(|slot| !known.contains(slot)) else {
            continue;
        };
        let pid = event.pid.unwrap_or(ns_pid);
        victims.push(Victim {
            slot,
            pid,
            title: format!("{pid} {}", event.name).trim_end().to_owned(),
            lives: false,
            mps: mps == Some(true),
            loss: Loss {
                code,
                call,
                time_ns: event.time_ns,
                idle_ms,
            },
        });
    }
    victims
}

fn crash(sample: &Sample, gpu: usize, victims: Vec<Victim>) -> Crash {
    let time_ns = victims.iter().map(|v| v.loss.time_ns).min().unwrap_or(0);
    let all: Vec<&Victim> = victims.iter().collect();
    let mut suspects = all.clone();
    suspects.retain(|victim| victim.had_work(time_ns));
    if suspects.is_empty() {
        suspects.clone_from(&all);
    }
    let mut living = all.clone();
    living.retain(|victim| victim.lives);
    let ago = short_time(sample.time_ns.saturating_sub(time_ns));
    let of_a_server = all[0].is_of_a_server();
    let unsure = of_a_server && all[0].loss.code != RPC_FAILURE && suspects.len() > 1;
    let find = match unsure {
        true => "; under gpushare run --no-mps only the one at fault fails",
        false => "",
    };
    let who = match suspects.as_slice() {
        [one] => one,
        _ => living.first().unwrap_or(&all[0]),
    };
    let (began, remedy) = (
        began(gpu, &ago, &all, &suspects),
        remedy(&living, of_a_server),
    );
    Crash {
        gpu,
        who: Who::Slot(who.slot),
        sentence: format!("{began}{remedy}{find}"),
        time_ns,
        goes_on: !living.is_empty(),
    }
}

/// Returns what happened.
fn began(gpu: usize, ago: &str, all: &[&Victim], suspects: &[&Victim]) -> String {
    // A client that learns of the fault later may get only the general error code.
    let code = all[0].loss.code;
    let (one, what) = (all[0].title.as_str(), cause(code));
    let list = |victims: &[&Victim]| {
        let titles: Vec<&str> = victims.iter().map(|victim| victim.title.as_str()).collect();
        titles.join(", ")
    };
    match (all[0].is_of_a_server(), code, suspects) {
        (true, RPC_FAILURE, _) => format!(
            "the MPS server of GPU{gpu} ended {ago} ago, and the contexts of its clients with it: {}",
            list(all)
        ),
        (false, TERMINATED, _) => {
            format!("MPS ended {one} on GPU{gpu} {ago} ago, as an operator told it to")
        }
        (true, _, [one]) if all.len() == 1 => {
            format!(
                "{} lost its context on GPU{gpu} {ago} ago under MPS: {what}",
                one.title
            )
        }
        (true, _, [one]) => {
            let mut rest = all.to_vec();
            rest.retain(|victim| victim.slot != one.slot);
            format!(
                "a kernel of {} failed on GPU{gpu} {ago} ago: {what}; under MPS that ended the contexts of {} too",
                one.title,
                list(&rest)
            )
        }
        (true, ..) => format!(
            "a kernel under MPS failed on GPU{gpu} {ago} ago, {what}, and ended the contexts of all clients: {}; it was of \
             one of these with work at that time: {}",
            list(all),
            list(suspects)
        ),
        (false, ..) => format!("{one} lost its context on GPU{gpu} {ago} ago: {what}"),
    }
}

/// Returns what a person does about it.
fn remedy(living: &[&Victim], of_a_server: bool) -> String {
    match (living.is_empty(), of_a_server) {
        (true, true) => "; start them again".to_owned(),
        (true, false) => String::new(),
        (false, false) => format!(
            "; nothing works in it any more: end it (kill {}) and start it again",
            pids(living)
        ),
        (false, true) => format!(
            "; end those that still run (kill {}), for until then MPS takes no new client, and start them again",
            pids(living)
        ),
    }
}

fn pids(victims: &[&Victim]) -> String {
    let pids: Vec<String> = victims.iter().map(|one| one.pid.to_string()).collect();
    pids.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceSample, Holding, ProcessSample, Snapshot};

    const SECOND: u64 = 1_000_000_000;

    /// Returns a process that lost its context at a time in seconds, after some milliseconds without work.
    fn process(pid: u32, name: &str, mps: bool, loss: Option<(u16, u64, u32)>) -> ProcessSample {
        let mut process = ProcessSample {
            pid: Some(pid),
            ..ProcessSample::default()
        };
        process.view.slot = SlotId {
            index: pid as u16,
            epoch: 1,
        };
        process.identity.label = name.into();
        let mut holding = Holding::default();
        holding.view.mps = Some(mps);
        holding.view.loss = loss.map(|(code, at, idle_ms)| Loss {
            code,
            call: None,
            time_ns: at * SECOND,
            idle_ms,
        });
        process.devices.push(holding);
        process
    }

    fn sample(processes: Vec<ProcessSample>) -> Sample {
        Sample {
            snapshot: Snapshot {
                time_ns: 103 * SECOND,
                processes,
                devices: vec![DeviceSample::default()],
                ..Snapshot::default()
            },
            ..Sample::default()
        }
    }

    fn sentences(sample: &Sample, events: &[EventLine]) -> Vec<String> {
        let crashes = crashes(sample, events.iter());
        crashes.into_iter().map(|crash| crash.sentence).collect()
    }

    #[test]
    fn a_process_that_lost_its_context_is_named_with_the_cause_and_what_to_do() {
        let sample = sample(vec![
            process(11, "train", false, Some((700, 100, 0))),
            process(12, "serve", false, None),
        ]);
        let said = "11 train lost its context on GPU0 3.0s ago: an illegal memory access was encountered (700); nothing works \
                    in it any more: end it (kill 11) and start it again";
        assert_eq!(sentences(&sample, &[]), [said]);
    }

    #[test]
    fn of_clients_that_are_all_told_the_same_the_only_one_with_work_did_it() {
        let sample = sample(vec![
            process(11, "idle", true, Some((719, 102, 30_000))),
            process(12, "train", true, Some((700, 100, 0))),
            process(13, "outside", false, None),
        ]);
        let said = sentences(&sample, &[]);
        let did = "a kernel of 12 train failed on GPU0 3.0s ago: an illegal memory access was encountered (700); under MPS that \
                   ended the contexts of 11 idle too; end those that still run (kill 12 11), for until then MPS takes no new \
                   client, and start them again";
        assert_eq!(said, [did]);
    }

    #[test]
    fn several_with_work_are_all_suspects_and_the_way_to_find_out_is_said() {
        let sample = sample(vec![
            process(11, "serve", true, Some((700, 100, 0))),
            process(12, "train", true, Some((700, 100, 90))),
            process(13, "idle", true, Some((700, 102, 9_000))),
        ]);
        let said = &sentences(&sample, &[])[0];
        assert!(
            said.contains("one of these with work at that time: 11 serve, 12 train;"),
            "{said}"
        );
        assert!(
            said.contains("all clients: 11 serve, 12 train, 13 idle;"),
            "{said}"
        );
        assert!(
            said.ends_with("--no-mps only the one at fault fails"),
            "{said}"
        );
    }

    #[test]
    fn one_that_has_ended_since_is_known_by_its_event() {
        let mut sample = sample(vec![process(11, "serve", true, Some((700, 101, 5_000)))]);
        let gone = EventLine {
            time_ns: 100 * SECOND,
            slot: Some(SlotId { index: 9, epoch: 2 }),
            pid: None,
            name: "train".into(),
            gpu: Some(0),
            what: What::Lost {
                code: 700,
                call: None,
                mps: Some(true),
                idle_ms: 0,
                ns_pid: 77,
            },
            ..EventLine::default()
        };
        let said = &sentences(&sample, std::slice::from_ref(&gone))[0];
        assert!(said.starts_with("a kernel of 77 train failed"), "{said}");
        assert!(said.contains("(kill 11)"), "{said}");
        sample.processes.clear();
        let crashes = crashes(&sample, std::iter::once(&gone));
        assert!(!crashes[0].goes_on);
        assert!(!crashes[0].sentence.contains("kill"), "{crashes:?}");
    }

    #[test]
    fn a_server_that_ended_and_a_client_that_was_terminated_are_told_apart_from_a_fault() {
        let ended = sample(vec![
            process(11, "serve", true, Some((806, 100, 0))),
            process(12, "train", true, Some((806, 100, 0))),
        ]);
        let said = &sentences(&ended, &[])[0];
        assert!(
            said.starts_with("the MPS server of GPU0 ended 3.0s ago"),
            "{said}"
        );
        assert!(!said.contains("--no-mps"), "{said}");
        let terminated = sample(vec![
            process(11, "serve", true, None),
            process(12, "train", true, Some((810, 100, 0))),
        ]);
        let said = &sentences(&terminated, &[])[0];
        assert!(said.starts_with("MPS ended 12 train on GPU0"), "{said}");
    }
}
