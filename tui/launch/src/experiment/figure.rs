//! A figure is a number that is read from a program's output: behind a pattern, or under a key of a line of JSON.

use regex_lite::Regex;
use serde::Deserialize;
use serde_json::Value;

use gpushare_sample::keys::Keys;

/// A value with its position in the file.
pub type Place<T> = toml::Spanned<T>;

/// A figure of a program, as the plan describes it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Name in the table.
    pub name: String,
    /// Regular expression whose first group is the number.
    pub pattern: Option<Place<String>>,
    /// Key in a line of JSON; `a.b` is the key b in the object a.
    pub json: Option<Place<String>>,
    /// Unit that is printed behind the number.
    #[serde(default)]
    pub unit: String,
    /// Direction of improvement.
    pub better: Better,
    /// Combination of the figures of several copies of the program.
    pub together: Option<Together>,
}

/// Direction of improvement of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More is better, as for a throughput.
    Higher,
    /// Less is better, as for a latency.
    Lower,
}

impl Keys for Better {}

impl Keys for Together {}

impl Better {
    /// Returns the words for the table.
    pub fn word(self) -> &'static str {
        match self {
            Better::Higher => "higher is better",
            Better::Lower => "lower is better",
        }
    }
}

/// Combination of the figures of several copies of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Together {
    /// The sum, as for throughputs.
    Sum,
    /// The mean, as for latencies.
    Mean,
    /// The value of the copy with the worst figure.
    Worst,
}

impl Figure {
    /// Returns how the figure is combined. Without a choice in the plan, a figure where higher is better is summed.
    pub fn together(&self) -> Together {
        self.together.unwrap_or(match self.better {
            Better::Higher => Together::Sum,
            Better::Lower => Together::Mean,
        })
    }

    /// Combines the numbers of several copies of a program.
    pub fn combine(&self, each: &[f64]) -> Option<f64> {
        let sum: f64 = each.iter().sum();
        match (self.together(), self.better) {
            (_, _) if each.is_empty() => None,
            (Together::Sum, _) => Some(sum),
            (Together::Mean, _) => Some(sum / each.len() as f64),
            (Together::Worst, Better::Higher) => each.iter().copied().reduce(f64::min),
            (Together::Worst, Better::Lower) => each.iter().copied().reduce(f64::max),
        }
    }

    /// Checks the pattern or the key. The error has its position in the file, if known, and the reason.
    pub fn check(&self) -> Result<(), (Option<usize>, String)> {
        match (&self.pattern, &self.json) {
            (Some(pattern), None) => match Regex::new(pattern.get_ref()) {
                Err(error) => {
                    let error = error.to_string();
                    // The last line of the error states the reason; the lines before it draw the position.
                    let why = error.lines().last().unwrap_or_default();
                    let why = why.trim_start_matches("error: ");
                    Err((
                        Some(pattern.span().start),
                        format!("pattern {:?}: {why}", pattern.get_ref()),
                    ))
                }
                Ok(regex) if regex.captures_len() < 2 => Err((
                    Some(pattern.span().start),
                    format!(
                        "pattern {:?} has no group; put ( and ) around the number",
                        pattern.get_ref()
                    ),
                )),
                Ok(_) => Ok(()),
            },
            (None, Some(_)) => Ok(()),
            _ => Err((
                None,
                format!(
                    "figure {:?} needs either pattern = (a regular expression with a group) or json = (a key)",
                    self.name
                ),
            )),
        }
    }

    /// Reads the number of each round from a program's output, where each round has a line and the last lines count. A number is `None`
    /// for `nan`: the program had nothing to measure.
    pub fn read(&self, output: &str, rounds: usize) -> Result<Vec<Option<f64>>, String> {
        let regex = self
            .pattern
            .as_ref()
            .map(|pattern| Regex::new(pattern.get_ref()));
        let regex = regex.transpose().map_err(|error| error.to_string())?;
        let by_pattern = |line: &str| {
            let captures = regex.as_ref()?.captures(line)?;
            Some(captures.get(1)?.as_str().to_owned())
        };
        let by_key = |line: &str| {
            let line: Value = serde_json::from_str(line.trim()).ok()?;
            let mut at = &line;
            for part in self.json.as_ref()?.get_ref().split('.') {
                at = at.get(part)?;
            }
            Some(at.as_str().map_or_else(|| at.to_string(), str::to_owned))
        };
        let found = |line: &str| match regex.is_some() {
            true => by_pattern(line),
            false => by_key(line),
        };
        let mut found: Vec<String> = output
            .lines()
            .rev()
            .filter_map(found)
            .take(rounds)
            .collect();
        found.reverse();
        let how = match (&self.pattern, &self.json) {
            (Some(pattern), _) => format!("matches {:?}", pattern.get_ref()),
            (None, key) => format!(
                "is JSON with the key {:?}",
                key.as_ref().map_or("", |key| key.get_ref())
            ),
        };
        match found.len() {
            0 => return Err(format!("no line of its output {how}")),
            count if count < rounds => {
                return Err(format!(
                    "only {count} of {rounds} rounds have a line of its output that {how}"
                ));
            }
            _ => {}
        }
        let number = |text: &String| match text.trim().parse::<f64>() {
            Ok(number) if number.is_nan() => Ok(None),
            Ok(number) if number.is_finite() => Ok(Some(number)),
            _ => Err(format!("{text:?} is no number, in the line that {how}")),
        };
        found.iter().map(number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(text: &str) -> Figure {
        toml::from_str(&format!("name = 'f'\n{text}")).expect("well formed")
    }

    #[test]
    fn the_last_numbers_count_by_pattern_or_by_key() {
        let output =
            "p50=1.5 p99=9\nnoise\np50=2.5 p99=12\n{\"a\": {\"b\": 7}, \"c\": \"8.5\"}\nend\n";
        let read = |text: &str| figure(text).read(output, 1);
        assert_eq!(
            read("pattern = 'p50=([0-9.]+)'\nbetter = 'lower'"),
            Ok(vec![Some(2.5)])
        );
        assert_eq!(read("json = 'a.b'\nbetter = 'lower'"), Ok(vec![Some(7.0)]));
        assert_eq!(read("json = 'c'\nbetter = 'lower'"), Ok(vec![Some(8.5)]));
        let p50 = figure("pattern = 'p50=([0-9.]+|nan)'\nbetter = 'lower'");
        assert_eq!(p50.read("p50=nan", 1), Ok(vec![None]));
        let three = "p50=9\np50=1.5\np50=nan\n";
        assert_eq!(p50.read(three, 2), Ok(vec![Some(1.5), None]));
        let few = p50.read(three, 4).expect_err("only three");
        assert!(few.contains("only 3 of 4 rounds"), "{few}");
        for (wrong, why) in [
            ("pattern = 'p51=([0-9.]+)'", "no line of its output matches"),
            ("pattern = '(noise)'", "is no number"),
            ("json = 'a.x'", "no line of its output is JSON with the key"),
        ] {
            let said = read(&format!("{wrong}\nbetter = 'lower'")).expect_err(wrong);
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn several_of_one_program_add_up_or_average_by_what_is_better() {
        let each = [2.0, 4.0];
        let combined = |text: &str| figure(&format!("json = 'x'\n{text}")).combine(&each);
        assert_eq!(combined("better = 'higher'"), Some(6.0));
        assert_eq!(combined("better = 'lower'"), Some(3.0));
        assert_eq!(combined("better = 'lower'\ntogether = 'worst'"), Some(4.0));
        assert_eq!(combined("better = 'higher'\ntogether = 'worst'"), Some(2.0));
    }
}
