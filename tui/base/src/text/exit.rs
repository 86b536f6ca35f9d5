//! The exit codes of `gpushare` and `gpushare-top`, and the failure that carries one.
//!
//! Scripts may rely on these numbers, so they are defined only here. `gpushare run` becomes the program that it starts, so
//! after a successful start the code is the program's own.

use std::fmt;
use std::io::{self, ErrorKind, Write as _};

use shm_layout::OpenError;
use shm_layout::text::PathText as _;
use shm_layout::trace::TraceError;

use crate::text::plain::Plain;
use crate::text::users::Users;
use shm_layout::variables;

/// Declares the enum, its numbers and the table of the help from one list.
macro_rules! exit_codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $meaning:literal;)*) => {
        /// Exit code of a program.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Exit {
            $($(#[$doc])* $name = $code,)*
        }

        /// Every code with its number and meaning, as help and man pages print it.
        pub const TABLE: &[(Exit, u8, &str)] = &[$((Exit::$name, $code, $meaning),)*];
    };
}

exit_codes! {
    /// Success.
    Done = 0, "done";
    /// A failure that is neither a wrong command line nor a missing permission.
    Failed = 1, "failed";
    /// The command line, a value in it or a file it names is wrong; nothing was changed.
    Usage = 2, "usage: a value is wrong, nothing was changed";
    /// `gpushare-top --once --check` found an active alert.
    Alert = 3, "an alert is active (--once --check)";
    /// The segments belong to another user, or are read-only for this user.
    NotPermitted = 4, "not permitted";
    /// The target names no process, device or group.
    NoSuchTarget = 5, "no such target";
    /// `run`: the program was found and cannot be executed.
    CannotExecute = 126, "run: the program cannot be executed";
    /// `run`: the program was not found.
    NotFound = 127, "run: the program was not found";
}

impl Exit {
    /// Prints clap's error, or the help that was asked for, and returns the exit code.
    pub fn of_words(error: &clap::Error) -> Self {
        if error.use_stderr() {
            // The message repeats what was typed, so it is escaped, which removes the colours.
            let _ = write!(Plain::new(io::stderr()), "{}", error.render());
            return Self::Usage;
        }
        let _ = error.print();
        Self::Done
    }

    /// Returns the exit code with this number.
    pub fn of_code(code: u8) -> Option<Self> {
        let mut all = TABLE.iter();
        all.find_map(|(exit, number, _)| (*number == code).then_some(*exit))
    }

    /// Returns the number of the exit code.
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        std::process::ExitCode::from(exit.code())
    }
}

/// A message for the user and an exit code for scripts.
///
/// The message states what failed, the cause, and the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Exit code of the program.
    pub exit: Exit,
    /// Message for the user.
    pub sentence: String,
}

impl Failure {
    /// Makes a failure with exit code 1.
    pub fn failed(sentence: impl Into<String>) -> Self {
        Self {
            exit: Exit::Failed,
            sentence: sentence.into(),
        }
    }

    /// Makes a failure with exit code 2.
    pub fn usage(sentence: impl Into<String>) -> Self {
        Self {
            exit: Exit::Usage,
            sentence: sentence.into(),
        }
    }

    /// Makes a failure with exit code 4.
    pub fn not_permitted(sentence: impl Into<String>) -> Self {
        Self {
            exit: Exit::NotPermitted,
            sentence: sentence.into(),
        }
    }

    /// Makes a failure with exit code 5.
    pub fn no_such_target(sentence: impl Into<String>) -> Self {
        Self {
            exit: Exit::NoSuchTarget,
            sentence: sentence.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Failure {}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        // A reader that went away (`gpushare ps | head`) is no failure, and a message would have no reader.
        match error.kind() {
            ErrorKind::BrokenPipe => Self {
                exit: Exit::Done,
                sentence: String::new(),
            },
            _ => Self::failed(error.to_string()),
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        io::Error::from(error).into()
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        Self::from(&error)
    }
}

impl From<&OpenError> for Failure {
    fn from(error: &OpenError) -> Self {
        let exit = if error.not_permitted() {
            Exit::NotPermitted
        } else {
            Exit::Failed
        };
        let sentence = match error {
            OpenError::WrongOwner { path, owner, .. } => format!(
                "{} belongs to user {}, not to you, and is not used; set {} to a directory of your own",
                path.shown(),
                Users::of_this_machine().name_and_number(*owner),
                variables::DIR
            ),
            other => other.to_string(),
        };
        Self { exit, sentence }
    }
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        let exit = match &error {
            TraceError::Missing { .. } => Exit::NoSuchTarget,
            TraceError::Records { .. } => Exit::Usage,
            TraceError::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
                Exit::NotPermitted
            }
            _ => Exit::Failed,
        };
        Self {
            exit,
            sentence: error.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_and_the_enum_agree() {
        for (exit, code, meaning) in TABLE {
            assert_eq!(exit.code(), *code);
            assert!(!meaning.is_empty());
        }
    }
}
