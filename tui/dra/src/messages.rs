//! The messages between the kubelet and a driver, by their field numbers: `pluginregistration` (v1) and `dra` (v1 and
//! v1beta1, which are equal).

use std::collections::BTreeMap;

use prost::Message;

/// Name of the service on the registration socket.
pub const REGISTRATION: &str = "pluginregistration.Registration";
/// Names of a driver's services: in a registration, and in a call.
pub const DRA: [(&str, &str); 2] = [
    ("v1.DRAPlugin", "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"),
    (
        "v1beta1.DRAPlugin",
        "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
    ),
];

/// The reply to `GetInfo`.
#[derive(Clone, PartialEq, Message)]
pub struct PluginInfo {
    /// Type of the plugin: `DRAPlugin`.
    #[prost(string, tag = "1")]
    pub kind: String,
    /// Name of the driver.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Path of the driver's own socket.
    #[prost(string, tag = "3")]
    pub endpoint: String,
    /// Services that the driver supports.
    #[prost(string, repeated, tag = "4")]
    pub supported_versions: Vec<String>,
}

/// The kubelet's report after it has tried to register a driver.
#[derive(Clone, PartialEq, Message)]
pub struct RegistrationStatus {
    /// True if the registration succeeded.
    #[prost(bool, tag = "1")]
    pub plugin_registered: bool,
    /// Reason if it failed.
    #[prost(string, tag = "2")]
    pub error: String,
}

/// A message without fields.
#[derive(Clone, PartialEq, Message)]
pub struct Empty {}

/// The request of `NodePrepareResources` and of `NodeUnprepareResources`.
#[derive(Clone, PartialEq, Message)]
pub struct Claims {
    /// Claims to prepare or unprepare.
    #[prost(message, repeated, tag = "1")]
    pub claims: Vec<Claim>,
}

/// The names of a claim.
#[derive(Clone, PartialEq, Message)]
pub struct Claim {
    /// Namespace of the claim.
    #[prost(string, tag = "1")]
    pub namespace: String,
    /// Unique id of the claim, which differs from those of earlier claims with this name.
    #[prost(string, tag = "2")]
    pub uid: String,
    /// Name of the claim.
    #[prost(string, tag = "3")]
    pub name: String,
}

/// The reply to `NodePrepareResources`: the result for each claim.
#[derive(Clone, PartialEq, Message)]
pub struct PrepareAnswer {
    /// Results by the claim's UID.
    #[prost(btree_map = "string, message", tag = "1")]
    pub claims: BTreeMap<String, Prepared>,
}

/// The devices of a prepared claim, or the reason why it is not prepared.
#[derive(Clone, PartialEq, Message)]
pub struct Prepared {
    /// Devices for the containers.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<Device>,
    /// Error as a sentence; empty on success.
    #[prost(string, tag = "2")]
    pub error: String,
}

/// An allocated device of a claim.
#[derive(Clone, PartialEq, Message)]
pub struct Device {
    /// Requests that the device is for.
    #[prost(string, repeated, tag = "1")]
    pub request_names: Vec<String>,
    /// Pool of the device.
    #[prost(string, tag = "2")]
    pub pool_name: String,
    /// Name of the device in the pool.
    #[prost(string, tag = "3")]
    pub device_name: String,
    /// Names of the CDI devices that the container runtime adds.
    #[prost(string, repeated, tag = "4")]
    pub cdi_device_ids: Vec<String>,
    /// Share of the device, if it has several.
    #[prost(string, optional, tag = "5")]
    pub share_id: Option<String>,
}

/// The reply to `NodeUnprepareResources`.
#[derive(Clone, PartialEq, Message)]
pub struct UnprepareAnswer {
    /// Results by the claim's UID.
    #[prost(btree_map = "string, message", tag = "1")]
    pub claims: BTreeMap<String, Unprepared>,
}

/// The result for a claim that is unprepared.
#[derive(Clone, PartialEq, Message)]
pub struct Unprepared {
    /// Error as a sentence; empty on success.
    #[prost(string, tag = "1")]
    pub error: String,
}
