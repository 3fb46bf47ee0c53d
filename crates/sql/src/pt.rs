//! Fingerprints as pt-query-digest 3.2 makes them, byte by byte, so that its users keep their history.
//!
//! Its rules know no lexer: they are substitutions, one after another, and later ones see what earlier ones left. So
//! some literals stay (`it''s` becomes `??`, but `0xBEEF` behind a letter stays a name), and classes depend on blanks.
//! Each step here is one of them; `tests/agent/test_traffic_fingerprints.py` holds them to the original.

use std::cell::RefCell;
use std::fmt::Write;

use md5::{Digest, Md5};
use memchr::{memchr, memchr2, memmem};

thread_local! {
    /// What a step leaves is where the next one begins: two buffers do for all of them.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// MD5 of the fingerprint in upper-case hex.
pub fn query_id(fingerprint: &[u8]) -> String {
    Md5::digest(fingerprint).iter().fold(String::with_capacity(32), |mut id, byte| {
        let _ = write!(id, "{byte:02X}");
        id
    })
}

/// Replaces what `out` holds by pt-query-digest's fingerprint of `text`.
pub fn fingerprint(text: &[u8], out: &mut Vec<u8>) {
    out.clear();
    if text.starts_with(b"SELECT /*!40001 SQL_NO_CACHE */ * FROM `") {
        out.extend_from_slice(b"mysqldump");
    } else if is_checksum_of_toolkit(text) {
        out.extend_from_slice(b"percona-toolkit");
    } else if text.starts_with(b"administrator command: ") {
        out.extend_from_slice(text);
    } else if let Some(call) = called(text) {
        out.extend(call.iter().map(u8::to_ascii_lowercase));
    } else {
        SCRATCH.with_borrow_mut(|scratch| substitute(first_row(text), scratch, out));
    }
}

fn substitute(text: &[u8], scratch: &mut Vec<u8>, out: &mut Vec<u8>) {
    without_comments(text, scratch);
    without_line_comments(scratch, out);
    if is_use(out) {
        out.clear();
        out.extend_from_slice(b"use ?");
        return;
    }
    without_escaped_quotes(out, scratch);
    without_strings(b'"', scratch, out);
    without_strings(b'\'', out, scratch);
    without_words(&[b"false", b"true"], scratch, out);
    without_numbers(out, scratch);
    without_prefixes(scratch, out);
    plain(out, scratch);
    without_words(&[b"null"], scratch, out);
    without_lists(out, scratch);
    without_unions(scratch, out);
    short_limit(out);
    without_asc(out, scratch);
    std::mem::swap(out, scratch);
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// What Perl takes for white space.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | 0x09..=0x0D)
}

fn word_end(text: &[u8], at: usize) -> usize {
    text[at..].iter().position(|&byte| !is_word(byte)).map_or(text.len(), |length| at + length)
}

fn space_end(text: &[u8], at: usize) -> usize {
    text[at..].iter().position(|&byte| !is_space(byte)).map_or(text.len(), |length| at + length)
}

/// Where a word may begin or end.
fn is_boundary(text: &[u8], at: usize) -> bool {
    let before = at > 0 && is_word(text[at - 1]);
    let behind = at < text.len() && is_word(text[at]);
    before != behind
}

fn has_prefix(text: &[u8], prefix: &[u8]) -> bool {
    text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// Where `what` stands first, letters of any case; `what` is in lower case and begins with a letter.
fn find_any_case(text: &[u8], what: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(length) = memchr2(what[0], what[0].to_ascii_uppercase(), text.get(at..)?) {
        at += length;
        if has_prefix(&text[at..], what) {
            return Some(at);
        }
        at += 1;
    }
    None
}

/// `/*db.table:3/5*/`, as pt-table-checksum marks its statements.
fn is_checksum_of_toolkit(text: &[u8]) -> bool {
    memmem::find_iter(text, b"/*").any(|at| {
        let name = at + 2;
        let dot = word_end(text, name);
        if dot == name || text.get(dot) != Some(&b'.') {
            return false;
        }
        let colon = word_end(text, dot + 1);
        matches!(&text[colon..], [b':', part, b'/', of, b'*', b'/', ..]
            if colon > dot + 1 && part.is_ascii_digit() && of.is_ascii_digit())
    })
}

/// `call name` of `call name(...)`.
fn called(text: &[u8]) -> Option<&[u8]> {
    let start = space_end(text, 0);
    if !has_prefix(&text[start..], b"call") {
        return None;
    }
    let name = space_end(text, start + 4);
    let end = text[name..].iter().position(|&byte| is_space(byte)).map_or(text.len(), |length| name + length);
    // Up to the last parenthesis before a blank, as the original's greedy match has it.
    let open = text[name..end].iter().rposition(|&byte| byte == b'(')?;
    (name > start + 4 && open > 0).then(|| &text[start..name + open])
}

/// An INSERT or REPLACE of several rows, up to the end of its first.
fn first_row(text: &[u8]) -> &[u8] {
    first_row_end(text).map_or(text, |end| &text[..end])
}

fn first_row_end(text: &[u8]) -> Option<usize> {
    let mut at = if has_prefix(text, b"insert") {
        6
    } else if has_prefix(text, b"replace") {
        7
    } else {
        return None;
    };
    if has_prefix(&text[at..], b" ignore") && text.get(at + 7).is_some_and(|&byte| is_space(byte)) {
        at += 7;
    }
    let into = space_end(text, at);
    if into == at || !has_prefix(&text[into..], b"into") {
        return None;
    }
    let mut values = into + 5;
    let open = loop {
        values = find_any_case(text, b"values", values)? + 6;
        let open = space_end(text, values);
        if text.get(open) == Some(&b'(') {
            break open;
        }
    };
    let mut close = open;
    loop {
        close += memchr(b')', &text[close..])? + 1;
        let comma = space_end(text, close);
        if text.get(comma) == Some(&b',') && text.get(space_end(text, comma + 1)) == Some(&b'(') {
            return Some(close);
        }
    }
}

/// Takes out `/*...*/` with at least one byte between, unless that is `!`.
fn without_comments(text: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let mut copied = 0;
    let mut at = 0;
    while let Some(length) = memmem::find(&text[at..], b"/*") {
        at += length;
        if text.get(at + 2).is_none_or(|&byte| byte == b'!') {
            at += 2;
            continue;
        }
        let Some(length) = memmem::find(&text[at + 3..], b"*/") else { break };
        out.extend_from_slice(&text[copied..at]);
        at += length + 5;
        copied = at;
    }
    out.extend_from_slice(&text[copied..]);
}

/// Takes out `--` and `#` with the rest of their line, unless a quote is in it.
fn without_line_comments(text: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let (mut copied, mut at, mut end) = (0, 0, 0);
    while let Some(length) = memchr2(b'-', b'#', &text[at..]) {
        at += length;
        if text[at] == b'-' && text.get(at + 1) != Some(&b'-') {
            at += 1;
            continue;
        }
        // Marks before the same quote end there together: each byte is looked at once.
        if end <= at {
            let end_of_rest = text[at..].iter().position(|byte| matches!(byte, b'\'' | b'"' | b'\r' | b'\n'));
            end = end_of_rest.map_or(text.len(), |length| at + length);
        }
        if text.get(end).is_some_and(|byte| matches!(byte, b'\'' | b'"')) {
            at += 1;
            continue;
        }
        out.extend_from_slice(&text[copied..at]);
        (at, copied) = (end, end);
    }
    out.extend_from_slice(&text[copied..]);
}

/// `use name` and nothing else.
fn is_use(text: &[u8]) -> bool {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    has_prefix(text, b"use ") && text.len() > 4 && !text[4..].iter().any(|&byte| is_space(byte))
}

fn without_escaped_quotes(text: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let mut copied = 0;
    let mut at = 0;
    while let Some(length) = memchr(b'\\', &text[at..]) {
        at += length;
        if matches!(text.get(at + 1), Some(b'\'' | b'"')) {
            out.extend_from_slice(&text[copied..at]);
            at += 2;
            copied = at;
        } else {
            at += 1;
        }
    }
    out.extend_from_slice(&text[copied..]);
}

fn without_strings(quote: u8, text: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let mut copied = 0;
    while let Some(length) = memchr(quote, &text[copied..]) {
        let start = copied + length;
        let Some(length) = memchr(quote, &text[start + 1..]) else { break };
        out.extend_from_slice(&text[copied..start]);
        out.push(b'?');
        copied = start + length + 2;
    }
    out.extend_from_slice(&text[copied..]);
}

/// Puts a `?` in place of whole words, letters of any case.
fn without_words(words: &[&[u8]], text: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let mut copied = 0;
    let mut at = 0;
    while at < text.len() {
        if !is_word(text[at]) {
            at += 1;
            continue;
        }
        let end = word_end(text, at);
        if words.iter().any(|word| text[at..end].eq_ignore_ascii_case(word)) {
            out.extend_from_slice(&text[copied..at]);
            out.push(b'?');
            copied = end;
        }
        at = end;
    }
    out.extend_from_slice(&text[copied..]);
}

/// What begins with a digit or a sign, in names too, with all that a number might have.
fn without_numbers(text: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let mut at = 0;
    while at < text.len() {
        let byte = text[at];
        at += 1;
        if !matches!(byte, b'0'..=b'9' | b'+' | b'-') {
            out.push(byte);
            continue;
        }
        out.push(b'?');
        while at < text.len() && matches!(text[at], b'0'..=b'9' | b'a'..=b'f' | b'x' | b'.' | b'+' | b'-') {
            at += 1;
        }
    }
}

/// What may be in front of a number or string.
fn without_prefixes(text: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let mut at = 0;
    while at < text.len() {
        let is_prefix =
            matches!(text[at], b'x' | b'b' | b'.' | b'+' | b'-') && text.get(at + 1) == Some(&b'?');
        if is_prefix {
            at += 1;
        }
        out.push(text[at]);
        at += 1;
    }
}

/// Lower case, runs of blanks as one space, none at the beginning and no newline at the end.
fn plain(text: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let text = &text[space_end(text, 0)..];
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let mut was_blank = false;
    for &byte in text {
        let is_blank = matches!(byte, b' ' | b'\n' | b'\t' | b'\r' | 0x0C);
        if !is_blank {
            out.push(byte.to_ascii_lowercase());
        } else if !was_blank {
            out.push(b' ');
        }
        was_blank = is_blank;
    }
}

/// `in (?, ?)` and `values (?, ?), (?, ?)`: lists of nothing but question marks, commas and blanks.
fn without_lists(text: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let mut copied = 0;
    let mut at = 0;
    while let Some(length) = memchr2(b'i', b'v', &text[at..]) {
        at += length;
        let rest = &text[at..];
        let words: [&[u8]; 3] = [b"in", b"values", b"value"];
        let Some(word) = words.iter().find(|word| rest.starts_with(word) && is_boundary(text, at)) else {
            at += 1;
            continue;
        };
        let start = at + word.len();
        let mut end = start;
        while let Some(list) = list_end(text, end) {
            end = list;
        }
        if end > start {
            out.extend_from_slice(&text[copied..start]);
            out.extend_from_slice(b"(?+)");
            copied = end;
        }
        at = end;
    }
    out.extend_from_slice(&text[copied..]);
}

fn list_end(text: &[u8], at: usize) -> Option<usize> {
    let skip = |at: usize, skipped: fn(u8) -> bool| {
        text[at..].iter().position(|&byte| !skipped(byte)).map(|length| at + length)
    };
    let open = skip(at, |byte| is_space(byte) || byte == b',')?;
    if text[open] != b'(' {
        return None;
    }
    let close = skip(open + 1, |byte| is_space(byte) || byte == b',' || byte == b'?')?;
    (text[close] == b')').then_some(close + 1)
}

/// Steps of the search for repeated selects, in addition to sixteen per byte of the statement. Statements of up to 8 KiB
/// never need more; in longer ones only thousands of different unions do, and the rest of those is kept as written.
const COMPARED: usize = 1 << 26;

/// `select ... union select ...` of the same select, once, with a note.
fn without_unions(text: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let mut copied = 0;
    let mut at = 0;
    // Without a union there is nothing to compare.
    if memmem::find(text, b" union").is_none() {
        at = text.len();
    }
    let mut steps = COMPARED + text.len() * 16;
    while let Some(length) = memmem::find(&text[at..], b"select") {
        at += length;
        let Some((select, end, union)) = repeated_select(text, at, &mut steps) else {
            at += 1;
            continue;
        };
        out.extend_from_slice(&text[copied..select]);
        out.extend_from_slice(b" /*repeat");
        out.extend_from_slice(union);
        out.extend_from_slice(b"*/");
        (at, copied) = (end, end);
    }
    out.extend_from_slice(&text[copied..]);
}

/// For a select at `at` that unions repeat: where it ends, where its last copy does, and the last union.
fn repeated_select<'a>(text: &'a [u8], at: usize, steps: &mut usize) -> Option<(usize, usize, &'a [u8])> {
    if !is_boundary(text, at) || !text.get(at + 6).is_some_and(|&byte| is_space(byte)) {
        return None;
    }
    let mut union = at + 7;
    loop {
        // What is passed over and what is compared both count.
        let within = text.len().min(union.saturating_add(*steps));
        let passed = memmem::find(text.get(union..within)?, b" union");
        *steps = steps.saturating_sub(passed.unwrap_or(within - union) + 1);
        union += passed?;
        let select = &text[at..union];
        let mut end = union;
        let mut last: &[u8] = b"";
        while let Some((behind, found)) = copy_end(text, end, select, steps) {
            (end, last) = (behind, found);
        }
        if end > union {
            return Some((union, end, last));
        }
        union += 6;
    }
}

fn copy_end<'a>(text: &'a [u8], at: usize, select: &[u8], steps: &mut usize) -> Option<(usize, &'a [u8])> {
    let unions: [&[u8]; 2] = [b" union all", b" union"];
    unions.iter().find_map(|union| {
        let rest = text[at..].strip_prefix(*union)?;
        let copy = rest.strip_prefix(b" ")?;
        let same = copy.iter().zip(select).take_while(|(a, b)| a == b).count();
        *steps = steps.saturating_sub(same);
        (same == select.len()).then(|| (at + union.len() + 1 + same, &text[at..at + union.len()]))
    })
}

