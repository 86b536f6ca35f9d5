//! Memory accounting and quota, on the simulator, seen from outside: a C client does what a test tells it, and the segment
//! must say the same to the byte.

mod anything;
mod arrays;
mod bindings;
mod checkpoints;
mod client;
mod contexts;
mod copies;
mod environment;
mod graphs;
mod groups;
mod host;
mod linear;
mod multicast;
mod odd;
mod old;
mod physical;
mod pool_places;
mod pools;
mod quota;
mod race;
mod shared;
mod swappable;
mod view;
mod waiting;
