//! Archives that NumPy wrote, and archives that were spoilt.

use super::*;

const STORED: &[u8] = include_bytes!("../../../tests/fixtures/dynamo/profile-npz/selected_prefill_interpolation/raw_data.npz");
const DEFLATED: &[u8] = include_bytes!("../../../tests/fixtures/dynamo/profile-npz/selected_decode_interpolation/raw_data.npz");
const KINDS: &[u8] = include_bytes!("../../../tests/fixtures/dynamo/kinds.npz");

fn read(archive: &[u8]) -> Value {
    serde_json::from_str(&as_json(archive).expect("an archive of NumPy's")).expect("JSON")
}

#[test]
fn stored_and_deflated_archives_hold_what_the_json_layout_holds() {
    for (archive, json) in [
        (STORED, include_str!("../../../tests/fixtures/dynamo/profile-json/prefill_raw_data.json")),
        (DEFLATED, include_str!("../../../tests/fixtures/dynamo/profile-json/decode_raw_data.json")),
    ] {
        let Value::Object(expected) = serde_json::from_str(json).expect("JSON") else { panic!("an object") };
        let found = read(archive);
        for (name, expected) in expected {
            let numbers = |value: &Value| match value {
                Value::Array(items) => items.iter().map(Value::as_f64).collect::<Vec<_>>(),
                single => vec![single.as_f64()],
            };
            assert_eq!(numbers(&found[&name]), numbers(&expected), "{name}");
        }
    }
}

#[test]
fn numbers_of_every_width_and_order_are_read() {
    let found = read(KINDS);
    assert_eq!(found["small"], serde_json::json!([1.5, -2.0]));
    assert_eq!(found["big"], serde_json::json!([3.0, -4.0]));
    assert_eq!(found["bytes"], serde_json::json!([250.0]));
    assert_eq!(found["none"], serde_json::json!(7.0));
    assert_eq!(found["nan"], serde_json::json!([null, 1.0]), "what is no number is null");
}

#[test]
fn a_spoilt_archive_is_refused_and_never_believed() {
    assert_eq!(as_json(b"{}").unwrap_err(), "expected an .npz, which is a zip archive, got something else");
    for cut in 0..STORED.len() {
        assert!(as_json(&STORED[..cut]).is_err(), "cut at {cut}");
    }
    // Any one bit: an error, or another name; never other numbers.
    let honest = read(STORED);
    for archive in [STORED, DEFLATED] {
        for index in 0..archive.len() {
            let mut spoilt = archive.to_vec();
            spoilt[index] ^= 1;
            let Ok(text) = as_json(&spoilt) else { continue };
            let Value::Object(found) = serde_json::from_str(&text).expect("JSON") else { panic!("an object") };
            for (name, array) in found.iter().filter(|_| archive == STORED) {
                assert!(honest.get(name).is_none_or(|honest| honest == array), "byte {index}: {name}");
            }
        }
    }
}

#[test]
fn an_array_of_another_kind_names_what_was_expected() {
    let array = |header: &str, body: &[u8]| {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend(u16::try_from(header.len()).expect("short").to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(body);
        super::array(&bytes)
    };
    let header = |kind: &str, shape: &str| format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n");
    assert_eq!(array(&header("<f8", "(1,)"), &1.0f64.to_le_bytes()), Ok(serde_json::json!([1.0])));
    assert_eq!(array(&header("<U3", "(1,)"), &[0; 12]).unwrap_err(), "expected whole or floating-point numbers, got kind \"<U3\"");
    assert_eq!(array(&header("<f8", "(1, 1)"), &[0; 8]).unwrap_err(), "expected a single number or a list of numbers, got shape (1, 1)");
    assert_eq!(array(&header("<f8", "(2,)"), &[0; 8]).unwrap_err(), "expected 2 numbers of 8 bytes, got 8 bytes");
    assert!(array(&header("<f8", "(18446744073709551615,)"), &[0; 8]).is_err(), "a length beyond all memory");
    assert!(array(&header("<i3", "(1,)"), &[0; 3]).is_err());
    assert!(array("", &[]).is_err());
}