/// `limit ?, ?` and `limit ? offset ?`: the first only, and only one.
fn short_limit(out: &mut Vec<u8>) {
    let found = memmem::find_iter(out, b"limit ?").find(|&at| is_boundary(out, at));
    let Some(end) = found.map(|at| at + 7) else { return };
    for more in [b", ?".as_slice(), b",?", b" offset ?"] {
        if out[end..].starts_with(more) {
            out.drain(end..end + more.len());
            return;
        }
    }
}

/// Takes ` asc` out of what is behind the first ORDER BY.
fn without_asc(text: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let order = memmem::find_iter(text, b"order by ").find(|&at| is_boundary(text, at));
    let mut copied = 0;
    let mut at = order.map_or(text.len(), |order| order + 9);
    // At least one byte is before each.
    while let Some(length) = text.get(at + 1..).and_then(|rest| memmem::find(rest, b" asc")) {
        let mut start = at + 1 + length;
        let end = start + 4;
        while start > at + 1 && is_space(text[start - 1]) {
            start -= 1;
        }
        out.extend_from_slice(&text[copied..start]);
        (at, copied) = (end, end);
    }
    out.extend_from_slice(&text[copied..]);
}

#[cfg(test)]
mod tests {
    use super::{fingerprint, query_id};

    fn pt(text: &str) -> String {
        let mut out = Vec::new();
        fingerprint(text.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_pt_query_digest_prints() {
        for (text, expected) in [
            ("SELECT /*!40001 SQL_NO_CACHE */ * FROM `foo`", "mysqldump"),
            ("REPLACE /*foo.bar:3/3*/ INTO checksum", "percona-toolkit"),
            ("administrator command: Quit", "administrator command: Quit"),
            (" CALL Foo(1,2)", "call foo"),
            ("USE db", "use ?"),
            ("select 'it''s'", "select ??"),
            ("select t1.c from sbtest12", "select t? from sbtest?"),
            ("select * from t where true and x is NULL", "select * from t where ? and x is ?"),
            (
                "select * from t where a in (1,2) and b in ('a' , 'b') -- foo",
                "select * from t where a in(?+) and b in(?+) ",
            ),
            (
                "insert into t (a,b) values (1,2),(3,4) on duplicate key update a=1",
                "insert into t (a,b) values(?+)",
            ),
            ("select 1 union all select 1 union all select 1", "select ? /*repeat union all*/"),
            (
                "select a from t union select a from u union select a from u",
                "select a from t union select a from u /*repeat union*/",
            ),
            ("select a from t order by a ASC, b asc limit 1,2", "select a from t order by a, b limit ?"),
        ] {
            assert_eq!(pt(text), expected, "{text}");
        }
    }

    #[test]
    fn the_id_is_the_whole_md5() {
        assert_eq!(query_id(b"percona-toolkit"), "8DD0EF5DCAF873994C88D66B213FB95B");
    }
}
