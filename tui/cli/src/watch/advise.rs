//! `gpushare advise`: recommends a policy for the jobs of the last minute.

use std::io::Write;
use std::time::{Duration, Instant};

use shm_layout::SegmentDir;

use crate::change::edits;
use crate::{Done, json, note, segments};
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::plain::plain;
use gpushare_base::text::units;
use gpushare_control::audit::Place;
use gpushare_control::measured::{Measured, Measurements};
use gpushare_control::quota::parse_until;
use gpushare_control::targets;
use gpushare_observe::data::effects::of_measurements;
use gpushare_observe::evidence::{Evidence, LOOK_BACK_NS};
use gpushare_observe::finding::{Finding, Remedy};
use gpushare_observe::findings;
use gpushare_observe::source::live::Live;
use gpushare_sample::keys::object;
use gpushare_sample::{SCHEMA_VERSION, Sample, Who};

/// Recommend a better policy for the jobs of each GPU, and say what it would cost
///
/// Looks back through the events of the last minute, since the last edit. Where the jobs take no turns, nothing is
/// written there; then it watches them for a while. The advice is one sentence for each GPU: what was seen, which policy
/// would be better, and its cost; below it stands where that was measured.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Watch for this long, instead of looking back [default: 10s where the events do not tell]
    #[arg(long, value_name = "TIME")]
    over: Option<String>,
    /// Make the recommended edits; gpushare undo reverts them
    #[arg(long, conflicts_with = "json")]
    apply: bool,
    /// With --apply: go back to the present settings after this time
    #[arg(
        long = "for",
        value_name = "TIME",
        allow_hyphen_values = true,
        requires = "apply"
    )]
    span: Option<String>,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

/// Default time to watch.
const OVER: Duration = Duration::from_secs(10);
/// Time in seconds that the ring must cover, else the processes are watched.
const ENOUGH_S: f64 = 5.0;

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let over = args.over.as_deref().map(parse_over).transpose()?;
    let until = args.span.as_deref().map(parse_until).transpose()?;
    let dir = segments::dir()?;
    let (sample, found) = evidence(&dir, over)?;
    let measured = Measurements::of(&dir).read();
    let mut thrashing = findings::thrashing(&sample);
    let judged = found.iter().map(|evidence| {
        let is_here = |finding: &Finding| finding.gpu == Some(evidence.gpu);
        let at = thrashing.iter().position(is_here);
        let moving = at.map(|at| thrashing.swap_remove(at));
        (evidence, advise(evidence, moving, &sample, &measured))
    });
    let judged: Vec<(&Evidence, Option<Finding>)> = judged.collect();
    let lines = judged
        .iter()
        .map(|(evidence, finding)| Line::new(evidence, finding.as_ref(), &sample));
    let lines: Vec<Line> = lines.collect();
    if args.json {
        return json(out, &Document::of(&lines));
    }
    for line in &lines {
        line.write(out)?;
    }
    if lines.is_empty() {
        writeln!(out, "no GPU is used under gpushare; nothing to advise")?;
    }
    if args.apply {
        let findings = judged.into_iter().filter_map(|(_, finding)| finding);
        apply(&dir, &sample, findings, until, out)?;
    }
    Ok(Exit::Done)
}

/// Returns the finding about a device: its memory moves too much, or else another policy would be better. Its remedy is
/// withdrawn if it was tried and undone, or if `gpushare tune` has measured that no job gains by it; else its cost is what was
/// measured.
fn advise(
    evidence: &Evidence,
    moving: Option<Finding>,
    sample: &Sample,
    measured: &[Measured],
) -> Option<Finding> {
    let mut finding = moving.or_else(|| findings::advise(evidence))?;
    let remedy = finding.remedy.clone();
    let remedy = remedy.as_ref();
    let undone = remedy.filter(|remedy| remedy.was_undone(sample, sample.edits.iter()));
    if let Some(text) = undone.map(|remedy| remedy.text.clone()) {
        finding.what += &format!("; {text} was tried and undone");
        finding.withdraw();
        return Some(finding);
    }
    let mut edits = remedy.iter().flat_map(|remedy| &remedy.edits);
    let policy = edits.find_map(|edit| edit.policy(sample));
    let effects = policy.and_then(|(gpu, new)| of_measurements(measured, sample, gpu, &new));
    if let (Some(effects), Some(text)) = (effects, remedy.map(|remedy| remedy.text.clone())) {
        findings::weigh_by(&effects, &mut finding, |who| title(sample, who));
        if finding.remedy.is_none() {
            finding.what += &format!("; {text} was measured here, and no job gained");
        }
    }
    Some(finding)
}

