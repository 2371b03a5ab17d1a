//! Where does chance come from? One small generator, so that a seed means the same sequence in every build.
//!
//! The method is SplitMix64 (Steele, Lea and Flood 2014): a counter that moves by an odd constant, and a mix of shifts and multiplications
//! that spreads each count over all 64 bits. It passes the usual batteries, has one word of state, and any seed is a good one, also 0.
//! A crate would bring its own idea of which sequence a version promises.
//!
//! Known limit: logarithm and cosine come from the platform, so exponential and log-normal draws may differ in the last bit between
//! platforms. On one platform a seed repeats exactly.

/// A seeded sequence of random numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of that seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A sequence of its own for one purpose. Draws for one purpose then never shift those for another: a longer prompt moves no arrival.
    pub fn stream(seed: u64, purpose: u64) -> Self {
        let mut parent = Self(seed ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93));
        Self(parent.bits())
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform in (0, 1]: never 0, so that its logarithm is finite.
    pub fn unit(&mut self) -> f64 {
        // 53 bits are what a double holds.
        ((self.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Exponential with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }

    /// Normal with mean 0 and standard deviation 1 (Box and Muller; the second of each pair is dropped to keep the state one word).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.unit().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Gamma with scale 1, so with mean and variance `shape` (Marsaglia and Tsang 2000); 0 unless `shape` is above zero.
    pub fn gamma(&mut self, shape: f64) -> f64 {
        if shape.is_nan() || shape <= 0.0 {
            return 0.0;
        }
        if shape < 1.0 {
            // Their method needs a shape of 1 or more; a power of a uniform draw takes the surplus off.
            return self.gamma(shape + 1.0) * self.unit().powf(1.0 / shape);
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let normal = self.normal();
            let cube = (1.0 + c * normal).powi(3);
            if cube > 0.0 && self.unit().ln() < 0.5 * normal * normal + d * (1.0 - cube + cube.ln()) {
                return d * cube;
            }
        }
    }

    /// One of `0..choices`, each equally likely; 0 if there is no choice. The bias of the method is below choices / 2^64.
    pub fn below(&mut self, choices: usize) -> usize {
        ((u128::from(self.bits()) * choices as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_published_sequence() {
        // The reference values of SplitMix64 for seed 1234567.
        let mut random = Random::new(1_234_567);
        let expected = [6_457_827_717_110_365_317_u64, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([random.bits(), random.bits(), random.bits()], expected);
    }

    #[test]
    fn draws_have_the_moments_they_promise() {
        const DRAWS: usize = 200_000;
        let mut random = Random::new(7);
        let mean = |draw: &mut dyn FnMut() -> f64| (0..DRAWS).map(|_| draw()).sum::<f64>() / DRAWS as f64;
        assert!((mean(&mut || random.unit()) - 0.5).abs() < 0.005);
        assert!((mean(&mut || random.exponential()) - 1.0).abs() < 0.01);
        assert!(mean(&mut || random.normal()).abs() < 0.01);
        assert!((mean(&mut || random.normal().powi(2)) - 1.0).abs() < 0.02);
        assert!((mean(&mut || random.below(3) as f64) - 1.0).abs() < 0.01);
        for shape in [0.25, 1.0, 4.0] {
            assert!((mean(&mut || random.gamma(shape)) / shape - 1.0).abs() < 0.02, "{shape}");
            assert!((mean(&mut || (random.gamma(shape) - shape).powi(2)) / shape - 1.0).abs() < 0.05, "{shape}");
        }
    }

    #[test]
    fn streams_of_one_seed_differ_and_repeat() {
        assert_ne!(Random::stream(1, 1).bits(), Random::stream(1, 2).bits());
        assert_eq!(Random::stream(1, 2).bits(), Random::stream(1, 2).bits());
    }
}
