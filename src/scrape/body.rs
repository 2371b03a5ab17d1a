//! What bytes does the page consist of? Collecting the body, inflating it on the way, stopping at the limits.
//!
//! Inflating happens as the bytes come, so only the inflated page is held, and a bomb is noticed after the limit and not after the
//! explosion. `Content-Encoding` is trusted; without it, the first byte of gzip's magic decides, which no text page starts with.
//!
//! A stream that ends early is a failure, since half a page must not pass for a page. Members glued together (some servers write one
//! per flush) are one page. What follows a complete and checked stream is left out and counted, as `gzip` does it.

use std::io::{self, Write};

use flate2::write::GzDecoder;
use reqwest::header::{CONTENT_ENCODING, HeaderMap};

use super::budget::Claim;
use super::failure::failure;
use super::report::Failure;
use crate::planner::input::FailureKind;

/// The first claim of a body whose length is not known: more than most engines' pages.
const FIRST_CLAIM: usize = 64 << 10;
/// The most that an announced length claims before the bytes come.
const TRUSTED_LENGTH: usize = 256 << 10;
const GZIP_MAGIC: u8 = 0x1f;

/// How the body is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Unsaid,
    Gzip,
}

impl Encoding {
    /// What the headers say. Other encodings were not asked for.
    pub(super) fn from_headers(headers: &HeaderMap) -> Result<Self, Failure> {
        let mut encoding = Self::Unsaid;
        for value in headers.get_all(CONTENT_ENCODING) {
            let value = value.to_str().unwrap_or("(not text)").trim();
            encoding = match (encoding, value.to_ascii_lowercase().as_str()) {
                (encoding, "" | "identity") => encoding,
                (Self::Unsaid, "gzip" | "x-gzip") => Self::Gzip,
                _ => return Err(failure(FailureKind::Parse, format!("content encoding `{value}`; expected gzip, once, or none"))),
            };
        }
        Ok(encoding)
    }
}

/// A whole page in memory.
#[derive(Debug)]
pub(super) struct Body {
    pub bytes: Vec<u8>,
    /// Bytes behind the end of the gzip stream, which were left out. Padding with zeros does not count.
    pub left_out: usize,
    /// Given back when the page has been read.
    pub claim: Claim,
}

/// A body under way.
#[derive(Debug)]
pub(super) struct Collector {
    limit: usize,
    claim: Claim,
    /// Bytes that came over the wire.
    received: usize,
    left_out: usize,
    /// What the announced length makes worth claiming.
    expected: usize,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Nothing came yet and the headers do not name an encoding.
    Start(Sink),
    Plain(Sink),
    Gzip(Box<GzDecoder<Sink>>),
    /// Behind a complete member.
    Tail(Sink),
    /// Left behind by a failure.
    Spent,
}

/// The page so far. Takes no more than was claimed for it.
#[derive(Debug, Default)]
struct Sink {
    bytes: Vec<u8>,
    claimed: usize,
}

