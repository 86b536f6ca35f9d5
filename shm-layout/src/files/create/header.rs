//! A file's first bytes: written last by its maker, checked first by every other process.

use std::{
    fs::File,
    io::{self, Read as _},
    os::unix::fs::FileExt as _,
    path::Path,
    sync::OnceLock,
};

use super::{Kind, failed};
use crate::{
    ABI_VERSION,
    files::error::OpenError,
    os::{clock, procfs},
};

/// Length of the part of a file that is checked.
const BYTES: usize = 72;

fn read_up_to(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
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

/// A file's first bytes, if they are those of its kind, of this version and of a whole file.
pub(super) fn read(path: &Path, file: &mut File, kind: Kind) -> Result<Header, OpenError> {
    let len = file.metadata().map_err(failed(path, "look at"))?.len();
    let mut bytes = [0; BYTES];
    let got = read_up_to(file, &mut bytes).map_err(failed(path, "read"))?;
    let (path, header) = (path.to_path_buf(), Header(bytes));
    let word = |at| header.word(at);
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
    Ok(header)
}

/// The first bytes of a file.
pub(super) struct Header([u8; BYTES]);

impl Header {
    fn word(&self, at: usize) -> u64 {
        u64::from_ne_bytes(std::array::from_fn(|index| self.0[at + index]))
    }

    /// Returns true if the file is from before the last boot.
    pub(super) fn is_stale(&self) -> bool {
        let (boot, now) = ([self.word(24), self.word(32)], boot_id());
        boot != now && now != [0, 0] && boot != [0, 0]
    }

    pub(super) fn instance(&self) -> Instance {
        Instance([self.word(56), self.word(64)])
    }
}

/// Returns this boot's id; zero where the system does not report one.
pub(crate) fn boot_id() -> [u64; 2] {
    static BOOT: OnceLock<[u64; 2]> = OnceLock::new();
    *BOOT.get_or_init(read_boot_id)
}

fn read_boot_id() -> [u64; 2] {
    let Ok(text) = procfs::record("/proc/sys/kernel/random/boot_id") else {
        return [0, 0];
    };
    let hex: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    match u128::from_str_radix(&hex, 16) {
        Ok(bits) => [(bits >> 64) as u64, bits as u64],
        Err(_) => [0, 0],
    }
}

/// The number that two files have in common if they belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instance(pub(crate) [u64; 2]);

impl Instance {
    pub(crate) fn fresh() -> Instance {
        let mut bytes = [0u8; 16];
        let flags = libc::GRND_NONBLOCK;
        #[expect(unsafe_code, reason = "of rustix we use no random numbers")]
        // SAFETY: the place is ours and as long as we say.
        let got =
            unsafe { libc::syscall(libc::SYS_getrandom, bytes.as_mut_ptr(), bytes.len(), flags) };
        if got == bytes.len() as libc::c_long {
            return Instance(
                [0, 8].map(|at| u64::from_ne_bytes(std::array::from_fn(|index| bytes[at + index]))),
            );
        }
        // Early in a boot, or where a sandbox forbids it: different will do, for it is no secret.
        Instance([clock::now(), u64::from(std::process::id())])
    }
}

/// The header by plain writes, the version word by one of its own at the end: no process has mapped the file yet, and
/// `link` publishes it.
pub(crate) fn write(file: &File, kind: Kind, instance: Instance) -> io::Result<()> {
    let boot = boot_id();
    let word = |at: u64, value: u64| file.write_all_at(&value.to_ne_bytes(), at);
    word(0, kind.magic())?;
    word(16, kind.size())?;
    word(24, boot[0])?;
    word(32, boot[1])?;
    word(40, clock::now())?;
    word(48, u64::from(rustix::process::geteuid().as_raw()))?;
    word(56, instance.0[0])?;
    word(64, instance.0[1])?;
    word(8, u64::from(ABI_VERSION))
}
