//! The files and variables that a container needs for gpushare, in the form of the Container Device Interface (CDI).

use std::path::PathBuf;

use serde_json::{Value, json};
use shm_layout::locate::SYSTEM_DIR;
use shm_layout::variables;

use super::artifacts::PRELOAD;

/// Version of the interface: the oldest with all features that are used here.
const VERSION: &str = "0.5.0";
/// Path of the library in a container.
const INSIDE: &str = "/opt/gpushare/libgpushare.so";

/// A CDI device: a name, and the additional variables of a container that has the device.
#[derive(Debug)]
pub struct Device {
    /// Name of the device, which follows the `=` after the kind.
    pub name: String,
    /// Names and values of the variables.
    pub env: Vec<(String, String)>,
}

/// Returns the directory that `GPUSHARE_DIR` names, else the directory of this machine's broker.
pub fn broker_dir() -> PathBuf {
    let chosen = std::env::var_os(variables::DIR).filter(|dir| !dir.is_empty());
    chosen.map_or_else(|| SYSTEM_DIR.into(), PathBuf::from)
}

/// Returns the CDI document of a kind with these devices. Each mounts the broker's directory and the library, and preloads
/// the library.
pub fn document(kind: &str, dir: &str, library: &str, devices: &[Device]) -> Value {
    let mount = |host: &str, inside: &str| json!({ "hostPath": host, "containerPath": inside, "options": ["ro", "rbind", "nosuid", "nodev"] });
    let device = |device: &Device| {
        // The directory is named explicitly, so that the library reports a broker that does not serve the container's user.
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
