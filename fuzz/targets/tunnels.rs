//! Captures of any content, down to the events: tunnels, headers of balancers, other protocols. The promises are checked where the readers are.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| traffic::sources::fuzzing::packets(data));
