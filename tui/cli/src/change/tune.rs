//! `gpushare tune`: tries the settings that could serve the jobs that run now, and keeps the best.
//!
//! Each setting is put in force for a while, with an end: a search that is killed leaves nothing behind. A setting that
//! somebody else made meanwhile stays.

use std::io::Write;
use std::str::FromStr;

use crate::{Done, json, note, segments};
use gpushare_base::text::exit::Failure;
use gpushare_base::text::plain::plain;
use gpushare_base::text::units;
use gpushare_control::measured::{Measured, Measurements, Tried};
use gpushare_control::quota::parse_until;
use gpushare_control::targets::{self, Target};
use gpushare_observe::source::live::Live;
use gpushare_observe::tune::{Aim, End, Job, Next, Plan, Tune, choose};
use gpushare_sample::{Sample, Who};
use shm_layout::SegmentDir;

mod report;
mod stop;
mod trials;

pub(crate) use report::Document;
use stop::Stop;
use trials::Trials;

/// Try the policies that could serve the running jobs, each for a few seconds, and keep the best
///
/// Which policies are tried follows from the jobs: those by priority only where priorities differ, turns only without MPS. Each
/// is tried in every round, and measured by what the jobs themselves do: the launches in a second, and the time for which the
/// GPU keeps a job waiting in a step, which ends where the program synchronises or copies a result to the host. A policy is kept
/// if it was better for the aim by more than the rounds differ among themselves; otherwise the settings stay as they were. The table
/// has each figure as a factor of the one under the settings at the start, with half of the range between the rounds.
///
/// It ends at once, and restores the settings, on any key, Ctrl-C or SIGTERM, and when a job starts or ends. Another operator's edit
/// stays in force and ends it too. Each trial has an end of its own, so that it reverts even if tune is killed.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Number or UUID of the device; not needed where several jobs work on one device only
    gpu: Option<String>,
    /// What to be best at: p99:TARGET, the time for which the GPU keeps a job waiting in 99 of 100 steps; rate:TARGET, its
    /// launches; throughput, those of all jobs; fair, those of the job that gets least
    /// [default: p99 of the jobs of the highest priority; throughput where all have one priority]
    #[arg(long, value_name = "AIM")]
    aim: Option<Wish>,
    /// How often each policy is tried
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=100))]
    rounds: u8,
    /// How long it is measured each time, after half a second in which the jobs get used to it
    #[arg(long, value_name = "TIME", default_value = "2s")]
    trial: String,
    /// Keep the best policy for this time, then go back to the settings at the start
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true)]
    span: Option<String>,
    /// Only measure: restore the settings at the end, whatever was best
    #[arg(long, conflicts_with = "span")]
    restore: bool,
    /// Show what would be tried and how long it would take; change nothing
    #[arg(long)]
    dry_run: bool,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

/// The aim as the user types it.
#[derive(Clone, Debug)]
enum Wish {
    P99(Target),
    Rate(Target),
    Throughput,
    Fair,
}

impl FromStr for Wish {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let target = |text: &str| {
            text.parse().or_else(|error| match text.contains(':') {
                true => Err(error),
                false => format!("name:{text}").parse(),
            })
        };
        match text.split_once(':') {
            None if text == "throughput" => Ok(Self::Throughput),
            None if text == "fair" => Ok(Self::Fair),
            Some(("p99", text)) => target(text).map(Self::P99),
            Some(("rate", text)) => target(text).map(Self::Rate),
            _ => Err(
                "an aim is p99:TARGET, rate:TARGET, throughput or fair; a TARGET is a name or pid"
                    .into(),
            ),
        }
    }
}

impl Wish {
    fn aim(&self, jobs: &[Job], sample: &Sample, gpu: usize) -> Result<Aim, String> {
        let chosen = |target: &Target| {
            let uid = target.uid().map_err(|failure| failure.sentence)?;
            let is_meant = |job: &&Job| {
                let mut processes = sample.processes.iter();
                let process = processes.find(|process| Who::of(process) == job.who);
                process.is_some_and(|process| target.means(process, uid))
            };
            let chosen: Vec<Who> = jobs.iter().filter(is_meant).map(|job| job.who).collect();
            match chosen.is_empty() {
                true => Err(format!(
                    "no job of that target works on GPU{gpu} now; gpushare ps lists the processes"
                )),
                false => Ok(chosen),
            }
        };
        Ok(match self {
            Self::P99(target) => Aim::P99(chosen(target)?),
            Self::Rate(target) => Aim::Rate(chosen(target)?),
            Self::Throughput => Aim::Throughput,
            Self::Fair => Aim::Fair,
        })
    }
}

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let trial_ns = parse_trial(&args.trial)?;
    args.span.as_deref().map(parse_until).transpose()?;
    let dir = segments::dir()?;
    let mut live = segments::live(&dir).without_events();
    let sample = segments::look(&mut live)?;
    let plan = plan(args, &sample, trial_ns)?;
    if args.dry_run {
        return match args.json {
            true => json(out, &Document::of(&report::planned(&plan, &sample))),
            false => report::preview(&plan, out),
        };
    }
    let trials = Trials::begin(segments::editor(&dir), &plan, &sample)?;
    if !args.json {
        report::intent(&plan, out)?;
        out.flush()?;
    }
    let found = search(trials, &mut live, &sample, plan)?;
    let chosen = choose(found.tune.plan(), found.tune.measured());
    keep_figures(&dir, &found.tune, &sample);
    let is_new = chosen != 0 && !args.restore;
    if is_new {
        let until = args.span.as_deref().map(parse_until).transpose()?;
        found
            .trials
            .keep(&found.tune.plan().settings[chosen].policy, until)?;
    }
    let report = report::Found {
        tune: &found.tune,
        sample: &sample,
        chosen,
        is_new,
    };
    match args.json {
        true => json(out, &Document::of(&report.summary())),
        false => report.write(out),
    }
}

