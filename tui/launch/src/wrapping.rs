//! Wrappers: an executable is replaced by a script that always starts it under gpushare, and restored.
//!
//! `EXE` becomes a small `sh` script. The program itself stays in the same folder as `gpushare-wrapped.EXE`. It keeps its
//! inode, so its bytes, mode, owner and times are unchanged. If `EXE` is a link, the link is replaced and kept like that, and the
//! file that it names stays as it is: other environments may share that file, and Python finds its own by the link. A working `EXE` is in place at every moment: the second name
//! is linked first, then the finished script is renamed over `EXE`; unwrapping is one rename back. A second wrapper fails
//! at once, because the link exists. If gpushare is removed later, the script starts the program without it, unless a limit
//! is set: then it refuses, as `gpushare run` would.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use shm_layout::text::PathText as _;

use crate::program::Settings;
use gpushare_base::text::exit::{Exit, Failure};
use gpushare_base::text::shell::quote;

/// Prefix of the program's name while it is wrapped.
const PREFIX: &str = "gpushare-wrapped.";
/// Second line of the script, which identifies a wrapper.
const MARK: &str = "# Made by gpushare wrap; gpushare unwrap takes it away.";

/// Replaces `exe` by a wrapper that runs `gpushare run OPTIONS`. Returns the program's new path.
pub fn wrap(exe: &Path, gpushare: &Path, settings: &Settings) -> Result<PathBuf, Failure> {
    let exe = in_folder(exe)?;
    check(&exe, gpushare)?;
    let hidden = hidden_name(&exe)?;
    fs::hard_link(&exe, &hidden).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::failed(format!(
            "{} already exists: {} seems to be wrapped; run gpushare unwrap first",
            hidden.shown(),
            exe.shown()
        )),
        _ => cannot(&exe, "be wrapped", &error),
    })?;
    let script = script(&hidden, gpushare, settings);
    if let Err(error) = replace(&exe, &script) {
        // Only the second name exists yet.
        let _ = fs::remove_file(&hidden);
        return Err(cannot(&exe, "be wrapped", &error));
    }
    Ok(hidden)
}

/// Restores the program. Returns its path.
pub fn unwrap(exe: &Path) -> Result<PathBuf, Failure> {
    // A wrapper is no link, so a link names one elsewhere.
    let exe = match exe.is_symlink() {
        true => resolve(exe)?,
        false => in_folder(exe)?,
    };
    let hidden = hidden_name(&exe)?;
    if !is_wrapper(&exe) {
        return Err(Failure::failed(format!(
            "{} is not wrapped, so it was left alone",
            exe.shown()
        )));
    }
    fs::rename(&hidden, &exe).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::failed(format!(
            "{} is a wrapper, but the program it wraps, {}, is missing; install the program again",
            exe.shown(),
            hidden.shown()
        )),
        _ => cannot(&exe, "be unwrapped", &error),
    })?;
    Ok(exe)
}

/// Returns the absolute path of a program; a link at its end stays.
fn in_folder(exe: &Path) -> Result<PathBuf, Failure> {
    let file = resolve(exe)?;
    let folder = exe.parent().filter(|folder| *folder != Path::new(""));
    match (exe.file_name(), exe.is_symlink()) {
        (Some(name), true) => Ok(resolve(folder.unwrap_or(Path::new(".")))?.join(name)),
        _ => Ok(file),
    }
}

/// Returns the absolute path of a file without links.
fn resolve(exe: &Path) -> Result<PathBuf, Failure> {
    fs::canonicalize(exe).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Failure::no_such_target(format!("there is no file {}", exe.shown()))
        }
        _ => cannot(exe, "be inspected", &error),
    })
}

fn check(exe: &Path, gpushare: &Path) -> Result<(), Failure> {
    let refuse = |why: &str| {
        Err(Failure::usage(format!(
            "{} was not wrapped: {why}",
            exe.shown()
        )))
    };
    let meta = fs::metadata(exe).map_err(|error| cannot(exe, "be inspected", &error))?;
    if !meta.is_file() {
        return refuse("it is not a file");
    }
    if meta.permissions().mode() & 0o111 == 0 {
        return refuse("it is not executable");
    }
    if meta.permissions().mode() & 0o6000 != 0 {
        return refuse(
            "it is setuid or setgid: a wrapper script cannot be, and the linker ignores the preload",
        );
    }
    if is_wrapper(exe) {
        return refuse("it is already a wrapper; gpushare unwrap removes it");
    }
    if exe
        .file_name()
        .is_some_and(|name| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()))
    {
        return refuse("it is already the program behind a wrapper");
    }
    let same = |other: &Path| {
        fs::metadata(other)
            .is_ok_and(|other| (other.dev(), other.ino()) == (meta.dev(), meta.ino()))
    };
    if same(gpushare) || same(Path::new("/bin/sh")) {
        return refuse("the wrapper itself uses this program");
    }
    Ok(())
}

