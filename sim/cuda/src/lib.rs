//! The simulator's `libcuda.so.1`: the CUDA driver API over [`gpushare_sim`]'s world.
//!
//! Real clients run on it unmodified: what a program can see of a driver through this interface behaves as
//! the driver's documentation says, down to error codes. What a GPU would compute is not computed:
//! a kernel takes its time on the shared engine and writes nothing.
//!
//! # Floors
//!
//! Imports point down.
//!
//! ```text
//! exports    exports                                         all functions, and looking one up
//! entry      init                                            starting, versions, errors by name
//! calls      calls, stubs                                    what takes part in more than one subject
//! submit     submit                                          a node of a graph, or work in a stream
//! graph      graph                                           nodes, edges, executables
//! kernels    launch, link, pointer, texture                  a launch, a link, what an address is
//! free       free, copy                                      freeing and copying what any call allocated
//! shared     pool, graph_memory, external                    memory in stream order, of graphs, of other interfaces
//! ipc        ipc                                             memory of other processes
//! objects    array, device, event, host, module, peer, vmm   one subject each
//! capture    capture                                         which streams make a graph
//! context    context                                         who uses which device
//! stream     stream                                          in which order work is done
//! work       work                                            what is done
//! memory     heap                                            addresses
//! capacity   capacity                                        a device's bytes
//! jit        jit                                             where the compiler's logs go
//! driver     driver                                          this process's part in the world
//! edge       faces, handles, image                           one row a function, handles, what is in a module's image
//! c          c                                               what comes over the C interface
//! ```
//!
//! # Simulated
//!
//! Where it differs from a driver: kernels compute nothing; copies take the time they take on the host;
//! a graph's nodes run one after the other; memory shared between processes is charged to the one that
//! made it; a sparse array is never mapped; a multicast mapping shows bytes of its own; a conditional node goes by the
//! value that its handle was made with; functions that are exported but not simulated answer `CUDA_ERROR_NOT_SUPPORTED`; NVIDIA's private
//! export tables are not answered, so programs on the CUDA runtime library do not start.

#![recursion_limit = "512"]

mod array;
pub mod c;
mod calls;
pub mod capacity;
pub mod capture;
pub mod context;
mod copy;
mod device;
pub mod driver;
pub mod event;
pub mod exports;
mod external;
pub mod faces;
mod free;
pub mod graph;
mod graph_memory;
pub mod handles;
pub mod heap;
mod host;
pub mod image;
mod init;
mod ipc;
pub mod jit;
pub mod launch;
mod link;
pub mod module;
mod peer;
mod pointer;
pub mod pool;
pub mod stream;
mod stubs;
mod submit;
mod texture;
pub mod vmm;
pub mod work;
