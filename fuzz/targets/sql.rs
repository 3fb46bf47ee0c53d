//! Statements of any bytes, whole or cut off: nothing fails, and a strict fingerprint is its own.

#![no_main]

use sql::{Mode, Order, Scheme, anonymise, fingerprint, is_read_only, redact, tables, verb};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    fingerprint(Mode::Strict, data, false, &mut first);
    fingerprint(Mode::Strict, &first, false, &mut second);
    assert_eq!(first, second);
    let order = Order { numbers: true, dates: true };
    for is_cut in [false, true] {
        fingerprint(Mode::Strict, data, is_cut, &mut first);
        fingerprint(Mode::Pt, data, is_cut, &mut first);
        anonymise(data, is_cut, &Scheme::default(), &mut first);
        anonymise(data, is_cut, &Scheme { order, ..Scheme::default() }, &mut first);
    }
    redact(data, &mut first);
    let _ = (tables(data), verb(data), is_read_only(data));
});
