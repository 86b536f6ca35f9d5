//! Replacement of the invalid `:authority` header in the kubelet's requests.
//!
//! The kubelet passes gRPC the path of a socket as a host, so each of its requests has `:authority:
//! %2Fvar%2Flib%2Fkubelet%2F…`. That is no valid authority, and h2 correctly answers PROTOCOL_ERROR. This module overwrites
//! the incoming value with `localhost`. It is shorter than any path, so our header table never holds fewer entries than the
//! kubelet assumes.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Length of the preface that a client sends first.
const PREFACE: usize = 24;
/// Length of a frame's length, type, flags and stream.
const HEAD: usize = 9;
/// Maximum length of a frame, unless another one is agreed, which this program never does.
const LONGEST: usize = 1 << 14;

const HEADERS: u8 = 1;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// Copies all bytes of a client and replaces the authority.
pub async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut bytes = vec![0; PREFACE];
    from.read_exact(&mut bytes).await?;
    to.write_all(&bytes).await?;
    loop {
        let mut head = [0; HEAD];
        match from.read_exact(&mut head).await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            done => done?,
        };
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        if length > LONGEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        bytes.resize(length, 0);
        from.read_exact(&mut bytes).await?;
        if head[3] == HEADERS {
            if let Some(better) = rewritten(head[4], &bytes) {
                bytes = better;
            }
            let length = u32::try_from(bytes.len()).unwrap_or(0).to_be_bytes();
            head[..3].copy_from_slice(&length[1..]);
        }
        to.write_all(&head).await?;
        to.write_all(&bytes).await?;
        to.flush().await?;
    }
    to.shutdown().await
}

/// Returns the payload of a HEADERS frame with the new authority, or `None` if there is none to replace.
fn rewritten(flags: u8, payload: &[u8]) -> Option<Vec<u8>> {
    let padded = flags & PADDED != 0;
    let begin = usize::from(padded) + if flags & PRIORITY != 0 { 5 } else { 0 };
    let padding = if padded {
        usize::from(*payload.first()?)
    } else {
        0
    };
    let block = payload.get(begin..payload.len().checked_sub(padding)?)?;
    let (value, end) = authority(block)?;
    const BETTER: &[u8] = b"\x09localhost";
    let [before, after] = [payload.get(..begin + value)?, payload.get(begin + end..)?];
    Some([before, BETTER, after].concat())
}

/// Returns the position of the authority's value in a block of headers (RFC 7541), if it is a literal.
fn authority(block: &[u8]) -> Option<(usize, usize)> {
    let mut at = 0;
    while at < block.len() {
        // A header is an index, a new size of the table, or a literal after an index or a name.
        let (prefix, written) = match block[at] {
            byte if byte & 0x80 != 0 => (7, false),
            byte if byte & 0x40 != 0 => (6, true),
            byte if byte & 0x20 != 0 => (5, false),
            _ => (4, true),
        };
        let (index, next) = number(block, at, prefix)?;
        at = next;
        if !written {
            continue;
        }
        let mut is_ours = index == 1;
        if index == 0 {
            // Go sends the name as an index, other clients as a literal.
            let end = string(block, at)?;
            is_ours = block.get(at + 1..end) == Some(b":authority");
            at = end;
        }
        let end = string(block, at)?;
        if is_ours {
            return Some((at, end));
        }
        at = end;
    }
    None
}

/// Returns the end of a string.
fn string(block: &[u8], at: usize) -> Option<usize> {
    let (length, begin) = number(block, at, 7)?;
    let end = begin.checked_add(length)?;
    (end <= block.len()).then_some(end)
}

/// Returns an integer whose first byte has `bits` bits of it, and its end.
fn number(block: &[u8], at: usize, bits: u32) -> Option<(usize, usize)> {
    let most = (1 << bits) - 1;
    let first = usize::from(*block.get(at)?) & most;
    if first < most {
        return Some((first, at + 1));
    }
    let (mut value, mut at) = (first, at + 1);
    for shift in [0, 7, 14] {
        let byte = usize::from(*block.get(at)?);
        value += (byte & 0x7f) << shift;
        at += 1;
        if byte & 0x80 == 0 {
            return Some((value, at));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_for_an_authority_becomes_localhost_and_the_rest_stays() {
        // Headers before and after the authority: POST, http, a path; te: trailers.
        let before = b"\x83\x86\x44\x02/a";
        let after = b"\x40\x02te\x08trailers";
        for first in [0x41, 0x01, 0x11] {
            let block = [before, &[first, 9][..], b"%2Fa%2Fb%2", after].concat();
            let block = [
                &block[..before.len() + 1],
                &[10],
                &block[before.len() + 2..],
            ]
            .concat();
            let wanted = [before, &[first][..], b"\x09localhost", after].concat();
            assert_eq!(rewritten(0x4, &block), Some(wanted));
        }
        // The second request has the authority as an index.
        assert_eq!(rewritten(0x4, b"\x83\x86\x44\x02/a\xbe"), None);
        assert_eq!(
            rewritten(0x4, b"\x40\x0a:authority\x03%2F\x83"),
            Some(b"\x40\x0a:authority\x09localhost\x83".to_vec())
        );
        // Padding and priority are around the block.
        let padded = [&[2, 0, 0, 0, 0, 16][..], b"\x41\x01/", &[0, 0]].concat();
        let wanted = [&[2, 0, 0, 0, 0, 16][..], b"\x41\x09localhost", &[0, 0]].concat();
        assert_eq!(rewritten(PADDED | PRIORITY, &padded), Some(wanted));
    }

    #[test]
    fn bytes_that_are_no_headers_are_left_as_they_are() {
        for bytes in [
            &b""[..],
            b"\x41",
            b"\x41\xff\xff\xff\xff\xff",
            b"\x41\x05ab",
            b"\xff",
        ] {
            assert_eq!(rewritten(0x4, bytes), None, "{bytes:?}");
        }
        assert_eq!(rewritten(PADDED, &[200, 0x41, 1, b'/']), None);
    }
}
