//! A 64-bit ELF file that is read in parts, because a driver has a hundred megabytes and only two tables are needed.

use std::fs::File;
use std::path::Path;

use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, SectionTable};
use object::read::{ReadCache, ReadRef};

/// The headers of a 64-bit file.
pub(super) type Header = FileHeader64<Endianness>;

/// Opens a file for [`Elf::read`].
pub(super) fn open(path: &Path) -> Option<ReadCache<File>> {
    Some(ReadCache::new(File::open(path).ok()?))
}

/// The sections of a file.
pub(super) struct Elf<'data, R: ReadRef<'data>> {
    pub(super) data: R,
    pub(super) endian: Endianness,
    pub(super) sections: SectionTable<'data, Header, R>,
}

impl<'data, R: ReadRef<'data>> Elf<'data, R> {
    /// Reads the headers. Returns `None` if the file is no 64-bit ELF file or its headers are invalid.
    pub(super) fn read(data: R) -> Option<Self> {
        let header = Header::parse(data).ok()?;
        let endian = header.endian().ok()?;
        Some(Self {
            data,
            endian,
            sections: header.sections(endian, data).ok()?,
        })
    }
}
