//! A reader of the lines of a recording.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::mem;
use std::path::Path;

use flate2::bufread::GzDecoder;

use gpushare_base::text::files;

/// Maximum length of a line. A sample of a full machine has a tenth of it; a file of packed zeros would unpack to a
/// thousand times its size.
pub(super) const LONGEST: usize = 32 << 20;

/// The lines of a recording: packed, or plain as an earlier version wrote them.
#[derive(Debug)]
pub(super) enum Lines {
    Plain(BufReader<File>),
    Packed(BufReader<GzDecoder<BufReader<File>>>),
    /// Between two members.
    Over,
}

impl Lines {
    /// Starts at the position of a file.
    pub(super) fn at(mut file: BufReader<File>) -> io::Result<Self> {
        let packed = file.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        Ok(match packed {
            true => Self::Packed(BufReader::new(GzDecoder::new(file))),
            false => Self::Plain(file),
        })
    }

    /// Returns the next line, with its offset if a member begins with it; `None` at the end, or where the file was cut.
    pub(super) fn next(&mut self) -> Option<(Vec<u8>, Option<u64>)> {
        let mut line = Vec::new();
        let mut place = None;
        loop {
            let read = match self {
                Self::Plain(file) => {
                    place = file.stream_position().ok();
                    read_line(file, &mut line)
                }
                Self::Packed(member) => read_line(member, &mut line),
                Self::Over => return None,
            };
            match read {
                // The end of a member, or of the file.
                Ok(0) => {
                    let Self::Packed(member) = mem::replace(self, Self::Over) else {
                        return None;
                    };
                    let mut file = member.into_inner().into_inner();
                    place = file.stream_position().ok();
                    if file.fill_buf().ok()?.is_empty() {
                        return None;
                    }
                    *self = Self::at(file).ok()?;
                }
                Ok(_) => return Some((line, place)),
                Err(_) => {
                    *self = Self::Over;
                    return None;
                }
            }
        }
    }

    /// Goes to an offset that [`next`](Self::next) returned.
    pub(super) fn seek(&mut self, path: &Path, place: u64) -> io::Result<()> {
        let mut file = BufReader::new(files::open_file(path)?);
        file.seek(SeekFrom::Start(place))?;
        *self = Self::at(file)?;
        Ok(())
    }
}

/// Reads a line of at most [`LONGEST`] bytes.
fn read_line(from: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<usize> {
    let read = Read::take(from, LONGEST as u64 + 1).read_until(b'\n', line)?;
    match read > LONGEST {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(read),
    }
}
