//! Experiment results in forms that programs read: everything as JSON, and every sample as a line of CSV.

use std::io::Write;

use serde::Serialize;

use super::figure::{Better, Together};
use super::results::{Machine, Panel, Results, Row, Run};
use gpushare_base::text::exit::Failure;
use gpushare_base::text::plain::{Plain, cell};
use gpushare_sample::SCHEMA_VERSION;
use gpushare_sample::keys::object;

object! {
    /// The document that `--json` writes.
    pub Document<'r>(results: &'r Results<'r>) {
        schema_version: u32 = SCHEMA_VERSION, "Increases when a key changes its meaning or is removed.";
        gpushare: &'r str = env!("CARGO_PKG_VERSION"), "The version of gpushare.";
        title: &'r str = &results.plan.title, "The plan's title.";
        date: &'r str = &results.date, "When it began, RFC 3339.";
        machine: &'r Machine = &results.machine, "Where it ran.";
        seconds: f64 = results.plan.seconds, "The time that each condition had in a round.";
        switch: Option<f64> = results.plan.switch, "The seconds after which another condition had its turn; null if one ran after the other.";
        copies: u32 = results.plan.copies, "Number of copies of each condition that ran beside the others. The rounds of all count, and those of the later ones are numbered on: a run's copy is its round divided by warm_up + repeats.";
        repeats: u32 = results.plan.repeats, "Rounds of each that count.";
        warm_up: u32 = results.plan.warm_up, "Rounds before them that do not.";
        interrupted_by: Option<&'r str> = results.interrupted, "The signal that ended it early.";
        figures: Vec<Figure> = results.panels().into_iter().map(Figure::new).collect(), "What the samples come to.";
        skipped: Vec<Skipped> = skipped(results), "Conditions that this machine does not have.";
        runs: &'r [Run] = &results.runs, "Every run, in the order in which they ran.";
        plan: &'r str = &results.plan.text, "The plan's text.";
    }
}

object! {
    /// The values of a figure under all conditions.
    pub Figure {
        program: String, "The program's name.";
        count: u32, "How many of it run.";
        figure: String, "The figure's name.";
        unit: String, "Its unit.";
        better: Better, "higher or lower.";
        together: Together, "What several of the program come to: sum, mean or worst.";
        conditions: Vec<Row>, "One entry for each condition.";
    }
}

object! {
    /// A condition that this machine does not have.
    pub Skipped {
        condition: String, "The condition's name.";
        why: String, "The reason.";
    }
}

impl Figure {
    fn new(panel: Panel<'_>) -> Self {
        Self {
            program: panel.program.name.clone(),
            count: panel.program.count,
            figure: panel.figure.name.clone(),
            unit: panel.figure.unit.clone(),
            better: panel.figure.better,
            together: panel.figure.together(),
            conditions: panel.rows,
        }
    }
}

fn skipped(results: &Results<'_>) -> Vec<Skipped> {
    let skipped = |(condition, why): &(String, String)| Skipped {
        condition: condition.clone(),
        why: why.clone(),
    };
    results.skipped.iter().map(skipped).collect()
}

/// Writes the results as JSON: every run, the summaries, and the plan itself.
pub fn json(results: &Results<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(&Document::of(results))?;
    let mut plain = Plain::json(out);
    writeln!(plain, "{}", folded(&text))?;
    Ok(plain.flush()?)
}

/// Number of bytes that a run, with all its figures, has room in.
const LINE: usize = 600;

/// Writes each object and list of a JSON text with one value a line on one line, if it fits there. So a document that is kept in
/// git has a line for each run.
fn folded(pretty: &str) -> String {
    let (mut lines, mut opened) = (Vec::new(), Vec::new());
    for line in pretty.lines() {
        lines.push(line.to_owned());
        // A bracket within a text is followed by its quote.
        if line.ends_with(['{', '[']) {
            opened.push(lines.len() - 1);
        } else if line.trim_start().starts_with(['}', ']']) {
            let start = opened.pop().unwrap_or_default();
            let (first, rest) = (&lines[start], &lines[start + 1..lines.len() - 1]);
            let inner: Vec<&str> = rest.iter().map(|line| line.trim_start()).collect();
            let whole = format!("{first}{}{}", inner.join(" "), line.trim_start());
            if whole.len() <= LINE {
                lines.truncate(start);
                lines.push(whole);
            }
        }
    }
    lines.join("\n")
}

#[derive(Serialize)]
struct Line<'r> {
    round: u32,
    warm_up: bool,
    condition: std::borrow::Cow<'r, str>,
    program: std::borrow::Cow<'r, str>,
    figure: std::borrow::Cow<'r, str>,
    value: f64,
}

/// Writes the results as CSV, with one line for each figure of each run.
pub fn csv(results: &Results<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    let mut writer = csv::Writer::from_writer(out);
    for run in &results.runs {
        for measured in &run.figures {
            let line = Line {
                round: run.round,
                warm_up: run.warm_up,
                condition: cell(&run.condition),
                program: cell(&measured.program),
                figure: cell(&measured.figure),
                value: measured.value,
            };
            let failed = |error| Failure::failed(format!("CSV cannot be written: {error}"));
            writer.serialize(line).map_err(failed)?;
        }
    }
    Ok(writer.flush()?)
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::{GOOD, parsed};
    use super::super::results::sample;
    use super::*;
    use gpushare_sample::testing::explains;

    #[test]
    fn a_folded_document_says_what_it_said() {
        let long = "x".repeat(LINE);
        let value = serde_json::json!({
            "braces": ["{", "[", "},", {"a {": "]"}], "empty": [[], {}], "long": [long, [1.5, null]], "last": {"b": true},
        });
        let pretty = serde_json::to_string_pretty(&value).expect("JSON");
        let text = folded(&pretty);
        let back: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(back, value);
        assert_eq!(text.lines().count(), 9, "{text}");
    }

    #[test]
    fn a_condition_named_like_a_formula_is_text_in_csv_and_true_in_json() {
        let name = "=cmd|'/c calc'!A0\u{1b}[2J\u{202e}x";
        let text = GOOD.replace("[[condition]]\n[[", "[[condition]]\nname = \"bare\"\n[[");
        let mut plan = parsed(&text).expect("it makes sense");
        plan.conditions[1].name = name.to_owned();
        let mut results = sample(&plan);
        results.skipped.push(("x".into(), "y".into()));
        let mut out = Vec::new();
        csv(&results, &mut out).expect("memory");
        let mut back = csv::Reader::from_reader(out.as_slice());
        let rows: Vec<_> = back.records().map(|row| row.expect("CSV")).collect();
        assert_eq!(rows.len(), 9);
        let shown = r"'=cmd|'/c calc'!A0\u{1b}[2J\u{202e}x";
        assert_eq!(&rows[1][2], shown);

        out.clear();
        json(&results, &mut out).expect("memory");
        let text = String::from_utf8(out).expect("text");
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
        let back: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let figure = &back["figures"][0];
        assert_eq!(figure["conditions"][1]["condition"], name);
        assert_eq!(
            figure["conditions"][1]["samples"],
            serde_json::json!([15.0, 16.0, 17.0])
        );
        assert_eq!(figure["together"], "sum");
        let runs = back["runs"].as_array().expect("a list");
        let is_run = |line: &&str| line.contains(r#""round": "#) && line.contains(r#""value": "#);
        let lines = text.lines().filter(is_run).count();
        assert_eq!((runs.len(), lines), (9, 9), "a run is a line");
        assert_eq!(back["plan"], plan.text);
        explains(&Document::of(&results));
    }
}
