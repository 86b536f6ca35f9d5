//! The recorder, which writes a recording.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::mem;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use shm_layout::text::PathText as _;

use gpushare_base::text::files;
use gpushare_sample::Sample;

/// The version of recordings; it grows when older samples can no longer be read.
pub(super) const VERSION: u32 = 2;

/// Number of bytes packed at a time.
const PIECE: usize = 32 << 10;
/// Number of samples in one member of the file.
const MEMBER: usize = 64;
/// Size at which a file is renamed to `F.1`, which replaces an earlier one.
const LARGEST: u64 = 512 << 20;

/// The first line of a recording.
#[derive(Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) gpushare_recording: u32,
}

/// The writer of a recording.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    out: GzEncoder<Counted>,
    samples: usize,
    pub(super) largest: u64,
}

/// A file and the number of bytes written to it.
#[derive(Debug)]
struct Counted {
    out: BufWriter<File>,
    bytes: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Recorder {
    /// Starts a recording; an existing file of that name is replaced.
    pub fn create(path: &Path) -> Result<Self> {
        Self::of(path, begin(path)?)
    }

    /// Starts a recording that only its user can read, in a file that must not exist yet.
    pub(in crate::source) fn create_private(path: &Path) -> Result<Self> {
        let file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path);
        let file = file.with_context(|| format!("cannot record to {}", path.shown()))?;
        Self::of(path, file)
    }

    /// Continues a recording in this file.
    pub(super) fn of(path: &Path, file: File) -> Result<Self> {
        let out = packed(file);
        let mut recorder = Self {
            path: path.to_owned(),
            out,
            samples: 0,
            largest: LARGEST,
        };
        recorder
            .header()
            .with_context(|| format!("cannot record to {}", path.shown()))?;
        Ok(recorder)
    }

    /// Returns the number of bytes written so far.
    pub(in crate::source) fn bytes(&self) -> u64 {
        self.out.get_ref().bytes
    }

    /// Adds one sample.
    pub fn add(&mut self, sample: &Sample) -> Result<()> {
        if self.samples == MEMBER {
            self.samples = 0;
            let file = mem::replace(&mut self.out, nowhere()?).finish()?;
            if file.bytes > self.largest {
                self.set_aside()?;
            } else {
                self.out = GzEncoder::new(file, Compression::fast());
            }
        }
        self.samples += 1;
        self.line(sample)
            .with_context(|| format!("cannot record to {}", self.path.shown()))
    }

    /// Starts a new file and keeps the old one as `F.1`.
    fn set_aside(&mut self) -> Result<()> {
        let mut aside = self.path.clone().into_os_string();
        aside.push(".1");
        std::fs::rename(&self.path, aside)?;
        self.out = packed(begin(&self.path)?);
        self.header()
    }

    fn header(&mut self) -> Result<()> {
        self.line(&Header {
            gpushare_recording: VERSION,
        })
    }

    fn line(&mut self, value: &impl Serialize) -> Result<()> {
        // Every call of the packer clears a buffer of 85 kB, and the JSON writer makes many small writes.
        let mut pieces = BufWriter::with_capacity(PIECE, &mut self.out);
        serde_json::to_writer(&mut pieces, value)?;
        pieces.write_all(b"\n")?;
        Ok(pieces.flush()?)
    }
}

fn begin(path: &Path) -> Result<File> {
    files::rewrite(path).with_context(|| format!("cannot record to {}", path.shown()))
}

fn packed(file: File) -> GzEncoder<Counted> {
    let out = BufWriter::new(file);
    GzEncoder::new(Counted { out, bytes: 0 }, Compression::fast())
}

/// Returns a placeholder for the moment between the end of one member and the start of the next.
fn nowhere() -> Result<GzEncoder<Counted>> {
    Ok(packed(File::options().write(true).open("/dev/null")?))
}
