//! The results of an experiment: every run, and the summary of each figure under each condition.

use super::figure::Figure;
use super::plan::{Plan, Program};
use gpushare_base::median::median;
use gpushare_sample::keys::object;

/// Everything that is measured so far.
#[derive(Debug)]
pub struct Results<'p> {
    /// The plan.
    pub plan: &'p Plan,
    /// The machine on which it ran.
    pub machine: Machine,
    /// Start of the experiment, RFC 3339.
    pub date: String,
    /// Every run, in the order of execution.
    pub runs: Vec<Run>,
    /// Conditions that this machine cannot run, with the reason.
    pub skipped: Vec<(String, String)>,
    /// Signal that ended the experiment early.
    pub interrupted: Option<&'static str>,
}

object! {
    /// The machine of an experiment.
    #[derive(Default)]
    pub Machine {
        host: String, "The host's name.";
        devices: Vec<String>, "The devices' names.";
        driver: Option<String>, "The driver's version; null where it is not known.";
        simulated: bool, "Whether the devices were the simulator's.";
    }
}

object! {
    /// A run of all programs under one condition.
    #[derive(Default)]
    pub Run {
        condition: String, "The condition's name.";
        round: u32, "Which round, from 0, those of the warm-up included.";
        warm_up: bool, "Whether it does not count.";
        seconds: f64, "How long it took, starts and ends included.";
        failure: Option<String>, "Why figures are missing.";
        figures: Vec<Measured>, "What its programs printed.";
        lock: Option<Activity>, "What the lock did; null without gpushare.";
    }
}

object! {
    /// The value of a figure in a run.
    pub Measured {
        program: String, "The program's name.";
        figure: String, "The figure's name.";
        value: f64, "All of them together.";
        each: Vec<f64>, "Each of them.";
    }
}

object! {
    /// The lock's activity in a run.
    #[derive(Copy, Default)]
    pub Activity {
        handoffs: u64, "Times it passed from one process to another.";
        drains: u64, "Synchronisations that only the lock asked for.";
        forced: u64, "Times it was taken from a holder that did not yield.";
        acquisitions: u64, "Times it was acquired.";
    }
}

/// The panel of a figure: its values under all conditions.
#[derive(Debug)]
pub struct Panel<'p> {
    /// The program.
    pub program: &'p Program,
    /// The figure.
    pub figure: &'p Figure,
    /// A row for each condition, in the plan's order.
    pub rows: Vec<Row>,
}

object! {
    /// The values of a figure under one condition.
    pub Row {
        condition: String, "The condition's name.";
        kind: &'static str, "alone, bare, variables, MPS, gpushare, gpushare over MPS or preload.";
        samples: Vec<f64>, "One value for each round that counts.";
        median: Option<f64>, "The middle one, or the mean of the two in the middle.";
        min: Option<f64>, "The least.";
        max: Option<f64>, "The most.";
        of_alone: Option<f64>, "The median over that of the condition alone.";
        of_bare: Option<f64>, "The median over that of the bare condition.";
        why: Option<String>, "Why samples are missing.";
    }
}

impl Panel<'_> {
    /// Returns the title: `inference p99`, `training (2 together) steps`.
    pub fn title(&self) -> String {
        let together = match self.program.count {
            1 => String::new(),
            count => format!(" ({count} together)"),
        };
        format!("{}{together} {}", self.program.name, self.figure.name)
    }
}

impl Results<'_> {
    /// Returns the panels of all figures, in the plan's order.
    pub fn panels(&self) -> Vec<Panel<'_>> {
        let programs = self.plan.measured();
        let all = programs.flat_map(|program| program.figures.iter().map(move |f| (program, f)));
        all.map(|(program, figure)| Panel {
            program,
            figure,
            rows: self.rows(&program.name, &figure.name),
        })
        .collect()
    }

    fn rows(&self, program: &str, figure: &str) -> Vec<Row> {
        let conditions = &self.plan.conditions;
        let mut rows: Vec<Row> = conditions
            .iter()
            .map(|condition| {
                let samples = self.samples(&condition.name, program, figure);
                let mut sorted = samples.clone();
                sorted.sort_by(f64::total_cmp);
                Row {
                    condition: condition.name.clone(),
                    kind: condition.kind(),
                    median: median(&sorted),
                    min: sorted.first().copied(),
                    max: sorted.last().copied(),
                    samples,
                    of_alone: None,
                    of_bare: None,
                    why: self.why(&condition.name),
                }
            })
            .collect();
        let reference = |is: fn(&super::plan::Condition) -> bool| {
            let at = conditions.iter().position(is)?;
            rows[at].median.filter(|median| *median != 0.0)
        };
        let (alone, bare) = (reference(|c| c.alone), reference(|c| c.is_bare()));
        for row in &mut rows {
            let over = |base: Option<f64>| Some(row.median? / base?);
            (row.of_alone, row.of_bare) = (over(alone), over(bare));
        }
        rows
    }

    fn samples(&self, condition: &str, program: &str, figure: &str) -> Vec<f64> {
        self.counted(condition)
            .flat_map(|run| &run.figures)
            .filter(|measured| measured.program == program && measured.figure == figure)
            .map(|measured| measured.value)
            .collect()
    }

    /// Returns the runs of a condition without the warm-up.
    pub fn counted<'r>(&'r self, condition: &'r str) -> impl Iterator<Item = &'r Run> {
        let is = move |run: &&Run| run.condition == condition && !run.warm_up;
        self.runs.iter().filter(is)
    }

    /// Returns the reason that this machine does not have a condition, as far as it was tried.
    pub fn skipped_for(&self, condition: &str) -> Option<&str> {
        let mut skipped = self.skipped.iter();
        let found = skipped.find(|(name, _)| name == condition);
        found.map(|(_, why)| why.as_str())
    }

    /// Returns the reason why a condition has fewer samples than rounds.
    fn why(&self, condition: &str) -> Option<String> {
        if let Some(why) = self.skipped_for(condition) {
            let ran = self.runs.iter().any(|run| run.condition == condition);
            let what = if ran {
                "some copies skipped"
            } else {
                "skipped"
            };
            return Some(format!("{what}: {why}"));
        }
        let mut runs = self.runs.iter().filter(|run| run.condition == condition);
        let failure = runs.find_map(|run| run.failure.as_ref())?;
        let all = self.runs.iter().filter(|run| run.condition == condition);
        let failed = all.clone().filter(|run| run.failure.is_some()).count();
        Some(format!(
            "{failed} of {} runs failed: {failure}",
            all.count()
        ))
    }

    /// Returns the number of runs without figures.
    pub fn failures(&self) -> usize {
        self.runs.iter().filter(|run| run.failure.is_some()).count()
    }
}

