//! What Prometheus reads: the figures of this machine as a page of text, written once, to a file, or served over HTTP.
//!
//! The page is the document of `gpushare-top --once --format json`, measured by [`crate::sample::meter`]; nothing is counted here.

mod http;
mod server;

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use shm_layout::text::PathText as _;

use crate::sample::keys::Keys as _;
use crate::sample::meter::Meter;
use crate::sample::{ProcessState, Sample};
use crate::text::exit::Failure;
use crate::top::once::Document;
use crate::top::state::State;

pub use crate::sample::meter::Format;
pub use server::{Access, Server};

/// What is known, from sample to sample.
#[derive(Default)]
pub struct Figures {
    state: State,
}

impl Figures {
    /// Takes in a sample. The dead hold nothing any more.
    pub fn take(&mut self, mut sample: Sample) {
        sample
            .processes
            .retain(|process| process.state != ProcessState::Gone);
        self.state.choices.all_gpus = true;
        self.state.update(sample);
    }

    /// As a page.
    pub fn page(&self, format: Format) -> String {
        let mut meter = Meter::new();
        let mut document = self.document();
        document.only_used();
        document.measure(&mut meter);
        meter.page(format)
    }

    /// As the dashboard prints it.
    pub fn document(&self) -> Document<'_> {
        Document::of(&self.state, None, &self.state.data().sample)
    }
}

/// Puts a page in the place of a file, so that a reader finds the old or the new one and never a part.
pub fn write(path: &Path, page: &str) -> Result<(), Failure> {
    let wrong =
        |error: std::io::Error| Failure::failed(format!("cannot write {}: {error}", path.shown()));
    let Some(name) = path.file_name() else {
        return Err(Failure::usage(format!(
            "{} is no file; give one, as /var/lib/node_exporter/gpushare.prom",
            path.shown()
        )));
    };
    let mut beside = std::ffi::OsString::from(".");
    beside.push(name);
    beside.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(beside);
    // What an earlier process of our number left there is not followed, and not kept.
    let _ = fs::remove_file(&beside);
    let written = File::options()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(&beside)
        .and_then(|mut file| file.write_all(page.as_bytes()))
        .and_then(|()| fs::rename(&beside, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&beside);
        wrong(error)
    })
}
