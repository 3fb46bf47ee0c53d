//! Work grows with the length of a statement and no faster, whatever is in it: anybody who may log in to a server can
//! send it statements of 1 GiB, and a recorder reads them all.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sql::{Mode, Scheme, anonymise, fingerprint, is_read_only, redact, tables, used_database, verb};

type Reader = fn(&[u8], &mut Vec<u8>);

const READERS: &[(&str, Reader)] = &[
    ("strict", |text, out| fingerprint(Mode::Strict, text, false, out)),
    ("pt", |text, out| fingerprint(Mode::Pt, text, false, out)),
    ("redact", |text, out| {
        redact(text, out);
    }),
    ("anonymise", |text, out| anonymise(text, false, &Scheme::default(), out)),
    ("tables", |text, _| {
        let _ = tables(text);
    }),
    ("verb", |text, _| {
        let _ = verb(text);
    }),
    ("used_database", |text, _| {
        let _ = used_database(text);
    }),
    ("is_read_only", |text, _| {
        let _ = is_read_only(text);
    }),
];

/// Parts that a scan for an end, a comparison with what came before or a look ahead may repeat; `N` is another number
/// each time.
const PARTS: &[&str] = &[
    "(",
    "in (",
    "a,",
    "-",
    "--",
    "#",
    "$a",
    "$N$ ",
    "$$",
    "$a$b",
    "/*",
    "/*!",
    "/*aN.",
    "'a\\'",
    "'\\'",
    "'",
    "''",
    "\"",
    "union select a ",
    " union select a from tN",
    "select ",
    "order by a asc, ",
    "a asc ",
    "f(a), ",
    "f(N), ",
    "_a ",
    ";",
    "`",
    "a.",
    "\\",
    "((a,b),",
    "@'",
    "with ",
    "with;",
    "with a as (",
    "explain analyze with;",
    "null ",
    "is ",
    "row(",
    "values (",
    "values ",
    "),",
    "call a(",
    "identified by ",
    "begin grant ",
    "grant a to \"b\"@c, ",
    "create definer=a@b ",
    "from \"a\".\"b\", ",
    "password ",
    "password='\\'",
    "0x",
    "1e",
    "1.",
    "[\"",
    "{\"a\":",
    "\\\"",
    "\u{e9}",
];

fn of_length(part: &str, length: usize) -> String {
    let mut text = String::with_capacity(length + part.len());
    let mut number = 10_000;
    while text.len() < length {
        text.push_str(&part.replace('N', &number.to_string()));
        number += 1;
    }
    text
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

fn cost(reader: Reader, text: &str, out: &mut Vec<u8>) -> Duration {
    let begun = cpu_time();
    reader(text.as_bytes(), out);
    cpu_time().saturating_sub(begun)
}

#[test]
fn twice_the_text_is_twice_the_work() {
    let mut out = Vec::new();
    for part in PARTS {
        let (short, long) = (of_length(part, 8 << 10), of_length(part, 32 << 10));
        for (shape, around) in [
            ("alone", ("", "")),
            ("in a list", ("select a in (", "")),
            ("in a string", ("select '", "'")),
            ("with a verb behind", ("", " select")),
        ] {
            let (short, long) =
                (format!("{}{short}{}", around.0, around.1), format!("{}{long}{}", around.0, around.1));
            for (name, reader) in READERS {
                // Four times the text: linear work takes four times as long, quadratic work sixteen times. The
                // limit is 2.5 times for twice the text. The best of a few, because neighbours on the machine cost CPU time as
                // well.
                let is_linear = (0..5).any(|_| {
                    let (short, long) = (cost(*reader, &short, &mut out), cost(*reader, &long, &mut out));
                    long <= short * 25 / 4 + Duration::from_millis(10)
                });
                assert!(is_linear, "{name}: {part:?} {shape}");
            }
        }
    }
}
