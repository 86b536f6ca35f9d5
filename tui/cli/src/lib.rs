//! The control program `gpushare`: one file a verb.
//!
//! A verb is an `Args` that clap fills, and a `run` that does the work, writes to the given output and returns the exit
//! code. A [`Failure`] is printed once, here, as one sentence on standard error, and becomes the exit code.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use gpushare_base::host::{demo, guard};
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::plain::Plain;

mod change;
mod segments;
mod setup;
mod signals;
mod start;
mod table;
mod watch;

/// Result of a verb.
type Done = Result<Exit, Failure>;

/// Share a GPU: start programs under quotas and a lock, watch them, and change both while they run.
#[derive(Debug, Parser)]
#[command(
    name = "gpushare",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = "New here: gpushare demo, then gpushare help guide first-ten-minutes.\n\
                  gpushare-top is the dashboard: it shows the same figures live and edits the same settings.\n\n\
                  TARGET is a pid, name:LABEL, group:G, user:U or all.\n\
                  Sizes: 8GiB, 8G (= GiB), 8GB, 512M, bytes, 25% of the device. Times: 100us, 5ms, 2s, 10m.\n\
                  Exit codes: 0 done, 1 failed, 2 usage, 4 not permitted, 5 no such target; run returns \
                  the program's own."
)]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

// The arguments of a verb are built only for the verb that is called, because those of all verbs take half of the start's
// time.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
enum Verb {
    Run(start::run::Args),
    Ps(watch::ps::Args),
    #[command(subcommand)]
    Quota(change::quota::Verb),
    #[command(subcommand)]
    Policy(change::policy::Verb),
    #[command(subcommand)]
    Group(change::group::Verb),
    Set(change::share::SetArgs),
    Pause(change::share::PauseArgs),
    Resume(change::share::ResumeArgs),
    Pin(change::pin::PinArgs),
    Unpin(change::pin::UnpinArgs),
    Boost(change::share::BoostArgs),
    Kill(change::kill::Args),
    Tune(change::tune::Args),
    Undo(change::undo::Args),
    Audit(watch::audit::Args),
    Events(watch::events::Args),
    #[command(subcommand)]
    Trace(watch::trace::Verb),
    Pick(start::pick::Args),
    #[command(subcommand)]
    Mps(start::mps::Verb),
    Wrap(start::wrap::WrapArgs),
    Unwrap(start::wrap::UnwrapArgs),
    Apply(change::apply::Args),
    Metrics(watch::metrics::Args),
    ExportConfig(change::export_config::Args),
    Doctor(setup::doctor::Args),
    Advise(watch::advise::Args),
    Demo(start::demo::Args),
    Experiment(start::experiment::Args),
    Serve(setup::serve::Args),
    #[command(subcommand)]
    Cdi(setup::cdi::Verb),
    #[command(subcommand)]
    Slurm(start::slurm::Verb),
    Dra(setup::dra::Args),
    Compat(start::compat::Args),
    Init(setup::init::Args),
    Completions(setup::documents::CompletionsArgs),
    Man(setup::documents::ManArgs),
}

/// Returns the command line as help, manual and completions show it. Parsing does not need the examples, which take half of
/// the time.
fn command() -> clap::Command {
    setup::help::group(setup::examples::add(whole(Cli::command())))
}

/// Adds the arguments of each verb, which clap otherwise builds only for the verb that is called.
fn whole(mut command: clap::Command) -> clap::Command {
    let names = command
        .get_subcommands()
        .map(|verb| verb.get_name().to_owned());
    let names: Vec<String> = names.collect();
    if names.is_empty() {
        command.build();
    }
    names
        .iter()
        .fold(command, |command, name| command.mut_subcommand(name, whole))
}

/// Runs the command line. `--version` prints `version`; the manual pages show `date`, which is empty if unknown.
pub fn main(version: &'static str, date: &str) -> ExitCode {
    if let Some(code) = guard::asked(std::env::args_os()) {
        return ExitCode::from(code);
    }
    let words: Vec<OsString> = std::env::args_os().collect();
    if let Some((role, path)) = start::compat::called(&words) {
        return end(|out| role(&path, &words[1..], out));
    }
    match setup::complete::answer(|| whole(Cli::command())) {
        Ok(false) => {}
        answered => return end(|_| answered.map(|_| Exit::Done)),
    }
    if let Some(failure) = setup::help::dashboard(&words) {
        return end(|_| Err(failure));
    }
    if let Some(page) = setup::help::page(&words) {
        return end(|out| Ok(out.write_all(page?.as_bytes()).map(|()| Exit::Done)?));
    }
    let read = Cli::command()
        .version(version)
        .try_get_matches_from(&words)
        .or_else(|_| command().version(version).try_get_matches_from(&words))
        .and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match read {
        Ok(cli) => cli,
        Err(error) => {
            if let Some(failure) = setup::help::unknown_option(&error, &words) {
                return end(|_| Err(failure));
            }
            return Exit::of_words(&setup::help::correct(error, &words)).into();
        }
    };
    end(|out| {
        if cli.verb.reaches_the_demo()
            && let Some(sentence) = demo::enter()?
        {
            note(&sentence);
        }
        dispatch(cli.verb, date, out)
    })
}

