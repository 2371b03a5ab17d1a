//! What survives a restart? The state file.
