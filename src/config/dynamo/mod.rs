//! What do the files of Dynamo's planner mean here? Its configuration as one of ours, with the reason for every difference; its profile data as
//! our profile.
//!
//! | file | question |
//! |---|---|
//! | `fields` | which fields exist there, and what becomes of each: the one table |
//! | `read` | what does the file say, typed and with places |
//! | `roles` | what do mode, target and switches mean |
//! | `rules` | do the fields agree |
//! | `write` | the configuration that comes of it |
//! | `pools` | the pools of it, and who is asked for samples |
//! | `profile`, `surface` | what did its profiler measure, and how does that become a profile |
//! | `npz` | which arrays does NumPy's archive hold |
//! | `reference` | the table of fields in `../README.md` |

mod fields;
mod npz;
mod pools;
pub(super) mod profile;
mod read;
mod reference;
mod roles;
mod rules;
mod surface;
mod write;

pub use profile::{no_profile, profile_files, profile_text};
pub(super) use reference::table;

use super::problem::{self, Problem};
use super::tree::{self, SourceText};
use read::Fields;

/// Translates a planner configuration of Dynamo, or a DynamoGraphDeploymentRequest that holds one, JSON or YAML. Older and newer names of
/// fields are known.
///
/// The result is YAML with comments. What Dynamo's file does not say stands in it as a placeholder, which makes the configuration a bad one
/// until it is filled in. Every field of the input is either a key of the result or named in a comment with the reason. All problems are
/// reported at once.
pub fn translate(source: &SourceText) -> Result<String, Vec<Problem>> {
    let known =
        source.path.extension().is_some_and(|ending| ["json", "yaml", "yml"].iter().any(|known| ending.eq_ignore_ascii_case(known)));
    // JSON is YAML, but for rarities: a file without an ending is read as what may be either.
    let (root, mut problems) = if known { tree::read(source) } else { tree::read_as_yaml(source) };
    let Some(root) = root else { return Err(problems) };
    let mut fields = Fields::of(&source.path, &root);
    rules::check(&mut fields);
    problems.extend(fields.take_problems());
    if problems.is_empty() {
        return Ok(write::configuration(&fields, &source.path));
    }
    problem::sort(&mut problems, std::slice::from_ref(&source.path));
    Err(problems)
}

#[cfg(test)]
mod tests;