fn title(sample: &Sample, who: Who) -> String {
    let mut processes = sample.processes.iter();
    let process = processes.find(|process| Who::of(process) == who);
    process.map_or_else(String::new, targets::title)
}

fn parse_over(text: &str) -> Result<Duration, Failure> {
    let wrong = |why: String| Failure::usage(format!("--over: {why}"));
    let ns = units::parse_duration(text).map_err(|error| wrong(error.to_string()))?;
    match (100_000_000..=600_000_000_000).contains(&ns) {
        true => Ok(Duration::from_nanos(ns)),
        false => Err(wrong(format!(
            "{text} is out of range; must be between 100ms and 10m"
        ))),
    }
}

/// Returns the activity of each device's jobs, and the newest sample.
fn evidence(dir: &SegmentDir, over: Option<Duration>) -> Result<(Sample, Vec<Evidence>), Failure> {
    let mut live = Live::new(&dir.path, true);
    live.settle(segments::NVML);
    let first = live.look()?;
    let used = |gpu: &usize| {
        first
            .holdings(*gpu)
            .any(|(process, _)| process.is_managed())
    };
    let gpus: Vec<usize> = first.gpus().filter(used).collect();
    let looked_back = |gpu: &usize| {
        let evidence = Evidence::of_ring(&first, *gpu).filter(|_| over.is_none())?;
        (evidence.seconds >= ENOUGH_S).then_some(evidence)
    };
    let back: Vec<Evidence> = gpus.iter().filter_map(looked_back).collect();
    if back.len() == gpus.len() {
        return Ok((first, back));
    }
    let over = over.unwrap_or(OVER);
    note(&format!(
        "watching for {}",
        units::format_duration(u64::try_from(over.as_nanos()).unwrap_or(LOOK_BACK_NS))
    ));
    let mut last = watch(&mut live, &first, over)?;
    last.edits.splice(0..0, first.edits.iter().cloned());
    let watched = Evidence::between(&first, &last).into_iter();
    let watched = watched.filter(|evidence| gpus.contains(&evidence.gpu));
    let known = |evidence: Evidence| {
        let same = back.iter().find(|back| back.gpu == evidence.gpu);
        same.cloned().unwrap_or(evidence)
    };
    let found = watched.map(known).collect();
    Ok((last, found))
}

/// Takes samples until the time is over. Returns the last one, with the mean of NVML's utilisation in all of them.
fn watch(live: &mut Live, first: &Sample, over: Duration) -> Result<Sample, Failure> {
    let start = Instant::now();
    let mut util = vec![(0_u32, 0_u32); first.devices.len()];
    loop {
        let left = over.saturating_sub(start.elapsed());
        std::thread::sleep(left.min(Duration::from_millis(500)));
        let mut sample = live.look()?;
        for (device, (sum, count)) in sample.devices.iter().zip(&mut util) {
            if let Some(percent) = device.nvml.util_percent {
                (*sum, *count) = (*sum + percent, *count + 1);
            }
        }
        if start.elapsed() >= over {
            for (device, (sum, count)) in sample.snapshot.devices.iter_mut().zip(util) {
                device.nvml.util_percent = sum.checked_div(count);
            }
            return Ok(sample);
        }
    }
}

object! {
    /// The document that `--json` writes.
    pub Document<'a>(lines: &'a [Line]) {
        schema_version: u32 = SCHEMA_VERSION, "Increases when a key changes its meaning or is removed.";
        devices: &'a [Line] = lines, "One entry for each GPU that a process of gpushare uses.";
    }
}

