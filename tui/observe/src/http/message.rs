//! The part of HTTP/1.1 that reading a page needs: one request and one response for each connection.
//!
//! A client has [`HEAD`] and [`LONGEST`] bytes for its request, and [`PATIENCE`] for the answer.

use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;

/// Maximum time for a client to send its request.
pub const HEAD: Duration = Duration::from_secs(1);
/// Maximum time for a client to read the response.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum length of a request in bytes.
const LONGEST: usize = 8 << 10;
/// Maximum number of headers of a request.
const HEADERS: usize = 64;

/// A request, with only the fields that are used.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: String,
    /// The path without the query.
    pub path: String,
    /// The name by which the client reached this machine, with the port.
    pub host: String,
    /// The content types that it accepts.
    pub accept: String,
    /// Its credentials.
    pub authorization: String,
    /// The compressions that it accepts.
    pub encodings: String,
}

/// The response to a request.
#[derive(Debug)]
pub struct Answer {
    /// The status and its words.
    pub status: &'static str,
    /// The type of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
    /// Further headers, each with its line end.
    pub headers: String,
    /// True if the body is compressed with gzip.
    packed: bool,
}

impl Answer {
    /// Makes a response with a page.
    pub fn page(content_type: &'static str, body: String) -> Self {
        Self {
            status: "200 OK",
            content_type,
            body: body.into_bytes(),
            headers: String::new(),
            packed: false,
        }
    }

    /// Makes a refusal with a sentence.
    pub fn refused(status: &'static str, sentence: &str) -> Self {
        Self {
            status,
            ..Self::page("text/plain; charset=utf-8", format!("{sentence}\n"))
        }
    }

    /// Returns the status line and the headers.
    fn head(&self) -> Vec<u8> {
        let Answer {
            status,
            content_type,
            body,
            headers,
            packed,
        } = self;
        let encoding = match packed {
            true => "Content-Encoding: gzip\r\n",
            false => "",
        };
        let ask = match status.starts_with("401") {
            true => "WWW-Authenticate: Bearer\r\n",
            false => "",
        };
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{encoding}{ask}{headers}\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
            body.len()
        )
        .into_bytes()
    }

    /// Compresses the body if the client accepts gzip: a page of metrics shrinks to a twentieth.
    pub fn pack(mut self, request: &Request) -> Self {
        let mut known = request.encodings.split(',').map(str::trim);
        if known.any(|encoding| encoding == "gzip") {
            let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
            if packed.write_all(&self.body).is_ok()
                && let Ok(body) = packed.finish()
            {
                (self.body, self.packed) = (body, true);
            }
        }
        self
    }
}

/// A client whose request is incomplete.
pub struct Asking {
    stream: TcpStream,
    heard: Vec<u8>,
    until: Instant,
}

impl Asking {
    /// Starts the client's time. Fails if its socket cannot be made non-blocking.
    pub fn new(stream: TcpStream, now: Instant) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            heard: Vec::new(),
            until: now + HEAD,
        })
    }

    /// Returns the end of the client's time.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// Reads the bytes that have arrived. Returns `None` while the request is incomplete. The error is the response to an
    /// invalid request.
    pub fn hear(&mut self, now: Instant) -> Result<Option<Request>, Answer> {
        let mut chunk = [0; 1024];
        loop {
            if let Some(request) = parse(&self.heard)? {
                return Ok(Some(request));
            }
            if self.heard.len() >= LONGEST {
                let why = "the request is too long";
                return Err(Answer::refused("431 Request Header Fields Too Large", why));
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(bad("the request is not whole")),
                Ok(read) => self.heard.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && now < self.until => {
                    return Ok(None);
                }
                Err(_) => {
                    let why = "the request took too long";
                    return Err(Answer::refused("408 Request Timeout", why));
                }
            }
        }
    }

    /// Sends the refusal without waiting, so a part of it may be lost.
    pub fn refuse(self, answer: &Answer) {
        let _ = (&self.stream).write_all(&answer.head());
        let _ = (&self.stream).write_all(&answer.body);
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }

    /// Prepares the client for the response, and starts the time for that.
    pub fn heard(self) -> io::Result<Client> {
        self.stream.set_nonblocking(false)?;
        Ok(Client {
            stream: self.stream,
            until: Instant::now() + PATIENCE,
        })
    }
}

