//! Statements of any bytes: nothing fails, and a strict fingerprint is its own.

#![no_main]

use sql::{Mode, Order, Scheme, anonymise, fingerprint, is_read_only, redact, tables, verb};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    fingerprint(Mode::Strict, data, &mut first);
    fingerprint(Mode::Strict, &first, &mut second);
    assert_eq!(first, second);
    fingerprint(Mode::Pt, data, &mut first);
    redact(data, &mut first);
    anonymise(data, &Scheme::default(), &mut first);
    let order = Order { numbers: true, dates: true };
    anonymise(data, &Scheme { order, ..Scheme::default() }, &mut first);
    let _ = (tables(data), verb(data), is_read_only(data));
});
