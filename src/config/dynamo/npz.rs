//! Which arrays does an .npz hold? NumPy's archive as the JSON object that Dynamo's other layout is.
//!
//! An .npz is a zip archive whose members are .npy files: a header in Python's notation, then the numbers as they lie in memory. Only what
//! Dynamo writes is read: plain numbers, in none or one dimension, stored or deflated. Every length is checked against the bytes that are
//! there, since the file may be anything.

use std::io::Read as _;

use serde_json::{Map, Number, Value};

/// Most bytes of all arrays of a file.
const MOST_BYTES: u64 = 16 << 20;

/// Ends the archive; its directory stands in front.
const END: &[u8] = b"PK\x05\x06";
const ENTRY: &[u8] = b"PK\x01\x02";
const MEMBER: &[u8] = b"PK\x03\x04";
const ARRAY: &[u8] = b"\x93NUMPY";

/// Fixed parts of the end of the directory, of an entry in it, and of what stands before a member's bytes.
const END_LENGTH: usize = 22;
const ENTRY_LENGTH: usize = 46;
const MEMBER_LENGTH: usize = 30;

/// The arrays by their names, as JSON. A number that is none (NaN, infinite) becomes null.
pub(super) fn as_json(archive: &[u8]) -> Result<String, String> {
    let mut arrays = Map::new();
    let mut left = MOST_BYTES;
    for entry in entries(archive)? {
        let bytes = entry.bytes(archive, &mut left).map_err(|error| format!("{}: {error}", entry.name))?;
        let array = array(&bytes).map_err(|error| format!("{}: {error}", entry.name))?;
        arrays.insert(entry.name.trim_end_matches(".npy").to_owned(), array);
    }
    Ok(Value::Object(arrays).to_string())
}

/// A member of the archive as its directory has it.
struct Entry {
    name: String,
    method: u16,
    checksum: u32,
    packed: usize,
    unpacked: u64,
    at: usize,
}

fn entries(archive: &[u8]) -> Result<Vec<Entry>, String> {
    let refused = || "expected an .npz, which is a zip archive, got something else".to_owned();
    // A comment may follow; NumPy writes none, so that the first look from behind finds it.
    let end = archive.windows(END.len()).rposition(|window| window == END).ok_or_else(refused)?;
    let end = part(archive, end, END_LENGTH)?;
    let (count, mut at) = (number(end, 10, 2)?, size(number(end, 16, 4)?)?);
    let mut entries = Vec::new();
    for _ in 0..count {
        let fixed = part(archive, at, ENTRY_LENGTH)?;
        if !fixed.starts_with(ENTRY) {
            return Err(refused());
        }
        let [name, extra, comment] = [28, 30, 32].map(|offset| number(fixed, offset, 2));
        let name_length = size(name?)?;
        let name = String::from_utf8_lossy(part(archive, at + ENTRY_LENGTH, name_length)?).into_owned();
        entries.push(Entry {
            name,
            method: u16::try_from(number(fixed, 10, 2)?).unwrap_or_default(),
            checksum: u32::try_from(number(fixed, 16, 4)?).unwrap_or_default(),
            packed: size(number(fixed, 20, 4)?)?,
            unpacked: number(fixed, 24, 4)?,
            at: size(number(fixed, 42, 4)?)?,
        });
        at += ENTRY_LENGTH + name_length + size(extra?)? + size(comment?)?;
    }
    Ok(entries)
}

impl Entry {
    /// The member's bytes; `left` is what all members together may still take.
    fn bytes(&self, archive: &[u8], left: &mut u64) -> Result<Vec<u8>, String> {
        let fixed = part(archive, self.at, MEMBER_LENGTH)?;
        if !fixed.starts_with(MEMBER) {
            return Err("its place in the archive holds something else".to_owned());
        }
        let start = self.at + MEMBER_LENGTH + size(number(fixed, 26, 2)?)? + size(number(fixed, 28, 2)?)?;
        let packed = part(archive, start, self.packed)?;
        *left = left.checked_sub(self.unpacked).ok_or_else(|| format!("expected at most {MOST_BYTES} bytes of arrays, got more"))?;
        let bytes = match self.method {
            0 => packed.to_vec(),
            8 => {
                let mut bytes = Vec::new();
                let unpacked = flate2::read::DeflateDecoder::new(packed).take(self.unpacked + 1).read_to_end(&mut bytes);
                unpacked.map_err(|error| format!("cannot be inflated: {error}"))?;
                bytes
            }
            other => return Err(format!("expected a member that is stored or deflated, got method {other}")),
        };
        let mut checksum = flate2::Crc::new();
        checksum.update(&bytes);
        if bytes.len() as u64 != self.unpacked || checksum.sum() != self.checksum {
            return Err("its bytes do not have the length and checksum that the archive says".to_owned());
        }
        Ok(bytes)
    }
}

