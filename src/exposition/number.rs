//! Which number does a token spell?

use memchr::memchr;

use super::without_carriage_return;

/// The number that `token` spells, not necessarily finite; `None` if it spells none.
///
/// Decimal numbers with or without exponent and, in any letter case, `Inf`, `Infinity` and `NaN`.
/// Windows runtimes print a NaN as `-nan(ind)` or `1.#IND`; those count as NaN.
/// Hexadecimal numbers are refused: only Go's parsers know them, and no exporter writes them.
pub(super) fn parse(token: &[u8]) -> Option<f64> {
    if let Some(count) = whole(token) {
        return Some(count);
    }
    match fast_float2::parse(token) {
        Ok(value) => Some(value),
        Err(_) => is_odd_nan(token).then_some(f64::NAN),
    }
}

/// The finite number that a line ends with, and its length together with the line end; `None` where anything else is there.
#[inline]
pub(super) fn ends_line(text: &[u8]) -> Option<(f64, usize)> {
    // As in `whole`, but without knowing where the line ends.
    let mut count = 0_u64;
    let mut length = 0;
    while let Some(digit) = text.get(length).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit <= 9 && length < LONGEST_WHOLE) {
        count = count * 10 + u64::from(digit);
        length += 1;
    }
    let behind = &text[length..];
    match behind {
        [b'.', b'0', b'\n', ..] if length > 0 => return Some((count as f64, length + 3)),
        [b'\n', ..] if length > 0 => return Some((count as f64, length + 1)),
        _ => {}
    }
    let end = length + memchr(b'\n', behind)?;
    let value = parse(without_carriage_return(&text[..end])).filter(|value| value.is_finite())?;
    Some((value, end + 1))
}

/// 15 digits are below 2^53, so that the conversion is exact.
const LONGEST_WHOLE: usize = 15;

/// The value of a short whole number, as `12` or `12.0`: most values on a page are counts, and this is a third of the general cost.
fn whole(token: &[u8]) -> Option<f64> {
    let digits = token.strip_suffix(b".0").unwrap_or(token);
    if digits.is_empty() || digits.len() > LONGEST_WHOLE {
        return None;
    }
    let mut count = 0_u64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        count = count * 10 + u64::from(digit - b'0');
    }
    Some(count as f64)
}

fn is_odd_nan(token: &[u8]) -> bool {
    let unsigned = token.strip_prefix(b"-").or(token.strip_prefix(b"+")).unwrap_or(token);
    let starts_with = |word: &[u8]| unsigned.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    (starts_with(b"nan(") && unsigned.ends_with(b")")) || starts_with(b"1.#")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_numbers_are_read() {
        for (token, value) in
            [("0", 0.0), ("-3.5", -3.5), ("1e+06", 1e6), ("3.325656e+06", 3_325_656.0), ("+2", 2.0), (".5", 0.5), ("5.", 5.0)]
        {
            assert_eq!(parse(token.as_bytes()), Some(value), "{token}");
        }
    }

    #[test]
    fn whole_numbers_are_exact_on_both_sides_of_the_short_way() {
        for (token, value) in [
            ("0.0", 0.0),
            ("007", 7.0),
            ("999999999999999.0", 999_999_999_999_999.0),
            ("1234567890123456", 1_234_567_890_123_456.0),
            ("-1.0", -1.0),
        ] {
            assert_eq!(parse(token.as_bytes()), Some(value), "{token}");
        }
        assert_eq!(parse(b".0"), Some(0.0));
    }

    #[test]
    fn the_number_at_the_end_of_a_line_is_the_one_that_the_token_spells() {
        for token in ["0", "12", "12.0", "12.5", "123456789012345", "1234567890123456", "1234567890123456.0", "-3", "1e5", ".0", "5.", "+2"]
        {
            for (end, length) in [("\n", 1), ("\r\n", 2), ("\nf 1\n", 1)] {
                let expected = parse(token.as_bytes()).map(|value| (value, token.len() + length));
                assert_eq!(ends_line(format!("{token}{end}").as_bytes()), expected, "{token:?} {end:?}");
            }
        }
        for text in
            ["", "\n", "12", "12 \n", " 12\n", "12 1700000000000\n", "1.0.0\n", "NaN\n", "+Inf\n", "1e999\n", "12\r", "12\r\r\n", "x\n"]
        {
            assert_eq!(ends_line(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn nan_is_nan_in_any_spelling() {
        for token in ["NaN", "nan", "NAN", "-nan", "+nan", "-nan(ind)", "nan(snan)", "-NaN(IND)", "1.#QNAN", "-1.#IND"] {
            assert!(parse(token.as_bytes()).is_some_and(f64::is_nan), "{token}");
        }
    }

    #[test]
    fn infinity_is_infinite_in_any_spelling() {
        for token in ["Inf", "+Inf", "-Inf", "inf", "+INF", "infinity", "-Infinity", "1e999"] {
            assert!(parse(token.as_bytes()).is_some_and(f64::is_infinite), "{token}");
        }
    }

    #[test]
    fn what_is_no_decimal_number_is_refused() {
        for token in ["", "-", "0x1p-2", "0x10", "1_000", "1,5", "12a", "nano", "nan(", "one", "1.0.0", "١"] {
            assert_eq!(parse(token.as_bytes()), None, "{token}");
        }
    }
}
