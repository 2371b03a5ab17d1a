//! Does each format give the requests that it writes, and name every bad line?

use std::time::Duration;

use super::problem::{Fault, Place};
use super::*;

const CONVERSATION: &str = include_str!("../../../tests/fixtures/traces/azure2023_conv_200.csv");
const CODE: &str = include_str!("../../../tests/fixtures/traces/azure2023_code_200.csv");

fn good(text: &str) -> Trace {
    read(text, &Generation::default()).unwrap_or_else(|problems| panic!("{problems}"))
}

fn shown(text: &str) -> Vec<String> {
    read(text, &Generation::default()).expect_err("something is wrong").iter().map(ToString::to_string).collect()
}

fn request(nanos: u64, input: u32, output: u32) -> Request {
    Request { at: Duration::from_nanos(nanos), input, output, prefix: None }
}

#[test]
fn azure_conversation_rows_and_totals_are_those_of_the_file() {
    let trace = good(CONVERSATION);
    assert_eq!(trace.requests.first(), Some(&request(0, 374, 44)));
    assert_eq!(trace.requests.get(1), Some(&request(4_314_579_000, 396, 109)));
    assert_eq!(trace.requests.last(), Some(&request(61_263_537_000, 1143, 409)));
    assert_eq!(trace.length, Duration::from_nanos(61_263_537_000));
    let Summary { requests, input, output, mean_input, .. } = trace.summary();
    assert_eq!((requests, input, output, mean_input.get()), (200, 180_695, 47_050, 903.475));
}

#[test]
fn azure_code_rows_and_totals_are_those_of_the_file() {
    let trace = good(CODE);
    assert_eq!(trace.requests.first(), Some(&request(0, 4808, 10)));
    assert_eq!(trace.requests.last(), Some(&request(199_089_585_000, 65, 10)));
    assert_eq!(trace.length, Duration::from_nanos(199_089_585_000));
    let Summary { requests, input, output, mean_input, .. } = trace.summary();
    assert_eq!((requests, input, output, mean_input.get()), (200, 414_215, 4_907, 2071.075));
}

#[test]
fn azure_reads_offsets_other_columns_and_any_order() {
    let text = "\u{feff}NumImages,GeneratedTokens,TIMESTAMP,ContextTokens\n\n\
                1,7,2024-05-10 02:00:00.5+02:00,30\n# a remark\n0,8,2024-05-10 00:00:00,31\n";
    assert_eq!(good(text).requests, [request(0, 31, 8), request(500_000_000, 30, 7)]);
}

#[test]
fn azure_names_every_bad_line() {
    let text = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n\
                2023-11-16 18:15:46.6805900,374,44\r\n\
                2023-13-16 18:15:46,0,x\r\n\
                2023-11-16 18:15:50.9951690,396\r\n\
                2023-11-16 18:15:51,-3,1.5\r\n\
                ü,1,4294967296\r\n";
    let tokens = "expected a whole number of tokens, 1 or more";
    let time = "expected a time such as 2023-11-16 18:15:46.6805900";
    let expected = [
        format!("line 3: TIMESTAMP: {time}, got \"2023-13-16 18:15:46\""),
        format!("line 3: ContextTokens: {tokens}, got \"0\""),
        format!("line 3: GeneratedTokens: {tokens}, got \"x\""),
        "line 4: the line ends before column GeneratedTokens".to_owned(),
        format!("line 5: ContextTokens: {tokens}, got \"-3\""),
        format!("line 5: GeneratedTokens: {tokens}, got \"1.5\""),
        format!("line 6: TIMESTAMP: {time}, got \"ü\""),
        format!("line 6: GeneratedTokens: {tokens}, got \"4294967296\""),
    ];
    assert_eq!(shown(text), expected);
    assert_eq!(
        shown("\nTIMESTAMP,Tokens\n"),
        ["line 2: the header has no column ContextTokens", "line 2: the header has no column GeneratedTokens"]
    );
    assert_eq!(shown("TIMESTAMP,ContextTokens,GeneratedTokens\n"), ["the trace holds no request"]);
}

