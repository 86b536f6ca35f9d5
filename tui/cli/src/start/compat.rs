//! `gpushare compat`: this program under the names of older tools that choose a GPU.
//!
//! The names are links to this program, which checks the name that it is called by: `getgpu`, `cudawrap` and
//! `create_cudawrap` of the MIG tools, `cudarun` of the CUDA run wrapper. An executable that `create_cudawrap` has wrapped
//! is a link to `cudawrap` under the executable's own name.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use shm_layout::text::PathText as _;

use super::pick::{Request, pick};
use crate::{Done, note, segments};
use gpushare_base::host::broken_pipe;
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::files;
use gpushare_launch::nvml_cache::{Bounds, NvmlCache};
use gpushare_launch::picking::Choice;

/// Make links to this program with the names of older tools: getgpu, cudawrap, create_cudawrap, cudarun
///
/// getgpu prints the UUID of a random device that no process uses, or of the one with the given number. create_cudawrap EXE
/// moves EXE to CUDAWRAP_EXE and puts a link to cudawrap in its place, which starts it on a free device. cudarun run CMD
/// starts a program on the least busy device; its daemon.start, stop, check and restart have nothing to do.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory for the links, on the PATH for instance; it is made if it is missing
    dir: PathBuf,
}

/// Function for one of the names.
type Role = fn(&Path, &[OsString], &mut dyn Write) -> Done;

/// The names and their functions.
const ROLES: [(&str, Role); 4] = [
    ("getgpu", getgpu),
    (WRAP, cudawrap),
    ("create_cudawrap", create_cudawrap),
    ("cudarun", cudarun),
];
const WRAP: &str = "cudawrap";
/// Prefix of a wrapped executable's new name.
const PREFIX: &str = "CUDAWRAP_";
/// Configuration of cudarun, relative to the program's directory or the one above.
const CONFIG: &str = "etc/config.conf";

pub fn run(args: &Args, out: &mut dyn Write) -> Done {
    let program = std::env::current_exe()?;
    fs::create_dir_all(&args.dir).map_err(|error| cannot("be made", &args.dir, &error))?;
    for (name, _) in ROLES {
        let link = args.dir.join(name);
        match fs::symlink_metadata(&link) {
            Ok(found) if !found.is_symlink() => {
                return Err(Failure::failed(format!(
                    "{} is there and is no link; move it away first",
                    link.shown()
                )));
            }
            _ => replace(&program, &link)?,
        }
        writeln!(out, "{}", link.shown())?;
    }
    Ok(Exit::Done)
}

