//! Which numbers do we publish? The catalogue of families, and the snapshot that every scrape of ours reads.
//!
//! | file | answers |
//! |---|---|
//! | `catalog` | which families exist, with their labels and meanings: the only place that spells their names |
//! | `snapshot` | what a scrape reads |
//! | `served` | which recommendation may be served at this moment |
//! | `samples` | how a snapshot reads as samples |
//! | `page` | what text a scrape gets |
//! | `process` | what the kernel says about this process |
//! | `reference` | the text of README.md |

pub mod catalog;
pub mod page;
pub mod process;
pub mod reference;
pub mod samples;
pub mod served;
pub mod snapshot;
