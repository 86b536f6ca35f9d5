//! The exported calls that use several of the lower layers: they check arguments, look up the stream, and submit the
//! work. Calls that use one subject only are in the file of that subject.

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