impl Write for Sink {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let room = self.claimed.saturating_sub(self.bytes.len()).min(data.len());
        if room == 0 && !data.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.bytes.extend_from_slice(&data[..room]);
        Ok(room)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Collector {
    /// A collector of at most `limit` bytes before and after inflating. `announced`: the length before inflating, if the server said it.
    pub(super) fn new(encoding: Encoding, announced: Option<u64>, limit: usize, claim: Claim) -> Result<Self, Failure> {
        let announced = announced.map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        if announced.is_some_and(|length| length > limit) {
            return Err(too_large(limit, "before inflating"));
        }
        let (stage, expected) = match encoding {
            Encoding::Unsaid => (Stage::Start(Sink::default()), announced.unwrap_or(FIRST_CLAIM).min(TRUSTED_LENGTH)),
            Encoding::Gzip => (gzip(Sink::default()), FIRST_CLAIM),
        };
        Ok(Self { limit, claim, received: 0, left_out: 0, expected, stage })
    }

    /// Takes the next bytes from the wire; waits for memory if there is none.
    pub(super) async fn push(&mut self, mut data: &[u8]) -> Result<(), Failure> {
        self.received = self.received.saturating_add(data.len());
        if self.received > self.limit {
            return Err(too_large(self.limit, "before inflating"));
        }
        while let Some(&first) = data.first() {
            match std::mem::replace(&mut self.stage, Stage::Spent) {
                Stage::Start(sink) if first == GZIP_MAGIC => self.stage = gzip(sink),
                Stage::Start(sink) => self.stage = Stage::Plain(sink),
                Stage::Plain(mut sink) => {
                    let written = sink.write(data);
                    self.stage = Stage::Plain(sink);
                    data = &data[self.written(written).await?..];
                }
                Stage::Gzip(mut decoder) => {
                    let written = decoder.write(data);
                    self.stage = Stage::Gzip(decoder);
                    match written {
                        // The member is complete: what follows is not its.
                        Ok(0) => self.end_member().await?,
                        written => data = &data[self.written(written).await?..],
                    }
                }
                Stage::Tail(sink) if first == GZIP_MAGIC && self.left_out == 0 => self.stage = gzip(sink),
                Stage::Tail(sink) => {
                    self.stage = Stage::Tail(sink);
                    self.left_out += data.iter().filter(|&&byte| byte != 0).count();
                    return Ok(());
                }
                Stage::Spent => return Ok(()),
            }
        }
        Ok(())
    }

    /// The page, if it is complete.
    pub(super) async fn finish(mut self) -> Result<Body, Failure> {
        if matches!(self.stage, Stage::Gzip(_)) && self.received > 0 {
            self.end_member().await?;
        }
        let bytes = match self.stage {
            Stage::Start(sink) | Stage::Plain(sink) | Stage::Tail(sink) => sink.bytes,
            Stage::Gzip(_) | Stage::Spent => Vec::new(),
        };
        Ok(Body { bytes, left_out: self.left_out, claim: self.claim })
    }

    /// Checks the length and checksum of the member that ends here, and is ready for another.
    async fn end_member(&mut self) -> Result<(), Failure> {
        while let Stage::Gzip(decoder) = &mut self.stage {
            match decoder.try_finish() {
                Ok(()) => {
                    let sink = std::mem::take(decoder.get_mut());
                    self.stage = Stage::Tail(sink);
                }
                Err(error) => {
                    self.written(Err(error)).await?;
                }
            }
        }
        Ok(())
    }

    /// How much was written; none, but with more room, where the page was full.
    async fn written(&mut self, written: io::Result<usize>) -> Result<usize, Failure> {
        match written {
            Ok(count) => Ok(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.grow().await.map(|()| 0),
            Err(error) => {
                let received = self.received;
                let message = format!("the gzip stream is damaged or cut short, {received} bytes came: {error}");
                Err(failure(FailureKind::Parse, message))
            }
        }
    }

    /// Makes room for more of the page, within the limit.
    async fn grow(&mut self) -> Result<(), Failure> {
        let sink = match &mut self.stage {
            Stage::Plain(sink) => sink,
            Stage::Gzip(decoder) => decoder.get_mut(),
            Stage::Start(_) | Stage::Tail(_) | Stage::Spent => return Ok(()),
        };
        if sink.claimed >= self.limit {
            return Err(too_large(self.limit, "after inflating"));
        }
        // Doubling keeps copying in proportion to the page, and the claim below twice of what came.
        let wanted = if sink.claimed == 0 { self.expected } else { sink.claimed.saturating_mul(2) };
        let wanted = wanted.clamp(1, self.limit);
        self.claim.grow_to(wanted).await;
        sink.claimed = wanted;
        sink.bytes.reserve_exact(wanted - sink.bytes.len());
        Ok(())
    }
}

fn gzip(sink: Sink) -> Stage {
    Stage::Gzip(Box::new(GzDecoder::new(sink)))
}

fn too_large(limit: usize, when: &str) -> Failure {
    failure(FailureKind::TooLarge, format!("the body exceeds {limit} bytes {when}; expected less, or a larger scrape.body_limit"))
}

#[cfg(test)]
mod tests {
    use super::super::budget::Budget;
    use super::*;

    const LIMIT: usize = 1 << 20;

    /// Collects a body that comes in pieces of this size.
    async fn collect(encoding: Encoding, body: &[u8], piece: usize) -> Result<(Vec<u8>, usize), Failure> {
        let mut collector = Collector::new(encoding, None, LIMIT, Budget::new(LIMIT, LIMIT, 0).claim())?;
        for piece in body.chunks(piece) {
            collector.push(piece).await?;
        }
        collector.finish().await.map(|body| (body.bytes, body.left_out))
    }

    fn packed(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn text() -> Vec<u8> {
        (0..20_000).flat_map(|line| format!("family{{line=\"{line}\"}} {line}\n").into_bytes()).collect()
    }

    #[tokio::test]
    async fn a_page_is_the_same_however_it_is_packed_and_cut_into_pieces() {
        let text = text();
        let packed = packed(&text);
        for piece in [1, 7, 10_000, LIMIT] {
            assert_eq!(collect(Encoding::Gzip, &packed, piece).await, Ok((text.clone(), 0)), "{piece}");
            assert_eq!(collect(Encoding::Unsaid, &packed, piece).await, Ok((text.clone(), 0)), "{piece}");
            assert_eq!(collect(Encoding::Unsaid, &text, piece).await, Ok((text.clone(), 0)), "{piece}");
        }
    }

    #[tokio::test]
    async fn members_are_joined_padding_is_ignored_and_garbage_is_counted() {
        let (one, two) = (packed(b"one 1\n"), packed(b"two 2\n"));
        let joined = Ok((b"one 1\ntwo 2\n".to_vec(), 0));
        let body = [&one[..], &two].concat();
        for piece in [1, 3, 1000] {
            assert_eq!(collect(Encoding::Gzip, &body, piece).await, joined);
            assert_eq!(collect(Encoding::Gzip, &[&body[..], &[0; 9]].concat(), piece).await, joined);
            assert_eq!(collect(Encoding::Gzip, &[&one[..], b"tail"].concat(), piece).await, Ok((b"one 1\n".to_vec(), 4)));
        }
    }

    #[tokio::test]
    async fn a_stream_cut_anywhere_is_a_failure() {
        let packed = packed(b"family 1\nfamily 2\n");
        for length in 1..packed.len() {
            let cut = collect(Encoding::Gzip, &packed[..length], 5).await;
            assert_eq!(cut.unwrap_err().kind, FailureKind::Parse, "{length}");
        }
        assert_eq!(collect(Encoding::Gzip, b"", 5).await, Ok((Vec::new(), 0)));
    }

    #[tokio::test]
    async fn a_damaged_stream_and_plain_text_called_gzip_are_failures() {
        let mut damaged = packed(b"family 1\n");
        let checksum = damaged.len() - 8;
        damaged[checksum] ^= 1;
        for body in [&damaged[..], b"family 1\n"] {
            assert_eq!(collect(Encoding::Gzip, body, 5).await.unwrap_err().kind, FailureKind::Parse);
        }
    }

    #[tokio::test]
    async fn the_limit_holds_before_and_after_inflating_and_is_itself_allowed() {
        let fits = vec![b'\n'; LIMIT];
        for body in [fits.clone(), packed(&fits)] {
            assert_eq!(collect(Encoding::Unsaid, &body, 4096).await.map(|(bytes, _)| bytes.len()), Ok(LIMIT));
        }
        let large = vec![b'\n'; LIMIT + 1];
        for body in [large.clone(), packed(&large)] {
            assert_eq!(collect(Encoding::Unsaid, &body, 4096).await.unwrap_err().kind, FailureKind::TooLarge);
        }
    }

    #[tokio::test]
    async fn a_bomb_is_not_inflated_beyond_the_limit() {
        let bomb = packed(&vec![0; 100 << 20]);
        let mut collector = Collector::new(Encoding::Gzip, None, LIMIT, Budget::new(LIMIT, LIMIT, 0).claim()).unwrap();
        assert_eq!(collector.push(&bomb).await.unwrap_err().kind, FailureKind::TooLarge);
        let Stage::Gzip(decoder) = &collector.stage else { panic!("the stream has not ended") };
        assert!(decoder.get_ref().bytes.capacity() <= LIMIT);
    }

    #[test]
    fn an_announced_length_over_the_limit_is_refused_at_once() {
        let claim = Budget::new(LIMIT, LIMIT, 0).claim();
        let refused = Collector::new(Encoding::Unsaid, Some(LIMIT as u64 + 1), LIMIT, claim);
        assert_eq!(refused.unwrap_err().kind, FailureKind::TooLarge);
    }

    #[test]
    fn encodings_that_nobody_asked_for_are_refused_by_name() {
        let encoding = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_ENCODING, value.parse().unwrap());
            Encoding::from_headers(&headers)
        };
        assert_eq!(encoding("X-GZIP"), Ok(Encoding::Gzip));
        assert_eq!(encoding("identity"), Ok(Encoding::Unsaid));
        assert!(encoding("br").unwrap_err().message.contains("`br`"));
    }
}
