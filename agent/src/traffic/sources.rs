//! Which reader a source needs, and `record`.
