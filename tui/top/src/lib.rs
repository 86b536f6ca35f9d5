//! `gpushare-top`: the processes that hold a GPU or wait for it, for how long and since when.
//!
//! Data flows one way: a [`gpushare_observe::source::Source`] makes samples, [`state`] takes them in, [`view`] draws
//! the state; [`moments`] loads what it shows of the past from a recording. Keys change the state and send edits to [`operator`], a thread that writes and waits for the
//! acknowledgement while the screen stays responsive. Columns, keys, fields and rules are tables:
//! [`gpushare_sample::columns`], [`keys`], [`gpushare_observe::findings`].

#![forbid(unsafe_code)]

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{CommandFactory as _, FromArgMatches as _};
use jiff::tz::TimeZone;
use shm_layout::{OpenError, locate_existing};

pub mod app;
pub mod config;
pub mod dialog;
pub mod hosts;
pub mod keys;
pub mod moments;
pub mod once;
pub mod operator;
pub mod options;
pub mod overlay;
pub mod palette;
pub mod rules;
pub mod run;
pub mod screencast;
pub mod state;
pub mod svg;
pub mod terminal;
pub mod theme;
mod ticks;
pub mod view;
pub mod web;

use config::{Background, Config};
use gpushare_base::host::demo;
use gpushare_base::host::output;
use gpushare_base::host::pace::Pace;
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::plain::Plain;
use gpushare_observe::filter::Filter;
use gpushare_observe::source::Source;
use gpushare_observe::source::live::Live;
use gpushare_observe::source::replay::{Recorder, Replay};
use gpushare_observe::source::ring;
use gpushare_sample::columns;
use options::Options;
use palette::{Depth, Palette, When};
use run::{Dashboard, End};
use state::State;
use view::Look;

/// Default time between two snapshots, in seconds.
const DELAY: f64 = 0.25;
/// The longest default time between two snapshots.
const LONGEST_DELAY: Duration = Duration::from_secs(2);
/// By default a snapshot and its frame may cost the time until the next one divided by this.
const SHARE: u32 = 400;

/// Runs the whole program. `--version` prints `version`.
pub fn main(version: &'static str) -> ExitCode {
    let read = Options::command().version(version).try_get_matches();
    let options = match read.and_then(|words| Options::from_arg_matches(&words)) {
        Ok(options) => options,
        Err(error) => return Exit::of_words(&error).into(),
    };
    match work(&options) {
        Ok(code) => code,
        Err(error) => {
            say(&sentence(&error));
            let failure = error.downcast_ref::<Failure>().map(|failure| failure.exit);
            let opened = error.downcast_ref::<OpenError>();
            let exit = failure.unwrap_or(match opened.is_some_and(OpenError::not_permitted) {
                true => Exit::NotPermitted,
                false => Exit::Failed,
            });
            exit.into()
        }
    }
}

/// Prints a message for the user to standard error.
fn say(sentence: &str) {
    let sentence = shm_layout::text::without_error_numbers(sentence);
    let _ = writeln!(Plain::new(io::stderr()), "gpushare-top: {sentence}");
}

/// Reports a wrong value on the command line.
fn usage(sentence: &str) -> ExitCode {
    say(sentence);
    Exit::Usage.into()
}

/// Joins an error and its causes in one sentence. A cause that its consequence has named already is not repeated.
fn sentence(error: &anyhow::Error) -> String {
    let mut said = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if said.is_empty() {
            said = cause;
        } else if !said.contains(&cause) {
            said += ": ";
            said += &cause;
        }
    }
    said
}

fn work(options: &Options) -> Result<ExitCode> {
    if options.tied {
        // Otherwise it would go on drawing over the terminal's next screen.
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    }
    if options.print_config {
        return print_config(options);
    }
    let Chosen {
        mut state,
        look,
        delay,
        speed,
        keeps_ring,
    } = match chosen(options) {
        Ok(chosen) => chosen,
        Err(why) => return Ok(usage(&why)),
    };
    let thrift = delay.is_none();
    let delay = delay.unwrap_or(DELAY);
    let pace = Duration::from_secs_f64(delay);
    if !options.hosts.is_empty() {
        return many(options, delay, &look, state.choices.read_only);
    }
    if options.replay.is_none()
        && let Some(sentence) = demo::enter()?
    {
        say(&sentence);
    }
    if let Some(address) = options.web {
        let dir = segment_dir()?;
        state.choices.wanted_gpu = options.gpu;
        let source = source(options, &dir, &look, speed)?.source;
        web::serve(address, source, state, look, pace)?;
        return Ok(Exit::Done.into());
    }
    let recorder = options
        .record
        .as_deref()
        .map(Recorder::create)
        .transpose()?;
    let dir = segment_dir()?;
    let alone = options.export.is_some() || options.screencast.is_some();
    if options.once || options.batch || is_dumb() && !alone {
        return once::run(options, state, recorder, &dir, pace);
    }
    if !io::stdout().is_terminal() && !alone {
        bail!("this is not a terminal; print one snapshot with --once, or a series with -b");
    }
    let Opened {
        mut source,
        recording,
        at_ns,
    } = source(options, &dir, &look, speed)?;
    state.choices.wanted_gpu = options.gpu;
    if alone {
        return write(options, &mut *source, state, &look, (&dir, at_ns));
    }
    let ring = match keeps_ring {
        true => start_ring(&dir, &mut state),
        false => None,
    };
    let end = Dashboard {
        source,
        recorder,
        ring,
        state,
        look,
        pace,
        thrift: thrift.then(|| Pace::new(pace, LONGEST_DELAY, SHARE).by_mean()),
        dir,
        recording,
    }
    .run()?;
    Ok(ended(end))
}