fn parse_trial(text: &str) -> Result<u64, Failure> {
    let wrong = |why: String| Failure::usage(format!("--trial: {why}"));
    let ns = units::parse_duration(text).map_err(|error| wrong(error.to_string()))?;
    match (500_000_000..=600_000_000_000).contains(&ns) {
        true => Ok(ns),
        false => Err(wrong(format!(
            "{text} is out of range; must be between 500ms and 10m"
        ))),
    }
}

/// Plans the search on the device that was named, or on the only one on which several jobs work.
fn plan(args: &Args, sample: &Sample, trial_ns: u64) -> Result<Plan, Failure> {
    let on = |gpu: usize| {
        let aim = |jobs: &[Job]| match &args.aim {
            Some(wish) => wish.aim(jobs, sample, gpu),
            None => Ok(Aim::usual(jobs)),
        };
        Plan::of(sample, gpu, aim, args.rounds.into(), trial_ns)
    };
    if let Some(gpu) = &args.gpu {
        return on(targets::device(gpu, sample)?).map_err(Failure::failed);
    }
    let mut plans = Vec::new();
    let mut why = None;
    for gpu in sample.gpus() {
        match on(gpu) {
            Ok(plan) => plans.push(plan),
            // The device on which something works says most.
            Err(error) if why.is_none() || sample.holdings(gpu).next().is_some() => {
                why = Some(error)
            }
            Err(_) => {}
        }
    }
    match plans.len() {
        1 => Ok(plans.remove(0)),
        0 => Err(Failure::failed(why.unwrap_or_else(|| {
            "no GPU is used under gpushare; there is nothing to try".into()
        }))),
        _ => {
            let gpus: Vec<String> = plans.iter().map(|plan| plan.gpu.to_string()).collect();
            Err(Failure::usage(format!(
                "several jobs work on each of the GPUs {}; name one: gpushare tune {}",
                gpus.join(", "),
                gpus[0]
            )))
        }
    }
}

/// A search that has measured all settings. The settings of the start are in force again.
struct Measurement {
    tune: Tune,
    trials: Trials,
}

/// Tries all settings. However it ends, the settings of the start are in force again, unless somebody else edited.
fn search(
    mut trials: Trials,
    live: &mut Live,
    sample: &Sample,
    plan: Plan,
) -> Result<Measurement, Failure> {
    let stop = Stop::watch()?;
    let mut tune = Tune::new(plan, sample);
    let result = try_all(&mut tune, &mut trials, live, &stop);
    report::progress(None);
    let restored = trials.restore(live)?;
    let why = match result? {
        None => return Ok(Measurement { tune, trials }),
        Some(why) => why,
    };
    let settings = match restored {
        true => format!(
            "the settings of the start are back: {}",
            tune.plan().settings[0].words
        ),
        false => "the settings in force were left alone".into(),
    };
    Err(Failure::failed(format!("{why}; {settings}")))
}

/// Tries all settings. Returns the reason if the search ended before.
fn try_all(
    tune: &mut Tune,
    trials: &mut Trials,
    live: &mut Live,
    stop: &Stop,
) -> Result<Option<String>, Failure> {
    loop {
        let sample = segments::look(live)?;
        match tune.next(&sample) {
            Next::Try(at) => {
                let (done, all) = tune.progress();
                let setting = &tune.plan().settings[at];
                report::progress(Some(&format!(
                    "trial {} of {all}: {}",
                    done + 1,
                    setting.words
                )));
                let which = format!("{} of {all}", done + 1);
                let put = trials.put((at != 0).then_some(&setting.policy), &which);
                // An edit of another operator makes the generation another one, and this edit refused.
                if put.is_err() && segments::look(live)?.generation != sample.generation {
                    return Ok(Some(edited()));
                }
                put?;
                tune.began(trials.generation(), shm_layout::clock::now());
            }
            Next::Wait => {
                if let Some(why) = stop.wait()? {
                    return Ok(Some(why));
                }
            }
            Next::End(end) => {
                return Ok(match end {
                    End::Measured => None,
                    End::JobStarted(name) => {
                        Some(format!("{} started to use the GPU", plain(&name)))
                    }
                    End::JobEnded(name) => Some(format!("{} ended", plain(&name))),
                    End::Edited => Some(edited()),
                });
            }
        }
    }
}

fn edited() -> String {
    "the settings were changed by somebody else, or while tune was stopped".into()
}

/// Keeps the figures for advice about the same jobs.
fn keep_figures(dir: &SegmentDir, tune: &Tune, sample: &Sample) {
    let plan = tune.plan();
    let settings = plan.settings.iter().enumerate().map(|(at, setting)| {
        let jobs = (0..plan.jobs.len()).map(|job| tune.figures(at, job));
        let (rates, p99_ns) = jobs
            .map(|figures| {
                let p99_ns = figures.p99.value.map(|ns| ns as u64);
                (figures.rate.value.unwrap_or_default(), p99_ns)
            })
            .unzip();
        Tried {
            policy: setting.policy,
            rates,
            p99_ns,
        }
    });
    let measured = Measured {
        time: jiff::Timestamp::now()
            .round(jiff::Unit::Second)
            .unwrap_or_default()
            .to_string(),
        uuid: sample.devices[plan.gpu].uuid.clone(),
        jobs: plan.jobs.iter().map(|job| job.name.clone()).collect(),
        settings: settings.collect(),
    };
    if let Err(error) = Measurements::of(dir).add(&measured) {
        note(&format!(
            "the figures could not be kept for advise: {error}"
        ));
    }
}
