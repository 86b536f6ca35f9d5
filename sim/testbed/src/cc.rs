//! Small C programs, compiled once: the applications whose behaviour a test examines.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::artifact::target_dir;

/// Compiles `source` to a file named `out_name`, unless the same source with the same headers and flags was compiled before.
/// `extra` follows the source, so that `-lcuda` and `-shared` work.
///
/// # Panics
///
/// When the compiler fails; its output is in the message.
pub fn cc(source: &Path, out_name: &str, extra: &[&str]) -> PathBuf {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    cc_by(&compiler, source, out_name, extra)
}

/// Compiles `source` to a `libcuda.so.1` that exports what the source marks as visible, and calls its own functions directly.
///
/// # Panics
///
/// As [`cc`].
pub fn cc_driver(source: &Path, extra: &[&str]) -> PathBuf {
    let mut flags = vec![
        "-shared",
        "-fPIC",
        "-fvisibility=hidden",
        "-Wl,-soname,libcuda.so.1",
        "-Wl,-Bsymbolic",
        "-w",
    ];
    flags.extend(extra);
    cc(source, "libcuda.so.1", &flags)
}

/// Compiles as [`cc`] does, with a compiler for another libc or another machine.
///
/// # Panics
///
/// When the compiler is missing or fails.
pub fn cc_by(compiler: &str, source: &Path, out_name: &str, extra: &[&str]) -> PathBuf {
    let text = std::fs::read(source).unwrap_or_else(|e| panic!("{}: {e}", source.display()));
    let mut hasher = DefaultHasher::new();
    (&text, headers_beside(source), compiler, extra).hash(&mut hasher);
    let dir = target_dir()
        .join("tmp/cc")
        .join(format!("{:016x}", hasher.finish()));
    let made = dir.join(out_name);
    if made.exists() {
        return made;
    }

    std::fs::create_dir_all(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    // Compiled into a temporary directory and renamed, so that a concurrent test never starts an incomplete program.
    let aside = tempfile::Builder::new()
        .prefix(".cc-")
        .tempdir_in(&dir)
        .expect("our own directory takes files");
    let draft = aside.path().join(out_name);
    let output = Command::new(compiler)
        .args(["-O1", "-g", "-Wall", "-pthread", "-o"])
        .arg(&draft)
        .arg(source)
        .args(extra)
        .output()
        .unwrap_or_else(|error| panic!("the C compiler {compiler} could not be started: {error}"));
    assert!(
        output.status.success(),
        "{compiler} refused {}:\n{}",
        source.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    std::fs::rename(&draft, &made).expect("same directory, same file system");
    made
}

/// Returns the contents of the headers in the source's folder, which it may include.
fn headers_beside(source: &Path) -> Vec<Vec<u8>> {
    let folder = source.parent().and_then(|folder| folder.read_dir().ok());
    let mut headers: Vec<_> = folder
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "h"))
        .collect();
    headers.sort();
    headers
        .iter()
        .filter_map(|path| std::fs::read(path).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_compiled_once_and_runs() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("seven.c");
        std::fs::write(&source, "int main(void) { return SEVEN; }").unwrap();
        let first = cc(&source, "seven", &["-DSEVEN=7"]);
        let again = cc(&source, "seven", &["-DSEVEN=7"]);
        let other = cc(&source, "seven", &["-DSEVEN=8"]);
        assert_eq!(first, again);
        assert_ne!(first, other);
        assert_eq!(Command::new(first).status().unwrap().code(), Some(7));
    }
}
