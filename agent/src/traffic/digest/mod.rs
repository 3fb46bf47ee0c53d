//! Digests: what a class of statements costs.
