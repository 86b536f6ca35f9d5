//! The HTTP server of metrics for Prometheus.
//!
//! One thread reads the segments once a second, so that no event is overwritten before it is read. [`http::serve`] answers
//! the requests, none of which changes anything.

use std::net::{IpAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use gpushare_base::text::exit::Failure;
use gpushare_observe::http::{self, Answer, Request, Site, is_same_secret, names_loopback};
use gpushare_observe::metrics::{Figures, Format};
use gpushare_observe::source::live::Live;
use gpushare_observe::source::locked;

/// Interval between two readings of the segments.
const PACE: Duration = Duration::from_secs(1);

/// Access rule of the server.
#[derive(Clone, Debug)]
pub enum Access {
    /// Every user of this machine may read.
    Loopback,
    /// Clients with the token may read.
    Token(String),
}

impl Access {
    /// Returns the rule for an address: loopback needs no token, every other address needs one.
    pub fn of(address: IpAddr, token: Option<String>) -> Result<Self, Failure> {
        match token {
            Some(token) => Ok(Access::Token(token)),
            None if address.is_loopback() => Ok(Access::Loopback),
            None => Err(Failure::usage(format!(
                "{address} can be reached from other machines; add --token-file FILE, or listen on 127.0.0.1 behind a proxy that does TLS"
            ))),
        }
    }

    fn admits(&self, request: &Request) -> Result<(), Answer> {
        match self {
            Access::Loopback if names_loopback(&request.host) => Ok(()),
            Access::Loopback => Err(Answer::refused(
                "421 Misdirected Request",
                "without a token this is served to 127.0.0.1 and localhost alone",
            )),
            Access::Token(token) => match request.authorization.strip_prefix("Bearer ") {
                Some(given) if is_same_secret(given.trim().as_bytes(), token.as_bytes()) => Ok(()),
                _ => Err(Answer::refused(
                    "401 Unauthorized",
                    "the token is missing or wrong",
                )),
            },
        }
    }
}

/// The server, with the figures and the access rule.
pub struct Server {
    looking: Mutex<Looking>,
    access: Access,
}

struct Looking {
    live: Live,
    figures: Figures,
    /// Reason why there are no figures.
    wrong: Option<String>,
}

impl Looking {
    fn look(&mut self) {
        match self.live.look() {
            Ok(sample) => {
                self.figures.take(sample);
                self.wrong = None;
            }
            Err(error) => self.wrong = Some(error.to_string()),
        }
    }
}

impl Server {
    /// Makes a server for the figures of the segments.
    pub fn new(live: Live, access: Access) -> Self {
        let (figures, wrong) = Default::default();
        Self {
            looking: Mutex::new(Looking {
                live,
                figures,
                wrong,
            }),
            access,
        }
    }

    /// Serves forever.
    pub fn run(self, listener: &TcpListener) -> Result<(), Failure> {
        let server = Arc::new(self);
        let watching = Arc::clone(&server);
        let watch = move || {
            loop {
                drop(watching.look());
                thread::sleep(PACE);
            }
        };
        thread::Builder::new()
            .name("metrics-look".into())
            .spawn(watch)?;
        Ok(http::serve(&server, listener)?)
    }

    fn look(&self) -> MutexGuard<'_, Looking> {
        let mut looking = locked(&self.looking);
        looking.look();
        looking
    }
}

impl Site for Server {
    fn check(&self, request: &Request) -> Result<(), Answer> {
        self.access.admits(request)?;
        match &*request.path {
            "/metrics" | "/json" => Ok(()),
            _ => Err(Answer::refused(
                "404 Not Found",
                "there are /metrics and /json",
            )),
        }
    }

    fn answer(&self, request: &Request) -> Answer {
        let looking = self.look();
        if let Some(wrong) = &looking.wrong {
            return Answer::refused("503 Service Unavailable", wrong);
        }
        let (content_type, body) = match &*request.path {
            "/json" => {
                let document = serde_json::to_string(&looking.figures.document());
                ("application/json", document.unwrap_or_default())
            }
            _ => {
                let format = match request.accept.contains("application/openmetrics-text") {
                    true => Format::Open,
                    false => Format::Text,
                };
                (format.content_type(), looking.figures.page(format))
            }
        };
        // Unlocked before the compression, so that others need not wait.
        drop(looking);
        Answer::page(content_type, body).pack(request)
    }
}
