//! Where an export goes: a file that is there whole or not at all, or standard output.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::exit::{Exit, Failure};

/// Writes a file under another name and gives it its own when all of it is written.
pub fn whole_file<T>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let cannot = |error: &io::Error| Failure {
        exit: match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Exit::NotPermitted
            }
            _ => Exit::Failed,
        },
        sentence: format!("{} cannot be written: {error}", path.display()),
    };
    let Some(name) = path.file_name() else {
        return Err(Failure::usage(format!(
            "{} is no name for a file",
            path.display()
        )));
    };
    if path.is_dir() {
        return Err(Failure::usage(format!(
            "{} is a directory; give the name of a file",
            path.display()
        )));
    }
    // A pipe or a device is written as it is: nothing can take its name.
    if fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
        let file = File::options()
            .write(true)
            .open(path)
            .map_err(|error| cannot(&error))?;
        return through(file, write);
    }
    let mut fresh = name.to_owned();
    fresh.push(format!(".{}.part", std::process::id()));
    let fresh = Unfinished(path.with_file_name(fresh));
    let file = File::options()
        .write(true)
        .create_new(true)
        .open(&fresh.0)
        .map_err(|error| cannot(&error))?;
    let written = through(file, write).map_err(|failure| Failure {
        sentence: format!("{}: {failure}", path.display()),
        ..failure
    })?;
    fs::rename(&fresh.0, path).map_err(|error| cannot(&error))?;
    std::mem::forget(fresh);
    Ok(written)
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
    }
}
