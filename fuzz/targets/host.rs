//! Files of /proc and /sys that may hold anything: no panic, no hang, and JSON whatever they say.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| host::fuzzing::host(data));
