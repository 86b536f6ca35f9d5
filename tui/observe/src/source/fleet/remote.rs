//! The connection to another machine: by ssh, or at a URL.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::locked;

/// The options of ssh for every connection: it never prompts, and it notices when the other end has gone.
pub const WAYS: [&str; 6] = [
    "-oConnectTimeout=5",
    "-oServerAliveInterval=5",
    "-oServerAliveCountMax=2",
    "-oClearAllForwardings=yes",
    "-oPermitLocalCommand=no",
    "-oForwardAgent=no",
];

/// The longest document: that of a machine with every table full.
const LONGEST: u64 = 32 << 20;
/// Time limit of an HTTP connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// Number of bytes kept of the error output.
const COMPLAINT: usize = 400;

/// A child process that reads a machine.
pub struct Asking {
    child: Child,
    /// Time of its last output.
    pub since: Instant,
    complaint: Arc<Mutex<String>>,
    listener: Option<JoinHandle<()>>,
    /// The reason why gpushare ended it.
    why: Option<String>,
}

/// The lines of its output.
pub struct Lines(BufReader<ChildStdout>);

/// Starts ssh with these words as the remote command. They are constants of gpushare, so a shell on the other machine
/// takes them literally.
pub fn start(host: &str, words: &[&str]) -> Result<(Asking, Lines), String> {
    let mut command = Command::new("ssh");
    command
        .args(["-T", "-oBatchMode=yes"])
        .args(WAYS)
        .arg("--")
        .arg(host)
        .args(words);
    // A process group of its own, so that the children of ssh end with it.
    let command = command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| format!("ssh cannot be started: {error}"))?;
    let complaint = Arc::new(Mutex::new(String::new()));
    let kept = Arc::clone(&complaint);
    let listener = child.stderr.take().and_then(|errors| {
        let listen = move || keep_last_line(errors, &kept);
        thread::Builder::new()
            .stack_size(256 << 10)
            .spawn(listen)
            .ok()
    });
    let lines = child.stdout.take().map(|out| Lines(BufReader::new(out)));
    let asking = Asking {
        child,
        since: Instant::now(),
        complaint,
        listener,
        why: None,
    };
    Ok((asking, lines.ok_or("ssh has no output")?))
}

fn keep_last_line(mut from: impl Read, kept: &Mutex<String>) {
    let (mut bytes, mut line) = ([0; 1024], Vec::new());
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        for byte in &bytes[..count] {
            match byte {
                b'\n' | b'\r' if line.is_empty() => {}
                b'\n' | b'\r' => {
                    *locked(kept) = String::from_utf8_lossy(&line).into_owned();
                    line.clear();
                }
                byte if line.len() < COMPLAINT => line.push(*byte),
                _ => {}
            }
        }
    }
    if !line.is_empty() {
        *locked(kept) = String::from_utf8_lossy(&line).into_owned();
    }
}

impl Lines {
    /// Returns the next line; `None` at the end.
    pub fn next(&mut self) -> Result<Option<Vec<u8>>, String> {
        let mut line = Vec::new();
        let read = (&mut self.0).take(LONGEST).read_until(b'\n', &mut line);
        match read {
            Ok(0) => Ok(None),
            Ok(_) if line.ends_with(b"\n") => Ok(Some(line)),
            Ok(_) if line.len() as u64 >= LONGEST => {
                Err("what it says is not from gpushare-top: a line without an end".to_owned())
            }
            // The line is incomplete; the exit status explains more.
            Ok(_) => Ok(None),
            Err(error) => Err(format!("what it says cannot be read: {error}")),
        }
    }
}

impl Asking {
    /// Ends the child process and everything that it started.
    pub fn end(&mut self, why: String) {
        self.why.get_or_insert(why);
        // The child is not reaped before `finish`, so its pid is still its own.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
    }

