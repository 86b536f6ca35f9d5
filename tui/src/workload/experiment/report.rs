//! What an experiment measured: table, JSON and CSV from the same rows.

use std::io::Write;

use crate::sample::SCHEMA_VERSION;
use crate::sample::keys::object;
use crate::text::exit::Failure;
use crate::text::plain::{Plain, cell, plain};

object! {
    /// One configuration's numbers.
    #[derive(Default)]
    pub Measured {
        config: String, "The configuration's name.";
        seconds: f64, "How long it was measured.";
        urgent_rounds: u64, "Rounds of the urgent task.";
        urgent_p50_ns: Option<u64>, "The median of its round times.";
        urgent_p99_ns: Option<u64>, "Their 99th percentile.";
        urgent_max_ns: Option<u64>, "The longest.";
        urgent_kernels: u64, "Kernels of the urgent task.";
        background_kernels: u64, "Kernels of the other tasks together.";
        background_per_second: f64, "Kernels of the other tasks in a second.";
        drains: u64, "Synchronisations that only the lock asked for.";
        forced: u64, "Times the lock was taken from a holder that did not yield.";
        acquisitions: u64, "Times the lock was acquired.";
        gpu_ns: u64, "Time of all kernels on the device.";
        gpu_percent: f64, "The same as a share of the time measured.";
    }
}

impl Measured {
    /// The urgent task's part; `latencies` are sorted.
    pub fn new(config: &str, seconds: f64, latencies: &[u64]) -> Self {
        let at = |share: f64| {
            let place = (latencies.len() as f64 * share).ceil() as usize;
            latencies.get(place.saturating_sub(1)).copied()
        };
        Self {
            config: config.to_owned(),
            seconds,
            urgent_rounds: latencies.len() as u64,
            urgent_p50_ns: at(0.50),
            urgent_p99_ns: at(0.99),
            urgent_max_ns: latencies.last().copied(),
            ..Self::default()
        }
    }

    /// Fills in what follows from the rest.
    pub fn finish(mut self) -> Self {
        let seconds = self.seconds.max(1e-9);
        let round = |value: f64| (value * 10.0).round() / 10.0;
        self.background_per_second = round(self.background_kernels as f64 / seconds);
        self.gpu_percent = round(self.gpu_ns as f64 / seconds / 1e7);
        self.seconds = (self.seconds * 1000.0).round() / 1000.0;
        self
    }
}

object! {
    /// What `--json` writes.
    pub Document<'a>(rows: &'a [Measured], on_sim: bool) {
        schema_version: u32 = SCHEMA_VERSION, "Increases when a key changes its meaning or is removed.";
        simulated: bool = on_sim, "Whether the device was the simulator's.";
        results: &'a [Measured] = rows, "One entry for each configuration of the plan.";
    }
}

/// As JSON.
pub fn json(rows: &[Measured], simulated: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let document = Document::of(rows, simulated);
    serde_json::to_writer_pretty(Plain::json(&mut *out), &document)?;
    Ok(writeln!(out)?)
}

/// As CSV, one row a configuration.
pub fn csv(rows: &[Measured], out: &mut dyn Write) -> Result<(), Failure> {
    let mut writer = csv::Writer::from_writer(out);
    for row in rows {
        let row = Measured {
            config: cell(&row.config).into_owned(),
            ..row.clone()
        };
        writer
            .serialize(row)
            .map_err(|error| Failure::failed(format!("CSV cannot be written: {error}")))?;
    }
    Ok(writer.flush()?)
}

/// As a table of at most 100 columns.
pub fn table(rows: &[Measured], out: &mut dyn Write) -> Result<(), Failure> {
    let ms =
        |ns: Option<u64>| ns.map_or_else(|| "-".into(), |ns| format!("{:.1}", ns as f64 / 1e6));
    writeln!(
        out,
        "{:<34}{:>9}{:>9}{:>9}{:>9}{:>8}{:>8}{:>7}",
        "", "p50 ms", "p99 ms", "max ms", "others/s", "drains", "forced", "GPU %"
    )?;
    for row in rows {
        writeln!(
            out,
            "{:<34}{:>9}{:>9}{:>9}{:>9.0}{:>8}{:>8}{:>7.1}",
            plain(&row.config),
            ms(row.urgent_p50_ns),
            ms(row.urgent_p99_ns),
            ms(row.urgent_max_ns),
            row.background_per_second,
            row.drains,
            row.forced,
            row.gpu_percent
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_rounds_that_happened() {
        let latencies: Vec<u64> = (1..=200).collect();
        let measured = Measured::new("x", 1.0, &latencies);
        assert_eq!(
            (
                measured.urgent_p50_ns,
                measured.urgent_p99_ns,
                measured.urgent_max_ns
            ),
            (Some(100), Some(198), Some(200))
        );
        assert_eq!(Measured::new("x", 1.0, &[]).urgent_p99_ns, None);
    }

    #[test]
    fn a_configuration_named_like_a_formula_is_text_in_csv_true_in_json_and_one_line_in_the_table()
    {
        let name = "=cmd|'/c calc'!A0\u{1b}[2J\n\u{202e}x";
        let rows = [Measured::new(name, 1.0, &[5]).finish()];
        let mut out = Vec::new();
        csv(&rows, &mut out).expect("memory");
        let mut back = csv::Reader::from_reader(out.as_slice());
        let row = back.records().next().expect("a row").expect("CSV");
        assert_eq!(&row[0], format!("'{name}"));

        out.clear();
        json(&rows, true, &mut out).expect("memory");
        let back: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        assert_eq!(back["results"][0]["config"], name);

        out.clear();
        table(&rows, &mut out).expect("memory");
        let text = String::from_utf8(out).expect("text");
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
    }

    #[test]
    fn every_form_has_every_configuration() {
        let rows = [
            Measured::new("first", 1.0, &[5]).finish(),
            Measured::new("second", 1.0, &[]).finish(),
        ];
        for form in 0..3 {
            let mut out = Vec::new();
            let written = match form {
                0 => table(&rows, &mut out),
                1 => csv(&rows, &mut out),
                _ => json(&rows, true, &mut out),
            };
            written.expect("memory");
            let text = String::from_utf8(out).expect("text");
            assert!(text.contains("first") && text.contains("second"), "{text}");
        }
    }
}