#[test]
fn a_text_of_no_known_format_is_refused() {
    for text in ["a,b\n1,2\n", "{\"timestamp\":1}\n", "{", "[]", "1;2"] {
        let problems = read(text, &Generation::default()).expect_err("unknown");
        assert_eq!(problems.iter().map(|problem| &problem.fault).collect::<Vec<_>>(), [&Fault::UnknownFormat], "{text}");
    }
    assert_eq!(shown("\n# nothing\n"), ["the trace holds no request"]);
}

#[test]
fn mooncake_keeps_its_prefixes() {
    let text = "{\"timestamp\": 27482, \"input_length\": 6955, \"output_length\": 52, \"hash_ids\": [46, 47, 48]}\n\
                {\"timestamp\": 27000, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": [46, 50], \"session_id\": \"a\"}\n\
                {\"timestamp\": 30535.5, \"input_length\": 10, \"output_length\": 1}\n";
    assert_eq!(Format::of(text), Some(Format::Mooncake));
    let trace = good(text);
    let lengths: Vec<_> = trace.requests.iter().map(|request| (request.at.as_micros(), request.input, request.output)).collect();
    assert_eq!(lengths, [(0, 600, 5), (482_000, 6955, 52), (3_535_500, 10, 1)]);
    let blocks: Vec<Option<&[u64]>> = trace.requests.iter().map(|request| request.prefix.map(|id| trace.prefixes.blocks(id))).collect();
    assert_eq!(blocks, [Some([46, 50].as_slice()), Some(&[46, 47, 48]), None]);
    assert_eq!(trace.prefixes.block_tokens(), 512);
    assert_eq!(trace.length, Duration::from_micros(3_535_500));
    assert_eq!(trace.prefixes.blocks(PrefixId(9)), [0_u64; 0]);
}

#[test]
fn mooncake_names_every_bad_line() {
    let text = "{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1}\n\
                {\"timestamp\": 1, \"input_length\": 1}\n\
                {\"timestamp\": 1e300, \"input_length\": 0, \"output_length\": 0}\n\
                nonsense\n";
    let shown = shown(text);
    assert_eq!(shown.len(), 5, "{shown:?}");
    assert!(shown[0].starts_with("line 2: unusable row: missing field `output_length` at column "), "{}", shown[0]);
    assert!(shown[1].starts_with("line 3: timestamp: expected milliseconds within 300 years of zero"), "{}", shown[1]);
    assert_eq!(shown[2], "line 3: input_length: expected 1 token or more, got \"0\"");
    assert_eq!(shown[3], "line 3: output_length: expected 1 token or more, got \"0\"");
    assert!(shown[4].starts_with("line 4: unusable row: "), "{}", shown[4]);
}

/// One end of a request, as the frontend writes it.
fn end(received: u64, input: u32, output: &str, block: u32, hashes: &str) -> String {
    format!(
        "{{\"schema\":\"dynamo.request.trace.v1\",\"event_type\":\"request_end\",\"event_time_unix_ms\":{},\"request\":{{\"request_id\":\"r\",\
         \"request_received_ms\":{received},\"output_tokens\":{output},\"replay\":{{\"trace_block_size\":{block},\"input_length\":{input},\
         \"input_sequence_hashes\":[{hashes}]}}}}}}",
        received + 900
    )
}

