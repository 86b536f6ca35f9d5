//! Serves the page to Prometheus.
//!
//! One thread looks at the segments once a second, so that no event is overwritten before it was read; one takes connections in;
//! each of at most [`CLIENTS`] connections has a thread for as long as [`super::http`] bears with it. Nothing that is asked changes
//! anything.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use super::http::{Answer, Client, Request, names_loopback};
use super::{Figures, Format};
use crate::source::live::Live;
use crate::source::locked;
use crate::text::exit::Failure;

/// The most connections at a time.
const CLIENTS: usize = 16;
/// How often the segments are looked at.
const PACE: Duration = Duration::from_secs(1);

/// Who may read.
#[derive(Clone, Debug)]
pub enum Access {
    /// Every user of this machine.
    Loopback,
    /// Who knows the token.
    Token(String),
}

impl Access {
    /// Loopback without a token, every other address with one.
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
                Some(given) if same(given.trim().as_bytes(), token.as_bytes()) => Ok(()),
                _ => Err(Answer::refused(
                    "401 Unauthorized",
                    "the token is missing or wrong",
                )),
            },
        }
    }
}

/// Compares in a time that does not tell where they differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    let differences = a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b));
    a.len() == b.len() && differences == 0
}

/// What is served, and to whom.
pub struct Server {
    looking: Mutex<Looking>,
    access: Access,
    busy: AtomicUsize,
}

struct Looking {
    live: Live,
    figures: Figures,
    /// Why there are no figures.
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
    /// Serves what is in the segments.
    pub fn new(live: Live, access: Access) -> Self {
        let (figures, wrong) = Default::default();
        Self {
            looking: Mutex::new(Looking {
                live,
                figures,
                wrong,
            }),
            access,
            busy: AtomicUsize::new(0),
        }
    }

    /// Listens on an address.
    pub fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
        TcpListener::bind(address)
            .map_err(|error| Failure::failed(format!("cannot listen on {address}: {error}")))
    }

    /// Serves for good.
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
        loop {
            let Ok((stream, _)) = listener.accept() else {
                // No descriptor is free: they come back as others end.
                thread::sleep(Duration::from_millis(50));
                continue;
            };
            let Some(place) = Place::take(&server) else {
                // Closed at once; Prometheus asks again.
                continue;
            };
            let serve = move || place.0.serve(stream);
            let thread = thread::Builder::new().name("metrics".into());
            // One that cannot be started is a client that asks again.
            let _ = thread.stack_size(512 << 10).spawn(serve);
        }
    }

    fn look(&self) -> MutexGuard<'_, Looking> {
        let mut looking = locked(&self.looking);
        looking.look();
        looking
    }

    fn serve(&self, stream: TcpStream) {
        let mut client = Client::new(stream);
        let (answer, head_only) = match client.request() {
            Ok(request) => (self.answer(&request), request.method == "HEAD"),
            Err(answer) => (answer, false),
        };
        // One that does not listen any more has what it wanted.
        let _ = client.answer(&answer, head_only);
    }

    fn answer(&self, request: &Request) -> Answer {
        if !matches!(&*request.method, "GET" | "HEAD") {
            let why = "there is nothing to change here; use GET";
            return Answer::refused("405 Method Not Allowed", why);
        }
        if let Err(refused) = self.access.admits(request) {
            return refused;
        }
        if !matches!(&*request.path, "/metrics" | "/json") {
            return Answer::refused("404 Not Found", "there are /metrics and /json");
        }
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
        // Others need not wait while it is packed.
        drop(looking);
        let answer = Answer {
            status: "200 OK",
            content_type,
            body: body.into_bytes(),
            packed: false,
        };
        answer.pack(request)
    }
}

/// One of the connections that there may be at a time.
struct Place(Arc<Server>);

impl Place {
    fn take(server: &Arc<Server>) -> Option<Self> {
        // Only the accepting thread adds, so there are never more.
        if server.busy.load(Ordering::Relaxed) >= CLIENTS {
            return None;
        }
        server.busy.fetch_add(1, Ordering::Relaxed);
        Some(Self(Arc::clone(server)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}
