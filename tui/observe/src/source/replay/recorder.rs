//! Writes a recording.

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

/// The version of recordings; it grows when a sample cannot be read as it was written before.
pub(super) const VERSION: u32 = 2;

/// So many bytes are packed at a time.
const PIECE: usize = 32 << 10;
/// So many samples are one member of the file.
const MEMBER: usize = 64;
/// A file that has grown to this is set aside under the name `F.1`, in the place of an earlier one.
const LARGEST: u64 = 512 << 20;

/// The first line.
#[derive(Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) gpushare_recording: u32,
}

/// Writes samples to a file.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    out: GzEncoder<Counted>,
    samples: usize,
    pub(super) largest: u64,
}

/// A file and how much was written to it.
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
    /// Starts a recording; a file of that name is replaced.
    pub fn create(path: &Path) -> Result<Self> {
        Self::of(path, begin(path)?)
    }

    /// Starts one that its user alone may read, in a file that must not be there yet.
    pub(in crate::source) fn create_private(path: &Path) -> Result<Self> {
        let file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path);
        let file = file.with_context(|| format!("cannot record to {}", path.shown()))?;
        Self::of(path, file)
    }

    /// Goes on in this file.
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

    /// How much was written so far.
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

    /// Begins the file anew and keeps what was in it as `F.1`.
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
        // Every call of the packer clears a buffer of 85 kB, and JSON is written word by word.
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

/// What stands in the recorder's place while one member ends and the next begins.
fn nowhere() -> Result<GzEncoder<Counted>> {
    Ok(packed(File::options().write(true).open("/dev/null")?))
}
