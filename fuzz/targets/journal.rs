//! A journal and a history that may say anything: damage is named, panics and half-read entries are not.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| settings::fuzzing::journal(data));