    /// Waits for the end of the child process and returns the reason. With `nonsense` the child is ended by gpushare.
    pub fn finish(mut self, nonsense: bool) -> String {
        if nonsense {
            self.end(String::new());
        }
        // Its output has ended. Processes that go on without it are ended too, and only then is it reaped.
        let pid = Pid::from_child(&self.child);
        let until = Instant::now() + Duration::from_secs(1);
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(pid), options), Ok(None)) && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
        let _ = kill_process_group(pid, Signal::KILL);
        let status = self.child.wait().ok();
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
        let complaint = locked(&self.complaint).clone();
        match (self.why, status.and_then(|status| status.code())) {
            (Some(why), _) => why,
            (None, Some(127)) => {
                "gpushare is not installed there, or not on the PATH of ssh's commands".to_owned()
            }
            (None, _) if !complaint.is_empty() => complaint,
            (None, Some(code)) => format!("ssh ended with code {code}"),
            (None, None) => "ssh was ended by a signal".to_owned(),
        }
    }
}

/// Returns the output of these words on another machine, if they succeed within the time limit.
pub fn once(host: &str, words: &[&str], limit: Duration) -> Result<Vec<u8>, String> {
    let (asking, lines) = start(host, words)?;
    let asking = Arc::new(Mutex::new(Some(asking)));
    let (theirs, until) = (Arc::clone(&asking), Instant::now() + limit);
    let watch = thread::spawn(move || {
        while let Some(asking) = locked(&theirs).as_mut() {
            if Instant::now() >= until {
                asking.end("it did not answer in time".to_owned());
                return;
            }
            thread::park_timeout(Duration::from_millis(20));
        }
    });
    let mut said = Vec::new();
    let read = lines.0.take(LONGEST).read_to_end(&mut said);
    let asking = locked(&asking).take();
    watch.thread().unpark();
    let Some(asking) = asking else {
        return Err("it was ended".to_owned());
    };
    let too_long = said.len() as u64 >= LONGEST;
    let well = asking.why.is_none() && !too_long;
    let why = asking.finish(too_long);
    match (read, well) {
        // The output itself shows success: a document is complete or invalid.
        (Ok(_), true) if !said.is_empty() => Ok(said),
        (Ok(_), _) if too_long => Err("what it says is too long".to_owned()),
        (Ok(_), _) => Err(why),
        (Err(error), _) => Err(format!("what it says cannot be read: {error}")),
    }
}

/// Fetches a document by HTTP.
pub fn get(authority: &str, path: &str) -> Result<Vec<u8>, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{authority}: {error}");
    let until = Instant::now() + PATIENCE;
    let mut addresses = authority.to_socket_addrs().map_err(|error| wrong(&error))?;
    let address = addresses.next().ok_or_else(|| wrong(&"no such host"))?;
    let mut stream =
        TcpStream::connect_timeout(&address, PATIENCE).map_err(|error| wrong(&error))?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {authority}\r\nAccept: application/json\r\nConnection: close\r\n\r\n"
    );
    stream
        .set_write_timeout(Some(PATIENCE))
        .map_err(|error| wrong(&error))?;
    stream
        .write_all(request.as_bytes())
        .map_err(|error| wrong(&error))?;
    let (mut answer, mut chunk) = (Vec::new(), [0; 16 << 10]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(wrong(&"it did not answer in time"));
        }
        stream
            .set_read_timeout(Some(left))
            .map_err(|error| wrong(&error))?;
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => answer.extend_from_slice(&chunk[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(wrong(&error)),
        }
        if answer.len() as u64 > LONGEST {
            return Err(wrong(&"what it says is too long"));
        }
    }
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(&answer) {
        Ok(httparse::Status::Complete(head)) if response.code == Some(200) => {
            Ok(answer.split_off(head))
        }
        Ok(httparse::Status::Complete(_)) => {
            Err(wrong(&format!("it answers {}", response.code.unwrap_or(0))))
        }
        _ => Err(wrong(&"what it says is not HTTP")),
    }
}