impl Verb {
    /// Returns true if the verb watches or edits running programs, and so also those of a demonstration.
    fn reaches_the_demo(&self) -> bool {
        matches!(
            self,
            Verb::Ps(_)
                | Verb::Quota(_)
                | Verb::Policy(_)
                | Verb::Group(_)
                | Verb::Set(_)
                | Verb::Pause(_)
                | Verb::Resume(_)
                | Verb::Pin(_)
                | Verb::Unpin(_)
                | Verb::Boost(_)
                | Verb::Kill(_)
                | Verb::Tune(_)
                | Verb::Undo(_)
                | Verb::Audit(_)
                | Verb::Events(_)
                | Verb::Trace(_)
                | Verb::Advise(_)
        )
    }
}

/// Runs the verb, prints a failure, and returns the exit code.
fn end(work: impl FnOnce(&mut dyn Write) -> Done) -> ExitCode {
    let mut out = Plain::new(io::stdout().lock());
    let done = work(&mut out).and_then(|exit| {
        out.flush()?;
        Ok(exit)
    });
    match done {
        Ok(exit) => exit.into(),
        Err(failure) if failure.exit == Exit::Done => Exit::Done.into(),
        Err(failure) => {
            note(&failure.sentence);
            failure.exit.into()
        }
    }
}

fn dispatch(verb: Verb, date: &str, out: &mut dyn Write) -> Done {
    match verb {
        Verb::Run(args) => start::run::run(args),
        Verb::Ps(args) => watch::ps::run(&args, out),
        Verb::Quota(verb) => change::quota::run(verb, out),
        Verb::Policy(verb) => change::policy::run(verb, out),
        Verb::Group(verb) => change::group::run(verb, out),
        Verb::Set(args) => change::share::set(&args, out),
        Verb::Pause(args) => change::share::pause(&args, out),
        Verb::Resume(args) => change::share::resume(&args, out),
        Verb::Pin(args) => change::pin::pin(&args, out),
        Verb::Unpin(args) => change::pin::unpin(&args, out),
        Verb::Boost(args) => change::share::boost(&args, out),
        Verb::Kill(args) => change::kill::run(&args, out),
        Verb::Tune(args) => change::tune::run(&args, out),
        Verb::Undo(args) => change::undo::run(&args, out),
        Verb::Audit(args) => watch::audit::run(&args, out),
        Verb::Events(args) => watch::events::run(&args, out),
        Verb::Trace(verb) => watch::trace::run(verb, out),
        Verb::Pick(args) => start::pick::run(&args, out),
        Verb::Mps(verb) => start::mps::run(&verb, out),
        Verb::Wrap(args) => start::wrap::wrap(&args, out),
        Verb::Unwrap(args) => start::wrap::unwrap(&args, out),
        Verb::Apply(args) => change::apply::run(&args, out),
        Verb::Metrics(args) => watch::metrics::run(&args, out),
        Verb::ExportConfig(args) => change::export_config::run(&args, out),
        Verb::Doctor(args) => setup::doctor::run(&args, out),
        Verb::Advise(args) => watch::advise::run(&args, out),
        Verb::Demo(args) => start::demo::run(&args, out),
        Verb::Experiment(args) => start::experiment::run(&args, out),
        Verb::Cdi(verb) => setup::cdi::run(&verb, out),
        Verb::Slurm(verb) => start::slurm::run(&verb, out),
        Verb::Dra(args) => match setup::dra::run(&args)? {},
        Verb::Serve(args) => setup::serve::run(&args, out),
        Verb::Compat(args) => start::compat::run(&args, out),
        Verb::Init(args) => setup::init::run(&args, out),
        Verb::Completions(args) => setup::documents::completions(&args, out),
        Verb::Man(args) => setup::documents::man(&args, date, out),
    }
}

/// Writes a JSON document as the whole output.
fn json(out: &mut dyn Write, document: &impl serde::Serialize) -> Done {
    // Written in one piece, because standard output writes each line separately.
    let mut text = serde_json::to_vec_pretty(document)?;
    text.push(b'\n');
    Plain::json(out).write_all(&text)?;
    Ok(Exit::Done)
}

/// Writes a message to standard error.
fn note(sentence: &str) {
    let sentence = shm_layout::text::without_error_numbers(sentence);
    let _ = writeln!(Plain::new(io::stderr()), "gpushare: {sentence}");
}
