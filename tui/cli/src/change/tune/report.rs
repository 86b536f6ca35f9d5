//! The output of a search: its intent, its progress, the table and the choice.

use std::io::{IsTerminal as _, Write, stderr};

use crate::Done;
use crate::table::{Side, Table};
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::plain::plain;
use gpushare_base::text::units;
use gpushare_observe::tune::figures::{Figure, Figures};
use gpushare_observe::tune::{Plan, Tune};
use gpushare_sample::keys::object;
use gpushare_sample::{SCHEMA_VERSION, Sample};

/// Writes what a search is about to do.
pub fn intent(plan: &Plan, out: &mut dyn Write) -> std::io::Result<()> {
    let names: Vec<&str> = plan.jobs.iter().map(|job| job.name.as_str()).collect();
    writeln!(out, "GPU{}: {}", plan.gpu, plain(&names.join(", ")))?;
    writeln!(
        out,
        "{} policies, {} times each, take {}; the aim is {}; a key or Ctrl-C ends it and restores {}",
        plan.settings.len(),
        plan.rounds,
        units::short_time(plan.takes_ns()),
        plain(&plan.aim.about(&plan.jobs)),
        plan.settings[0].words
    )
}

/// Writes what a search would do.
pub fn preview(plan: &Plan, out: &mut dyn Write) -> Done {
    intent(plan, out)?;
    for (at, setting) in plan.settings.iter().enumerate() {
        let now = if at == 0 { " (now)" } else { "" };
        writeln!(out, "  {}{now}", setting.words)?;
    }
    if plan
        .jobs
        .iter()
        .all(|job| job.priority == plan.jobs[0].priority)
    {
        writeln!(
            out,
            "orders by priority are left out, because all jobs have one priority; gpushare set TARGET priority=5 changes that"
        )?;
    }
    writeln!(out, "dry run: nothing was changed")?;
    Ok(Exit::Done)
}

/// Shows the progress on a terminal, or removes it.
pub fn progress(text: Option<&str>) {
    let mut err = stderr();
    if err.is_terminal() {
        let _ = write!(err, "\r\x1b[K{}", text.unwrap_or_default());
        let _ = err.flush();
    }
}

object! {
    /// The document that `--json` writes.
    pub Document<'a>(summary: &'a Summary) {
        schema_version: u32 = SCHEMA_VERSION, "Increases when a key changes its meaning or is removed.";
        gpu: usize = summary.gpu, "The device's number.";
        uuid: &'a str = &summary.uuid, "Its UUID.";
        aim: &'a str = &summary.aim, "What the best policy is best at.";
        rounds: usize = summary.rounds, "How often each policy was tried.";
        takes_ms: u64 = summary.takes_ms, "The time that all trials take.";
        chosen: Option<&'a str> = summary.chosen.as_deref(), "The best policy; the one at the start if no other was certainly better; null with --dry-run.";
        applied: bool = summary.applied, "Whether the policy was changed.";
        policies: &'a [Line] = &summary.policies, "The policies that were tried, the one at the start first.";
    }
}

/// The result of a search, or the plan of one.
#[derive(Debug)]
pub struct Summary {
    gpu: usize,
    uuid: String,
    aim: String,
    rounds: usize,
    takes_ms: u64,
    chosen: Option<String>,
    applied: bool,
    policies: Vec<Line>,
}

object! {
    /// A policy that was tried.
    pub Line {
        policy: String, "The policy, as it is typed.";
        jobs: Vec<Row>, "What each job did under it; none with --dry-run.";
    }
}

object! {
    /// The figures of a job under a policy.
    pub Row {
        pid: u32, "Its pid.";
        name: String, "Its name.";
        launches_per_s: Option<f64>, "Kernels and graphs launched in a second.";
        launches_factor: Option<f64>, "That over the figure at the start.";
        launches_spread: Option<f64>, "Half of the range between the rounds, in parts of the figure; null after one round.";
        step_p99_us: Option<f64>, "The time for which the GPU kept it waiting in 99 of 100 steps; null where it ended none.";
        step_p99_factor: Option<f64>, "That over the figure at the start.";
        step_p99_spread: Option<f64>, "Half of the range between the rounds, in parts of the figure; null after one round.";
    }
}

/// Returns the plan of a search as the document has it.
pub fn planned(plan: &Plan, sample: &Sample) -> Summary {
    let policies = plan.settings.iter().map(|setting| Line {
        policy: setting.words.clone(),
        jobs: Vec::new(),
    });
    Summary {
        gpu: plan.gpu,
        uuid: sample.devices[plan.gpu].uuid.clone(),
        aim: plan.aim.about(&plan.jobs),
        rounds: plan.rounds,
        takes_ms: plan.takes_ns() / 1_000_000,
        chosen: None,
        applied: false,
        policies: policies.collect(),
    }
}

