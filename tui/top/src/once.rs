//! Snapshots as text, one or several: for pipes, scripts and monitors.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use jiff::tz::TimeZone;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use super::operator::{News, Operator};
use super::options::{Format, Options};
use super::palette::{Depth, Palette, When};
use super::rules::runner::Runner;
use super::state::State;
use super::view::Look;
use super::{parts, say, sentence, start};
use gpushare_base::text::exit::Exit;
use gpushare_base::text::plain::{Plain, cell};
use gpushare_observe::document::Document;
use gpushare_observe::finding::Severity;
use gpushare_observe::source::Source;
use gpushare_observe::source::live::Live;
use gpushare_observe::source::replay::{Recorder, Replay};
use gpushare_sample::ProcessSample;
use gpushare_sample::columns::{COLUMNS, Column, Value};

/// Time that a program that prints waits for NVML.
const NVML: Duration = Duration::from_secs(3);

/// Prints for `--once` and `-b`.
pub(super) fn run(
    options: &Options,
    mut state: State,
    mut recorder: Option<Recorder>,
    dir: &Path,
    pace: Duration,
) -> Result<ExitCode> {
    let mut source: Box<dyn Source> = match &options.replay {
        Some(path) => {
            let mut replay = Replay::open_parts(parts(path, dir)?)?;
            start(&mut replay, options.at.as_deref(), &TimeZone::system())?;
            Box::new(replay)
        }
        None => {
            let live = Live::new(dir, !options.no_nvml);
            live.settle(NVML);
            Box::new(live)
        }
    };
    state.choices.all_gpus = options.gpu.is_none();
    let snapshots = match options.once {
        true => 1,
        false => options.snapshots.unwrap_or(u64::MAX),
    };
    let format = options.format.unwrap_or_default();
    let mut out = io::stdout().lock();
    let mut hands = Hands::new(dir);
    for number in 0..snapshots {
        if number > 0 {
            std::thread::sleep(source.pace().unwrap_or(pace));
        }
        let Some(sample) = source.next()? else { break };
        if let Some(Err(why)) = recorder.as_mut().map(|recorder| recorder.add(&sample)) {
            say(&format!("the recording has ended: {}", sentence(&why)));
            recorder = None;
        }
        state.update(sample);
        // With `--once` a rule without a duration would act at each call.
        if options.batch {
            hands.act(&mut state);
        }
        if let Some(gpu) = options.gpu {
            let devices = state.data().sample.devices.len();
            if gpu >= devices {
                say(&format!("there is no GPU {gpu}; there are {devices}"));
                return Ok(Exit::NoSuchTarget.into());
            }
            state.choices.gpu = gpu;
        }
        match print(&mut out, &state, format, options.gpu, number == 0) {
            Err(error) if is_broken_pipe(&error) => return Ok(Exit::Done.into()),
            printed => printed?,
        }
        out.flush()?;
    }
    let mut alerts = state.data().alerts.iter();
    let alarmed = alerts.any(|alert| alert.kind.severity == Severity::Warning);
    Ok(match options.check && alarmed {
        true => Exit::Alert.into(),
        false => Exit::Done.into(),
    })
}

/// Runs the actions of the settings' rules while lines are printed: all but bells and notifications.
struct Hands {
    dir: PathBuf,
    started: Option<(Operator, Runner, UnboundedReceiver<News>)>,
}

impl Hands {
    fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            started: None,
        }
    }

    fn act(&mut self, state: &mut State) {
        let may_edit = !state.choices.read_only;
        for action in state.take_actions() {
            let (operator, runner, _) = self.started.get_or_insert_with(|| {
                let (sender, news) = mpsc::unbounded_channel();
                let operator = Operator::start(self.dir.clone(), sender.clone());
                (operator, Runner::start(self.dir.clone(), sender), news)
            });
            if let Some(said) = runner.act(action, operator, may_edit).said {
                say(&said);
            }
        }
        let Some((.., news)) = &mut self.started else {
            return;
        };
        while let Ok(news) = news.try_recv() {
            match news {
                News::Note(sentence) | News::Warning(sentence) => say(&sentence),
                News::Remedied(sentence) => {
                    say(&format!("{sentence}; gpushare undo takes it back"))
                }
                _ => {}
            }
        }
    }
}

/// Reports whether the reader of the output has gone.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let gone = |kind| kind == io::ErrorKind::BrokenPipe;
    let plain = error.downcast_ref::<io::Error>();
    let json = error.downcast_ref::<serde_json::Error>();
    let csv = error.downcast_ref::<csv::Error>();
    plain.is_some_and(|error| gone(error.kind()))
        || json.is_some_and(|error| error.io_error_kind().is_some_and(gone))
        || csv.is_some_and(
            |error| matches!(error.kind(), csv::ErrorKind::Io(error) if gone(error.kind())),
        )
}

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
    let look = plain_look();
    let width = width.max(60);
    let height = super::view::text_height(state, width);
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    super::view::text(&mut buffer, area, state, &look);
    for y in 0..height {
        let line: String = (0..area.width).map(|x| buffer[(x, y)].symbol()).collect();
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Returns the look of text that is printed and not drawn.
fn plain_look() -> Look {
    let palette = Palette::of_this_terminal(When::Never, false, None);
    debug_assert_eq!(palette.depth(), Depth::Mono);
    Look {
        palette,
        zone: TimeZone::system(),
    }
}
