//! Snapshots as text, one or several: for pipes, scripts and monitors.

use std::io::{self, IsTerminal, Write};

use anyhow::Result;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::options::Format;
use super::state::State;
use gpushare_base::text::plain::{Plain, cell};
use gpushare_observe::document::Document;
use gpushare_sample::ProcessSample;
use gpushare_sample::columns::{COLUMNS, Column, Value};

/// Prints one snapshot. `only` is the one GPU to print.
pub fn print(
    out: &mut impl Write,
    state: &State,
    format: Format,
    only: Option<usize>,
    first: bool,
) -> Result<()> {
    match format {
        Format::Json => json(out, state, only),
        Format::Csv => csv(out, state, first),
        Format::Table => table(out, state),
    }
}

fn json(out: &mut impl Write, state: &State, only: Option<usize>) -> Result<()> {
    let data = state.data();
    let document = Document::of(data, only, processes(state, only), &data.sample);
    serde_json::to_writer(Plain::json(&mut *out), &document)?;
    Ok(writeln!(out)?)
}

/// Returns the processes that the filter and the chosen device leave.
fn processes(state: &State, only: Option<usize>) -> Vec<&ProcessSample> {
    let sample = &state.data().sample;
    let rows = state.rows();
    let listed = |process: &&ProcessSample| {
        let nowhere =
            process.devices.is_empty() && only.is_none() && state.choices.filter.is_empty();
        nowhere || rows.iter().any(|row| std::ptr::eq(row.process, *process))
    };
    sample.processes.iter().filter(listed).collect()
}

fn csv(out: &mut impl Write, state: &State, first: bool) -> Result<()> {
    let sample = &state.data().sample;
    let columns: Vec<&Column> = match &state.choices.columns {
        Some(chosen) => chosen.iter().filter_map(|at| COLUMNS.get(*at)).collect(),
        None => COLUMNS.iter().collect(),
    };
    let mut writer = csv::Writer::from_writer(out);
    if first {
        let keys = columns.iter().map(|column| column.key);
        writer.write_record(std::iter::once("unix_ms").chain(keys))?;
    }
    for row in state.rows() {
        let time = sample.unix_ms.to_string();
        let values: Vec<Value<'_>> = columns.iter().map(|column| (column.value)(&row)).collect();
        let cells = values.iter().map(|value| cell(&value.raw()).into_owned());
        writer.write_record(std::iter::once(time).chain(cells))?;
    }
    Ok(writer.flush()?)
}

/// Prints the header, table and alerts of the screen, as wide as the terminal.
fn table(out: &mut impl Write, state: &State) -> Result<()> {
    let width = match io::stdout().is_terminal() {
        true => crossterm::terminal::size().map_or(120, |(width, _)| width),
        false => 140,
    };
    let look = super::plain_look();
    let height = super::view::text_height(state);
    let area = Rect::new(0, 0, width.max(60), height);
    let mut buffer = Buffer::empty(area);
    super::view::text(&mut buffer, area, state, &look);
    for y in 0..height {
        let line: String = (0..area.width).map(|x| buffer[(x, y)].symbol()).collect();
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
