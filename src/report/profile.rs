//! How does a profile look? The curve and the surface as tables with bars for a terminal, and as a page with plots.

use std::fmt::Write;

use super::html::{Escaped, brief, table};
use super::plot::{Across, Axis, Curve, Ink, Plot, Point, STYLE, Shape, Size};
use crate::planner::model::envelope::Envelope;
use crate::units::{Ratio, Seconds, Tokens, TokensPerSecond};

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

/// A page with plots that needs nothing but itself. `about` is a list of facts, `doubts` are sentences.
pub fn html(envelope: &Envelope, about: &[(String, String)], doubts: &[String]) -> String {
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>Profile</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>Profile</h1>\n<dl class=\"facts\">\n"
    );
    for (name, value) in about {
        let _ = writeln!(html, "<div><dt>{}</dt><dd>{}</dd></div>", Escaped(name), Escaped(value));
    }
    html.push_str("</dl>\n");
    for doubt in doubts {
        let _ = writeln!(html, "<p class=\"missed\">{}</p>", Escaped(doubt));
    }
    html.push_str(&prompt_plots(envelope));
    html.push_str(&generation_plots(envelope));
    html.push_str("</body>\n</html>\n");
    html
}

fn prompt_plots(envelope: &Envelope) -> String {
    let prefill = &envelope.document().prefill;
    let across = Axis::tokens(Tokens(largest(&prefill.isl)));
    let curve = |values: &[f64], unit: f64| {
        let places = prefill.isl.iter().map(|&isl| Tokens(isl));
        vec![curve("prompts alone".to_owned(), Ink::Thin, places, values, unit)]
    };
    let ttft = Axis::spans(Seconds(largest(&prefill.ttft_ms) / 1000.0));
    let rate = Axis::token_rates(TokensPerSecond(largest(&prefill.thpt_per_gpu)));
    let rows: Vec<Vec<String>> = (0..prefill.isl.len())
        .map(|at| vec![prefill.isl[at].to_string(), brief(prefill.ttft_ms[at]), brief(prefill.thpt_per_gpu[at])])
        .collect();
    format!(
        "<h2>Prompts alone, on a prefill replica of {}</h2>\n{}{}<div class=\"numbers\">\n{}</div>\n",
        gpus(envelope.prefill_gpus().get()),
        plot("TTFT over prompt tokens", &across, &ttft, curve(&prefill.ttft_ms, 1e-3)),
        plot("Prompt tokens a second on one GPU, over prompt tokens", &across, &rate, curve(&prefill.thpt_per_gpu, 1.0)),
        table(&["tokens", "TTFT, ms", "tokens/s/GPU"], &rows)
    )
}

fn generation_plots(envelope: &Envelope) -> String {
    let decode = &envelope.document().decode;
    let across = Axis::shares();
    let most = |grid: &[Vec<f64>]| grid.iter().map(|row| largest(row)).fold(0.0, f64::max);
    let curves = |grid: &[Vec<f64>], unit: f64| {
        let rows = decode.context_length.iter().zip(grid).zip([Ink::Wide, Ink::Thin, Ink::Dashed, Ink::Muted].into_iter().cycle());
        let places = || decode.kv_usage.iter().map(|&share| Ratio(share));
        rows.map(|((context, row), ink)| curve(format!("context {context}"), ink, places(), row, unit)).collect()
    };
    let itl = Axis::spans(Seconds(most(&decode.itl_ms) / 1000.0));
    let rate = Axis::token_rates(TokensPerSecond(most(&decode.thpt_per_gpu)));
    let header: Vec<String> = decode.kv_usage.iter().map(|share| format!("KV {} %", brief(100.0 * share))).collect();
    let header: Vec<&str> = std::iter::once("context").chain(header.iter().map(String::as_str)).collect();
    let cells = |grid: &[Vec<f64>]| {
        let row =
            |(context, row): (&f64, &Vec<f64>)| std::iter::once(context.to_string()).chain(row.iter().map(|&value| brief(value))).collect();
        table(&header, &decode.context_length.iter().zip(grid).map(row).collect::<Vec<_>>())
    };
    format!(
        "<h2>Generation, on a decode replica of {} whose KV cache holds {} tokens</h2>\n{}<div class=\"numbers\">\n{}</div>\n{}<div class=\"numbers\">\n{}</div>\n",
        gpus(envelope.decode_gpus().get()),
        decode.max_kv_tokens,
        plot("Time between tokens (ms in the table), over the share of the KV cache in use", &across, &itl, curves(&decode.itl_ms, 1e-3)),
        cells(&decode.itl_ms),
        plot(
            "Generated tokens a second on one GPU, over the share of the KV cache in use",
            &across,
            &rate,
            curves(&decode.thpt_per_gpu, 1.0)
        ),
        cells(&decode.thpt_per_gpu)
    )
}

/// The values are written in `unit`s of their axis.
fn curve<At: Across>(name: String, ink: Ink, places: impl Iterator<Item = At>, values: &[f64], unit: f64) -> Curve<At> {
    let points = places.zip(values).map(|(at, value)| Point { at, value: Some(value * unit) }).collect();
    Curve { name, ink, shape: Shape::Line, points }
}

fn plot<At: Across>(title: &str, across: &Axis, values: &Axis, curves: Vec<Curve<At>>) -> String {
    let plot = Plot {
        title: title.to_owned(),
        size: Size::Full,
        time: across,
        values,
        curves,
        limit: None,
        shade: None,
        marks: None,
        bands: Vec::new(),
    };
    plot.svg()
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
    if let part @ 1.. = eighths % 8 {
        bar.push(EIGHTHS[part]);
    }
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
    fn the_page_has_four_plots_and_escapes_what_others_wrote() {
        let document = ProfileDocument {
            prefill: PrefillProfile { isl: vec![512.0], ttft_ms: vec![60.0], thpt_per_gpu: vec![8533.3] },
            decode: DecodeProfile {
                kv_usage: vec![0.1, 0.9],
                context_length: vec![1024.0, 4096.0],
                itl_ms: vec![vec![11.25, 40.0], vec![12.0, 50.0]],
                thpt_per_gpu: vec![vec![900.0, 3000.0], vec![500.0, 900.0]],
                max_kv_tokens: 262_144.0,
            },
            prefill_engine_num_gpu: 1,
            decode_engine_num_gpu: 2,
        };
        let page = html(&Envelope::new(document).unwrap(), &[("model".to_owned(), "<m>".to_owned())], &["odd & even".to_owned()]);
        assert_eq!(page.matches("<figure>").count(), 4);
        for part in ["<dd>&lt;m&gt;</dd>", "odd &amp; even", "context 4096", ">40 ms<", ">100 %<", "<td>11.2</td>"] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("NaN") && !page.contains("http"));
    }

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
