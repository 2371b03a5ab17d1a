//! What words do all rooms share? The vocabulary: counts, tokens, rates, times and names, each with its unit in its type.
//!
//! A bare `f64` never crosses a function boundary in the pure rooms.
//! Measured latencies are [`Seconds`] and not `Duration`, because a mean of latencies needs more digits than whole nanoseconds;
//! configured spans of time are `std::time::Duration`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A number of replicas of one pool. One replica is one unit of the scale target (a pod, or a leader with its workers).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Replicas(pub u32);

impl Replicas {
    /// The smallest whole number of replicas that is not below `wanted`.
    ///
    /// Rounds up, since a fraction of a replica short misses the objective.
    /// A wish that exceeds a whole number, 0 included, by less than one part in 10^9 is taken as that number: double precision leaves such noise
    /// on quotients that are exact on paper, and noise must not cost a GPU.
    /// Negative and non-finite wishes give 0 and the largest count; both are caught by the bounds.
    pub fn ceil(wanted: f64) -> Self {
        const NOISE: f64 = 1e-9;
        if wanted.is_nan() || wanted <= 0.0 {
            return Self(0);
        }
        let nearest = wanted.round();
        let whole = if (wanted - nearest).abs() <= NOISE * nearest.max(1.0) { nearest } else { wanted.ceil() };
        // `as` saturates, which is the wish: more than u32::MAX replicas is "as many as the bounds allow".
        Self(whole as u32)
    }

    /// The count as a divisor or factor.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0)
    }
}

impl fmt::Display for Replicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub f64);

        impl $name {
            /// The bare number, for arithmetic inside one function.
            pub fn get(self) -> f64 {
                self.0
            }

            /// Whether the number is finite and above zero, so that it may be divided by.
            pub fn is_positive(self) -> bool {
                self.0.is_finite() && self.0 > 0.0
            }
        }
    };
}

quantity! {
    /// A measured span of time in seconds: a latency or its mean.
    Seconds
}
quantity! {
    /// Tokens; fractional where it is a mean.
    Tokens
}
quantity! {
    /// Tokens a second.
    TokensPerSecond
}
quantity! {
    /// Requests a second.
    RequestsPerSecond
}
quantity! {
    /// Seconds that one token costs.
    SecondsPerToken
}
quantity! {
    /// A dimensionless quotient, 1 where both sides agree.
    Ratio
}
quantity! {
    /// A number of requests; fractional where it is a mean or an estimate.
    Requests
}

impl From<Duration> for Seconds {
    fn from(span: Duration) -> Self {
        Self(span.as_secs_f64())
    }
}

/// A finite number above zero: the only thing the planner divides by without a check.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Positive(f64);

impl Positive {
    /// One.
    pub const ONE: Self = Self(1.0);

    /// `None` unless `value` is finite and above zero.
    pub fn new(value: f64) -> Option<Self> {
        (value.is_finite() && value > 0.0).then_some(Self(value))
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Positive {
    type Error = String;
    fn try_from(value: f64) -> Result<Self, String> {
        Self::new(value).ok_or_else(|| format!("expected a finite number above zero, got {value}"))
    }
}

impl From<Positive> for f64 {
    fn from(value: Positive) -> f64 {
        value.0
    }
}

/// One reading of both clocks, made only by `app` and by tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Moment {
    /// Time since the process started; never steps. All durations are differences of this.
    pub monotonic: Duration,
    /// Time since the Unix epoch; may step. Decides boundaries and what is published.
    pub wall: Duration,
}

impl Moment {
    /// The same moment `span` later on both clocks.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self { monotonic: self.monotonic + span, wall: self.wall + span }
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }
    };
}

name! {
    /// Name of a pool: identical replicas with one role. Unique in one exporter, and a legal Kubernetes label value.
    PoolId
}
name! {
    /// Name of what is served, as in the engines' model label.
    ModelId
}
name! {
    /// Name of one scraped endpoint: `host:port/path`.
    TargetId
}

/// What the replicas of a pool do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Computes the KV cache of the prompt and the first token.
    Prefill,
    /// Generates the tokens after the first.
    Decode,
    /// Does both.
    Aggregated,
}

impl Role {
    /// All roles, in the order in which they are listed to people.
    pub const ALL: [Self; 3] = [Self::Prefill, Self::Decode, Self::Aggregated];

    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Aggregated => "aggregated",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceil_rounds_up_but_not_over_float_noise() {
        // 3 * 0.1 / 0.1 is 3.0000000000000004 in double precision.
        for (wanted, replicas) in
            [(0.0, 0), (-1.0, 0), (f64::NAN, 0), (0.2, 1), (1.0, 1), (1.000_000_000_000_4, 1), (1.000_001, 2), (2.5, 3), (1e-12, 0)]
        {
            assert_eq!(Replicas::ceil(wanted), Replicas(replicas), "{wanted}");
        }
        assert_eq!(Replicas::ceil(f64::INFINITY), Replicas(u32::MAX));
    }

    #[test]
    fn positive_refuses_zero_and_what_is_not_finite() {
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Positive::new(value), None, "{value}");
        }
        assert_eq!(Positive::new(0.5).map(Positive::get), Some(0.5));
    }
}
