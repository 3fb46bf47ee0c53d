//! A proxy that records what passes through it.
