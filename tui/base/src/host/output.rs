//! Files that are written completely or not at all: exports, pages, claims.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use shm_layout::text::PathText as _;

use crate::text::exit::{Exit, Failure};

/// Checks that a file of this name can be written. Leaves no file behind.
pub fn check(path: &Path) -> Result<(), Failure> {
    match is_special(path) {
        true => open_special(path).map(drop),
        false => begin(path).map(drop),
    }
}

/// Writes a file under a temporary name and renames it when it is complete.
pub fn whole_file<T>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let cannot = |error: &io::Error| cannot(path, error);
    if is_special(path) {
        return named(path, through(open_special(path)?, write));
    }
    let (fresh, file) = begin(path)?;
    let written = named(path, through(file, write))?;
    fs::rename(&fresh.0, path).map_err(|error| cannot(&error))?;
    std::mem::forget(fresh);
    Ok(written)
}

/// Returns true if writing replaces the file, so that it may be written several times.
pub fn is_replaced(path: &Path) -> bool {
    !is_special(path)
}

/// Returns true for a pipe or a device, which is written in place, because a new file cannot replace it. Returns false if
/// another user owns it or the link to it; then a file of ours is to replace it.
fn is_special(path: &Path) -> bool {
    let us = rustix::process::geteuid().as_raw();
    fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
        && fs::symlink_metadata(path).is_ok_and(|meta| meta.uid() == 0 || meta.uid() == us)
}

/// Opens a pipe or a device without waiting for a reader.
fn open_special(path: &Path) -> Result<File, Failure> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = File::options();
    options.write(true).custom_flags(flags.bits() as i32);
    let opened = options.open(path).and_then(|file| {
        let flags = fcntl_getfl(&file)?;
        fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
        Ok(file)
    });
    opened.map_err(|error| match error.raw_os_error() {
        Some(errno) if errno == rustix::io::Errno::NXIO.raw_os_error() => Failure::failed(format!(
            "{} is a pipe that no program reads; start the reader first, or give the name of a file",
            path.shown()
        )),
        _ => cannot(path, &error),
    })
}

/// Makes the file under its temporary name, in the same directory.
fn begin(path: &Path) -> Result<(Unfinished, File), Failure> {
    let Some(name) = path.file_name() else {
        return Err(Failure::usage(format!(
            "{} is not the name of a file",
            path.shown()
        )));
    };
    if path.is_dir() {
        return Err(Failure::usage(format!(
            "{} is a directory; give the name of a file",
            path.shown()
        )));
    }
    let mut fresh = name.to_owned();
    fresh.push(format!(".{}.part", std::process::id()));
    let fresh = path.with_file_name(fresh);
    // A killed process with the same pid may have left a file of this name. It is neither followed nor kept.
    let _ = fs::remove_file(&fresh);
    let mut options = File::options();
    let file = options.write(true).create_new(true).mode(0o644);
    let file = file.open(&fresh);
    let file = file.map_err(|error| cannot(path, &error))?;
    Ok((Unfinished(fresh), file))
}

fn cannot(path: &Path, error: &io::Error) -> Failure {
    Failure {
        exit: match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Exit::NotPermitted
            }
            _ => Exit::Failed,
        },
        sentence: format!("{} cannot be written: {error}", path.shown()),
    }
}

/// Adds the file's name to an error. A reader that went away causes no message.
fn named<T>(path: &Path, written: Result<T, Failure>) -> Result<T, Failure> {
    written.map_err(|failure| match failure.sentence.as_str() {
        "" => failure,
        sentence => Failure {
            sentence: format!("{}: {sentence}", path.shown()),
            ..failure
        },
    })
}

fn through<T>(
    file: File,
    write: impl FnOnce(&mut dyn Write) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut out = BufWriter::with_capacity(1 << 16, file);
    let written = write(&mut out)?;
    out.flush()?;
    Ok(written)
}

/// A file that is removed unless it is finished.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_there_whole_or_as_it_was() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("trace.json");
        let left = format!("{}.{}.part", path.display(), std::process::id());
        fs::write(left, b"of a killed process of our number").expect("ours");
        whole_file(&path, |out| Ok(out.write_all(b"first")?)).expect("ours");
        let failed = whole_file::<()>(&path, |out| {
            out.write_all(b"half")?;
            Err(Failure::failed("the buffer is cut short"))
        });
        assert!(
            failed
                .expect_err("it failed")
                .sentence
                .contains("cut short")
        );
        assert_eq!(fs::read(&path).expect("there"), b"first");
        assert_eq!(fs::read_dir(dir.path()).expect("ours").count(), 1);
    }

    #[test]
    fn what_cannot_be_written_is_said() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let none = |path: &Path| whole_file(path, |_| Ok(())).expect_err("no such place");
        assert_eq!(none(dir.path()).exit, Exit::Usage);
        assert_eq!(none(&dir.path().join("no/such")).exit, Exit::Failed);
        assert_eq!(none(Path::new("/")).exit, Exit::Usage);
        let pipe = dir.path().join("pipe");
        let fifo = rustix::fs::FileType::Fifo;
        let bits = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, bits, 0).expect("ours");
        for failed in [none(&pipe), check(&pipe).expect_err("no reader")] {
            assert!(failed.sentence.contains("no program reads"), "{failed}");
        }
        let full = whole_file(Path::new("/dev/full"), |out| Ok(out.write_all(b"much")?));
        let said = full.expect_err("no room there").sentence;
        assert!(said.starts_with("/dev/full: "), "{said}");
    }
}
