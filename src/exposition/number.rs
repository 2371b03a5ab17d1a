//! Which number does a token spell?

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

/// The value of a short whole number, as `12` or `12.0`: most values on a page are counts, and this is a third of the general cost.
fn whole(token: &[u8]) -> Option<f64> {
    let digits = token.strip_suffix(b".0").unwrap_or(token);
    // 15 digits are below 2^53, so the conversion is exact.
    if digits.is_empty() || digits.len() > 15 {
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
