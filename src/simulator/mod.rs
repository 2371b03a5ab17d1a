//! How would servers behave? Simulated pools in virtual time; also what `demo` serves.