#[test]
fn dynamo_counts_ends_of_requests_wherever_the_event_stands() {
    let tool = "{\"schema\":\"dynamo.request.trace.v1\",\"event_type\":\"tool_end\",\"tool\":{\"duration_ms\":1}}";
    let plain = "{\"schema\":\"dynamo.request.trace.v1\",\"event_type\":\"request_end\",\"request\":{\"request_received_ms\":1777312800250,\
                 \"input_tokens\":77,\"output_tokens\":3}}";
    let wrapped =
        format!("{{\"timestamp\":5,\"event\":{}}}", end(1_777_312_800_000, 128, "16", 64, "14879255164371896291,274632075616497421"));
    let cancelled = end(1_777_312_800_300, 64, "0", 64, "1");
    let failed = end(1_777_312_800_400, 64, "null", 64, "1");
    let text = [&end(1_777_312_801_000, 65, "9", 64, "14879255164371896291,7"), tool, plain, &wrapped, &cancelled, &failed].join("\n");
    assert_eq!(Format::of(&text), Some(Format::Dynamo));
    assert_eq!(Format::of(&wrapped), Some(Format::Dynamo));
    let trace = good(&text);
    let lengths: Vec<_> = trace.requests.iter().map(|request| (request.at.as_millis(), request.input, request.output)).collect();
    assert_eq!(lengths, [(0, 128, 16), (250, 77, 3), (1000, 65, 9)]);
    assert_eq!(trace.without_output, 2);
    assert_eq!(trace.prefixes.block_tokens(), 64);
    let blocks = |i: usize| trace.requests[i].prefix.map(|id| trace.prefixes.blocks(id));
    assert_eq!(blocks(0), Some([14_879_255_164_371_896_291, 274_632_075_616_497_421].as_slice()));
    assert_eq!(blocks(1), None);
    assert_eq!(blocks(2), Some([14_879_255_164_371_896_291, 7].as_slice()));
}

#[test]
fn dynamo_names_every_bad_line() {
    let text = [
        end(1000, 64, "1", 64, "1"),
        end(1001, 64, "1", 32, "1,2"),
        end(1002, 0, "1", 64, ""),
        "{\"schema\":\"dynamo.request.trace.v2\",\"event_type\":\"request_end\"}".to_owned(),
        "{\"schema\":\"dynamo.request.trace.v1\",\"event_type\":\"request_end\"}".to_owned(),
        "{\"schema\":\"dynamo.request.trace.v1\",\"event_type\":\"request_end\",\"request\":{\"request_received_ms\":1,\"output_tokens\":1}}".to_owned(),
        "{\"schema\":\"dynamo.request.trace.v1\"".to_owned(),
    ];
    let shown = shown(&text.join("\n"));
    assert_eq!(
        shown[..5],
        [
            "line 2: blocks of 32 tokens: expected 64 as in the rows before",
            "line 3: input_length: expected 1 token or more, got \"0\"",
            "line 4: schema: expected dynamo.request.trace.v1, got \"dynamo.request.trace.v2\"",
            "line 5: unusable row: request_end without `request`",
            "line 6: unusable row: neither `replay.input_length` nor `input_tokens`",
        ]
    );
    assert!(shown[5].starts_with("line 7: unusable row: EOF"), "{}", shown[5]);
    assert_eq!(shown.len(), 6);
}

#[test]
fn rates_give_their_counts_lengths_and_regularity() {
    let text = "t,rate_per_s,isl,osl,cv\n600,10,1000,100,1\n1200,2,4000,50,0\n1800,20,1000,100,2\n2400,99,1,1,1\n";
    assert_eq!(Format::of(text), Some(Format::Rates));
    let trace = good(text);
    assert_eq!(trace.length, Duration::from_secs(1800));
    let part = |n: u64| trace.requests.iter().filter(move |request| request.at.as_secs() / 600 == n);
    let mean = |n: u64| part(n).map(|request| f64::from(request.input)).sum::<f64>() / part(n).count() as f64;
    // Four standard deviations of each count.
    assert!((part(0).count() as f64 - 6000.0).abs() < 310.0);
    assert!((part(1).count() as f64 - 1200.0).abs() <= 1.0, "{}", part(1).count());
    assert!((part(2).count() as f64 - 12_000.0).abs() < 880.0);
    assert!((mean(0) / 1000.0 - 1.0).abs() < 0.06 && (mean(1) / 4000.0 - 1.0).abs() < 0.12);
    let again = good(text);
    assert_eq!(trace, again);
    let other = Generation { seed: 1, ..Generation::default() };
    assert_ne!(read(text, &other).unwrap(), again);
}

#[test]
fn rates_spread_lengths_only_as_told() {
    let text = "t,rate_per_s,isl,osl,isl_cv,osl_cv\n0,10,1000,100,0,0\n10,10,900,90,0,0\n20,99,1,1,0,0\n";
    assert!(
        good(text)
            .requests
            .iter()
            .all(|request| matches!((request.at.as_secs() < 10, request.input, request.output), (true, 1000, 100) | (false, 900, 90)))
    );
}

