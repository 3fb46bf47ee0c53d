//! Recordings: our own file format.
