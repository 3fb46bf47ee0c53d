//! The MySQL protocol, as seen from beside the wire.
