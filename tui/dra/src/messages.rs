//! The messages between the kubelet and a driver, by their field numbers: `pluginregistration` (v1) and `dra` (v1 and v1beta1,
//! which are alike).

use std::collections::BTreeMap;

use prost::Message;

/// The service on the registration socket.
pub const REGISTRATION: &str = "pluginregistration.Registration";
/// The services of a driver: as a registration names them, and as a call does.
pub const DRA: [(&str, &str); 2] = [
    ("v1.DRAPlugin", "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"),
    (
        "v1beta1.DRAPlugin",
        "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
    ),
];

/// The answer to `GetInfo`.
#[derive(Clone, PartialEq, Message)]
pub struct PluginInfo {
    /// `DRAPlugin`.
    #[prost(string, tag = "1")]
    pub kind: String,
    /// The driver's name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The driver's own socket.
    #[prost(string, tag = "3")]
    pub endpoint: String,
    /// What it speaks.
    #[prost(string, repeated, tag = "4")]
    pub supported_versions: Vec<String>,
}

/// What the kubelet says after it has tried to register a driver.
#[derive(Clone, PartialEq, Message)]
pub struct RegistrationStatus {
    /// Whether it did.
    #[prost(bool, tag = "1")]
    pub plugin_registered: bool,
    /// Why not.
    #[prost(string, tag = "2")]
    pub error: String,
}

/// A message without fields.
#[derive(Clone, PartialEq, Message)]
pub struct Empty {}

/// The request of `NodePrepareResources` and of `NodeUnprepareResources`.
#[derive(Clone, PartialEq, Message)]
pub struct Claims {
    /// The claims that it is about.
    #[prost(message, repeated, tag = "1")]
    pub claims: Vec<Claim>,
}

/// A claim by its names.
#[derive(Clone, PartialEq, Message)]
pub struct Claim {
    /// Where it is.
    #[prost(string, tag = "1")]
    pub namespace: String,
    /// Which one of all that ever had its name.
    #[prost(string, tag = "2")]
    pub uid: String,
    /// Its name.
    #[prost(string, tag = "3")]
    pub name: String,
}

/// The answer of `NodePrepareResources`: what became of each claim, by UID.
#[derive(Clone, PartialEq, Message)]
pub struct PrepareAnswer {
    /// By UID.
    #[prost(btree_map = "string, message", tag = "1")]
    pub claims: BTreeMap<String, Prepared>,
}

/// A claim that is prepared, or the reason why it is not.
#[derive(Clone, PartialEq, Message)]
pub struct Prepared {
    /// What its containers are to get.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<Device>,
    /// A sentence.
    #[prost(string, tag = "2")]
    pub error: String,
}

/// One allocated device of a claim.
#[derive(Clone, PartialEq, Message)]
pub struct Device {
    /// The requests that it is for.
    #[prost(string, repeated, tag = "1")]
    pub request_names: Vec<String>,
    /// Where the scheduler found it.
    #[prost(string, tag = "2")]
    pub pool_name: String,
    /// Its name there.
    #[prost(string, tag = "3")]
    pub device_name: String,
    /// What the container runtime looks up in the CDI files.
    #[prost(string, repeated, tag = "4")]
    pub cdi_device_ids: Vec<String>,
    /// Which share of it, where a device has several.
    #[prost(string, optional, tag = "5")]
    pub share_id: Option<String>,
}

/// The answer of `NodeUnprepareResources`.
#[derive(Clone, PartialEq, Message)]
pub struct UnprepareAnswer {
    /// By UID.
    #[prost(btree_map = "string, message", tag = "1")]
    pub claims: BTreeMap<String, Unprepared>,
}

/// A claim that is done with, or the reason why it is not.
#[derive(Clone, PartialEq, Message)]
pub struct Unprepared {
    /// A sentence.
    #[prost(string, tag = "1")]
    pub error: String,
}
