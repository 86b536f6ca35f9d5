//! A small HTTP server for pages that are read and change nothing: metrics, the dashboard in a browser.
//!
//! One thread accepts connections and reads requests (`waiting`). Each request that is being answered, at most 16
//! at a time, has a thread of its own. `message` has the limits of a request.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;

mod message;
mod waiting;

use gpushare_base::text::exit::Failure;

pub use message::{Answer, Request, is_address, names_loopback, without_port};
use waiting::Waiting;

/// Maximum number of connections that are answered at a time.
const ANSWERED: usize = 16;

/// A site that is read and changes nothing.
pub trait Site: Send + Sync + 'static {
    /// Checks whether a request to read may be answered, before it takes a place. The error is the response.
    fn check(&self, request: &Request) -> Result<(), Answer>;

    /// Returns the response to a request that passed the check.
    fn answer(&self, request: &Request) -> Answer;
}

/// Listens on an address.
pub fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).map_err(|error| {
        let why = match error.kind() {
            ErrorKind::AddrInUse => {
                let port = address.port();
                format!("another program listens on port {port}; give another port, or end that program (ss -ltnp shows it)")
            }
            ErrorKind::AddrNotAvailable => {
                "this machine does not have that address; ip address lists those that it has".to_owned()
            }
            _ => error.to_string(),
        };
        Failure::failed(format!("cannot listen on {address}: {why}"))
    })
}

/// Serves forever.
pub fn serve(site: &Arc<impl Site>, listener: &TcpListener) -> io::Result<()> {
    let mut waiting = Waiting::new(listener, ANSWERED)?;
    let check = |request: &Request| match &*request.method {
        "GET" | "HEAD" => site.check(request),
        _ => Err(Answer::refused(
            "405 Method Not Allowed",
            "there is nothing to change here; use GET",
        )),
    };
    loop {
        for (mut client, request, place) in waiting.next(check) {
            let site = Arc::clone(site);
            let serve = move || {
                // An error means that the client is gone, so it is ignored.
                let _ = client.answer(&site.answer(&request), request.method == "HEAD");
                drop(place);
            };
            let thread = thread::Builder::new().name("http".into());
            // If the thread cannot be started, the client is dropped and asks again.
            let _ = thread.stack_size(512 << 10).spawn(serve);
        }
    }
}

/// Compares in constant time, so that the time does not reveal the position of a difference.
pub fn is_same_secret(a: &[u8], b: &[u8]) -> bool {
    let differences = a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b));
    a.len() == b.len() && differences == 0
}
