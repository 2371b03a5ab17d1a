//! What can one replica do? One file per kind of knowledge.

pub mod attain;
pub mod capacity;
pub mod doubts;
pub mod envelope;
pub mod iteration;
pub mod needed;
pub mod queueing;
pub mod server;
