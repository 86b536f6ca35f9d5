//! A file's first bytes: written last by its maker, checked first by everybody else.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
};

use super::Kind;
use crate::{ABI_VERSION, clock, error::OpenError, locate::Mode};

pub(super) fn read_up_to(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match file.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

pub(super) fn check(
    path: &Path,
    kind: Kind,
    bytes: &[u8; 48],
    got: usize,
    len: u64,
) -> Result<(), OpenError> {
    let path = path.to_path_buf();
    let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|index| bytes[at + index]));
    let want = kind.size();
    let version = word(8) as u32;
    if word(0) == 0 && version == 0 {
        return Err(if len < want {
            OpenError::Truncated { path, len, want }
        } else {
            OpenError::NotReady { path }
        });
    }
    if got < 16 || word(0) != kind.magic() {
        return Err(OpenError::Foreign { path });
    }
    match version {
        ABI_VERSION => {}
        0 => return Err(OpenError::NotReady { path }),
        theirs => {
            return Err(OpenError::WrongVersion {
                path,
                ours: ABI_VERSION,
                theirs,
            });
        }
    }
    if len < want || word(16) != want {
        return Err(OpenError::Truncated {
            path,
            len: len.min(word(16)),
            want,
        });
    }
    let (boot, now) = ([word(24), word(32)], boot_id());
    if boot != now && now != [0, 0] && boot != [0, 0] {
        return Err(OpenError::StaleBoot { path });
    }
    Ok(())
}

/// Whether a state file's header says that it was made for everybody.
pub(crate) fn says_system(path: &Path) -> bool {
    let mut header = [0u8; 16];
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path);
    let whole = opened
        .and_then(|mut file| read_up_to(&mut file, &mut header))
        .is_ok_and(|got| got == header.len());
    whole && header[..8] == Kind::State.magic().to_ne_bytes() && header[12..] == 1u32.to_ne_bytes()
}

/// This boot's id; zero where the system does not tell.
pub(crate) fn boot_id() -> [u64; 2] {
    let Ok(text) = fs::read_to_string("/proc/sys/kernel/random/boot_id") else {
        return [0, 0];
    };
    let hex: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    match u128::from_str_radix(&hex, 16) {
        Ok(bits) => [(bits >> 64) as u64, bits as u64],
        Err(_) => [0, 0],
    }
}

/// The header by plain writes, the version word by one of its own at the end: nobody has the file mapped yet, and
/// `link` publishes it.
pub(super) fn write(file: &File, kind: Kind, mode: Mode) -> io::Result<()> {
    let boot = boot_id();
    let word = |at: u64, value: u64| file.write_all_at(&value.to_ne_bytes(), at);
    word(0, kind.magic())?;
    word(16, kind.size())?;
    word(24, boot[0])?;
    word(32, boot[1])?;
    word(40, clock::now())?;
    word(48, u64::from(rustix::process::geteuid().as_raw()))?;
    let version = u64::from(ABI_VERSION) | u64::from(mode == Mode::System) << 32;
    word(8, version)
}
