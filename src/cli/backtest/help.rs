//! Which shapes are there? The table that `backtest --help` ends with.

/// After the flags.
pub(super) const SHAPES: &str = "\
Shapes, as shape:NAME?PARAMETER=VALUE&...; quote them, since & and ? mean something to a shell.
Rates are requests a second. Spans are written 90s, 10m or 1h30m; a bare number is seconds. [x]: x if not given.
  steady        rate
  step          low, high, at (span); until (span) [the end]
  ramp          low, high; at (span) [0s], over (span) [the rest]
  diurnal       low, high; period (span) [24h], start (span after the valley) [0s]
  flash         low, high, at (span); rise (span) [10s], hold (span) [60s], fall (span) [60s]
  length-shift  rate, at (span); isl_after [isl], osl_after [osl]
  on-off        high; low [0], on (span) [60s], off (span) [60s]
Each also takes:
  duration      span [30m; diurnal: one period]
  cv            variation of the gaps between arrivals: 0 a clock, 1 chance, above 1 bursts [1]
  isl, osl      mean tokens of prompts and of answers [1155, 211]
  isl_cv, osl_cv  their spread: standard deviation over mean [1, 0.8]

Files of rates: CSV with columns t (seconds), rate_per_s, isl, osl and optionally cv, isl_cv, osl_cv, meaning the same. A row holds until the
next; the last row only says when the one before it ends.

Exit codes: 0 done, 64 bad usage or configuration, 1 anything else.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulator::trace::problem::Fault;
    use crate::simulator::trace::shape;

    #[test]
    fn every_shape_and_parameter_is_named() {
        for name in shape::NAMES {
            let line = SHAPES.lines().find(|line| line.trim_start().starts_with(name)).expect(name);
            let problems = shape::parse(&format!("{name}?bogus=1")).expect_err("bogus");
            let known = problems.iter().find_map(|problem| match &problem.fault {
                Fault::UnknownParameter { known } => Some(known.clone()),
                _ => None,
            });
            for parameter in known.expect("the parameters") {
                let common = ["duration", "cv", "isl", "osl", "isl_cv", "osl_cv"].contains(&parameter);
                let place = if common { SHAPES } else { line };
                let mut words = place.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
                assert!(words.any(|word| word == parameter), "{name}: {parameter}");
            }
        }
    }
}