fn print_config(options: &Options) -> Result<ExitCode> {
    Ok(match config::print(options.config.as_deref()) {
        Ok(text) => {
            Plain::new(io::stdout()).write_all(text.as_bytes())?;
            Exit::Done.into()
        }
        Err(error) => usage(&sentence(&error)),
    })
}

/// The choices of the command line and the settings.
struct Chosen {
    state: State,
    look: Look,
    /// Seconds between two snapshots; `None` for the default, which grows where they are costly.
    delay: Option<f64>,
    speed: f64,
    /// Set if the last hour is recorded.
    keeps_ring: bool,
}

/// Reads the settings, and checks the values on the command line.
fn chosen(options: &Options) -> Result<Chosen, String> {
    let read = Config::read(options.config.as_deref());
    let read = read.and_then(|config| Ok((config.order()?, config)));
    let (order, config) = read.map_err(|error| sentence(&error))?;
    let delay = options.delay.or(config.delay);
    if let Some(delay) = delay.filter(|delay| !(0.05..=3600.0).contains(delay)) {
        return Err(format!(
            "a delay of {delay} s is out of range; give 0.05 to 3600"
        ));
    }
    let speed = options.speed.unwrap_or(1.0);
    if !(0.1..=100.0).contains(&speed) {
        return Err(format!(
            "a speed of {speed} is out of range; give 0.1 to 100"
        ));
    }
    Ok(Chosen {
        state: state(options, &config, &order)?,
        look: look(options, &config),
        delay,
        speed,
        keeps_ring: options.replay.is_none() && !options.no_ring && config.ring != Some(false),
    })
}

/// Returns the state at the start.
fn state(options: &Options, config: &Config, order: &[(usize, bool)]) -> Result<State, String> {
    let mut state = State::default();
    state.watch_by(config.rules.clone());
    state.choices.keymap = config.keymap.clone();
    state.choices.read_only = options.read_only
        || config.read_only
        || options.replay.is_some() && options.press.is_empty();
    if let Some((sort, descending)) = order.first() {
        (state.choices.sort, state.choices.descending) = (*sort, *descending);
        state.choices.then = order.get(1).copied();
    }
    if let Some(text) = options.filter.as_ref().or(config.filter.as_ref()) {
        state.choices.filter = Filter::parse(text)?;
    }
    if let Some(keys) = options.fields.as_ref().or(config.fields.as_ref()) {
        state.choices.columns = Some(columns::positions(keys)?);
    }
    Ok(state)
}

/// Returns the colours, marks and time zone of the screen.
fn look(options: &Options, config: &Config) -> Look {
    let when = options
        .color
        .or(config.color.map(When::from))
        .unwrap_or_default();
    let ascii = options.ascii || config.ascii;
    let background = config.background;
    let light = background.map(|background| background == Background::Light);
    let palette = match options.web {
        // A browser has all colours and characters.
        Some(_) => Palette::new(Depth::True, false, ascii),
        None => Palette::of_this_terminal(when, ascii, light),
    };
    let palette = palette.with_theme(config.colours).with_own(&config.colors);
    let palette = match options.theme {
        Some(theme) => palette.with_theme(theme),
        None => palette,
    };
    let zone = TimeZone::system();
    Look { palette, zone }
}

/// A source of samples.
struct Opened {
    source: Box<dyn Source>,
    /// The files of a recording.
    recording: Vec<PathBuf>,
    /// The chosen moment of a recording.
    at_ns: Option<u64>,
}

