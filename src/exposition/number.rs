//! Which number does a token spell?

/// The number that `token` spells, not necessarily finite; `None` if it spells none.
///
/// Decimal numbers with or without exponent and, in any letter case, `Inf`, `Infinity` and `NaN`.
/// Windows runtimes print a NaN as `-nan(ind)` or `1.#IND`; those count as NaN.
/// Hexadecimal numbers are refused: only Go's parsers know them, and no exporter writes them.
pub(super) fn parse(token: &[u8]) -> Option<f64> {
    match fast_float2::parse(token) {
        Ok(value) => Some(value),
        Err(_) => is_odd_nan(token).then_some(f64::NAN),
    }
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
