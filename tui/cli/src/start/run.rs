//! `gpushare run`: starts a program under gpushare.
//!
//! It replaces itself by the program, so pid, signals, terminal and exit code are the program's own. With `--trace` it
//! stays as the program's parent instead ([`traced`]), and writes the file at the end.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::change::apply;
use crate::{Done, note};
use gpushare_base::host::programs::OWN;
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::shell;
use gpushare_base::text::{units, uuids};
use gpushare_launch::exclusive;
use gpushare_launch::program::{Launch, Settings, misspelt, wrong_value};
use shm_layout::environment::Environment;
use shm_layout::variables;
use shm_layout::{OnFull, OpenError, Operator, Reserve, SegmentDir};

mod segments;
mod traced;

/// Start a program under gpushare: counted, limited, and queued for the GPU when others want it
///
/// Everything is checked before the program starts. The program keeps gpushare's pid and receives
/// signals itself; its exit code is returned. If nothing can be enforced (no space or permission for
/// the segments; a program that is setuid, statically linked, built for musl or for another
/// processor), it starts without limits and one message says so; but if an option here or a variable
/// requests a limit, it starts only with --best-effort. A bad value, also in a variable of another
/// tool, and an amount for a device that the program will not see are usage errors.
///
/// If gpushare mps runs in the same directory, the program joins it, unless --no-mps is given or
/// CUDA_MPS_PIPE_DIRECTORY is set.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: the program's own; 126 when it cannot be executed, 127 when it is not found."
)]
pub struct Args {
    #[command(flatten)]
    settings: Settings,
    /// Trace the program and its children; after it ends, FILE holds JSON for ui.perfetto.dev
    ///
    /// gpushare stays as the program's parent, so the program has another pid. With GPUSHARE_TRACE=N in
    /// the environment, each process has room for N records instead of 262144.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Wait for a GPU: with the free memory that --memory and --reserve or their variables ask for, or with --exclusive one that no process uses
    #[arg(long)]
    wait: bool,
    /// Give up after this time [default: never]
    #[arg(long, value_name = "TIME", requires = "wait")]
    timeout: Option<String>,
    /// Take a GPU that no process uses, and keep other picks away from it until the program ends
    ///
    /// It keeps away what asks gpushare pick or run --gpu auto. A program that is told to use the device uses it all the same.
    #[arg(long)]
    exclusive: bool,
    /// The program and its arguments
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required = true,
        value_name = "CMD"
    )]
    command: Vec<OsString>,
}

pub fn run(args: Args) -> Done {
    let settings = &args.settings;
    // Checked before the segments are made.
    settings.variables()?;
    let environment = settings.environment()?;
    for sentence in misspelt::sentences() {
        note(&sentence);
    }
    let segments = segments::ready();
    if let (Some(_), None, Some(why)) = (&settings.sim, &segments.dir, &segments.unusable) {
        return Err(Failure {
            exit: why.exit,
            sentence: format!(
                "--sim needs a directory for the simulator: {}",
                why.sentence
            ),
        });
    }
    if let Some(dir) = segments.are_new() {
        // Its output is discarded, because standard output belongs to the program.
        if let Err(failure) = apply::standing(dir, &mut std::io::sink()) {
            note(&format!(
                "the standing settings are not all in force: {failure}"
            ));
        }
    }
    let mut launch = Launch::prepare(&args.command, settings, segments.dir.as_ref())?;
    if let Some(unusable) = &segments.unusable {
        allow(settings, unusable)?;
        launch.without_library();
    } else if let Some(why) = launch.futile.take() {
        allow(settings, &Failure::failed(why))?;
    } else if let Some(full) = segments.full() {
        allow(settings, &full)?;
        if settings.best_effort {
            // The library would refuse to initialise the driver, because it cannot enforce the limits.
            launch.without_library();
        }
    }
    let _held = choose(&args, &mut launch, segments.dir.as_ref())?;
    if let Some(dir) = &segments.dir {
        launch.join_mps(&dir.path, settings, &environment)?;
    }
    if segments.unusable.is_none() {
        wait_for_reserve(&environment, settings, &launch, segments.dir.as_ref())?;
    }
    fits(environment, settings, &launch)?;
    if let Some(group) = settings
        .said(variables::GROUP)
        .filter(|group| segments.unusable.is_none() && !segments.defines(group))
    {
        note(&format!(
            "group {group} has no limits yet; gpushare group create {group} memory=SIZE sets them"
        ));
    }
    for warning in &launch.warnings {
        note(warning);
    }
    if segments.unusable.is_none() && !launch.has_driver() {
        note(&no_driver());
    }
    if let Some(file) = &args.trace {
        return match (&segments.dir, &segments.unusable) {
            (Some(dir), None) => traced::run(launch, file, dir),
            (_, unusable) => Err(Failure {
                exit: unusable.as_ref().map_or(Exit::Failed, |why| why.exit),
                sentence:
                    "the program was not started, because it cannot be traced without segments; omit --trace"
                        .into(),
            }),
        };
    }
    become_it(launch).map(|never| match never {})
}

