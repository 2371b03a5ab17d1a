//! How does a profile read in a terminal? The curve and the surface as tables, with bars that show their shape.

use std::fmt::Write;

use super::html::brief;
use crate::planner::model::envelope::Envelope;

/// Characters of the longest bar.
const BAR: usize = 24;
/// Eighths of a character, from left to right.
const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
/// Eighths of a character, from the bottom up.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A profile for people.
pub fn text(envelope: &Envelope) -> String {
    let mut text = String::new();
    // Writing into a string cannot fail.
    let _never = prompts(&mut text, envelope).and_then(|()| surfaces(&mut text, envelope));
    text
}

fn prompts(text: &mut String, envelope: &Envelope) -> std::fmt::Result {
    let prefill = &envelope.document().prefill;
    let most = largest(&prefill.ttft_ms);
    writeln!(text, "prompts alone, on a prefill replica of {}\n", gpus(envelope.prefill_gpus().get()))?;
    writeln!(text, "{:>10} {:>10}  {:<BAR$} {:>14}", "tokens", "TTFT, ms", "", "tokens/s/GPU")?;
    for ((isl, ttft), throughput) in prefill.isl.iter().zip(&prefill.ttft_ms).zip(&prefill.thpt_per_gpu) {
        writeln!(text, "{:>10} {:>10}  {:<BAR$} {:>14}", isl, brief(*ttft), bar(ttft / most), brief(*throughput))?;
    }
    writeln!(text)
}

fn surfaces(text: &mut String, envelope: &Envelope) -> std::fmt::Result {
    let decode = &envelope.document().decode;
    let replica = gpus(envelope.decode_gpus().get());
    writeln!(text, "generation, on a decode replica of {replica} whose KV cache holds {} tokens", decode.max_kv_tokens)?;
    surface(text, envelope, "time between tokens, ms", &decode.itl_ms)?;
    surface(text, envelope, "generated tokens/s on one GPU", &decode.thpt_per_gpu)
}

fn surface(text: &mut String, envelope: &Envelope, title: &str, grid: &[Vec<f64>]) -> std::fmt::Result {
    let decode = &envelope.document().decode;
    let most = grid.iter().map(|row| largest(row)).fold(0.0, f64::max);
    writeln!(text, "\n{title}\n")?;
    write!(text, "{:>10}", "context")?;
    for share in &decode.kv_usage {
        write!(text, " {:>9}", format!("KV {} %", brief(100.0 * share)))?;
    }
    writeln!(text)?;
    for (context, row) in decode.context_length.iter().zip(grid) {
        write!(text, "{context:>10}")?;
        for value in row {
            write!(text, " {:>9}", brief(*value))?;
        }
        writeln!(text, "  {}", row.iter().map(|value| height(value / most)).collect::<String>())?;
    }
    Ok(())
}

fn gpus(count: u32) -> String {
    if count == 1 { "1 GPU".to_owned() } else { format!("{count} GPUs") }
}

fn largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// A share of the longest bar, to an eighth of a character.
fn bar(share: f64) -> String {
    // `as` saturates and makes 0 of what is no number.
    let eighths = (share.min(1.0) * (8 * BAR) as f64).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    bar.extend((eighths % 8 > 0).then(|| EIGHTHS[eighths % 8]));
    bar
}

fn height(share: f64) -> char {
    HEIGHTS[((share * 8.0).ceil() as usize).clamp(1, 8) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::model::envelope::{DecodeProfile, PrefillProfile, ProfileDocument};

    #[test]
    fn the_table_has_every_number_and_shows_the_shape() {
        let envelope = Envelope::new(ProfileDocument {
            prefill: PrefillProfile { isl: vec![512.0, 4096.0], ttft_ms: vec![60.0, 480.0], thpt_per_gpu: vec![8533.3, 8533.3] },
            decode: DecodeProfile {
                kv_usage: vec![0.1, 0.9],
                context_length: vec![1024.0],
                itl_ms: vec![vec![11.25, 40.0]],
                thpt_per_gpu: vec![vec![900.0, 3000.0]],
                max_kv_tokens: 262_144.0,
            },
            prefill_engine_num_gpu: 1,
            decode_engine_num_gpu: 2,
        })
        .unwrap();
        let expected = "prompts alone, on a prefill replica of 1 GPU

    tokens   TTFT, ms                             tokens/s/GPU
       512         60  ███                                8533
      4096        480  ████████████████████████           8533

generation, on a decode replica of 2 GPUs whose KV cache holds 262144 tokens

time between tokens, ms

   context   KV 10 %   KV 90 %
      1024      11.2        40  ▃█

generated tokens/s on one GPU

   context   KV 10 %   KV 90 %
      1024       900      3000  ▃█
";
        assert_eq!(text(&envelope), expected);
    }
}
