//! A remote summary: the figures of one machine that its line shows, taken from the document of `gpushare-top --format
//! json`.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use gpushare_sample::SCHEMA_VERSION;

/// The figures of a machine in one line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteSummary {
    /// Number of GPUs and MIG instances.
    pub gpus: usize,
    /// Number of GPUs whose lock is held, or that compute.
    pub busy: usize,
    /// Number of processes that wait for a lock.
    pub waiting: usize,
    /// Allocations refused since their processes began.
    pub denials: u64,
    /// Number of processes on GPUs.
    pub processes: usize,
    /// Memory in use.
    pub used_bytes: u64,
    /// Total memory.
    pub total_bytes: u64,
    /// Number of alerts of the severity warning.
    pub warnings: usize,
    /// The sentence of the first alert.
    pub worst: Option<String>,
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    devices: Vec<Device>,
    #[serde(default)]
    processes: Vec<Process>,
    #[serde(default)]
    alerts: Vec<Alert>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Device {
    total_bytes: u64,
    used_bytes: Option<u64>,
    ledger_bytes: u64,
    util_percent: Option<u32>,
    lock: Lock,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Lock {
    holder_pid: Option<u32>,
    waiters: usize,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Process {
    devices: Vec<Holding>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Holding {
    denials: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Alert {
    severity: String,
    sentence: String,
}

/// Parses a document that a program of another machine wrote; a document of another version is refused.
pub fn read<T: DeserializeOwned>(text: &[u8], program: &str) -> Result<T, String> {
    #[derive(Deserialize)]
    struct Version {
        schema_version: u64,
    }
    let Ok(Version { schema_version }) = serde_json::from_slice(text) else {
        return Err(format!("what it says is not from {program}"));
    };
    if schema_version != u64::from(SCHEMA_VERSION) {
        return Err(format!(
            "its gpushare is of another version: its documents are of version {schema_version}, ours of {SCHEMA_VERSION}"
        ));
    }
    serde_json::from_slice(text).map_err(|error| format!("what it says cannot be read: {error}"))
}

/// Maximum length of a sentence that is kept.
const LONGEST: usize = 400;

impl RemoteSummary {
    /// Parses one document.
    pub fn read(text: &[u8]) -> Result<Self, String> {
        read::<Document>(text, "gpushare-top").map(Self::from)
    }
}

impl From<Document> for RemoteSummary {
    fn from(document: Document) -> Self {
        let devices = &document.devices;
        let busy = |device: &&Device| {
            device.lock.holder_pid.is_some()
                || device.util_percent.is_some_and(|percent| percent > 0)
        };
        let add = |of: &dyn Fn(&Device) -> u64| devices.iter().map(of).fold(0, u64::saturating_add);
        let waiting = devices.iter().map(|device| device.lock.waiters);
        let holdings = document
            .processes
            .iter()
            .flat_map(|process| &process.devices);
        let warnings = document
            .alerts
            .iter()
            .filter(|alert| alert.severity == "warning");
        let worst = document.alerts.first();
        Self {
            gpus: devices.len(),
            busy: devices.iter().filter(busy).count(),
            waiting: waiting.fold(0, usize::saturating_add),
            denials: holdings
                .filter_map(|holding| holding.denials)
                .fold(0, u64::saturating_add),
            processes: document.processes.len(),
            used_bytes: add(&|device| device.used_bytes.unwrap_or(device.ledger_bytes)),
            total_bytes: add(&|device| device.total_bytes),
            warnings: warnings.count(),
            worst: worst.map(|alert| alert.sentence.chars().take(LONGEST).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_becomes_a_line_and_unknown_keys_are_passed_over() {
        let text = br#"{"schema_version":1,"novel":[1],"devices":[
            {"total_bytes":10,"used_bytes":null,"ledger_bytes":4,"lock":{"holder_pid":7,"waiters":2}},
            {"total_bytes":10,"used_bytes":1,"util_percent":0,"lock":{"holder_pid":null,"waiters":0}}],
            "processes":[{"devices":[{"denials":3},{"denials":null}]}],
            "alerts":[{"severity":"warning","sentence":"it burns"},{"severity":"note"}]}"#;
        let told = RemoteSummary::read(text).expect("well formed");
        assert_eq!(
            (told.gpus, told.busy, told.waiting, told.denials),
            (2, 1, 2, 3)
        );
        assert_eq!(
            (told.used_bytes, told.total_bytes, told.warnings),
            (5, 20, 1)
        );
        assert_eq!(told.worst.as_deref(), Some("it burns"));
    }

    #[test]
    fn garbage_and_other_versions_are_told_apart() {
        let wrong = |text: &[u8]| RemoteSummary::read(text).expect_err("refused");
        assert!(wrong(b"\x1b[31mhello").contains("not from gpushare-top"));
        assert!(wrong(b"{}").contains("not from gpushare-top"));
        assert!(wrong(br#"{"schema_version":99,"devices":7}"#).contains("version 99, ours of 1"));
        assert!(wrong(br#"{"schema_version":1,"devices":7}"#).contains("cannot be read"));
    }
}
