//! Chance that is the same in every run: numbers for tests that need some.

/// A linear congruential generator with Knuth's constants, of which the upper bits are used.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x5eed))
    }

    /// Above 0, up to 1.
    pub fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.uniform().ln()
    }

    /// How many events of a Poisson process with this mean.
    pub fn count(&mut self, mean: f64) -> f64 {
        let (mut count, mut sum) = (0.0, self.exponential(1.0));
        while sum < mean {
            count += 1.0;
            sum += self.exponential(1.0);
        }
        count
    }
}