impl AsFd for Asking {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// A client that gets a response within a time limit.
pub struct Client {
    stream: TcpStream,
    until: Instant,
}

impl Client {
    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(left),
        }
    }

    /// Returns a duplicate of the connection, with which another thread can end it.
    pub fn to_end(&self) -> io::Result<TcpStream> {
        self.stream.try_clone()
    }

    /// Sends the response. A client that does not read is abandoned.
    pub fn answer(&mut self, answer: &Answer, head_only: bool) -> io::Result<()> {
        self.send(&answer.head())?;
        if !head_only {
            self.send(&answer.body)?;
        }
        self.stream.shutdown(std::net::Shutdown::Write)
    }

    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.stream.set_write_timeout(Some(self.left()?))?;
            match self.stream.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn bad(sentence: &str) -> Answer {
    Answer::refused("400 Bad Request", sentence)
}

/// Parses a request. Returns `None` if it is incomplete.
fn parse(bytes: &[u8]) -> Result<Option<Request>, Answer> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(bytes) {
        Ok(httparse::Status::Partial) => return Ok(None),
        Ok(httparse::Status::Complete(_)) => {}
        Err(error) => return Err(bad(&format!("not a request of HTTP/1.1: {error}"))),
    }
    let header = |name: &str| {
        let mut headers = parsed.headers.iter();
        let found = headers.find(|header| header.name.eq_ignore_ascii_case(name));
        found.map_or(String::new(), |header| {
            String::from_utf8_lossy(header.value).trim().to_owned()
        })
    };
    let path = parsed.path.unwrap_or_default();
    Ok(Some(Request {
        method: parsed.method.unwrap_or_default().to_owned(),
        path: path.split('?').next().unwrap_or_default().to_owned(),
        host: header("host"),
        accept: header("accept"),
        authorization: header("authorization"),
        encodings: header("accept-encoding"),
    }))
}

/// Returns true if the request's Host is a loopback address. A browser that followed another name to this address (DNS
/// rebinding) sends that name.
pub fn names_loopback(host: &str) -> bool {
    let host = without_port(host);
    let loopback = |address: IpAddr| address.is_loopback();
    host.eq_ignore_ascii_case("localhost") || address(host).is_some_and(loopback)
}

/// Returns true if the request's Host is an address and no name, so that no name was followed to it.
pub fn is_address(host: &str) -> bool {
    address(without_port(host)).is_some()
}

/// Returns the host of a Host header without its port.
pub fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => host,
    }
}

fn address(host: &str) -> Option<IpAddr> {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    address.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_once_its_end_has_come() {
        let text = b"GET /metrics?x=1 HTTP/1.1\r\nHost: a:1\r\nAccept: text/plain\r\n\r\n";
        assert_eq!(parse(&text[..40]).expect("no fault yet"), None);
        let request = parse(text).expect("well formed").expect("whole");
        assert_eq!((&*request.method, &*request.path), ("GET", "/metrics"));
        assert_eq!((&*request.host, &*request.accept), ("a:1", "text/plain"));
        assert!(parse(b"\x16\x03\x01\x02\x00\x01\x00").is_err());
    }

    #[test]
    fn only_loopback_addresses_and_localhost_name_this_machine() {
        for host in [
            "localhost",
            "LocalHost:9837",
            "127.0.0.1:9837",
            "127.9.0.1",
            "[::1]:80",
            "[::1]",
        ] {
            assert!(names_loopback(host), "{host}");
        }
        for host in [
            "",
            "evil.example:9837",
            "127.0.0.1.evil.example",
            "10.0.0.1:9837",
        ] {
            assert!(!names_loopback(host), "{host}");
        }
    }
}