/// Formats a number with three significant digits, in at most seven characters.
pub fn short(number: f64) -> String {
    let size = number.abs();
    let digits = match () {
        () if size == 0.0 || size >= 1000.0 => 0,
        () if size >= 100.0 => 1,
        () if size >= 1.0 => 2,
        () if size >= 0.01 => 4,
        () => return format!("{number:.1e}"),
    };
    match size {
        size if size >= 1e7 => format!("{number:.2e}"),
        _ => format!("{number:.digits$}"),
    }
}

/// Returns results with made-up figures, for tests.
#[cfg(test)]
pub(super) fn sample(plan: &Plan) -> Results<'_> {
    let mut runs = Vec::new();
    for round in 0..3_u32 {
        for (at, condition) in plan.conditions.iter().enumerate() {
            let value = 10.0 + 5.0 * at as f64 + f64::from(round);
            let measured = |program: &Program, figure: &Figure| Measured {
                program: program.name.clone(),
                figure: figure.name.clone(),
                value,
                each: vec![value],
            };
            let figures = plan
                .measured()
                .flat_map(|p| p.figures.iter().map(move |f| measured(p, f)));
            runs.push(Run {
                condition: condition.name.clone(),
                round,
                seconds: 1.0,
                figures: figures.collect(),
                lock: condition.is_ours().then_some(Activity {
                    handoffs: 100,
                    drains: 7,
                    ..Activity::default()
                }),
                ..Run::default()
            });
        }
    }
    Results {
        plan,
        machine: Machine {
            host: "host".into(),
            devices: vec!["Test GPU".into()],
            driver: Some("580.1".into()),
            simulated: false,
        },
        date: "2026-11-22T07:00:00Z".into(),
        runs,
        skipped: Vec::new(),
        interrupted: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::{GOOD, parsed};
    use super::*;

    #[test]
    fn medians_spreads_and_ratios_follow_from_the_samples() {
        let plan = parsed(GOOD).expect("it makes sense");
        let mut results = sample(&plan);
        results.runs[0].warm_up = true;
        let panels = results.panels();
        assert_eq!(panels.len(), 1);
        let rows = &panels[0].rows;
        assert_eq!(rows[0].samples, [11.0, 12.0], "a warm-up does not count");
        assert_eq!(rows[0].median, Some(11.5));
        assert_eq!(
            (rows[1].min, rows[1].median, rows[1].max),
            (Some(15.0), Some(16.0), Some(17.0))
        );
        assert_eq!(rows[1].of_bare, Some(1.0));
        assert_eq!(rows[2].of_bare, Some(21.0 / 16.0));
        assert_eq!(rows[2].of_alone, Some(21.0 / 11.5));
    }

    #[test]
    fn a_condition_without_samples_says_why() {
        let plan = parsed(GOOD).expect("it makes sense");
        let mut results = sample(&plan);
        results.runs.retain(|run| run.condition != "bare");
        results.skipped.push(("bare".into(), "no room".into()));
        results.runs[1].failure = Some("it fell over".into());
        let panels = results.panels();
        let why: Vec<_> = panels[0]
            .rows
            .iter()
            .map(|row| row.why.as_deref())
            .collect();
        assert_eq!(
            why,
            [
                None,
                Some("skipped: no room"),
                Some("1 of 3 runs failed: it fell over")
            ]
        );
        assert_eq!(panels[0].rows[2].of_bare, None);
    }

    #[test]
    fn numbers_stay_short() {
        for (number, text) in [
            (0.0, "0"),
            (0.123_45, "0.1235"),
            (4.823, "4.82"),
            (126.31, "126.3"),
            (1763.2, "1763"),
            (1.5e9, "1.50e9"),
            (0.000_1, "1.0e-4"),
        ] {
            assert_eq!(short(number), text);
            assert!(short(number).len() <= 7);
        }
    }
}
