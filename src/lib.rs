//! Plans how many replicas of LLM inference servers meet TTFT and ITL objectives with the fewest GPUs, and exports the counts as Prometheus
//! metrics. It never changes a deployment: KEDA, an HPA or an alert rule acts on what it publishes.
//!
//! # Values flow one way
//!
//! ```text
//! text -> samples -> observation -> prediction -> proposals -> recommendation -> plan -> metrics
//! ```
//!
//! The planner is a function of (input, memory, policy, now) that returns (plan, memory). Everything that can fail or wait stands at the edges,
//! and [`app`] alone wires the edges together.
//!
//! # The rooms, in reading order
//!
//! | room | question it answers | may use |
//! |---|---|---|
//! | [`units`] | What words do all rooms share? | nothing |
//! | [`files`] | What is in a small file, whatever stands at its path? I/O | nothing |
//! | [`exposition`] | How does a page become families and problems? Pure, fast, knows no engine | units |
//! | [`planner`] | How many replicas does each pool need? The core. Pure | units |
//! | [`engines`] | What does a server's page say in the planner's terms? One file a dialect. Pure | units, exposition, planner |
//! | [`config`] | What did the user ask for? Text in, a checked configuration or all problems out. Pure | units, engines, planner, simulator |
//! | [`scrape`] | Which targets are there, and how did each answer in this round? I/O | units, files, exposition, engines, planner, config |
//! | [`profiler`] | What can a replica do? Measures a live server, writes profile.json. I/O | units, files, exposition, engines, planner |
//! | [`simulator`] | How would servers behave? Pure, virtual time | units, planner, engines |
//! | [`decisions`] | Which changes of what we publish stand, and has anyone acted on them? Pure | units, planner |
//! | [`history`] | What happened in the last hours? A bounded memory for plots. Pure | units, planner |
//! | [`export`] | Which numbers do we publish? The catalogue, and snapshot to samples | units, planner, scrape, decisions, history |
//! | [`report`] | How do we show plans to people and programs? Pure | units, planner, simulator, decisions, history |
//! | [`server`] | How do others read us? HTTP | units, export, planner, report, decisions, history |
//! | [`state`] | What survives a restart? The state file. I/O | units, files, planner |
//! | [`record`] | How can a decision be made again elsewhere? I/O | units, planner |
//! | [`app`] | How does it all run? The tick; the only place with the clock | all |
//! | [`cli`] | What can be asked on the command line? One file a command | all |
//!
//! A test reads every `crate::ROOM` path and every external crate of each room and holds them against this table.
//!
//! # Where does a new one go?
//!
//! An engine: one file in `engines`, one line in its table, one fixture folder. A predictor: one file in `planner/predict`. A proposer: one
//! file in `planner/propose`. A metric: one record in `export/catalog.rs`. A configuration key: one line in `config/schema.rs`.
//! A way to find servers: one file in `scrape/discover`, one variant of `config`'s `Way`.
//!
//! # Invariants, each held by a test
//!
//! 1. planner, simulator, engines, exposition and config have no I/O, clock, logger, unseeded randomness or hash-ordered iteration.
//! 2. The planner returns a plan for every input; lack of knowledge is a hold with a reason.
//! 3. Every published number is finite and inside the policy's bounds, also while holding; lint checks it again in production.
//! 4. Missing, stale or restarting replicas never cause a smaller plan; a fresh process never shrinks before its first complete window. Only a
//!    maximum or a budget that the operator wrote may.
//! 5. Engines' metric spellings occur only in `engines`, ours only in `export/catalog.rs`.
//! 6. One immutable configuration snapshot a tick. One bad target or pool never changes another's result.
//! 7. Same inputs, memory and moment give byte-identical plans with the same binary on the same CPU; a recorded decision replayed elsewhere
//!    agrees in every integer, verdict, reason and step, floats to 1e-9.
//! 8. Adding an engine is one file, one table line and one fixture folder.
//! 9. The seed presets, with latency ratios and observed counts held fixed: more demand never plans fewer, and planning again on its own
//!    result at the same moment changes nothing.

pub mod app;
pub mod cli;
pub mod config;
pub mod decisions;
pub mod engines;
pub mod export;
pub mod exposition;
pub mod files;
pub mod history;
pub mod planner;
pub mod profiler;
pub mod record;
pub mod report;
pub mod scrape;
pub mod server;
pub mod simulator;
pub mod state;
pub mod units;