/// A search that has measured all settings, and its choice.
pub struct Found<'a> {
    pub tune: &'a Tune,
    pub sample: &'a Sample,
    pub chosen: usize,
    pub is_new: bool,
}

impl Found<'_> {
    /// Returns the result as the document has it.
    pub fn summary(&self) -> Summary {
        let plan = self.tune.plan();
        let mut summary = planned(plan, self.sample);
        for (at, line) in summary.policies.iter_mut().enumerate() {
            let jobs = plan.jobs.iter().enumerate();
            let rows = jobs.map(|(job, about)| {
                let Figures { rate, p99 } = self.tune.figures(at, job);
                Row {
                    pid: about.pid,
                    name: about.name.clone(),
                    launches_per_s: rate.value.map(tenths),
                    launches_factor: rate.relative.map(thousandths),
                    launches_spread: rate.spread.map(thousandths),
                    step_p99_us: p99.value.map(|ns| ns / 1e3),
                    step_p99_factor: p99.relative.map(thousandths),
                    step_p99_spread: p99.spread.map(thousandths),
                }
            });
            line.jobs = rows.collect();
        }
        summary.chosen = Some(plan.settings[self.chosen].words.clone());
        summary.applied = self.is_new;
        summary
    }

    /// Writes the table and the choice.
    pub fn write(&self, out: &mut dyn Write) -> Done {
        self.table(out)?;
        let plan = self.tune.plan();
        let (start, chosen) = (&plan.settings[0].words, &plan.settings[self.chosen].words);
        let aim = plan.aim.about(&plan.jobs);
        let sentence = match (self.chosen, self.is_new) {
            (0, _) => format!("kept {start}: no other policy was certainly better for {aim}"),
            (_, true) => format!(
                "now in force: {chosen}, for {aim}; it was {start}; gpushare undo takes it back"
            ),
            (_, false) => format!(
                "the best was {chosen}, for {aim}; {start} is in force as before; gpushare policy set {} {chosen} sets it",
                plan.gpu
            ),
        };
        writeln!(out, "{}", plain(&sentence))?;
        Ok(Exit::Done)
    }

    fn table(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let mut table = Table::new(&[
            ("", Side::Left),
            ("POLICY", Side::Left),
            ("JOB", Side::Left),
            ("LNCH/s", Side::Right),
            ("x START", Side::Right),
            ("+-", Side::Right),
            ("STEP p99", Side::Right),
            ("x START", Side::Right),
            ("+-", Side::Right),
        ]);
        let plan = self.tune.plan();
        for (at, setting) in plan.settings.iter().enumerate() {
            for (job, about) in plan.jobs.iter().enumerate() {
                let Figures { rate, p99 } = self.tune.figures(at, job);
                let mark = if at == self.chosen && job == 0 {
                    "*"
                } else {
                    ""
                };
                let words = if job == 0 { setting.words.as_str() } else { "" };
                let mut cells = vec![mark.to_owned(), words.to_owned(), about.name.clone()];
                cells.push(shown(rate.value, |rate| format!("{rate:.1}")));
                cells.extend(beside(&rate));
                cells.push(shown(p99.value, |ns| units::short_time(ns as u64)));
                cells.extend(beside(&p99));
                table.row(cells);
            }
        }
        Ok(table.write(out)?)
    }
}

/// Returns the cells beside a figure: its factor and its spread.
fn beside(figure: &Figure) -> [String; 2] {
    [
        shown(figure.relative, |factor| format!("{factor:.2}")),
        shown(figure.spread, |part| format!("{:.0}%", part * 100.0)),
    ]
}

fn shown(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "-".into(), show)
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn thousandths(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpushare_sample::testing::explains;

    #[test]
    fn every_key_is_explained() {
        let row = Row {
            pid: 1,
            name: String::new(),
            launches_per_s: None,
            launches_factor: None,
            launches_spread: None,
            step_p99_us: None,
            step_p99_factor: None,
            step_p99_spread: None,
        };
        explains(&Document::of(&Summary {
            gpu: 0,
            uuid: String::new(),
            aim: String::new(),
            rounds: 3,
            takes_ms: 1,
            chosen: None,
            applied: false,
            policies: vec![Line {
                policy: "off".into(),
                jobs: vec![row],
            }],
        }));
    }
}
