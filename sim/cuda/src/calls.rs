//! The interface of what more than one floor below takes part in: arguments are checked, a stream is found, and the
//! work is submitted. What needs only its own subject has its interface there.

pub mod capture;
pub mod checkpoint;
pub mod context;
pub mod copy;
pub mod event;
pub mod graph_add;
pub mod graph_edit;
pub mod graph_exec;
pub mod graph_exec_params;
pub mod graph_params;
pub mod green;
pub mod launch;
pub mod managed;
pub mod memory;
pub mod ordered;
pub mod stream;
