//! gpushare-dra: enforces Kubernetes claims on their node.
//!
//! It is a driver for Dynamic Resource Allocation. The scheduler allocates shares of a GPU's memory, NVIDIA's driver or
//! this one publishes the GPUs, and before a pod starts the kubelet calls this driver for each claim with one of its
//! devices. A claim becomes a group at the node's broker with the claim's memory as its quota, and a CDI file that gives
//! the library, the socket and the group's name to the pod's containers. The pod's programs need no change, and no change
//! of their environment removes a limit.
//!
//! It is a separate program, so that gpushare does not need its dependencies (HTTP/2, protobuf).
//!
//! # Layers
//!
//! ```text
//! plugin     plugin               functions that the kubelet calls
//! node       node                 preparation on this machine
//! slices     slices               published devices of the node
//! claim      claim, api           limits of a claim; the API server
//! wire       grpc, messages       the kubelet's calls
//! bytes      authority, quantity  repair of the kubelet's header; amounts
//! ```

#![forbid(unsafe_code)]

pub mod api;
pub mod authority;
pub mod claim;
pub mod grpc;
pub mod messages;
pub mod node;
pub mod plugin;
pub mod quantity;
pub mod slices;
