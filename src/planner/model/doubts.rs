//! What about a profile is allowed and yet probably a fault of the measurement? Shapes that real servers do not have.
//!
//! | doubt | why |
//! |---|---|
//! | TTFT and prompt throughput do not fit together at most points | one prompt after the other, isl / TTFT is the throughput; a batch or a GPU count got in between |
//! | TTFT falls while prompts grow | a warm prefix cache, or noise |
//! | ITL falls while the cache fills, or while contexts grow | the batch did not run at once, or noise |
//! | more tokens than the streams of a cell can generate at its ITL | a client that sent fewer requests at once than it counted |
//!
//! Falls of less than a tenth are noise and not told. The last doubt is not raised where a configuration is loaded: profiles that were filled
//! in by hand have it often, the example of the seed among them (750 tokens/s of 6.4 streams with 13 ms between tokens, which give 492).

use super::envelope::{Envelope, ProfileDocument};

/// How far a prompt's latency and the throughput may be apart, and how far a throughput may exceed what is possible.
const MOST_APART: f64 = 1.25;
/// Share by which a latency may fall where it should rise.
const NOISE: f64 = 0.1;

/// What is doubtful about the curve's and the surface's shape, in words.
pub fn of(envelope: &Envelope) -> Vec<String> {
    let document = envelope.document();
    let mut found: Vec<String> = unlike_throughput(envelope).into_iter().collect();
    found.extend(falling_prompts(document));
    found.extend(falling_spacing(document));
    found
}

/// That most prompts of the profile would take a replica much more or less time by its throughput than by their TTFT.
fn unlike_throughput(envelope: &Envelope) -> Option<String> {
    let prefill = &envelope.document().prefill;
    let gpus = f64::from(envelope.prefill_gpus().get());
    let points = prefill.isl.iter().zip(&prefill.ttft_ms).zip(&prefill.thpt_per_gpu);
    let mut ratios: Vec<f64> = points.map(|((isl, ttft), throughput)| isl / (ttft / 1000.0) / gpus / throughput).collect();
    ratios.sort_by(f64::total_cmp);
    let apart = ratios.iter().filter(|ratio| !(1.0 / MOST_APART..=MOST_APART).contains(*ratio)).count();
    let median = ratios.get(ratios.len() / 2)?;
    (2 * apart > ratios.len()).then(|| {
        format!(
            "prefill.ttft_ms and prefill.thpt_per_gpu do not fit together at {apart} of {} points: one prompt after the other on {gpus} GPUs, \
             isl / TTFT / GPUs is {median:.2} times the throughput in the middle; is it the throughput of one GPU, and of one prompt at a time?",
            ratios.len()
        )
    })
}

fn falls(pair: &[f64]) -> bool {
    pair[1] < pair[0] * (1.0 - NOISE)
}

fn falling_prompts(document: &ProfileDocument) -> Option<String> {
    let prefill = &document.prefill;
    let at = prefill.ttft_ms.windows(2).position(falls)?;
    Some(format!(
        "prefill.ttft_ms falls from {} ms at {} tokens to {} ms at {}: was a prefix cache warm?",
        prefill.ttft_ms[at],
        prefill.isl[at],
        prefill.ttft_ms[at + 1],
        prefill.isl[at + 1]
    ))
}

/// The first fall along a row, and the first along a column.
fn falling_spacing(document: &ProfileDocument) -> Vec<String> {
    let decode = &document.decode;
    let told = |axis: &str, row: usize, column: usize, before: f64, after: f64| {
        let (context, usage) = (decode.context_length[row], decode.kv_usage[column]);
        format!(
            "decode.itl_ms falls from {before} to {after} ms as the {axis} grows to context {context}, KV {usage}: did all streams of the \
             batches run at once?"
        )
    };
    let rows = decode.itl_ms.iter().enumerate();
    let along_row = rows.clone().find_map(|(row, values)| {
        let at = values.windows(2).position(falls)?;
        Some(told("occupancy", row, at + 1, values[at], values[at + 1]))
    });
    let along_column = rows.skip(1).find_map(|(row, values)| {
        let above = &decode.itl_ms[row - 1];
        let at = values.iter().zip(above).position(|(&value, &above)| falls(&[above, value]))?;
        Some(told("context", row, at, above[at], values[at]))
    });
    along_row.into_iter().chain(along_column).collect()
}

