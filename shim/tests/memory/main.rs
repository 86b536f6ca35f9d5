//! Memory accounting and quotas on the simulator, observed from outside. A C client executes the test's commands, and the
//! segment must agree to the byte.

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
