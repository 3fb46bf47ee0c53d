//! Live capture on an interface.
