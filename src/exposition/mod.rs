//! What does a scraped page say? Prometheus text and OpenMetrics in, families of samples and a list of problems out.
//!
//! Pages in the field break the formats' grammars in many small ways, and the two reference parsers disagree on most of them.
//! This reader is therefore tolerant of a line and strict about a page:
//!
//! - A line of a wanted family that cannot be read costs that line, and is reported with its number. Metadata never costs anything.
//! - A page that is not an exposition (empty, HTML, JSON) or whose end is missing is refused whole. Half a page must never be
//!   differenced against a whole one, and a page without samples must never be taken for a server without load.
//! - What is not known is absent: a value that is not finite leaves no sample, and a family without samples is not on the page.
//!   `TYPE` is a hint and decides nothing, because engines and proxies get it wrong.
//!
//! The room knows no engine. Callers name the families that they want ([`Wanted`]), since a page is a hundred times longer than
//! what is asked of it; other lines cost little more than finding where they end.
//!
//! Reading order: `page` (what comes out), `wanted` (which line belongs to which family), `line` (one sample line), `number`,
//! `reader` (the walk over the page), `ahead` (its short cuts), `duplicates`, `problems`, `refusal`.

mod ahead;
mod draft;
mod duplicates;
mod follower;
mod line;
mod lines;
mod memory;
mod number;
mod page;
mod problems;
mod reader;
mod recent;
mod refusal;
mod sets;
mod table;
mod wanted;

pub use memory::Memory;
pub use page::{Family, Kind, Label, Page, Part, Sample};
pub use problems::{Problem, ProblemKind, Problems};
pub use reader::read;
pub use refusal::Refusal;
pub use wanted::Wanted;

/// The two page formats. They differ in one rule: an OpenMetrics page ends with `# EOF`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text, any version 0.x or 1.x; `# EOF` is a comment.
    Text,
    /// OpenMetrics 1.x; exactly one `# EOF`, as the last line.
    OpenMetrics,
}

impl Format {
    /// The format that a `Content-Type` header announces; text unless it says OpenMetrics.
    ///
    /// Versions and other parameters are not looked at: all of them read alike here. Missing and foreign types (a good page sent as
    /// `text/html`, an error page sent as `text/plain`) are common, so the body and not this header decides what is refused.
    pub fn from_content_type(content_type: Option<&str>) -> Self {
        let media_type = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        if media_type.eq_ignore_ascii_case("application/openmetrics-text") { Self::OpenMetrics } else { Self::Text }
    }
}

/// The part of `line` before its line end's carriage return, if it has one.
fn without_carriage_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Whether `byte` separates the tokens of a line.
fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}
