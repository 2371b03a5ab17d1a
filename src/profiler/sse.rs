//! Where does one event of a stream end and the next begin? Server-sent events from bytes that come in any pieces. Pure.
//!
//! A piece may end anywhere, also inside a character or between CR and LF, so nothing is decoded before an event is whole. Comments (lines
//! that begin with a colon; servers send them to keep a connection alive) and unknown fields are skipped. An event has a size limit, because
//! the other side may be anything.

/// Most bytes of one event. An event holds one token; with log probabilities some kilobytes.
pub const LARGEST: usize = 1 << 20;

/// Why a stream cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// An event without an end.
    #[error("an event of the stream is larger than {LARGEST} bytes")]
    TooLarge,
    /// Bytes that are no text.
    #[error("an event of the stream is not UTF-8")]
    NotText,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its type is `error`.
    pub is_error: bool,
    /// Its data, lines joined by line feeds.
    pub data: String,
}

/// Collects bytes until an event is whole.
#[derive(Debug, Default)]
pub struct Events {
    line: Vec<u8>,
    data: Option<Vec<u8>>,
    is_error: bool,
    after_return: bool,
}

impl Events {
    /// The events that these bytes complete, in order.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Event>, Unreadable> {
        let mut found = Vec::new();
        for &byte in bytes {
            let second_half = std::mem::replace(&mut self.after_return, byte == b'\r') && byte == b'\n';
            match byte {
                b'\n' if second_half => {}
                b'\r' | b'\n' => found.extend(self.end_line()?),
                byte => self.line.push(byte),
            }
            if self.line.len() + self.data.as_ref().map_or(0, Vec::len) > LARGEST {
                return Err(Unreadable::TooLarge);
            }
        }
        Ok(found)
    }

    /// The event that the end of the stream completes, if its blank line never came.
    pub fn finish(mut self) -> Result<Option<Event>, Unreadable> {
        self.end_line()?;
        self.dispatch()
    }

    fn end_line(&mut self) -> Result<Option<Event>, Unreadable> {
        if self.line.is_empty() {
            return self.dispatch();
        }
        let line = std::mem::take(&mut self.line);
        let (field, value) = match line.iter().position(|&byte| byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (&line[..], &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => self.data = Some(value.to_vec()),
            },
            b"event" => self.is_error = value == b"error",
            _ => {}
        }
        Ok(None)
    }

    fn dispatch(&mut self) -> Result<Option<Event>, Unreadable> {
        let is_error = std::mem::take(&mut self.is_error);
        let Some(data) = self.data.take() else {
            // Dynamo says in a comment what went wrong, and sends no data.
            return Ok(is_error.then(|| Event { is_error, data: String::new() }));
        };
        Ok(Some(Event { is_error, data: String::from_utf8(data).map_err(|_| Unreadable::NotText)? }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pieces: &[&[u8]]) -> Vec<String> {
        let mut events = Events::default();
        let mut found: Vec<Event> = pieces.iter().flat_map(|piece| events.push(piece).unwrap()).collect();
        found.extend(events.finish().unwrap());
        found.into_iter().map(|event| event.data).collect()
    }

    #[test]
    fn events_are_the_same_however_the_bytes_are_cut() {
        let text = "data: {\"t\":\"äß€\"}\r\n\r\n: keep-alive\n\ndata:two\ndata: lines\n\nid: 7\nretry: 1\r\rdata: [DONE]".as_bytes();
        let expected = ["{\"t\":\"äß€\"}", "two\nlines", "[DONE]"];
        assert_eq!(all(&[text]), expected);
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(all(&bytes), expected);
        for at in 0..text.len() {
            assert_eq!(all(&[&text[..at], &text[at..]]), expected, "cut at {at}");
        }
    }

    #[test]
    fn an_event_of_type_error_is_told_with_and_without_data() {
        let mut events = Events::default();
        let found = events.push(b"event: error\n: worker died\n\nevent: error\ndata: x\n\ndata: y\n\n").unwrap();
        assert_eq!(found.iter().map(|event| event.is_error).collect::<Vec<_>>(), [true, true, false]);
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut events = Events::default();
        let mut result = Ok(Vec::new());
        for _ in 0..=LARGEST / 1000 {
            result = events.push(&[b'x'; 1000]);
        }
        assert_eq!(result, Err(Unreadable::TooLarge));
        assert_eq!(Events::default().push(b"data: \xff\n\n"), Err(Unreadable::NotText));
    }
}