/// Replaces a file by a link in one step.
fn replace(target: &Path, link: &Path) -> Result<(), Failure> {
    let new = link.with_extension(format!("new.{}", std::process::id()));
    let _ = fs::remove_file(&new);
    let made = symlink(target, &new).and_then(|()| fs::rename(&new, link));
    made.map_err(|error| {
        let _ = fs::remove_file(&new);
        cannot("be made", link, &error)
    })
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> Failure {
    let failure = match error.kind() {
        io::ErrorKind::PermissionDenied => Failure::not_permitted,
        _ => Failure::failed,
    };
    failure(format!("{} cannot {what}: {error}", path.shown()))
}

/// Returns the function for the name that the program was called by, with the path of the link. The name may also be a link
/// to one of these links.
pub fn called(words: &[OsString]) -> Option<(Role, PathBuf)> {
    let first = Path::new(words.first()?);
    let name = first.file_name()?;
    if name == "gpushare" {
        return None;
    }
    let role = |name: &OsStr| ROLES.iter().find(|(known, _)| name == *known);
    let path = find(first)?;
    if let Some((_, role)) = role(name) {
        return Some((*role, path));
    }
    // For an executable's own name, the chain of links leads to a known name.
    let mut at = path.clone();
    for _ in 0..8 {
        at = linked(&at)?;
        if at.file_name()? == WRAP {
            return Some((cudawrap, path));
        }
    }
    None
}

/// Returns the target of a link.
fn linked(link: &Path) -> Option<PathBuf> {
    Some(link.parent()?.join(fs::read_link(link).ok()?))
}

/// Finds the program that was called by this word: a path, or a name on the PATH.
fn find(word: &Path) -> Option<PathBuf> {
    if word.components().count() > 1 {
        return std::path::absolute(word).ok();
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(word))
        .find(|candidate| fs::symlink_metadata(candidate).is_ok())
}

/// Prints the UUID of a random device that no process uses, or of the device with the given number.
fn getgpu(_: &Path, words: &[OsString], out: &mut dyn Write) -> Done {
    let number = match words {
        [] => None,
        [number] => Some(number.to_string_lossy().into_owned()),
        _ => return Err(Failure::usage("getgpu takes one number at most")),
    };
    if let Some(number) = &number
        && number.parse::<u32>().is_err()
    {
        return Err(Failure::usage(format!(
            "{number:?} is not the number of a device; getgpu takes a number or nothing"
        )));
    }
    let dir = segments::dir_or_new()?;
    let request = Request {
        gpu: number.as_deref(),
        free: number.is_none(),
        random: true,
        choice: Choice::standing(&dir)?,
        ..Request::default()
    };
    writeln!(out, "{}", pick(&dir, &request)?.uuid())?;
    Ok(Exit::Done)
}

/// Starts the wrapped executable beside the link on a free device.
fn cudawrap(link: &Path, words: &[OsString], _: &mut dyn Write) -> Done {
    let name = link.file_name().unwrap_or_default();
    if name == WRAP {
        return Err(Failure::usage(
            "cudawrap starts what is linked to it; create_cudawrap EXE sets an executable up",
        ));
    }
    let program = wrapped(link);
    if !program.exists() {
        return Err(Failure::failed(format!(
            "{} is missing: it is what {} starts",
            program.shown(),
            link.shown()
        )));
    }
    let dir = segments::dir_or_new()?;
    let request = Request {
        free: true,
        random: true,
        choice: Choice::standing(&dir)?,
        ..Request::default()
    };
    let uuid = pick(&dir, &request)?.uuid().to_owned();
    become_it(&program, words, &uuid, link.as_os_str())
}

fn wrapped(exe: &Path) -> PathBuf {
    let mut name = OsString::from(PREFIX);
    name.push(exe.file_name().unwrap_or_default());
    exe.with_file_name(name)
}

/// Becomes a program that sees one device, under the name that it was called by.
fn become_it(program: &Path, words: &[OsString], uuid: &str, name: &OsStr) -> Done {
    let mut command = Command::new(program);
    command
        .args(words)
        .arg0(name)
        .env("CUDA_VISIBLE_DEVICES", uuid);
    broken_pipe::pass_on(&mut command);
    Err(Failure::failed(format!(
        "{} cannot be started: {}",
        program.shown(),
        command.exec()
    )))
}

/// Renames an executable and puts a link to cudawrap in its place.
fn create_cudawrap(own: &Path, words: &[OsString], out: &mut dyn Write) -> Done {
    let [exe] = words else {
        return Err(Failure::usage("create_cudawrap takes one executable"));
    };
    let exe = std::path::absolute(Path::new(exe))?;
    let wrap = own.with_file_name(WRAP);
    if fs::symlink_metadata(&wrap).is_err() {
        return Err(Failure::failed(format!(
            "{} is missing; gpushare compat {} makes it",
            wrap.shown(),
            own.parent().unwrap_or(Path::new("/")).shown()
        )));
    }
    let meta = fs::symlink_metadata(&exe).map_err(|error| cannot("be wrapped", &exe, &error))?;
    if !meta.is_file() {
        return Err(Failure::failed(format!(
            "{} is not a file, or it is wrapped already",
            exe.shown()
        )));
    }
    // The second name is made first, so that the executable always exists under its own name.
    let other = wrapped(&exe);
    fs::hard_link(&exe, &other).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::failed(format!(
            "{} is there already: {} seems to be wrapped",
            other.shown(),
            exe.shown()
        )),
        _ => cannot("be wrapped", &exe, &error),
    })?;
    if let Err(failure) = replace(&wrap, &exe) {
        let _ = fs::remove_file(&other);
        return Err(failure);
    }
    writeln!(
        out,
        "{}: starts {} on a free GPU",
        exe.shown(),
        other.shown()
    )?;
    Ok(Exit::Done)
}

