//! The driver on a node with a kubelet that dials like the real one, an API server, a broker, and podman for the containers.

mod claims;
mod containers;
mod objects;
mod policies;
mod support;