/// Returns the sentence for a machine without a driver, with the same command on the simulated GPU.
fn no_driver() -> String {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let is_program = words
        .get(2)
        .is_some_and(|word| !word.as_encoded_bytes().starts_with(b"-"));
    // Without the dashes, the program's name would be read as the scenario.
    let simulated = if is_program {
        &["--sim", "--"][..]
    } else {
        &["--sim"]
    };
    let at = words.len().min(2);
    words.splice(at..at, simulated.iter().map(OsString::from));
    format!(
        "found no NVIDIA driver here, so the program will find no GPU; on a simulated one: {}",
        shell::line(words.into_iter())
    )
}

/// Decides about a program for which nothing can be enforced. If a limit was asked for, the start is refused, because
/// others rely on it. Otherwise the program starts with a warning.
fn allow(settings: &Settings, why: &Failure) -> Result<(), Failure> {
    let limits = settings.limits();
    if limits.is_empty() || settings.best_effort {
        note(&format!(
            "the program runs uncounted and without limits: {}",
            why.sentence
        ));
        return Ok(());
    }
    Err(Failure {
        exit: why.exit,
        sentence: format!(
            "the program was not started, because {} cannot be enforced: {} (--best-effort starts it without limits)",
            limits.join(", "),
            why.sentence
        ),
    })
}

fn become_it(launch: Launch) -> Result<Infallible, Failure> {
    Err(launch.become_it())
}

/// Refuses an amount for a device that the program will not see, because the limit would apply to no device. If NVML does
/// not report the number of devices, the library reports the error when the program initialises CUDA.
fn fits(mut environment: Environment, settings: &Settings, launch: &Launch) -> Result<(), Failure> {
    if settings.best_effort || environment.named.is_empty() {
        return Ok(());
    }
    let counted = ask(&["--count"], launch)?;
    let Ok(count) = String::from_utf8_lossy(&counted.stdout).trim().parse() else {
        return Ok(());
    };
    environment.expect_devices(count);
    match environment.complaints.first() {
        None => Ok(()),
        Some(complaint) => Err(wrong_value(
            &settings.said_by(&complaint.variable),
            &complaint.error,
        )),
    }
}

/// Checks that the devices can give the memory that the program wants reserved. Under on-full=wait it waits for that.
fn wait_for_reserve(
    environment: &Environment,
    settings: &Settings,
    launch: &Launch,
    dir: Option<&SegmentDir>,
) -> Result<(), Failure> {
    let limits = &environment.limits.settings;
    if limits.reserve.unwrap_or_default() == Reserve::Nothing || settings.best_effort {
        return Ok(());
    }
    if dir.is_some_and(|dir| dir.is_brokered) {
        note(
            "where a broker serves the machine, no launch reserves memory: the program starts without, unless a rule gives it some; \
             an administrator can (gpushare set PID reserve=SIZE)",
        );
        return Ok(());
    }
    let longest = match limits.on_full {
        None | Some(OnFull::Fail) => Duration::ZERO,
        Some(OnFull::Wait) => Duration::MAX,
        Some(OnFull::WaitFor(ns)) => Duration::from_nanos(ns),
    };
    let mut wait = Wait::begin();
    loop {
        let Err(failure) = answer(&ask(&["--check-reserve"], launch)?) else {
            return Ok(());
        };
        if failure.exit != Exit::Failed || wait.elapsed() >= longest {
            let option = settings.said_by(variables::RESERVE);
            return Err(Failure {
                sentence: format!("{option}: {}", failure.sentence),
                ..failure
            });
        }
        wait.pause(&failure);
    }
}

/// Limits the program to the device for `--gpu`. With `--wait` it waits for one. Returns the lock of an exclusive device.
fn choose(
    args: &Args,
    launch: &mut Launch,
    dir: Option<&SegmentDir>,
) -> Result<Option<File>, Failure> {
    let wanted = args.settings.gpu.as_deref();
    let gpu = match wanted {
        None if !args.wait && !args.exclusive => return Ok(None),
        None => "auto",
        Some(gpu) => gpu,
    };
    let limit = args
        .timeout
        .as_deref()
        .map(units::parse_duration)
        .transpose();
    let limit = limit.map_err(|error| wrong_value("--timeout", &error))?;
    let limit = limit.map(Duration::from_nanos);
    let mut wait = Wait::begin();
    loop {
        let why = match try_one(gpu, args, launch, dir) {
            Ok(held) => return Ok(held),
            // A full or reserved device may become free, but a missing one will not appear.
            Err(failure) if args.wait && failure.exit == Exit::Failed => Failure {
                sentence: failure.sentence.replace(WAITS, ""),
                ..failure
            },
            Err(failure) => return Err(failure),
        };
        if limit.is_some_and(|limit| wait.elapsed() >= limit) {
            return Err(Failure {
                sentence: format!("{} (waited {} s)", why.sentence, wait.elapsed().as_secs()),
                ..why
            });
        }
        wait.pause(&why);
    }
}

/// The advice of `gpushare pick` that a waiting run follows already.
const WAITS: &str = "gpushare run --wait waits for one, and ";

