//! Packets: capture files, link layers, TCP put together again.
