//! The estimated effect of an edit, from the last seconds; no promise.

use shm_layout::{LockPolicy, PolicyKind};

use super::Check;
use gpushare_base::text::units::short_time;
use gpushare_observe::data::Data;
use gpushare_observe::what_if::turn_ns;
use gpushare_sample::ProcessSample;

/// Share of the time above which the cost of hand-offs is a warning.
const DEAR: f64 = 0.01;

/// Writes a number of processes: `1 process`, `3 processes`.
pub(super) fn processes(count: usize) -> String {
    match count {
        1 => "1 process".into(),
        count => format!("{count} processes"),
    }
}

/// Returns the checks for a policy on a device's lock.
pub(super) fn of_policy(data: &Data, gpu: usize, policy: &LockPolicy) -> Vec<Check> {
    let wanting: Vec<&ProcessSample> = data.contenders(gpu).collect();
    let waiting = data.sample.devices.get(gpu).map_or(0, |d| d.waiters.len());
    let mut checks = Vec::new();
    if !policy.kind.is_gated() {
        let then = match policy.kind {
            PolicyKind::HwTimeslice(_) => "the card divides its time by weight",
            _ => "gpushare only counts",
        };
        checks.push(Check::good(match waiting {
            0 => format!("no process waits: {then}"),
            n => format!("{} that wait now continue at once: {then}", processes(n)),
        }));
        return checks;
    }
    let turns: Option<Vec<u64>> = wanting
        .iter()
        .map(|process| turn_ns(data, gpu, process, policy.kind))
        .collect();
    let Some(turns) = turns.filter(|turns| turns.len() > 1) else {
        checks.push(Check::good(match wanting.len() {
            0 | 1 => format!("GPU{gpu}: no processes contend now, so none is delayed"),
            n => format!("GPU{gpu}: {n} contend now; the length of their turns is not known yet"),
        }));
        return checks;
    };
    let round: u64 = turns.iter().copied().fold(0, u64::saturating_add);
    let shortest = turns.iter().copied().min().unwrap_or(0);
    let who = policy.order.who_waits();
    checks.push(Check::good(format!(
        "GPU{gpu}: {} contend: {who} up to about {} for its turn",
        turns.len(),
        short_time(round.saturating_sub(shortest))
    )));
    checks.push(price(data, gpu, round / turns.len() as u64));
    checks
}

/// Estimates the cost of hand-offs at turns of this length.
fn price(data: &Data, gpu: usize, turn_ns: u64) -> Check {
    let per_second = 1e9 / turn_ns.max(1) as f64;
    let now = data.handoffs_per_s(gpu);
    let device = data.sample.devices.get(gpu);
    let text = format!(
        "hand-offs about {} a second, now {}",
        rate(per_second),
        rate(now)
    );
    match device.and_then(|device| device.handoff_times.quantile(0.5)) {
        None => Check::good(text),
        Some(each) => {
            let share = each as f64 / (turn_ns.max(1) as f64 + each as f64);
            let text = format!(
                "{text}; at {} each {:.2}% of the time",
                short_time(each),
                share * 100.0
            );
            if share > DEAR {
                Check::warn(text)
            } else {
                Check::good(text)
            }
        }
    }
}

fn rate(per_second: f64) -> String {
    match per_second {
        rate if rate < 9.95 => format!("{rate:.1}"),
        rate => format!("{rate:.0}"),
    }
}

/// Returns the differences between two policies, as they would be typed.
pub(super) fn difference(old: &LockPolicy, new: &LockPolicy) -> Vec<String> {
    let mut changes = Vec::new();
    if old.kind != new.kind {
        changes.push(format!("{} (was {})", new.kind, old.kind));
    }
    for ((row, before), (_, after)) in old.settings().zip(new.settings()) {
        let applies = row.values.is_switch() || row.applies(old.kind) && row.applies(new.kind);
        if before != after && applies {
            let [before, after] = [before, after].map(|number| row.values.show(number));
            changes.push(format!("{}={after} (was {before})", row.word));
        }
    }
    changes
}
