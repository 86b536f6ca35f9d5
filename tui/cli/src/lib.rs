//! The control program `gpushare`: one file a verb.
//!
//! A verb is an `Args` that clap fills and a `run` that does it, writes to the given output and
//! returns how it ended. A [`Failure`] is printed once, here, as one sentence on standard error,
//! and becomes the exit code.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use gpushare_base::host::guard;
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::plain::Plain;

mod advise;
mod apply;
mod audit;
mod cdi;
pub mod checks;
mod compat;
mod demo;
mod doctor;
mod documents;
mod dra;
mod edits;
mod events;
mod evictions;
mod examples;
mod experiment;
mod export_config;
mod group;
mod hosts;
mod init;
mod kill;
mod metrics;
mod mps;
mod pick;
pub(crate) mod policy;
mod ps;
mod quota;
mod run;
mod segments;
mod serve;
mod share;
mod signals;
mod slurm;
mod table;
pub(crate) mod trace;
mod undo;
mod wrap;

/// How a verb ends.
type Done = Result<Exit, Failure>;

/// Share a GPU: start programs under quotas and a lock, watch them, and change both while they run.
#[derive(Debug, Parser)]
#[command(
    name = "gpushare",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = "gpushare-top is the dashboard: it shows the same figures live and edits the same settings.\n\n\
                  TARGET is a pid, name:LABEL, group:G, user:U or all.\n\
                  Sizes: 8GiB, 8G (= GiB), 8GB, 512M, bytes, 25% of the device. Times: 100us, 5ms, 2s, 10m.\n\
                  Exit codes: 0 done, 1 failed, 2 usage, 4 not permitted, 5 no such target; run returns \
                  the program's own."
)]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

// Who asks for one verb does not wait for the arguments of all: they are half of what a start takes.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
enum Verb {
    Run(run::Args),
    Ps(ps::Args),
    #[command(subcommand)]
    Quota(quota::Verb),
    #[command(subcommand)]
    Policy(policy::Verb),
    #[command(subcommand)]
    Group(group::Verb),
    Set(share::SetArgs),
    Pause(share::PauseArgs),
    Resume(share::ResumeArgs),
    Boost(share::BoostArgs),
    Kill(kill::Args),
    Undo(undo::Args),
    Audit(audit::Args),
    Events(events::Args),
    #[command(subcommand)]
    Trace(trace::Verb),
    Pick(pick::Args),
    #[command(subcommand)]
    Mps(mps::Verb),
    Wrap(wrap::WrapArgs),
    Unwrap(wrap::UnwrapArgs),
    Apply(apply::Args),
    Metrics(metrics::Args),
    ExportConfig(export_config::Args),
    Doctor(doctor::Args),
    Advise(advise::Args),
    Demo(demo::Args),
    Experiment(experiment::Args),
    Serve(serve::Args),
    #[command(subcommand)]
    Cdi(cdi::Verb),
    #[command(subcommand)]
    Slurm(slurm::Verb),
    Dra(dra::Args),
    Compat(compat::Args),
    Init(init::Args),
    Completions(documents::CompletionsArgs),
    Man(documents::ManArgs),
}

/// The command line as help, manual and completions show it. To read one it need not have the examples: they cost half of that.
fn command() -> clap::Command {
    examples::add(whole(Cli::command()))
}

/// With the arguments of each verb, which clap else makes for the one that is called.
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

/// Does what the command line says.
pub fn main() -> ExitCode {
    if let Some(code) = guard::asked(std::env::args_os()) {
        return ExitCode::from(code);
    }
    let words: Vec<OsString> = std::env::args_os().collect();
    if let Some((role, path)) = compat::called(&words) {
        return end(|out| role(&path, &words[1..], out));
    }
    let read = Cli::command()
        .try_get_matches_from(&words)
        .or_else(|_| command().try_get_matches_from(&words))
        .and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match read {
        Ok(cli) => cli,
        Err(error) => return Exit::of_words(&error).into(),
    };
    end(|out| dispatch(cli.verb, out))
}

/// Does it, and says how it ended.
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

fn dispatch(verb: Verb, out: &mut dyn Write) -> Done {
    match verb {
        Verb::Run(args) => run::run(args),
        Verb::Ps(args) => ps::run(&args, out),
        Verb::Quota(verb) => quota::run(verb, out),
        Verb::Policy(verb) => policy::run(verb, out),
        Verb::Group(verb) => group::run(verb, out),
        Verb::Set(args) => share::set(&args, out),
        Verb::Pause(args) => share::pause(&args, out),
        Verb::Resume(args) => share::resume(&args, out),
        Verb::Boost(args) => share::boost(&args, out),
        Verb::Kill(args) => kill::run(&args, out),
        Verb::Undo(args) => undo::run(&args, out),
        Verb::Audit(args) => audit::run(&args, out),
        Verb::Events(args) => events::run(&args, out),
        Verb::Trace(verb) => trace::run(verb, out),
        Verb::Pick(args) => pick::run(&args, out),
        Verb::Mps(verb) => mps::run(&verb, out),
        Verb::Wrap(args) => wrap::wrap(&args, out),
        Verb::Unwrap(args) => wrap::unwrap(&args, out),
        Verb::Apply(args) => apply::run(&args, out),
        Verb::Metrics(args) => metrics::run(&args, out),
        Verb::ExportConfig(args) => export_config::run(&args, out),
        Verb::Doctor(args) => doctor::run(&args, out),
        Verb::Advise(args) => advise::run(&args, out),
        Verb::Demo(args) => demo::run(&args, out),
        Verb::Experiment(args) => experiment::run(&args, out),
        Verb::Cdi(verb) => cdi::run(&verb, out),
        Verb::Slurm(verb) => slurm::run(&verb, out),
        Verb::Dra(args) => match dra::run(&args)? {},
        Verb::Serve(args) => serve::run(&args, out),
        Verb::Compat(args) => compat::run(&args, out),
        Verb::Init(args) => init::run(&args, out),
        Verb::Completions(args) => documents::completions(&args, out),
        Verb::Man(args) => documents::man(&args, out),
    }
}

/// Writes a document for programs, which is all there is to be written.
fn json(out: &mut dyn Write, document: &impl serde::Serialize) -> Done {
    // In one piece: standard output writes each line by itself.
    let mut text = serde_json::to_vec_pretty(document)?;
    text.push(b'\n');
    Plain::json(out).write_all(&text)?;
    Ok(Exit::Done)
}

/// Says something to the person beside the output.
fn note(sentence: &str) {
    let _ = writeln!(Plain::new(io::stderr()), "gpushare: {sentence}");
}