/// Opens the source that the options choose.
fn source(options: &Options, dir: &Path, look: &Look, speed: f64) -> Result<Opened> {
    let Some(path) = &options.replay else {
        return Ok(Opened {
            source: Box::new(Live::new(dir, !options.no_nvml)),
            recording: Vec::new(),
            at_ns: None,
        });
    };
    let recording = parts(path, dir)?;
    let mut replay = Replay::open_parts(recording.clone())?.at_speed(speed);
    let at_ns = start(&mut replay, options.at.as_deref(), &look.zone)?;
    Ok(Opened {
        source: Box::new(replay),
        recording,
        at_ns,
    })
}

/// Starts the recording of the last hour, or warns that it cannot.
fn start_ring(dir: &Path, state: &mut State) -> Option<ring::Ring> {
    match ring::place(dir).and_then(|place| ring::Ring::start(&place)) {
        Ok(started) => started,
        Err(error) => {
            let why = format!("the last hour is not recorded: {}", sentence(&error));
            app::warn(state, &why);
            None
        }
    }
}

fn ended(end: End) -> ExitCode {
    match end {
        End::Quit => Exit::Done.into(),
        // The exit code with which a shell reports a program that a signal ended.
        End::Signal(number) => ExitCode::from(128 + number),
    }
}

/// Shows other machines instead of this one.
fn many(options: &Options, delay: f64, look: &Look, read_only: bool) -> Result<ExitCode> {
    let hosts = match hosts::read(&options.hosts) {
        Ok(hosts) => hosts,
        Err(why) => return Ok(usage(&why)),
    };
    let pace = Duration::from_secs_f64(delay.max(1.0));
    if options.once || is_dumb() {
        let format = options.format.unwrap_or_default();
        return Ok(hosts::print(hosts, pace, format)?.into());
    }
    if !io::stdout().is_terminal() {
        bail!("this is not a terminal; print the machines once with --once");
    }
    Ok(ended(hosts::run(hosts, pace, look, read_only)?))
}

/// Returns the files of a recording; `last` is the last hour of these segments.
fn parts(path: &Path, dir: &Path) -> Result<Vec<PathBuf>> {
    match path == Path::new("last") {
        true => ring::parts(&ring::place(dir)?),
        false => Ok(vec![path.to_owned()]),
    }
}

/// Starts a recording a little before the chosen moment, and returns the moment.
fn start(replay: &mut Replay, at: Option<&str>, zone: &TimeZone) -> Result<Option<u64>> {
    let Some(at) = at else {
        return Ok(None);
    };
    let moment_ns = screencast::at(at, replay.span()?, zone)?;
    replay.start_at(moment_ns)?;
    Ok(Some(moment_ns))
}

/// Writes the files of `--export` and `--screencast`.
fn write(
    options: &Options,
    source: &mut dyn Source,
    mut state: State,
    look: &Look,
    (dir, at_ns): (&Path, Option<u64>),
) -> Result<ExitCode> {
    let save =
        |path: &Path, bytes: &[u8]| output::whole_file(path, |out| Ok(out.write_all(bytes)?));
    if let Some(path) = options.screencast.as_ref().or(options.export.as_ref()) {
        // A screencast takes time, so a wrong file name is reported first.
        output::check(path)?;
    }
    // The lanes show the time before the moment.
    while at_ns.is_some_and(|at_ns| state.live_ns() < at_ns)
        && let Some(sample) = source.next()?
    {
        state.update(sample);
    }
    if let Some(path) = &options.screencast {
        let film = screencast::screencast(
            source,
            &mut state,
            look,
            options.size,
            (&options.press, dir),
        )?;
        save(path, film.as_bytes())?;
        return Ok(Exit::Done.into());
    }
    if let Some(path) = &options.export {
        let form = match screencast::Form::of(path) {
            Ok(form) => form,
            Err(why) => return Ok(usage(&why)),
        };
        if at_ns.is_none()
            && let Some(sample) = source.next()?
        {
            state.update(sample);
        }
        state.choices.keyless = form == screencast::Form::Html;
        save(path, &screencast::moment(&state, look, options.size, form)?)?;
    }
    Ok(Exit::Done.into())
}

/// Returns the segment directory; a missing one is waited for.
fn segment_dir() -> Result<PathBuf> {
    match locate_existing() {
        Ok(dir) => Ok(dir.path),
        Err(OpenError::Missing { path }) => Ok(path),
        Err(error) => Err(error.into()),
    }
}

/// Reports whether the output is a terminal that cannot place text. Such a terminal gets lines, as with `-b`.
fn is_dumb() -> bool {
    let term = std::env::var("TERM").unwrap_or_default();
    io::stdout().is_terminal() && matches!(term.as_str(), "" | "dumb")
}
