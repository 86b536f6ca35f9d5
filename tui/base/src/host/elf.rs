//! The dynamic linker's treatment of a program, as far as the ELF file shows it.
//!
//! A preload reaches a program only through its dynamic linker. Static programs have none, and for setuid ones the linker
//! ignores the preload. This module detects those before they are started, so that the user learns the reason.

use shm_layout::text::PathText as _;
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use object::elf::{EM_AARCH64, EM_X86_64};
use object::read::ReadRef;
use object::read::elf::{FileHeader, ProgramHeader};
use rustix::process::{getegid, geteuid};

use file::Header;

mod exports;
mod file;
mod versions;

pub use exports::exports;
pub use versions::{Glibc, libc, needs, provides};

/// The reason why a preload cannot reach a program, or may not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// The program has set-user-ID, set-group-ID or file capabilities, so the linker ignores the preload.
    Privileged,
    /// The program has no dynamic linker.
    Static,
    /// The C library is musl, which loads the preload only under conditions.
    Musl,
    /// The program is built for another machine than the library.
    OtherMachine,
}

impl Obstacle {
    /// Returns a sentence for the user who starts `program`.
    pub fn sentence(&self, program: &Path) -> String {
        let program = program.shown();
        match self {
            Self::Privileged => format!(
                "{program} runs with more rights than you (setuid, setgid or file capabilities), so the dynamic \
                 linker ignores the preload: neither it nor its children will be counted or limited; switch to that \
                 user first and start gpushare run there"
            ),
            Self::Static => format!(
                "{program} is statically linked, so nothing can be preloaded into it: it will be neither counted nor \
                 limited; its dynamically linked children will be"
            ),
            Self::Musl => format!(
                "{program} uses the musl C library: NVIDIA's driver does not support it, so there is nothing to count or limit"
            ),
            Self::OtherMachine => format!(
                "{program} is built for another kind of processor or word size than libgpushare.so: the linker will \
                 complain and continue without it"
            ),
        }
    }
}

/// Inspects a program. Returns `None` if the preload reaches it, or if the file cannot be read.
pub fn obstacle(program: &Path) -> Option<Obstacle> {
    let meta = fs::metadata(program).ok()?;
    let start = read_start(program).unwrap_or_default();
    let script = interpreter_line(&start);
    let gains = gains_rights(&meta) || has_capabilities(program) && !geteuid().is_root();
    if gains && script.is_none() {
        return Some(Obstacle::Privileged);
    }
    match script {
        // The preload reaches a script if it reaches its interpreter. The kernel ignores the script's own set-user-ID bits
        // and capabilities.
        Some(interpreter) if interpreter != program => obstacle(&interpreter),
        Some(_) => None,
        None => of_elf(&file::open(program)?),
    }
}

/// Returns true if the program runs with privileges that this user lacks. Root gains nothing from root's set-user-ID bit,
/// nor does an owner from its own, so in these cases the linker keeps the preload.
fn gains_rights(meta: &Metadata) -> bool {
    const SET_UID: u32 = 0o4000;
    const SET_GID: u32 = 0o2010;
    let mode = meta.permissions().mode();
    mode & SET_UID != 0 && meta.uid() != geteuid().as_raw()
        // If the group may not execute the file, the bit has another meaning.
        || mode & SET_GID == SET_GID && meta.gid() != getegid().as_raw()
}

fn has_capabilities(program: &Path) -> bool {
    let mut value = [0_u8; 64];
    rustix::fs::getxattr(program, "security.capability", &mut value[..]).is_ok()
}

/// Reads enough of the file for the interpreter line of a script.
fn read_start(program: &Path) -> Option<Vec<u8>> {
    let mut start = Vec::new();
    File::open(program)
        .ok()?
        .take(4096)
        .read_to_end(&mut start)
        .ok()?;
    Some(start)
}

fn interpreter_line(start: &[u8]) -> Option<PathBuf> {
    let line = start
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace();
    let interpreter = words.next()?;
    // `env` searches the next word in PATH.
    if interpreter.ends_with("/env") {
        let wanted = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
        return crate::host::programs::search_path(wanted.as_ref())
            .or(Some(PathBuf::from(interpreter)));
    }
    Some(PathBuf::from(interpreter))
}

fn of_elf<'data, R: ReadRef<'data>>(data: R) -> Option<Obstacle> {
    let machine = if cfg!(target_arch = "aarch64") {
        EM_AARCH64
    } else {
        EM_X86_64
    };
    if data.read_bytes_at(0, 4) != Ok(b"\x7fELF") {
        return None;
    }
    let Ok(header) = Header::parse(data) else {
        return Some(Obstacle::OtherMachine);
    };
    let endian = header.endian().ok()?;
    if header.e_machine(endian) != machine {
        return Some(Obstacle::OtherMachine);
    }
    let segments = header.program_headers(endian, data).unwrap_or_default();
    let linker = segments
        .iter()
        .find_map(|segment| segment.interpreter(endian, data).ok()?);
    match linker.map(String::from_utf8_lossy) {
        Some(linker) if linker.contains("ld-musl") => Some(Obstacle::Musl),
        Some(_) => None,
        None => Some(Obstacle::Static),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_is_within_reach_of_a_preload() {
        let own = std::env::current_exe().expect("a test knows its own path");
        assert_eq!(obstacle(&own), None);
    }

    #[test]
    fn a_program_header_table_that_lies_is_survived() {
        let mut elf = [0_u8; 64];
        elf[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        elf[18] = if cfg!(target_arch = "aarch64") {
            183
        } else {
            62
        };
        assert_eq!(of_elf(&elf[..]), Some(Obstacle::Static));
        elf[32..40].fill(0xff);
        elf[54..58].fill(0xff);
        assert_eq!(of_elf(&elf[..]), Some(Obstacle::Static));
        assert_eq!(of_elf(&b"\x7fELF\x01"[..]), Some(Obstacle::OtherMachine));
        assert_eq!(of_elf(&b"plain text"[..]), None);
    }

    #[test]
    fn a_script_is_judged_by_its_interpreter() {
        assert_eq!(
            interpreter_line(b"#! /bin/sh -e\necho"),
            Some(PathBuf::from("/bin/sh"))
        );
        assert_eq!(interpreter_line(b"no script"), None);
    }
}