/// That a cell claims more than its streams can generate: u * K / c of them, one token each in an ITL.
pub fn too_much(envelope: &Envelope) -> Option<String> {
    let decode = &envelope.document().decode;
    let gpus = f64::from(envelope.decode_gpus().get());
    let cells = decode.context_length.iter().enumerate().flat_map(|(row, context)| {
        decode.kv_usage.iter().enumerate().map(move |(column, usage)| (row, column, usage * decode.max_kv_tokens / context))
    });
    let over: Vec<(usize, usize, f64)> = cells
        .map(|(row, column, streams)| {
            // One stream at least: where the cache is small, cells stand for less.
            let possible = streams.max(1.0) / (decode.itl_ms[row][column] / 1000.0) / gpus;
            (row, column, decode.thpt_per_gpu[row][column] / possible)
        })
        .filter(|(_, _, ratio)| *ratio > MOST_APART)
        .collect();
    let (row, column, ratio) = *over.first()?;
    Some(format!(
        "decode.thpt_per_gpu is more than the streams of the cell can generate at {} cells, first at context {}, KV {}: {ratio:.1} times \
         kv_usage * max_kv_tokens / context / ITL / GPUs; is max_kv_tokens right, and is it the throughput of one GPU?",
        over.len(),
        decode.context_length[row],
        decode.kv_usage[column]
    ))
}

#[cfg(test)]
mod tests {
    use super::super::envelope::{DecodeProfile, PrefillProfile};
    use super::*;

    fn plausible() -> ProfileDocument {
        ProfileDocument {
            prefill: PrefillProfile { isl: vec![1000.0, 2000.0], ttft_ms: vec![100.0, 200.0], thpt_per_gpu: vec![5000.0, 5000.0] },
            decode: DecodeProfile {
                kv_usage: vec![0.1, 0.5],
                context_length: vec![1000.0, 2000.0],
                itl_ms: vec![vec![10.0, 20.0], vec![12.0, 24.0]],
                thpt_per_gpu: vec![vec![500.0, 1200.0], vec![200.0, 500.0]],
                max_kv_tokens: 100_000.0,
            },
            prefill_engine_num_gpu: 2,
            decode_engine_num_gpu: 2,
        }
    }

    fn doubts(change: impl FnOnce(&mut ProfileDocument)) -> Vec<String> {
        let mut document = plausible();
        change(&mut document);
        let envelope = Envelope::new(document).unwrap();
        of(&envelope).into_iter().chain(too_much(&envelope)).collect()
    }

    #[test]
    fn a_plausible_profile_raises_no_doubt() {
        assert_eq!(doubts(|_| ()), Vec::<String>::new());
        // A fall within the noise.
        assert_eq!(doubts(|document| document.decode.itl_ms[1][0] = 9.5), Vec::<String>::new());
    }

    #[test]
    fn each_doubt_names_where_it_is() {
        type Change = fn(&mut ProfileDocument);
        let cases: [(Change, &str); 5] = [
            (|document| document.prefill.thpt_per_gpu = vec![10_000.0; 2], "at 2 of 2 points"),
            (
                |document| {
                    document.prefill.ttft_ms[1] = 80.0;
                    document.prefill.thpt_per_gpu[1] = 12_500.0;
                },
                "from 100 ms at 1000 tokens to 80 ms at 2000",
            ),
            (|document| document.decode.itl_ms[0][1] = 8.0, "occupancy grows to context 1000, KV 0.5"),
            (|document| document.decode.itl_ms[1][0] = 8.0, "context grows to context 2000, KV 0.1"),
            (|document| document.decode.thpt_per_gpu[1][1] = 1100.0, "at 1 cells, first at context 2000, KV 0.5: 2.1 times"),
        ];
        for (change, words) in cases {
            let found = doubts(change);
            assert!(found.len() == 1 && found[0].contains(words), "{words}: {found:?}");
        }
    }
}
