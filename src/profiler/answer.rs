//! What does one event of a completion say? Text, token counts, an error, or the end. Pure.

use serde::Deserialize;
use serde_json::Value;

use super::sse::Event;

/// Characters of a server's own words that are repeated.
const WORDS: usize = 300;

/// What an event says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The stream is complete.
    Done,
    /// A piece of the answer.
    Piece {
        /// Whether it carries text; the first piece of a chat names the role only.
        has_text: bool,
        /// Counts; servers send them with the last piece or after it.
        usage: Option<Usage>,
    },
    /// The server gave up.
    Error(String),
}

/// Token counts of a request, as the server has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of the prompt, with everything that a chat template adds.
    pub prompt_tokens: u32,
    /// Of the answer.
    pub completion_tokens: u32,
    /// Tokens of the prompt that came from the prefix cache. Zero where the server does not say: it is only a hint.
    pub cached_tokens: u32,
}

#[derive(Deserialize)]
struct Body {
    choices: Option<Vec<Choice>>,
    usage: Option<Counts>,
    error: Option<Value>,
    object: Option<String>,
    message: Option<String>,
}

#[derive(Deserialize)]
struct Choice {
    text: Option<String>,
    delta: Option<Delta>,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
}

#[derive(Deserialize)]
struct Counts {
    prompt_tokens: Option<u32>,
    completion_tokens: Option<u32>,
    prompt_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u32>,
}

impl Choice {
    fn has_text(&self) -> bool {
        let delta = self.delta.iter().flat_map(|delta| [&delta.content, &delta.reasoning_content, &delta.reasoning]);
        delta.chain([&self.text]).flatten().any(|text| !text.is_empty())
    }
}

/// Reads an event; the error says what is wrong with it.
pub fn read(event: &Event) -> Result<Frame, String> {
    let data = event.data.trim();
    if data == "[DONE]" {
        return Ok(Frame::Done);
    }
    if event.is_error {
        return Ok(Frame::Error(words(data)));
    }
    let body: Body = serde_json::from_str(data).map_err(|error| format!("expected a completion in JSON, got {:?} ({error})", cut(data)))?;
    if body.error.as_ref().is_some_and(|error| !error.is_null()) || body.object.as_deref() == Some("error") {
        let error = body.error.map(|error| error.to_string()).or(body.message).unwrap_or_default();
        return Ok(Frame::Error(words(&error)));
    }
    let usage = body.usage.and_then(|counts| {
        Some(Usage {
            prompt_tokens: counts.prompt_tokens?,
            completion_tokens: counts.completion_tokens?,
            cached_tokens: counts.prompt_tokens_details.and_then(|details| details.cached_tokens).unwrap_or(0),
        })
    });
    Ok(Frame::Piece { has_text: body.choices.iter().flatten().any(Choice::has_text), usage })
}

/// The words for people in an error that a server sent: its `message`, wherever it stands, else its beginning.
pub fn words(text: &str) -> String {
    let found = serde_json::from_str::<Value>(text).ok().and_then(|value| {
        let inner = [value.pointer("/error/message"), value.pointer("/message"), value.pointer("/error"), value.pointer("/detail")];
        inner.into_iter().flatten().find_map(Value::as_str).map(str::to_owned)
    });
    let text = found.as_deref().unwrap_or(text).trim();
    if text.is_empty() { "no words about it".to_owned() } else { cut(text) }
}

fn cut(text: &str) -> String {
    text.chars().take(WORDS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(data: &str) -> Frame {
        read(&Event { is_error: false, data: data.to_owned() }).unwrap()
    }

    #[test]
    fn text_is_found_in_completions_chats_and_thoughts() {
        let piece = |has_text| Frame::Piece { has_text, usage: None };
        assert_eq!(frame(r#"{"choices":[{"text":" a"}]}"#), piece(true));
        assert_eq!(frame(r#"{"choices":[{"delta":{"content":"a"}}],"usage":null}"#), piece(true));
        assert_eq!(frame(r#"{"choices":[{"delta":{"reasoning_content":"a"}}]}"#), piece(true));
        assert_eq!(frame(r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#), piece(false));
        assert_eq!(frame(r#"{"choices":null}"#), piece(false));
        assert_eq!(frame(" [DONE] "), Frame::Done);
    }

    #[test]
    fn counts_are_taken_where_both_are_there() {
        let usage = |data: &str| match frame(data) {
            Frame::Piece { usage, .. } => usage,
            other => panic!("{other:?}"),
        };
        let expected = Usage { prompt_tokens: 9, completion_tokens: 3, cached_tokens: 0 };
        assert_eq!(usage(r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3}}"#), Some(expected));
        let cached = r#"{"usage":{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":8}}}"#;
        assert_eq!(usage(cached), Some(Usage { cached_tokens: 8, ..expected }));
        assert_eq!(usage(r#"{"usage":{"prompt_tokens":9}}"#), None);
    }

    #[test]
    fn errors_are_told_in_the_servers_words() {
        let error = |words: &str| Frame::Error(words.to_owned());
        assert_eq!(frame(r#"{"error":{"message":"no memory","code":500}}"#), error("no memory"));
        assert_eq!(frame(r#"{"object":"error","message":"too long","code":400}"#), error("too long"));
        assert_eq!(read(&Event { is_error: true, data: "gone".to_owned() }), Ok(error("gone")));
        assert!(read(&Event { is_error: false, data: "<html>".to_owned() }).unwrap_err().contains("<html>"));
    }
}
