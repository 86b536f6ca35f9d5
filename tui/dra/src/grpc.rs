//! gRPC as the kubelet uses it: one request message and one reply message, over a local socket.

use std::future::poll_fn;
use std::io;
use std::path::Path;
use std::sync::Arc;

use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use prost::bytes::Bytes;
use tokio::net::{UnixListener, UnixStream};

use crate::authority;

/// Maximum length of a request in bytes, enough for more claims than a node has.
const LONGEST: usize = 1 << 20;
/// Size of the buffer between the socket and the protocol, in bytes.
const PIPE: usize = 1 << 16;

/// The reason why a call has no reply.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The service has no such function.
    Unknown,
    /// The bytes are no valid message.
    Malformed(String),
}

/// A service that answers calls, each on a thread that may block.
pub trait Service: Send + Sync + 'static {
    /// Returns the reply to a message for `/SERVICE/FUNCTION`.
    fn call(&self, path: &str, message: &[u8]) -> Result<Vec<u8>, Refusal>;

    /// Returns true if the function is a stream of notifications that never has any.
    fn is_quiet(&self, path: &str) -> bool;
}

/// Listens at a path and replaces the socket of an earlier process.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => UnixListener::bind(path),
    }
}

/// Serves all connections.
pub async fn serve(listener: UnixListener, service: Arc<dyn Service>) -> io::Result<()> {
    loop {
        let (socket, _) = listener.accept().await?;
        let service = Arc::clone(&service);
        tokio::spawn(async move {
            // Errors are ignored, because the kubelet connects again.
            let _ = connection(socket, service).await;
        });
    }
}

async fn connection(socket: UnixStream, service: Arc<dyn Service>) -> Result<(), h2::Error> {
    let (mut incoming, mut outgoing) = socket.into_split();
    let (ours, theirs) = tokio::io::duplex(PIPE);
    let (mut answers, questions) = tokio::io::split(theirs);
    // Both tasks end with the connection.
    tokio::spawn(async move {
        let _ = authority::pass(&mut incoming, questions).await;
    });
    tokio::spawn(async move {
        let _ = tokio::io::copy(&mut answers, &mut outgoing).await;
    });
    let mut calls = h2::server::handshake(ours).await?;
    while let Some(call) = calls.accept().await {
        let (request, respond) = call?;
        let service = Arc::clone(&service);
        tokio::spawn(async move {
            // The client may be gone, so an error is ignored.
            let _ = answer(request, respond, service).await;
        });
    }
    Ok(())
}

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    service: Arc<dyn Service>,
) -> Result<(), h2::Error> {
    let path = request.uri().path().to_owned();
    let message = whole(request.into_body()).await?;
    let mut response = Response::new(());
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", kind);
    if service.is_quiet(&path) {
        let mut stream = respond.send_response(response, false)?;
        // The stream stays open until the client closes it.
        return poll_fn(|context| stream.poll_reset(context))
            .await
            .map(drop);
    }
    let work = tokio::task::spawn_blocking(move || {
        let message = message.ok_or_else(|| Refusal::Malformed("no whole message".into()))?;
        service.call(&path, &message)
    });
    let answer = work
        .await
        .unwrap_or_else(|error| Err(Refusal::Malformed(error.to_string())));
    match answer {
        Ok(message) => {
            let mut stream = respond.send_response(response, false)?;
            let length = u32::try_from(message.len()).unwrap_or(0).to_be_bytes();
            send(&mut stream, [&[0], &length[..], &message].concat().into()).await?;
            stream.send_trailers(HeaderMap::from_iter(status(0, "")))
        }
        Err(refusal) => {
            let (code, why) = match refusal {
                Refusal::Unknown => (12, "no such function".to_owned()),
                Refusal::Malformed(why) => (3, why),
            };
            response.headers_mut().extend(status(code, &why));
            respond.send_response(response, true).map(drop)
        }
    }
}

fn status(code: u16, why: &str) -> Vec<(http::HeaderName, HeaderValue)> {
    let plain: String = why
        .chars()
        .map(|c| {
            if c.is_ascii_graphic() && c != '%' {
                c
            } else {
                ' '
            }
        })
        .collect();
    let mut headers = vec![(http::HeaderName::from_static("grpc-status"), code.into())];
    if let (false, Ok(value)) = (plain.is_empty(), HeaderValue::from_str(&plain)) {
        headers.push((http::HeaderName::from_static("grpc-message"), value));
    }
    headers
}

/// Reads the message of a request: a flag, its length, and the message. Returns `None` if it is compressed, incomplete or
/// too long.
async fn whole(mut body: RecvStream) -> Result<Option<Vec<u8>>, h2::Error> {
    let mut bytes = Vec::new();
    while let Some(part) = body.data().await {
        let part = part?;
        body.flow_control().release_capacity(part.len())?;
        if bytes.len() + part.len() > LONGEST {
            return Ok(None);
        }
        bytes.extend_from_slice(&part);
    }
    let [0, a, b, c, d, message @ ..] = &bytes[..] else {
        return Ok(None);
    };
    let length = u32::from_be_bytes([*a, *b, *c, *d]);
    Ok((usize::try_from(length) == Ok(message.len())).then(|| message.to_vec()))
}

/// Sends the bytes as fast as the client accepts them.
async fn send(stream: &mut SendStream<Bytes>, mut bytes: Bytes) -> Result<(), h2::Error> {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let room = match poll_fn(|context| stream.poll_capacity(context)).await {
            Some(room) => room?,
            None => return Ok(()),
        };
        let part = bytes.split_to(room.min(bytes.len()));
        stream.send_data(part, false)?;
    }
    Ok(())
}
