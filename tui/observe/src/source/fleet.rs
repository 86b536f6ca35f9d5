//! The fleet: other machines, each read by a thread of its own, with the last answer of each ready at once.
//!
//! A machine is read by `ssh HOST gpushare-top -b --format json`, so nothing listens there and its own rules hold; or
//! at a URL of `gpushare metrics --listen`. The answers are not trusted: a line is bounded in length, only a document
//! of this version is accepted, and a machine that falls silent is disconnected and tried again.

mod remote;
mod remote_summary;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use shm_layout::text::is_hidden;

use super::locked;
pub use remote::{WAYS, get, once};
pub use remote_summary::{RemoteSummary, read};

/// Time without an answer after which a machine is disconnected and tried again.
const SILENT: Duration = Duration::from_secs(30);
/// Time between two attempts.
const AGAIN: Duration = Duration::from_secs(5);
/// Maximum number of machines.
pub const MOST: usize = 128;

/// The name of a machine and the way to read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// A host name, as ssh accepts it.
    Ssh(String),
    /// `HOST:PORT` and the path after it.
    Url(String, String),
}

impl Host {
    /// Parses a host as a user wrote it. A text that ssh would take for an option, or a terminal for a command, is
    /// refused.
    pub fn read(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            Err(format!(
                "\"{}\" is no machine: {why}",
                text.escape_default()
            ))
        };
        if text.len() > 255 || text.is_empty() {
            return wrong("a name has 1 to 255 letters");
        }
        if text.starts_with("https://") {
            return wrong(
                "https is not spoken here; name it for ssh, or use http through a tunnel",
            );
        }
        if text.chars().any(|c| is_hidden(c) || c.is_whitespace()) {
            return wrong("it holds blanks or letters that do not show");
        }
        if let Some(rest) = text.strip_prefix("http://") {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let known = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
            if authority.is_empty() || !authority.chars().all(known) {
                return wrong("write http://HOST:PORT");
            }
            let authority = match authority.rsplit_once(':') {
                Some((_, port)) if port.parse::<u16>().is_ok() => authority.to_owned(),
                _ => format!("{authority}:9837"),
            };
            let path = if path.len() < 2 { "/json" } else { path };
            return Ok(Self::Url(authority, path.to_owned()));
        }
        let known = |c: char| c.is_alphanumeric() || "-._@:[]%/+".contains(c);
        let begins = |part: &str| part.starts_with('-');
        if !text.chars().all(known) || text.split(['@', '/']).any(begins) {
            return wrong("write it as ssh takes it: HOST, USER@HOST or ssh://HOST:PORT");
        }
        Ok(Self::Ssh(text.to_owned()))
    }

    /// Returns the name to show.
    pub fn name(&self) -> String {
        match self {
            Host::Ssh(name) => name.clone(),
            Host::Url(authority, _) => format!("http://{authority}"),
        }
    }
}

/// The state of a machine.
#[derive(Clone, Debug)]
pub enum HostStatus {
    /// No answer yet.
    Asked,
    /// The last answer and its time.
    Here(RemoteSummary, Instant),
    /// The reason why there is no answer.
    Lost(String),
}

/// All machines.
pub struct Fleet {
    watched: Vec<Arc<Watched>>,
}

struct Watched {
    host: Host,
    pace: Duration,
    status: Mutex<HostStatus>,
    /// The child process that reads the machine, and the time of its last line.
    asking: Mutex<Option<remote::Asking>>,
    over: AtomicBool,
}

impl Fleet {
    /// Starts to read each machine at this pace.
    pub fn watch(hosts: Vec<Host>, pace: Duration) -> std::io::Result<Self> {
        let mut watched = Vec::new();
        for host in hosts {
            let one = Arc::new(Watched {
                host,
                pace: pace.max(Duration::from_millis(500)),
                status: Mutex::new(HostStatus::Asked),
                asking: Mutex::new(None),
                over: AtomicBool::new(false),
            });
            let theirs = Arc::clone(&one);
            thread::Builder::new()
                .name("host".into())
                .stack_size(512 << 10)
                .spawn(move || theirs.ask())?;
            watched.push(one);
        }
        Ok(Self { watched })
    }