/// One array: a list, or a single number where it has no dimension.
fn array(bytes: &[u8]) -> Result<Value, String> {
    let magic = part(bytes, 0, 8)?;
    if !magic.starts_with(ARRAY) {
        return Err("expected an array of NumPy's, got something else".to_owned());
    }
    // The first version counts its header in two bytes, later ones in four.
    let width = if magic[6] == 1 { 2 } else { 4 };
    let length = size(number(bytes, 8, width)?)?;
    let header = String::from_utf8_lossy(part(bytes, 8 + width, length)?);
    let kind = entry(&header, "'descr':").map(|rest| rest.trim_start_matches(['\'', '"'])).unwrap_or_default();
    let kind = kind.split(['\'', '"']).next().unwrap_or_default();
    let shape = entry(&header, "'shape':").and_then(|rest| rest.strip_prefix('(')?.split(')').next()).unwrap_or("?");
    let dimensions: Vec<&str> = shape.split(',').map(str::trim).filter(|length| !length.is_empty()).collect();
    let count = match dimensions[..] {
        [] => 1,
        [length] => length.parse().map_err(|_| format!("expected the length of an array, got {length:?}"))?,
        _ => return Err(format!("expected a single number or a list of numbers, got shape ({shape})")),
    };
    let numbers = numbers(kind, part(bytes, 8 + width + length, bytes.len() - 8 - width - length)?, count)?;
    Ok(if dimensions.is_empty() { numbers.into_iter().next().unwrap_or_default() } else { Value::Array(numbers) })
}

fn entry<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    header.split_once(key).map(|(_, rest)| rest.trim_start())
}

/// The numbers of an array, by NumPy's name for their kind.
fn numbers(kind: &str, bytes: &[u8], count: usize) -> Result<Vec<Value>, String> {
    let refused = || format!("expected whole or floating-point numbers, got kind {kind:?}");
    let (order, letter, width) = match kind.as_bytes() {
        [order @ (b'<' | b'>' | b'|' | b'='), letter, width @ b'1'..=b'8'] => (*order, *letter, usize::from(*width - b'0')),
        _ => return Err(refused()),
    };
    if !matches!((letter, width), (b'f', 4 | 8) | (b'i' | b'u', 1 | 2 | 4 | 8)) {
        return Err(refused());
    }
    let expected = count.checked_mul(width).filter(|expected| *expected == bytes.len());
    if expected.is_none() {
        return Err(format!("expected {count} numbers of {width} bytes, got {} bytes", bytes.len()));
    }
    let read = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..width].copy_from_slice(chunk);
        if order == b'>' {
            word[..width].reverse();
        }
        let bits = u64::from_le_bytes(word);
        // Whole numbers of this many bytes; shifting them up and down again spreads their sign.
        let unused = 64 - 8 * u32::try_from(width).unwrap_or(8);
        match (letter, width) {
            (b'f', 8) => f64::from_bits(bits),
            // The upper half is empty: only four bytes were copied.
            (b'f', _) => f64::from(f32::from_bits(bits as u32)),
            (b'u', _) => bits as f64,
            _ => ((bits << unused).cast_signed() >> unused) as f64,
        }
    };
    Ok(bytes.chunks_exact(width).map(|chunk| Number::from_f64(read(chunk)).map_or(Value::Null, Value::Number)).collect())
}

/// So many bytes from there on, if they are there.
fn part(bytes: &[u8], at: usize, length: usize) -> Result<&[u8], String> {
    at.checked_add(length).and_then(|end| bytes.get(at..end)).ok_or_else(|| "the file ends too early".to_owned())
}

/// A whole number of so many bytes, the lowest first.
fn number(bytes: &[u8], at: usize, width: usize) -> Result<u64, String> {
    let bytes = part(bytes, at, width)?;
    Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn size(number: u64) -> Result<usize, String> {
    usize::try_from(number).map_err(|_| "the file is too large".to_owned())
}

#[cfg(test)]
#[path = "npz_tests.rs"]
mod tests;
