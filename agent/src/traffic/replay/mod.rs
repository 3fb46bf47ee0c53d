//! Replay: a recording is sent again.
