//! The MySQL client against a server that may say anything: errors are fine, panics and hangs are not.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| drive::fuzzing::mysql(data));
