//! Logs, logs with prefixes and exports of any content, in pieces of any size. The promises are checked where the readers are.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| traffic::sources::fuzzing::text(data));
