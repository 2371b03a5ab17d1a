//! Which number does a token spell?

/// The number that `token` spells, not necessarily finite; `None` if it spells none.
///
/// Decimal numbers with or without exponent and, in any letter case, `Inf`, `Infinity` and `NaN`.
/// Windows runtimes print a NaN as `-nan(ind)` or `1.#IND`; those count as NaN.
/// Hexadecimal numbers are refused: only Go's parsers know them, and no exporter writes them.
pub(super) fn parse(token: &[u8]) -> Option<f64> {
    match short(token) {
        Some((value, length)) if length == token.len() => return Some(value),
        _ => {}
    }
    match fast_float2::parse(token) {
        Ok(value) => Some(value),
        Err(_) => is_odd_nan(token).then_some(f64::NAN),
    }
}

/// The finite number that a line ends with, and its length together with the line end; `None` where anything else is there.
#[inline]
pub(super) fn ends_line(text: &[u8]) -> Option<(f64, usize)> {
    let (count, length) = digits(text, 0);
    match &text[length..] {
        // Most values on a page are counts.
        [b'.', b'0', b'\n', ..] if is_exact(length) => Some((count as f64, length + 3)),
        [b'\n', ..] if is_exact(length) => Some((count as f64, length + 1)),
        _ => any_ends_line(text),
    }
}

/// The same for all numbers. By itself, so that the common case stays small where it is used.
fn any_ends_line(text: &[u8]) -> Option<(f64, usize)> {
    let (value, length): (f64, usize) = fast_float2::parse_partial(text).ok()?;
    let end = match &text[length..] {
        [b'\n', ..] => 1,
        [b'\r', b'\n', ..] => 2,
        _ => return None,
    };
    value.is_finite().then_some((value, length + end))
}

/// As many digits make a number below 2^53, which is exact.
const MOST_DIGITS: usize = 15;
/// Powers of ten up to the highest that a number has digits behind its point here; they are exact as well.
const POWERS: [f64; MOST_DIGITS] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14];

/// The number of the form `12` or `12.5` that `text` starts with, and its length, where it is short: most bounds and values are, and this is a
/// third of the general cost. Who calls looks whether it goes on.
#[inline]
pub(super) fn short(text: &[u8]) -> Option<(f64, usize)> {
    let (whole, point) = digits(text, 0);
    if !is_exact(point) {
        return None;
    }
    if text.get(point) != Some(&b'.') {
        return Some((whole as f64, point));
    }
    let (count, places) = digits(&text[point + 1..], whole);
    // Both are exact, so that the division rounds once, to the number that is nearest to the decimal one.
    is_exact(point + places).then(|| (count as f64 / POWERS[places], point + 1 + places))
}

#[inline]
fn is_exact(digits: usize) -> bool {
    (1..=MOST_DIGITS).contains(&digits)
}

/// The number that `count` becomes by the digits that `text` starts with, and how many they are. Beyond so many that it is exact, it is wrong.
#[inline]
fn digits(text: &[u8], mut count: i64) -> (i64, usize) {
    for (length, byte) in text.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return (count, length);
        }
        count = count.wrapping_mul(10).wrapping_add(i64::from(digit));
    }
    (count, text.len())
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
    fn a_number_with_up_to_fifteen_digits_is_the_nearest_one_wherever_its_point_is() {
        let mut state = 1_u64;
        for round in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let digits = &format!("{state:020}")[..1 + round % 17];
            for point in 1..=digits.len() {
                let token = format!("{}.{}", &digits[..point], &digits[point..]);
                let expected: f64 = token.parse().unwrap();
                assert_eq!(parse(token.as_bytes()).map(f64::to_bits), Some(expected.to_bits()), "{token}");
                let read = short(token.as_bytes()).map(|(value, length)| (value.to_bits(), length));
                assert_eq!(read, (digits.len() <= MOST_DIGITS).then_some((expected.to_bits(), token.len())), "{token}");
            }
        }
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
