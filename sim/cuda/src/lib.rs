//! The simulator's `libcuda.so.1`: the CUDA driver API over [`gpushare_sim`]'s world.
//!
//! Real clients run on it unmodified: the behaviour that a program can observe through this interface is that of the
//! driver's documentation, including error codes. Kernels are not computed: a kernel uses its time on the shared
//! engine and writes nothing.
//!
//! # Layers
//!
//! Imports point down.
//!
//! ```text
//! exports    exports                                         all functions, and their look-up
//! entry      init                                            start, versions, names of errors
//! calls      calls, stubs                                    calls that use several subjects
//! submit     submit                                          a node of a graph, or work in a stream
//! graph      graph                                           nodes, edges, executables
//! kernels    launch, code::link, memory::pointer, memory::texture    launches, links, attributes of addresses
//! free       memory::free, copy                              free and copy of any allocation
//! shared     memory::pool, memory::graph_memory, memory::external    memory in stream order, of graphs, of other interfaces
//! ipc        memory::ipc                                     memory of other processes
//! objects    device, event, code::module, memory::array, memory::host, memory::peer, memory::vmm    one subject each
//! capture    capture                                         the streams that build a graph
//! context    context                                         the contexts of devices
//! stream     stream                                          the order of work
//! work       work                                            the kinds of work
//! heap       memory::heap                                    addresses
//! capacity   memory::capacity                                a device's bytes
//! jit        code::jit                                       the logs of the compiler
//! channels   channels                                        the channel groups of contexts, and who keeps them
//! driver     driver                                          this process's membership in the world
//! edge       faces, handles, code::image, own_thread         one row per function, handles, module images, threads
//! c          c                                               arguments of C callers
//! folders    memory, code                                    the modules of folders
//! ```
//!
//! # Simulated
//!
//! Differences from a driver: kernels compute nothing; copies take as long as they take on the host; a graph's nodes
//! run one after the other; memory shared between processes is charged to its creator; a sparse array is never
//! mapped; a multicast mapping has bytes of its own; a conditional node uses the default value of its handle;
//! functions that are exported but not simulated return `CUDA_ERROR_NOT_SUPPORTED`; NVIDIA's private export tables
//! are not provided, so programs on the CUDA runtime library do not start.
#![recursion_limit = "512"]

pub mod c;
mod calls;
pub mod capture;
mod channels;
pub mod code;
pub mod context;
mod copy;
mod device;
pub mod driver;
pub mod event;
pub mod exports;
pub mod faces;
pub mod graph;
pub mod handles;
mod init;
pub mod launch;
pub mod memory;
mod own_thread;
pub mod stream;
mod stubs;
mod submit;
pub mod work;