    /// Returns the state of each machine, in the order of the command line. It never waits; machines that fell silent
    /// are disconnected.
    pub fn look(&self) -> Vec<(&Host, HostStatus)> {
        let look = |one: &'_ Arc<Watched>| {
            let silent = locked(&one.asking)
                .as_ref()
                .is_some_and(|asking| asking.since.elapsed() > SILENT);
            if silent {
                one.leave(format!(
                    "it says nothing for {} s; asked again",
                    SILENT.as_secs()
                ));
            }
            locked(&one.status).clone()
        };
        self.watched
            .iter()
            .map(|one| (&one.host, look(one)))
            .collect()
    }

    /// Reports whether each machine has answered or failed.
    pub fn is_settled(&self) -> bool {
        self.look()
            .iter()
            .all(|(_, status)| !matches!(status, HostStatus::Asked))
    }

    /// Retries one machine.
    pub fn again(&self, at: usize) {
        if let Some(one) = self.watched.get(at) {
            one.leave("asked again".to_owned());
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for one in &self.watched {
            one.over.store(true, Ordering::Relaxed);
            one.leave(String::new());
        }
    }
}

impl Watched {
    /// Ends the child process; its thread then reports the reason.
    fn leave(&self, why: String) {
        if let Some(asking) = locked(&self.asking).as_mut() {
            asking.end(why);
        }
    }

    fn ask(&self) {
        while !self.over.load(Ordering::Relaxed) {
            let why = match &self.host {
                Host::Ssh(name) => self.by_ssh(name),
                Host::Url(authority, path) => self.by_url(authority, path),
            };
            *locked(&self.status) = HostStatus::Lost(why);
            let until = Instant::now() + AGAIN;
            while Instant::now() < until && !self.over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(100));
            }
        }
    }

    fn told(&self, line: &[u8]) -> Result<(), String> {
        let told = RemoteSummary::read(line)?;
        *locked(&self.status) = HostStatus::Here(told, Instant::now());
        if let Some(asking) = locked(&self.asking).as_mut() {
            asking.since = Instant::now();
        }
        Ok(())
    }

    /// Reads lines until the connection ends, and returns the reason.
    fn by_ssh(&self, name: &str) -> String {
        let pace = self.pace.as_secs_f64().to_string();
        let words = ["gpushare-top", "-b", "--format", "json", "--delay", &pace];
        let (asking, mut lines) = match remote::start(name, &words) {
            Ok(started) => started,
            Err(why) => return why,
        };
        *locked(&self.asking) = Some(asking);
        let heard = loop {
            if self.over.load(Ordering::Relaxed) {
                break Ok(());
            }
            match lines.next() {
                Ok(Some(line)) => {
                    if let Err(why) = self.told(&line) {
                        break Err(why);
                    }
                }
                Ok(None) => break Ok(()),
                Err(why) => break Err(why),
            }
            // A machine that sends faster than requested is slowed down.
            thread::sleep(self.pace / 4);
        };
        let asking = locked(&self.asking).take();
        let said = asking.map_or(String::new(), |asking| asking.finish(heard.is_err()));
        heard.err().unwrap_or(said)
    }

    fn by_url(&self, authority: &str, path: &str) -> String {
        while !self.over.load(Ordering::Relaxed) {
            if let Err(why) = remote::get(authority, path).and_then(|body| self.told(&body)) {
                return why;
            }
            thread::sleep(self.pace);
        }
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_never_an_option_nor_an_escape() {
        for name in [
            "gpu01",
            "alice@gpu01.example",
            "ssh://alice@gpu01:2222",
            "10.0.0.1",
            "[::1]",
            "fe80::1%eth0",
        ] {
            assert_eq!(Host::read(name), Ok(Host::Ssh(name.to_owned())));
        }
        for name in [
            "",
            "-oProxyCommand=id",
            "a@-oX",
            "ssh://-oX",
            "a b",
            "a\u{1b}[2J",
            "a;id",
            "$(id)",
            "`id`",
            "a\n",
            "\u{202e}a",
            "https://a",
            "http://",
            "http://a b",
        ] {
            let refused = Host::read(name).expect_err(name);
            assert!(!refused.contains('\u{1b}'), "{refused}");
        }
        let url =
            |authority: &str, path: &str| Ok(Host::Url(authority.to_owned(), path.to_owned()));
        assert_eq!(Host::read("http://a"), url("a:9837", "/json"));
        assert_eq!(Host::read("http://[::1]:80/x"), url("[::1]:80", "/x"));
    }
}
