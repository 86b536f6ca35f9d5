//! What NVML said last, kept for the next pick: a hundred programs that start in one moment ask it once.
//!
//! The file is beside the segments and is read and written by whoever has the turn to pick. It holds for a time and a number
//! of uses; what the segments say (memory held, queues, claims) is never taken from it. A file that is damaged, of another
//! library or from the future is not there.

use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use shm_layout::clock;
use shm_layout::dir::Dir;

use gpushare_observe::source::nvml::{Grounds, Look, Watch};
use gpushare_sample::Nvml;

/// Its name.
const FILE: &str = "pick.json";
/// More than 64 devices with their processes need.
const MOST: u64 = 4 << 20;
/// How long NVML's first answer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// For how long, and for how many picks, what was read may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The longest time.
    pub age: Duration,
    /// The most uses.
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

/// What was read, when, and how often it was used.
#[derive(Debug, Serialize, Deserialize)]
pub struct NvmlCache {
    taken_ns: u64,
    uses: u32,
    /// What the library was chosen by; one GPU's figures are nothing to another's.
    grounds: Grounds,
    /// What NVML said.
    pub look: Look,
}

impl NvmlCache {
    /// Those in the file if they still hold, else NVML's own.
    pub fn get(dir: &Path, bounds: Bounds) -> Self {
        let grounds = Grounds::of(dir);
        let kept = Self::kept(dir).filter(|facts| {
            facts.grounds == grounds
                && facts.age() <= bounds.age
                && facts.uses < bounds.uses
                && facts.taken_ns <= clock::now()
        });
        let mut facts = kept.unwrap_or_else(|| {
            let watch = Watch::start(dir, Duration::from_secs(3600));
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
            // Where it cannot be written NVML is asked the next time.
            let _ = facts.keep(dir);
        }
        facts
    }

    /// Those in the file, whether they hold or not.
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

    /// How old they are.
    pub fn age(&self) -> Duration {
        Duration::from_nanos(clock::now().saturating_sub(self.taken_ns))
    }

    /// How often they were used.
    pub fn uses(&self) -> u32 {
        self.uses
    }
}
