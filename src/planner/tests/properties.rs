//! properties placeholder
