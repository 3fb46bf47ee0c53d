//! Recordings that may hold anything: damage is counted, panics and hangs are not.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| traffic::recording::fuzzing::recording(data));
