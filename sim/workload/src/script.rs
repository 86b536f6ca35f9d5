//! The workload under a script: one command per line, and one line of reply to each.
//!
//! The first line of output is `ready PID`. A reply is `ok`, with numbers if there are any, or `error CODE TEXT` with the
//! driver's code (0 if no driver call failed).

use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

use gpushare_workload::{Buffer, Context, Error, SpinKernel, Stream};

use crate::options::bytes;

/// Executes `commands` until they end or say `quit`.
pub fn run(context: &Context, commands: impl BufRead, out: &mut impl Write) -> anyhow::Result<()> {
    let mut puppet = Puppet {
        context,
        stream: context.stream()?,
        kernel: context.spin_kernel()?,
        held: Vec::new(),
    };
    writeln!(out, "ready {}", std::process::id())?;
    out.flush()?;
    for command in commands.lines() {
        let command = command?;
        let words: Vec<&str> = command.split_whitespace().collect();
        if words == ["quit"] {
            break;
        }
        match puppet.execute(&words) {
            Ok(answer) => writeln!(out, "ok{answer}")?,
            Err(Failure::Driver(Error::Call { function, error })) => {
                writeln!(out, "error {} {function}: {error}", error.code())?;
            }
            Err(Failure::Driver(error)) => writeln!(out, "error 0 {error}")?,
            Err(Failure::Command(why)) => writeln!(out, "error 0 {why}")?,
        }
        out.flush()?;
    }
    Ok(())
}

struct Puppet<'c> {
    context: &'c Context,
    stream: Stream,
    kernel: SpinKernel,
    held: Vec<Buffer>,
}

enum Failure {
    Driver(Error),
    Command(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Driver(error)
    }
}

impl Puppet<'_> {
    /// Executes one command. Its reply is empty or begins with a blank.
    fn execute(&mut self, words: &[&str]) -> Result<String, Failure> {
        match *words {
            ["alloc", size] => {
                let size = bytes(size).map_err(Failure::Command)?;
                self.held.push(self.context.alloc(size)?);
            }
            // Frees the newest piece. The reply is how many are left.
            ["free"] => {
                self.held.pop();
                return Ok(format!(" {}", self.held.len()));
            }
            ["free", "all"] => self.held.clear(),
            ["launch", time] => self.launch(time, "1")?,
            ["launch", time, count] => self.launch(time, count)?,
            ["sync"] => {
                let start = Instant::now();
                self.stream.synchronize()?;
                return Ok(format!(" {}", start.elapsed().as_nanos()));
            }
            // A kernel that writes to an illegal address.
            ["fault"] => self.stream.fault(&self.kernel)?,
            ["spin", time, milliseconds] => return self.spin(time, milliseconds),
            ["info"] => {
                let (free, total) = self.context.memory()?;
                return Ok(format!(" {free} {total}"));
            }
            ["sleep", milliseconds] => {
                std::thread::sleep(Duration::from_millis(number(milliseconds)?));
            }
            _ => return Err(Failure::Command(format!("no such command: {words:?}"))),
        }
        Ok(String::new())
    }

    fn launch(&self, microseconds: &str, count: &str) -> Result<(), Failure> {
        let time = Duration::from_micros(number(microseconds)?);
        for _ in 0..number(count)? {
            self.stream.launch(&self.kernel, time)?;
        }
        Ok(())
    }

    /// Launches and waits repeatedly for a time. The reply is the number of rounds.
    fn spin(&self, microseconds: &str, milliseconds: &str) -> Result<String, Failure> {
        let limit = Duration::from_millis(number(milliseconds)?);
        let start = Instant::now();
        let mut rounds = 0;
        while start.elapsed() < limit {
            self.launch(microseconds, "1")?;
            self.stream.synchronize()?;
            rounds += 1;
        }
        Ok(format!(" {rounds}"))
    }
}

fn number(word: &str) -> Result<u64, Failure> {
    word.parse()
        .map_err(|_| Failure::Command(format!("`{word}` is not a number")))
}
