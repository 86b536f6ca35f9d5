//! gpushare-dra: has claims of Kubernetes hold on their node.
//!
//! A driver for Dynamic Resource Allocation. The scheduler gives out shares of a GPU's memory, NVIDIA's driver or this one
//! publishes the GPUs, and the kubelet calls us for each claim with a device of ours before its pod starts. A claim becomes a
//! group at the node's broker with the claim's memory as its quota, and a CDI file that gives the pod's containers library, socket
//! and name. Programs of the pod need no change, and what they do to their environment takes them out of no limit.
//!
//! It is a program of its own, so that gpushare has none of what this needs (HTTP/2, protobuf).
//!
//! # Floors
//!
//! ```text
//! plugin     plugin               what the kubelet calls
//! node       node                 what is done on this machine
//! slices     slices               what the scheduler is told of it
//! claim      claim, api           what a claim asks for; the API server
//! wire       grpc, messages       the kubelet's calls
//! bytes      authority, quantity  what h2 does not take from the kubelet; amounts
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