/// Runs `run CMD`, and accepts the verbs of the daemon, which is not needed.
fn cudarun(own: &Path, words: &[OsString], out: &mut dyn Write) -> Done {
    let config = Config::read(own)?;
    let verb = words.first().map(|word| word.to_string_lossy());
    match (verb.as_deref(), words.get(1..).unwrap_or_default()) {
        (Some("run"), [program, rest @ ..]) => {
            let dir = segments::dir_or_new()?;
            let request = Request {
                choice: config.choice(Choice::standing(&dir)?),
                ..Request::default()
            };
            let uuid = pick(&dir, &request)?.uuid().to_owned();
            become_it(Path::new(program), rest, &uuid, program)
        }
        (Some("daemon.start" | "daemon.restart"), []) => {
            writeln!(
                out,
                "no daemon is needed: what a program must know is read when it starts"
            )?;
            Ok(Exit::Done)
        }
        (Some("daemon.stop"), []) => {
            writeln!(out, "no daemon runs: there is nothing to stop")?;
            Ok(Exit::Done)
        }
        (Some("daemon.check"), []) => {
            let dir = segments::dir()?;
            let bounds = config.choice(Choice::standing(&dir)?).bounds;
            let known = match NvmlCache::kept(&dir.path) {
                Some(facts) => format!(
                    "device information is {} ms old and was used {} times",
                    facts.age().as_millis(),
                    facts.uses()
                ),
                None => "no device information was read yet".into(),
            };
            writeln!(
                out,
                "no daemon is needed; {known}; it is read again after {} ms or {} uses",
                bounds.age.as_millis(),
                bounds.uses
            )?;
            Ok(Exit::Done)
        }
        _ => Err(Failure::usage(
            "cudarun run PROGRAM…, daemon.check, daemon.start, daemon.stop or daemon.restart",
        )),
    }
}

/// The configuration of cudarun: the maximum age and number of uses of device information.
#[derive(Debug, Default, PartialEq)]
struct Config {
    seconds: Option<f64>,
    requests: Option<u32>,
}

impl Config {
    /// Reads the file beside the program or one directory above, for each link that leads to the program. Without a file,
    /// nothing is set.
    fn read(own: &Path) -> Result<Self, Failure> {
        let mut at = own.to_owned();
        for _ in 0..8 {
            for dir in at.ancestors().skip(1).take(2) {
                let file = dir.join(CONFIG);
                match files::read_text(&file) {
                    Ok(text) => {
                        return Self::parse(&text)
                            .map_err(|why| Failure::usage(format!("{}: {why}", file.shown())));
                    }
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(cannot("be read", &file, &error)),
                }
            }
            let Some(next) = linked(&at).filter(|next| next.is_symlink()) else {
                break;
            };
            at = next;
        }
        Ok(Self::default())
    }

    /// Parses `[daemon]` with `max-cache-request = 5`, or `daemon.max-cache-request = 5`.
    fn parse(text: &str) -> Result<Self, String> {
        let mut config = Self::default();
        let mut section = String::new();
        for line in text.lines() {
            let line = line.split(['#', ';']).next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            if let Some(name) = line
                .strip_prefix('[')
                .and_then(|line| line.strip_suffix(']'))
            {
                section = format!("{}.", name.trim());
                continue;
            }
            let (key, value) = line
                .split_once(['=', ':'])
                .ok_or_else(|| format!("{line:?} has no value"))?;
            let (key, value) = (key.trim(), value.trim());
            let key = match key.contains('.') {
                true => key.to_owned(),
                false => format!("{section}{key}"),
            };
            let wrong = || format!("{key}: {value:?} is not a number");
            match key.as_str() {
                "daemon.max-cache-time-interval" => {
                    let seconds: f64 = value.parse().map_err(|_| wrong())?;
                    let sensible = (0.0..=86_400.0).contains(&seconds);
                    config.seconds = Some(sensible.then_some(seconds).ok_or_else(wrong)?);
                }
                "daemon.max-cache-request" => {
                    config.requests = Some(value.parse().map_err(|_| wrong())?);
                }
                // These keys are for a daemon that does not exist here.
                "server.addr" | "server.max-queued-requests" => {}
                _ => note(&format!("{CONFIG}: {key} is unknown and has no effect")),
            }
        }
        Ok(config)
    }

    fn choice(&self, usual: Choice) -> Choice {
        let age = self.seconds.map(std::time::Duration::from_secs_f64);
        let bounds = Bounds {
            age: age.unwrap_or(usual.bounds.age),
            uses: self.requests.unwrap_or(usual.bounds.uses),
        };
        Choice { bounds, ..usual }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_read_with_sections_and_without() {
        let wanted = Config {
            seconds: Some(5.0),
            requests: Some(20),
        };
        let flat = "server.addr = /tmp/x\ndaemon.max-cache-time-interval = 5\ndaemon.max-cache-request = 20";
        assert_eq!(Config::parse(flat), Ok(wanted));
        let sections =
            "# cudarun\n[server]\naddr: /tmp/x\n[daemon]\nmax-cache-time-interval: 0.5\n";
        let read = Config::parse(sections).expect("well formed");
        assert_eq!((read.seconds, read.requests), (Some(0.5), None));
        assert!(Config::parse("daemon.max-cache-request = few").is_err());
        assert!(Config::parse("daemon.max-cache-time-interval = -1").is_err());
    }
}