object! {
    /// The advice for one GPU.
    pub Line {
        gpu: usize, "Its number.";
        uuid: String, "Its UUID.";
        policy: String, "The policy in force.";
        seconds: f64, "The time that was looked at.";
        jobs: Vec<String>, "The pids and names of the jobs that used it.";
        rule: Option<String>, "The name of the finding; null where nothing should change.";
        sentence: String, "What was seen, what would be better, and what it costs.";
        cost: Option<String>, "What the change costs, and which jobs.";
        basis: Option<String>, "Where the effect was measured, on another machine.";
        advised: Option<String>, "The policy that would be better.";
        commands: Vec<String>, "What follows the advice, as it is typed.";
        also: Option<String>, "What gets more done than any policy, where it is allowed.";
    }
}

impl Line {
    fn new(evidence: &Evidence, finding: Option<&Finding>, sample: &Sample) -> Self {
        let gpu = evidence.gpu;
        let remedy = finding.and_then(|finding| finding.remedy.as_ref());
        let edits = remedy.iter().flat_map(|remedy| &remedy.edits);
        Self {
            gpu,
            uuid: sample.devices[gpu].uuid.clone(),
            policy: evidence.policy_words(),
            seconds: (evidence.seconds * 10.0).round() / 10.0,
            jobs: evidence.jobs.iter().map(|job| job.title.clone()).collect(),
            rule: finding.map(|finding| finding.kind.id.to_owned()),
            sentence: match finding {
                None => findings::content(evidence),
                Some(finding) => {
                    let proposal = finding.proposal().map(|text| format!("; {text}"));
                    let what = match finding.what.starts_with(&format!("GPU{gpu}")) {
                        true => finding.what.clone(),
                        false => format!("GPU{gpu}: {}", finding.what),
                    };
                    what + &proposal.unwrap_or_default()
                }
            },
            cost: finding.and_then(|finding| Some(finding.cost.as_ref()?.to_string())),
            basis: remedy
                .and(finding)
                .map(|finding| finding.kind.basis.to_owned())
                .filter(|basis| !basis.is_empty()),
            advised: remedy.and_then(Remedy::policy).map(str::to_owned),
            commands: edits.filter_map(|edit| edit.command(sample).ok()).collect(),
            also: findings::also(evidence).map(str::to_owned),
        }
    }

    fn write(&self, out: &mut dyn Write) -> Result<(), Failure> {
        writeln!(out, "{}", plain(&self.sentence))?;
        if let Some(basis) = &self.basis {
            writeln!(
                out,
                "  seen over {} s; measured elsewhere: {basis}",
                self.seconds
            )?;
        }
        for command in &self.commands {
            writeln!(out, "  {}", plain(command))?;
        }
        if let Some(also) = &self.also {
            writeln!(out, "  also: {also}")?;
        }
        Ok(())
    }
}

/// Makes the recommended edits.
fn apply(
    dir: &SegmentDir,
    sample: &Sample,
    found: impl Iterator<Item = Finding>,
    until_ns: Option<u64>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut requests = Vec::new();
    for finding in found {
        let Some(remedy) = &finding.remedy else {
            continue;
        };
        let made = remedy
            .requests(sample, until_ns, Place::Ctl)
            .map_err(Failure::failed)?;
        let reason = format!("gpushare advise: {}", finding.kind.id);
        requests.extend(
            made.into_iter()
                .map(|request| request.because(Some(reason.clone()))),
        );
    }
    match requests.is_empty() {
        true => Ok(()),
        false => edits::apply_all(&segments::editor(dir), requests, sample, false, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpushare_sample::testing::explains;

    #[test]
    fn every_key_is_explained() {
        let line = Line {
            gpu: 0,
            uuid: String::new(),
            policy: "off".into(),
            seconds: 10.0,
            jobs: Vec::new(),
            rule: None,
            sentence: String::new(),
            cost: None,
            basis: None,
            advised: None,
            commands: Vec::new(),
            also: None,
        };
        explains(&Document::of(&[line]));
    }
}
