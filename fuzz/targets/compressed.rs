//! Compressed files that may hold anything: damage is an error, panics, hangs and lost bytes are not.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| traffic::input::fuzzing::compressed(data));
