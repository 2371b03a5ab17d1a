//! How do the golden files of Dynamo's planner read? What the tests of its parts share.

use serde_json::Value;

use crate::planner::model::iteration::{Costs, Iteration};
use crate::planner::policy::RegressionPolicy;
use crate::units::{Seconds, SecondsPerToken};

/// The original's numbers for its regression.
pub const SETTINGS: RegressionPolicy = RegressionPolicy { samples: 64, buckets_a_side: 4, least: 5, drafted: 0 };

/// A whole number; `None` where the file has none.
pub fn whole(of: &Value) -> Option<u32> {
    of.as_u64().and_then(|whole| u32::try_from(whole).ok())
}

/// A `model_ms`: milliseconds of an iteration, of a prompt token, a request and a KV token.
pub fn line(ms: &Value) -> Iteration {
    let of = |key: &str| ms[key].as_f64().unwrap_or_else(|| panic!("{key} in {ms}")) / 1000.0;
    let costs = Costs {
        fixed: Seconds(of("c0")),
        prefill_token: SecondsPerToken(of("cp")),
        request: Seconds(of("cn")),
        kv_token: SecondsPerToken(of("ckv")),
        least: Seconds(0.0),
    };
    Iteration::new(costs).unwrap()
}