#[test]
fn rates_name_every_bad_line() {
    let text = "t,rate_per_s,isl,osl,cv\n0,1,1000,100,1\n0,1,1000,100,1\nx,-1,0,nan,101\n60,1,1000,100\n";
    let places: Vec<_> = read(text, &Generation::default()).unwrap_err().iter().map(|problem| problem.place.clone()).collect();
    assert_eq!(places, [3, 4, 4, 4, 4, 4, 5].map(Place::Line));
    assert_eq!(shown("t,rate_per_s,isl,osl\n0,1,1,1\n").len(), 1);
    assert_eq!(shown("t,rate_per_s,isl,osl\n0,1000000,1,1\n100,0,1,1\n"), ["100000000 requests expected: at most 30000000 can be held"]);
}

#[test]
fn problems_of_a_bad_file_fill_no_screen() {
    let text = format!("TIMESTAMP,ContextTokens,GeneratedTokens\n{}", "x,1,1\n".repeat(500));
    let problems = read(&text, &Generation::default()).unwrap_err();
    assert_eq!(problems.iter().count(), 300, "then nobody reads on");
    assert!(problems.to_string().ends_with("\nand 280 more"));
    assert_eq!(problems.to_string().lines().count(), 21);
}

#[test]
fn a_message_shows_the_beginning_of_a_long_field_and_no_long_number() {
    let long = "x".repeat(5_000_000);
    for text in [
        format!("TIMESTAMP,ContextTokens,GeneratedTokens\n{long},1,1\n"),
        format!("{{\"timestamp\":1,\"input_length\":\"{long}\",\"output_length\":1}}"),
        format!("{{\"schema\":\"{long}\",\"event_type\":\"a\"}}"),
    ] {
        let message = read(&text, &Generation::default()).unwrap_err().to_string();
        assert!(message.len() < 300 && message.contains("xxx..."), "{} {}", message.len(), &message[..200.min(message.len())]);
    }
    let expected = Requests(1e300);
    assert_eq!(Fault::TooMany { expected }.to_string(), "1.0e300 requests expected: at most 30000000 can be held");
}

#[test]
fn a_number_that_is_too_large_does_not_hide_the_format() {
    let text = "{\"timestamp\":1e400,\"input_length\":1,\"output_length\":1}";
    assert_eq!(Format::of(text), Some(Format::Mooncake));
    assert_eq!(shown(text), ["line 1: unusable row: number out of range at column 18"]);
}

proptest::proptest! {
    #[test]
    fn no_text_makes_a_reader_panic_and_what_is_read_is_in_order(
        header in 0_usize..4,
        rows in proptest::collection::vec(
            proptest::collection::vec(
                "[0-9]{1,3}|-?[0-9.e]{0,12}|(-9999|9999|2023)-1[0-2]-[0-3][0-9] 18:15:4[0-9]|[{}\\[\\]:\"a-z]{0,6}|nan|inf|.{0,3}", 0..8),
            0..6),
    ) {
        let header = [
            "TIMESTAMP,ContextTokens,GeneratedTokens",
            "t,rate_per_s,isl,osl,cv,isl_cv,osl_cv",
            "{\"timestamp\":9e12,\"input_length\":1,\"output_length\":1}",
            "{\"schema\":\"dynamo.request.trace.v1\",\"event_type\":\"tool_end\"}",
        ][header];
        let text = rows.iter().fold(header.to_owned(), |text, row| format!("{text}\n{}", row.join(",")));
        for format in [Format::Azure, Format::Rates, Format::Mooncake, Format::Dynamo] {
            // A curve with a high rate is legal and would only take time.
            if format == Format::Rates {
                let _: Result<_, _> = rates::read(&text, &Generation::default()).map(|curve| curve.requests(1).take(100).count());
            } else if let Ok(trace) = read_as(format, &text, &Generation::default()) {
                proptest::prop_assert!(trace.requests.is_sorted_by_key(|request| request.at));
                proptest::prop_assert_eq!(trace.requests[0].at, Duration::ZERO);
            }
        }
    }
}
