//! Which latency do a share of the requests stay within? Quantiles and shares from cumulative buckets, linear inside a bucket as in PromQL.
//!
//! | bounds 0.1, 0.5, 1; cumulative 2, 8, 10 of 10 | answer |
//! |---|---|
//! | median | 0.1 + 0.4 * (5 - 2)/6 = 0.3 |
//! | share within 0.25 | (2 + 6 * 0.15/0.4)/10 = 0.425 |
//!
//! An answer beyond the highest finite bound is that bound: the truth is at least as large.

/// The `quantile` in [0, 1] of `count` observations. `None` without observations or buckets.
pub fn quantile(buckets: &[(f64, f64)], count: f64, quantile: f64) -> Option<f64> {
    let top = buckets.last()?;
    if count.is_nan() || count <= 0.0 {
        return None;
    }
    let rank = quantile * count;
    let Some(index) = buckets.iter().position(|bucket| bucket.1 >= rank) else { return Some(top.0) };
    let (upper, inside) = buckets[index];
    let (lower, below) = if index == 0 { (upper.min(0.0), 0.0) } else { buckets[index - 1] };
    if inside <= below {
        return Some(lower);
    }
    Some(lower + (upper - lower) * (rank - below) / (inside - below))
}

/// Share of `count` observations within `limit`; the least that the buckets prove where `limit` lies beyond the highest finite bound.
pub fn share_within(buckets: &[(f64, f64)], count: f64, limit: f64) -> Option<f64> {
    let top = buckets.last()?;
    if count.is_nan() || count <= 0.0 {
        return None;
    }
    let within = match buckets.iter().position(|bucket| bucket.0 >= limit) {
        None => top.1,
        Some(index) => {
            let (upper, inside) = buckets[index];
            let (lower, below) = if index == 0 { (upper.min(0.0), 0.0) } else { buckets[index - 1] };
            if upper <= lower { inside } else { below + (inside - below) * (limit - lower) / (upper - lower) }
        }
    };
    Some((within / count).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUCKETS: &[(f64, f64)] = &[(0.1, 2.0), (0.5, 8.0), (1.0, 10.0)];

    #[test]
    fn quantiles_are_linear_inside_a_bucket() {
        let median = quantile(BUCKETS, 10.0, 0.5).unwrap();
        assert!((median - 0.3).abs() < 1e-12, "{median}");
        // Rank 1 of 2 in the first bucket, whose lower bound is 0.
        assert_eq!(quantile(BUCKETS, 10.0, 0.1), Some(0.05));
    }

    #[test]
    fn the_top_bucket_bounds_the_answer() {
        assert_eq!(quantile(BUCKETS, 20.0, 0.99), Some(1.0));
        assert_eq!(share_within(BUCKETS, 20.0, 5.0), Some(0.5));
    }

    #[test]
    fn shares_are_linear_inside_a_bucket() {
        let share = share_within(BUCKETS, 10.0, 0.25).unwrap();
        assert!((share - 0.425).abs() < 1e-12, "{share}");
        assert_eq!(share_within(BUCKETS, 10.0, 1.0), Some(1.0));
    }

    #[test]
    fn nothing_is_known_without_observations() {
        assert_eq!(quantile(BUCKETS, 0.0, 0.5), None);
        assert_eq!(quantile(&[], 3.0, 0.5), None);
        assert_eq!(share_within(BUCKETS, f64::NAN, 0.5), None);
    }
}