fn hidden_name(exe: &Path) -> Result<PathBuf, Failure> {
    let name = exe
        .file_name()
        .ok_or_else(|| Failure::usage(format!("{} does not name a file", exe.shown())))?;
    let mut hidden = OsString::from(PREFIX);
    hidden.push(name);
    Ok(exe.with_file_name(hidden))
}

/// Returns true if the file is a wrapper.
pub fn is_wrapper(exe: &Path) -> bool {
    let mut start = Vec::new();
    let read = File::open(exe).and_then(|file| file.take(256).read_to_end(&mut start));
    read.is_ok() && String::from_utf8_lossy(&start).lines().nth(1) == Some(MARK)
}

fn script(hidden: &Path, gpushare: &Path, settings: &Settings) -> Vec<u8> {
    let mut options = Vec::new();
    for option in settings.options() {
        options.extend(quote(option.as_ref()));
        options.push(b' ');
    }
    let without = without(hidden, gpushare, settings);
    let (gpushare, hidden) = (quote(gpushare.as_os_str()), quote(hidden.as_os_str()));
    let head = format!("#!/bin/sh\n{MARK}\nif [ ! -x ");
    [
        head.as_bytes(),
        &gpushare,
        b" ]; then\n",
        &without,
        b"fi\nexec ",
        &gpushare,
        b" run ",
        &options,
        b"-- ",
        &hidden,
        b" \"$@\"\n",
    ]
    .concat()
}

/// Returns the script's commands for a missing gpushare. They refuse to start a program with limits, so that no limit is
/// lost silently.
fn without(hidden: &Path, gpushare: &Path, settings: &Settings) -> Vec<u8> {
    let start = [b"exec ", &*quote(hidden.as_os_str()), b" \"$@\"\n"].concat();
    if settings.best_effort {
        return start;
    }
    let (limits, variables) = settings.limits_of_options();
    // The refusal becomes a format string of printf.
    let literal = |path: &Path| path.shown().replace('%', "%%").replace('\\', "\\\\");
    let refusal = format!(
        "{} was not started, because these limits cannot be enforced:%s; {} is missing; install gpushare again, or \
         wrap the program with --best-effort",
        literal(hidden),
        literal(gpushare)
    );
    let refusal = format!("gpushare: {refusal}\\n");
    let limits: String = limits.iter().map(|one| format!(" {one}")).collect();
    // The values in `case` mean "no limit", as `Settings::limits` reads them.
    let collect = format!(
        "\nfor name in {}; do\n  eval \"value=\\${{$name-}}\"\n  case $name=$value in *=|*=none|*=off|*=100|*=100%|CUDA_DEVICE_*=0|CUDA_MEM_LIMIT=0|ALNAIR_*=0) ;; \
         *) limits=\"$limits $name\" ;; esac\ndone\n[ -n \"$limits\" ] || ",
        variables.join(" ")
    );
    let end = format!(" \"$limits\" >&2\nexit {}\n", Exit::Failed.code());
    [
        b"limits=",
        &*quote(limits.as_ref()),
        collect.as_bytes(),
        &start,
        b"printf ",
        &quote(refusal.as_ref()),
        end.as_bytes(),
    ]
    .concat()
}

/// Replaces the file in one step and keeps its mode and owner. In place of a link, the owner is the link's.
fn replace(exe: &Path, content: &[u8]) -> io::Result<()> {
    let (meta, own) = (fs::metadata(exe)?, fs::symlink_metadata(exe)?);
    let fresh = exe.with_file_name(format!(".gpushare-wrap-{}", std::process::id()));
    let written = File::create_new(&fresh).and_then(|mut file| {
        file.write_all(content)?;
        std::os::unix::fs::fchown(&file, Some(own.uid()), Some(own.gid()))?;
        file.set_permissions(Permissions::from_mode(meta.permissions().mode() & 0o777))?;
        file.sync_all()
    });
    let renamed = written.and_then(|()| fs::rename(&fresh, exe));
    if renamed.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    renamed
}

fn cannot(exe: &Path, what: &str, error: &io::Error) -> Failure {
    let exit = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Exit::NotPermitted,
        _ => Exit::Failed,
    };
    Failure {
        exit,
        sentence: format!(
            "{} cannot {what}: {error}; nothing was changed",
            exe.shown()
        ),
    }
}
