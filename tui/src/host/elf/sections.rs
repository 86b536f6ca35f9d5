//! The sections of a library, found by their type.
//!
//! Read piece by piece: a driver has a hundred megabytes of which two tables are wanted. A file that
//! lies about itself yields nothing.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::number;

/// Larger tables than this are a lie.
const MOST: u64 = 64 << 20;

/// A 64-bit library's section headers.
pub(super) struct Sections {
    file: File,
    headers: Vec<u8>,
    size: usize,
    count: usize,
}

impl Sections {
    /// `None` when it cannot be read or is no 64-bit ELF file.
    pub(super) fn open(library: &Path) -> Option<Self> {
        let file = File::open(library).ok()?;
        let start = piece(&file, 0, 64)?;
        if !start.starts_with(b"\x7fELF\x02") {
            return None;
        }
        let size = number(&start, 58, 2)?;
        let count = number(&start, 60, 2)?;
        let headers = piece(&file, number(&start, 40, 8)?, size.checked_mul(count)?)?;
        Some(Self {
            file,
            headers,
            size: usize::try_from(size).ok()?,
            count: usize::try_from(count).ok()?,
        })
    }

    /// The first section of this type and the names it refers to.
    pub(super) fn of_type(&self, kind: u64) -> Option<(Vec<u8>, Names)> {
        let section = (0..self.count)
            .filter_map(|at| self.header(at))
            .find(|section| number(section, 4, 4) == Some(kind))?;
        let names = self.header(usize::try_from(number(section, 40, 4)?).ok()?)?;
        Some((self.bytes(section)?, Names(self.bytes(names)?)))
    }

    fn header(&self, at: usize) -> Option<&[u8]> {
        self.headers
            .get(at.checked_mul(self.size)?..)?
            .get(..self.size)
    }

    fn bytes(&self, header: &[u8]) -> Option<Vec<u8>> {
        piece(&self.file, number(header, 24, 8)?, number(header, 32, 8)?)
    }
}

/// A table of names, each ended by a zero.
pub(super) struct Names(Vec<u8>);

impl Names {
    /// The name that begins at this place.
    pub(super) fn at(&self, place: u64) -> Option<String> {
        let text = self
            .0
            .get(usize::try_from(place).ok()?..)?
            .split(|byte| *byte == 0)
            .next()?;
        Some(String::from_utf8_lossy(text).into_owned())
    }
}

fn piece(file: &File, at: u64, length: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length.min(MOST)).ok()?];
    file.read_exact_at(&mut bytes, at).ok()?;
    (length <= MOST).then_some(bytes)
}
