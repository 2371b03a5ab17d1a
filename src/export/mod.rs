//! Which numbers do we publish? The catalogue of families, and the snapshot that every scrape of ours reads.

pub mod snapshot;
