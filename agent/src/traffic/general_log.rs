//! General logs: what was asked and when, without what came back.