/// Pause between two attempts of a waiting run.
const AGAIN: Duration = Duration::from_millis(250);
/// Time after which a run says what it waits for.
const PATIENCE: Duration = Duration::from_secs(2);

/// The wait of a run.
struct Wait {
    begun: Instant,
    /// Time from the start before which nothing is said.
    silent: Duration,
    /// The reason that was said last.
    said: String,
}

impl Wait {
    fn begin() -> Self {
        Self {
            begun: Instant::now(),
            silent: PATIENCE,
            said: String::new(),
        }
    }

    fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Pauses before the next attempt. Says what the run waits for, and again if that has changed. The time between two such
    /// messages doubles, because a reason with a number in it may change at each attempt.
    fn pause(&mut self, why: &Failure) {
        let elapsed = self.elapsed();
        if elapsed >= self.silent && self.said != why.sentence {
            note(&format!("the program waits: {}", why.sentence));
            self.said.clone_from(&why.sentence);
            self.silent = elapsed * 2;
        }
        std::thread::sleep(AGAIN);
    }
}

fn try_one(
    gpu: &str,
    args: &Args,
    launch: &mut Launch,
    dir: Option<&SegmentDir>,
) -> Result<Option<File>, Failure> {
    let (uuid, claim_end) = pick(gpu, args, launch)?;
    let held = match dir.filter(|_| args.exclusive) {
        None if args.exclusive => {
            return Err(Failure::not_permitted(
                "--exclusive needs segments, and there are none",
            ));
        }
        None => None,
        Some(dir) => match take_for_itself(dir, &uuid, claim_end) {
            Ok(Some(held)) => Some(held),
            Ok(None) => return Err(Failure::failed(format!("{uuid} was just taken by another"))),
            Err(error) => {
                return Err(Failure {
                    sentence: format!("--exclusive cannot keep others away: {error}"),
                    exit: Exit::NotPermitted,
                });
            }
        },
    };
    launch.show_only(&uuid);
    Ok(held)
}

/// Reserves a picked device, and ends the claim of the pick. The reservation keeps others away and ends with the program,
/// but a claim could outlive a short program.
fn take_for_itself(
    dir: &SegmentDir,
    uuid: &str,
    claim_end: Option<u64>,
) -> Result<Option<File>, OpenError> {
    let held = exclusive::hold(&dir.path, uuid);
    if let (Some(end), Some(device)) = (claim_end, uuids::parse(uuid))
        && let Ok(operator) = Operator::open(&dir.path)
    {
        operator.release_pick(device, end);
    }
    held
}

/// Returns the device for `--gpu`, and the end of its claim if the claim must be withdrawn.
fn pick(gpu: &str, args: &Args, launch: &Launch) -> Result<(String, Option<u64>), Failure> {
    let mut words = vec!["--visible"];
    if args.exclusive {
        words.extend(["--free", "--claim-end"]);
    }
    let is_named = gpu != "auto";
    // A quota may be more than what is free now; who waits wants it.
    if !is_named || args.wait {
        words.push("--fits");
    }
    if is_named {
        words.extend(["--", gpu]);
    }
    let output = ask(&words, launch)?;
    let said = answer(&output).map_err(|failure| Failure {
        sentence: format!("--gpu {gpu}: {}", failure.sentence),
        ..failure
    })?;
    let (uuid, end) = said.split_once(' ').unwrap_or((&said, ""));
    Ok((uuid.to_owned(), end.parse().ok()))
}

/// Returns what `gpushare pick` answered, or why it failed.
fn answer(output: &Output) -> Result<String, Failure> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let why = String::from_utf8_lossy(&output.stderr)
        .trim()
        .trim_start_matches("gpushare: ")
        .to_owned();
    let code = output.status.code();
    let exit = code.and_then(|code| Exit::of_code(u8::try_from(code).ok()?));
    Err(Failure {
        exit: exit.unwrap_or(Exit::Failed),
        sentence: why,
    })
}

/// Runs `gpushare pick` in a separate process, so that NVML is not loaded here and the program's environment is used.
fn ask(arguments: &[&str], launch: &Launch) -> Result<Output, Failure> {
    Command::new(OWN)
        .arg("pick")
        .args(arguments)
        .envs(
            launch
                .environment()
                .filter(|(name, _)| *name != "LD_PRELOAD"),
        )
        .output()
        .map_err(|error| Failure::failed(format!("cannot ask NVML for the GPUs: {error}")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    use super::*;

    /// A failure with the code 1 is waited for.
    #[test]
    fn why_a_pick_failed_keeps_its_exit_code() {
        let failure = |code: i32| {
            let output = Output {
                status: ExitStatus::from_raw(code << 8),
                stdout: Vec::new(),
                stderr: b"gpushare: why\n".to_vec(),
            };
            answer(&output).expect_err("it failed")
        };
        for exit in [
            Exit::Failed,
            Exit::Usage,
            Exit::NotPermitted,
            Exit::NoSuchTarget,
        ] {
            assert_eq!(failure(exit.code().into()).exit, exit);
        }
        assert_eq!(failure(101), Failure::failed("why"));
    }
}
