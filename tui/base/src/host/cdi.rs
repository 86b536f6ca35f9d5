//! What a container needs of gpushare, as the Container Device Interface says it.

use std::path::PathBuf;

use serde_json::{Value, json};
use shm_layout::locate::SYSTEM_DIR;
use shm_layout::variables;

use super::artifacts::PRELOAD;

/// The version of the interface: the oldest that has all that is used here.
const VERSION: &str = "0.5.0";
/// Where a container has the library.
const INSIDE: &str = "/opt/gpushare/libgpushare.so";

/// A device: a name, and the variables that a container with it has besides those of all.
#[derive(Debug)]
pub struct Device {
    /// Its name, behind the `=` of the kind.
    pub name: String,
    /// Names and values.
    pub env: Vec<(String, String)>,
}

/// Where the broker of this machine is, or the directory that is named instead.
pub fn broker_dir() -> PathBuf {
    let chosen = std::env::var_os(variables::DIR).filter(|dir| !dir.is_empty());
    chosen.map_or_else(|| SYSTEM_DIR.into(), PathBuf::from)
}

/// The document of a kind with these devices: each mounts the broker's directory and the library, and preloads that.
pub fn document(kind: &str, dir: &str, library: &str, devices: &[Device]) -> Value {
    let mount = |host: &str, inside: &str| json!({ "hostPath": host, "containerPath": inside, "options": ["ro", "rbind", "nosuid", "nodev"] });
    let device = |device: &Device| {
        // By name, so that a container whose user the broker does not serve is told so.
        let place = (variables::DIR.to_owned(), SYSTEM_DIR.to_owned());
        let env = std::iter::once(&place).chain(&device.env);
        let env: Vec<String> = env.map(|(name, value)| format!("{name}={value}")).collect();
        json!({ "name": device.name, "containerEdits": { "env": env } })
    };
    json!({
        "cdiVersion": VERSION,
        "kind": kind,
        "containerEdits": {
            "env": [format!("{}={INSIDE}", PRELOAD.variable)],
            "mounts": [mount(dir, SYSTEM_DIR), mount(library, INSIDE)],
        },
        "devices": devices.iter().map(device).collect::<Vec<_>>(),
    })
}
