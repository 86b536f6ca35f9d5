//! Errors of opening a segment, each with a remedy.

use std::{fmt, io, path::PathBuf};

use crate::text::PathText as _;

/// The reason that a segment could not be opened. Its `Display` is a sentence that names the remedy.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// No segment here, and this caller does not create one.
    Missing {
        /// The file looked for.
        path: PathBuf,
    },
    /// A process created the file and has not published it.
    NotReady {
        /// The file.
        path: PathBuf,
    },
    /// Written by another version of gpushare.
    WrongVersion {
        /// The file.
        path: PathBuf,
        /// The version this program speaks.
        ours: u32,
        /// The version the file has.
        theirs: u32,
    },
    /// The file is not a gpushare segment.
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// Shorter than its layout.
    Truncated {
        /// The file.
        path: PathBuf,
        /// Length of the file.
        len: u64,
        /// The layout's length.
        want: u64,
    },
    /// The file or directory belongs to another user.
    WrongOwner {
        /// The file or directory.
        path: PathBuf,
        /// Owner of the file.
        owner: u32,
        /// The owner it must have.
        want: u32,
    },
    /// The file or directory is of a kind, or open to others in a way, that lets other users in.
    Unsafe {
        /// The file or directory.
        path: PathBuf,
        /// The fault, and the remedy.
        why: &'static str,
    },
    /// The `control` of segments that are gone: no process applies it, and this caller does not set it aside.
    OtherInstance {
        /// The file.
        path: PathBuf,
    },
    /// Left over from before the last boot, and this caller does not create.
    StaleBoot {
        /// The file.
        path: PathBuf,
    },
    /// The file system has no room for the segment.
    NoSpace {
        /// The file.
        path: PathBuf,
        /// The bytes needed.
        want: u64,
    },
    /// The file system does not keep the lock by which others see that a process lives.
    Forgetful {
        /// The directory, or a file in it.
        path: PathBuf,
    },
    /// The machine has a broker, and it does not answer.
    NoBroker {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The broker refused.
    Refused {
        /// Path of the socket.
        path: PathBuf,
        /// The reason, as a sentence.
        why: String,
        /// The code a tool should end with.
        exit: Option<u8>,
    },
    /// Anything else the system said.
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The operation that failed.
        op: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

impl OpenError {
    /// Returns true if there are no segments yet, and the next process that starts makes them.
    pub fn is_not_yet(&self) -> bool {
        matches!(
            self,
            Self::Missing { .. }
                | Self::NotReady { .. }
                | Self::OtherInstance { .. }
                | Self::StaleBoot { .. }
        )
    }

    /// Returns true if permission is missing, or if another user may be the cause.
    pub fn not_permitted(&self) -> bool {
        match self {
            Self::WrongOwner { .. } | Self::Unsafe { .. } => true,
            Self::Io { source, .. } | Self::NoBroker { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
            ),
            _ => false,
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { path } => write!(
                f,
                "no program has run under gpushare here yet: start one with `gpushare run -- CMD`, or `gpushare demo` to see four; \
                 for segments elsewhere than in {} set GPUSHARE_DIR",
                path.shown()
            ),
            Self::NotReady { path } => write!(
                f,
                "{} is not ready: the process that makes it has not finished; try again in a moment",
                path.shown()
            ),
            Self::WrongVersion { path, ours, theirs } => write!(
                f,
                "{} has layout version {theirs} and this program uses version {ours}; \
                 end the programs that use it and remove it, or use the gpushare they came with",
                path.shown()
            ),
            Self::Foreign { path } => write!(
                f,
                "{} is not a gpushare segment; move it away, or set GPUSHARE_DIR to another directory",
                path.shown()
            ),
            Self::Truncated { path, len, want } => write!(
                f,
                "{} is cut short: {len} of {want} bytes; end the programs that use it and remove it",
                path.shown()
            ),
            Self::WrongOwner { path, owner, want } => write!(
                f,
                "{} belongs to user {owner}, not to user {want}, and is not used; \
                 set GPUSHARE_DIR to a directory of your own",
                path.shown()
            ),
            Self::Unsafe { path, why } => write!(
                f,
                "{} is not safe to use: {why}, or set GPUSHARE_DIR to a directory of your own",
                path.shown()
            ),
            Self::OtherInstance { path } => write!(
                f,
                "{} holds the settings of earlier segments; the next `gpushare run` sets it aside",
                path.shown()
            ),
            Self::StaleBoot { path } => write!(
                f,
                "{} is left over from before the last boot; the next `gpushare run` makes a new one",
                path.shown()
            ),
            Self::NoSpace { path, want } => write!(
                f,
                "no room for {}: {want} bytes are needed; free some, or set GPUSHARE_DIR to another file system",
                path.shown()
            ),
            Self::Forgetful { path } => write!(
                f,
                "{} is on a file system that forgets the locks of running programs, as overlay does, which a container's own \
                 files are on; set GPUSHARE_DIR to a directory in /dev/shm or on a volume",
                path.shown()
            ),
            Self::NoBroker { path, source } if source.kind() == io::ErrorKind::PermissionDenied => {
                write!(
                    f,
                    "you may not use {}; ask an administrator to add you to its group",
                    path.shown()
                )
            }
            Self::NoBroker { path, source } if is_out_of_files(source) => write!(
                f,
                "cannot ask the broker at {}: {source}{}",
                path.shown(),
                remedy(source)
            ),
            Self::NoBroker { path, source } => write!(
                f,
                "the broker at {} does not answer ({source}); start it as root: systemctl restart gpushare, or gpushare serve",
                path.shown()
            ),
            Self::Refused { why, .. } => f.write_str(why),
            Self::Io { path, op, source } => {
                let remedy = remedy(source);
                write!(f, "cannot {op} {}: {source}{remedy}", path.shown())
            }
        }
    }
}

fn is_out_of_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Returns the end of a sentence about an error of the system: the remedy.
pub(crate) fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EMFILE) => {
            "; raise the limit of open files (ulimit -n), or start CUDA before they are opened"
        }
        Some(libc::ENFILE) => "; the whole machine has as many files open as it may (fs.file-max)",
        _ if error.kind() == io::ErrorKind::PermissionDenied => {
            "; ask to join its group, or set GPUSHARE_DIR to a directory of your own"
        }
        _ => "",
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } | Self::NoBroker { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> Self {
        let kind = match &error {
            OpenError::Missing { .. } => io::ErrorKind::NotFound,
            OpenError::WrongOwner { .. } | OpenError::Unsafe { .. } => {
                io::ErrorKind::PermissionDenied
            }
            OpenError::Io { source, .. } | OpenError::NoBroker { source, .. } => source.kind(),
            _ => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, error)
    }
}
