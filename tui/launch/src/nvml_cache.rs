//! NVML's last answers, kept for the next pick: a hundred programs that start at once then query NVML one time.
//!
//! The file is beside the segments. Only the process whose turn it is to pick reads and writes it. Its content is valid for
//! a limited time and number of uses. What the segments record (memory held, queues, claims) is never taken from it. A file
//! that is damaged, of another library or from the future counts as missing.

use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use shm_layout::clock;
use shm_layout::dir::Dir;

use gpushare_observe::source::nvml::{Grounds, Look, Watch};
use gpushare_sample::Nvml;

/// File name of the cache.
const FILE: &str = "pick.json";
/// Maximum size in bytes: more than 64 devices with their processes need.
const MOST: u64 = 4 << 20;
/// Maximum time to wait for NVML's first answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Limits of the cache's validity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum age.
    pub age: Duration,
    /// Maximum number of picks.
    pub uses: u32,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            age: Duration::from_secs(1),
            uses: 100,
        }
    }
}

/// NVML's answers, with their time and the number of uses.
#[derive(Debug, Serialize, Deserialize)]
pub struct NvmlCache {
    taken_ns: u64,
    uses: u32,
    /// Inputs to the choice of the NVML library. Answers of another library are not used.
    grounds: Grounds,
    /// NVML's answers.
    pub look: Look,
}

impl NvmlCache {
    /// Returns the cached answers if they are valid, else queries NVML.
    pub fn get(dir: &Path, bounds: Bounds) -> Self {
        let grounds = Grounds::of(dir);
        let kept = Self::kept(dir).filter(|facts| {
            facts.grounds == grounds
                && facts.age() <= bounds.age
                && facts.uses < bounds.uses
                && facts.taken_ns <= clock::now()
        });
        let mut facts = kept.unwrap_or_else(|| {
            let watch = Watch::once(dir);
            watch.settle(PATIENCE);
            Self {
                taken_ns: clock::now(),
                uses: 0,
                grounds,
                look: watch.latest(),
            }
        });
        facts.uses += 1;
        if matches!(facts.look.state, Nvml::Ready(_)) {
            // If the file cannot be written, the next pick queries NVML.
            let _ = facts.keep(dir);
        }
        facts
    }

    /// Reads the cached answers, even if they are too old.
    pub fn kept(dir: &Path) -> Option<Self> {
        let file = Dir::open(dir).and_then(|dir| dir.read(FILE)).ok()?;
        let mut text = Vec::new();
        file.take(MOST).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }

    fn keep(&self, dir: &Path) -> io::Result<()> {
        let mut file = Dir::open(dir)?.write(FILE, 0o600)?;
        let text = serde_json::to_vec(self)?;
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(&text)
    }

    /// Returns the age of the answers.
    pub fn age(&self) -> Duration {
        Duration::from_nanos(clock::now().saturating_sub(self.taken_ns))
    }

    /// Returns the number of picks that used them.
    pub fn uses(&self) -> u32 {
        self.uses
    }
}
