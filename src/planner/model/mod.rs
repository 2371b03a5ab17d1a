//! What can one replica do? One file per kind of knowledge.

pub mod envelope;
pub mod queueing;
