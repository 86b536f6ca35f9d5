//! Experiment results as text: a block for each figure, a line for each condition.

use std::io::{self, Write};

use super::results::{Activity, Results, short};
use gpushare_base::text::plain::plain;

/// Width to which names of conditions are cut.
const NAME: usize = 44;

/// Writes the results to `out`, with the conditions that were skipped and why.
///
/// # Errors
///
/// The error of `out`.
pub fn write(results: &Results<'_>, out: &mut dyn Write) -> io::Result<()> {
    let plan = results.plan;
    let rounds = match plan.repeats * plan.copies {
        1 => "1 round".to_owned(),
        count => format!("{count} rounds"),
    };
    let copies = match plan.copies {
        1 => String::new(),
        count => format!(", {count} copies of each"),
    };
    let turns = plan.switch.map_or_else(String::new, |every| {
        format!(" in turns of {every} s{copies}")
    });
    writeln!(out, "{}", plain(&plan.title))?;
    writeln!(
        out,
        "{rounds} of {} s{turns}, {}",
        plan.seconds,
        plain(&results.place())
    )?;
    let names = plan.conditions.iter().map(|c| cut(&c.name).chars().count());
    let width = names.max().unwrap_or(0) + 2;
    for panel in results.panels() {
        writeln!(out)?;
        let unit = match panel.figure.unit.as_str() {
            "" => panel.figure.better.word().to_owned(),
            unit => format!("{unit}, {}", panel.figure.better.word()),
        };
        writeln!(out, "{} ({})", plain(&panel.title()), plain(&unit))?;
        let heads = ["median", "min – max", "× alone", "× bare"];
        writeln!(
            out,
            "{:<width$}{:>9}{:>20}{:>9}{:>9}",
            "", heads[0], heads[1], heads[2], heads[3]
        )?;
        for row in &panel.rows {
            let number = |value: Option<f64>| value.map_or_else(|| "-".into(), short);
            let ratio =
                |value: Option<f64>| value.map_or_else(|| "-".into(), |v| format!("{v:.2}"));
            let spread = match (row.min, row.max) {
                (Some(min), Some(max)) => format!("{} – {}", short(min), short(max)),
                _ => "-".to_owned(),
            };
            writeln!(
                out,
                "  {:<rest$}{:>9}{spread:>20}{:>9}{:>9}",
                plain(&cut(&row.condition)),
                number(row.median),
                ratio(row.of_alone),
                ratio(row.of_bare),
                rest = width - 2,
            )?;
        }
    }
    lock(results, width, out)?;
    notes(results, out)
}

/// Writes the lock's activity in the runs under gpushare.
fn lock(results: &Results<'_>, width: usize, out: &mut dyn Write) -> io::Result<()> {
    let ours: Vec<_> = results
        .plan
        .conditions
        .iter()
        .filter(|c| c.is_ours())
        .collect();
    if ours.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nthe lock, in a run (median)")?;
    writeln!(
        out,
        "{:<width$}{:>10}{:>10}{:>10}",
        "", "hand-offs", "drains", "forced"
    )?;
    for condition in ours {
        let runs: Vec<Activity> = results
            .counted(&condition.name)
            .filter_map(|run| run.lock)
            .collect();
        let middle = |of: fn(&Activity) -> u64| {
            let mut all: Vec<u64> = runs.iter().map(of).collect();
            all.sort_unstable();
            all.get(all.len() / 2)
                .map_or_else(|| "-".to_owned(), u64::to_string)
        };
        writeln!(
            out,
            "  {:<rest$}{:>10}{:>10}{:>10}",
            plain(&cut(&condition.name)),
            middle(|activity| activity.handoffs),
            middle(|activity| activity.drains),
            middle(|activity| activity.forced),
            rest = width - 2,
        )?;
    }
    Ok(())
}

/// Writes the reasons why conditions have no samples, or too few.
fn notes(results: &Results<'_>, out: &mut dyn Write) -> io::Result<()> {
    let panels = results.panels();
    let rows = panels.first().map_or(&[][..], |panel| &panel.rows);
    let notes: Vec<_> = rows
        .iter()
        .filter_map(|row| Some((&row.condition, row.why.as_ref()?)))
        .collect();
    for (at, (condition, why)) in notes.iter().enumerate() {
        let gap = if at == 0 { "\n" } else { "" };
        writeln!(out, "{gap}{}: {}", plain(condition), plain(why))?;
    }
    Ok(())
}

fn cut(name: &str) -> String {
    if name.chars().count() <= NAME {
        return name.to_owned();
    }
    name.chars().take(NAME - 1).chain(['…']).collect()
}

impl Results<'_> {
    /// Returns the place and date of the experiment in one line.
    pub fn place(&self) -> String {
        let machine = &self.machine;
        let devices = match machine.devices.as_slice() {
            [] => "no GPU known".to_owned(),
            [one] => one.clone(),
            [first, rest @ ..] if rest.iter().all(|other| other == first) => {
                format!("{} × {first}", rest.len() + 1)
            }
            all => all.join(", "),
        };
        let driver = machine.driver.as_ref();
        let driver = driver.map_or_else(String::new, |driver| format!(", driver {driver}"));
        let day = self.date.split('T').next().unwrap_or_default();
        format!("{devices}{driver}, {day}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::{GOOD, parsed};
    use super::super::results::sample;
    use super::*;

    #[test]
    fn a_table_has_each_condition_in_each_figure_and_says_why_one_is_empty() {
        let plan = parsed(GOOD).expect("it makes sense");
        let mut results = sample(&plan);
        results.runs.retain(|run| run.condition != "bare");
        results
            .skipped
            .push(("bare".into(), "there is no \u{1b}[31mroom".into()));
        let mut out = Vec::new();
        write(&results, &mut out).expect("memory");
        let text = String::from_utf8(out).expect("text");
        insta::assert_snapshot!(text, @r"
        plan
        3 rounds of 1 s, Test GPU, driver 580.1, 2026-11-22

        a x (higher is better)
                  median           min – max  × alone   × bare
          alone    11.00       10.00 – 12.00     1.00        -
          bare         -                   -        -        -
          off      21.00       20.00 – 22.00     1.91        -

        the lock, in a run (median)
                hand-offs    drains    forced
          off         100         7         0

        bare: skipped: there is no \u{1b}[31mroom
        ");
    }
}
