//! Names of tables and databases that a program made, with what it made up as a `?`: `orders_2024_01` is `` `orders_?` ``.
//!
//! - Folded are the names of tables and databases where a statement names one, and in front of the dot of a column. Columns,
//!   aliases, indexes and routines stay.
//! - Made up are digits, hashes in hex, and words in which digits and letters take turns. Neighbours become one `?`.
//! - So `t1 JOIN t2` is `t2 JOIN t1`: whoever asks for it wants that.

use super::finder::{bare, name_places};
use super::lexer::{Kind, Lexer, Token};

/// Replaces what `out` holds by `fingerprint`, a strict one, with folded names. True if any was.
pub fn fold(fingerprint: &[u8], out: &mut Vec<u8>) -> bool {
    out.clear();
    let mut places = name_places(Lexer::new(fingerprint), fingerprint);
    let mut folded = Vec::new();
    places.retain(|place| {
        folded.clear();
        fold_name(&bare(part(fingerprint, *place)), &mut folded)
    });
    if places.is_empty() {
        out.extend_from_slice(fingerprint);
        return false;
    }
    let mut names: Vec<_> = places.iter().map(|place| bare(part(fingerprint, *place))).collect();
    names.sort_unstable();
    names.dedup();
    let mut places = places.into_iter().peekable();
    let mut lexer = Lexer::new(fingerprint);
    let mut copied = 0;
    while let Some(token) = lexer.next() {
        if !matches!(token.kind, Kind::Word | Kind::Quoted) {
            continue;
        }
        let name = bare(part(fingerprint, token));
        let is_place = places.next_if(|place| place.start == token.start).is_some();
        let is_named =
            is_place || fingerprint.get(token.end) == Some(&b'.') && names.binary_search(&name).is_ok();
        folded.clear();
        if !is_named || !fold_name(&name, &mut folded) {
            continue;
        }
        out.extend_from_slice(&fingerprint[copied..token.start]);
        out.push(b'`');
        for &byte in &folded {
            out.push(byte);
            if byte == b'`' {
                out.push(byte);
            }
        }
        out.push(b'`');
        copied = token.end;
    }
    out.extend_from_slice(&fingerprint[copied..]);
    true
}

fn part(text: &[u8], token: Token) -> &[u8] {
    &text[token.start..token.end]
}

/// Appends a name, folded. False if there is nothing to fold.
fn fold_name(name: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let mut at = 0;
    while at < name.len() {
        let end = name[at..]
            .iter()
            .position(|byte| !byte.is_ascii_alphanumeric())
            .map_or(name.len(), |length| at + length);
        let end = uuid_end(name, at).unwrap_or(end);
        if end == at {
            out.push(name[at]);
            at += 1;
            continue;
        }
        let word = &name[at..end];
        if is_made_up(word) {
            put_mark(out, start);
        } else {
            put_without_digits(word, out, start);
        }
        at = end;
    }
    out[start..] != *name
}

/// Appends a `?`, unless nothing but a separator is between it and the one before.
fn put_mark(out: &mut Vec<u8>, start: usize) {
    let separators =
        out[start..].iter().rev().take_while(|byte| matches!(byte, b'_' | b'-' | b'$' | b'.')).count();
    let end = out.len() - separators;
    if end > start && out[end - 1] == b'?' {
        out.truncate(end);
    } else {
        out.push(b'?');
    }
}

fn put_without_digits(word: &[u8], out: &mut Vec<u8>, start: usize) {
    let mut is_digit = false;
    for &byte in word {
        if !byte.is_ascii_digit() {
            out.push(byte);
        } else if !is_digit {
            put_mark(out, start);
        }
        is_digit = byte.is_ascii_digit();
    }
}

/// Letters and digits that no person chose: digits only, hex digits, or several turns from one to the other.
fn is_made_up(word: &[u8]) -> bool {
    let digits = word.iter().filter(|byte| byte.is_ascii_digit()).count();
    let turns = word.windows(2).filter(|pair| pair[0].is_ascii_digit() != pair[1].is_ascii_digit()).count();
    let is_hex = word.iter().all(u8::is_ascii_hexdigit);
    digits == word.len()
        || digits > 0
            && is_hex
            && (word.len() >= 8 || word.len() >= 6 && (turns > 1 || word[0].is_ascii_digit()))
        || turns >= 3 && word.len() >= 6
}

/// Where a UUID ends that begins here, with `-` or `_` between its parts.
fn uuid_end(name: &[u8], at: usize) -> Option<usize> {
    const PARTS: [usize; 5] = [8, 4, 4, 4, 12];
    let length = PARTS.iter().sum::<usize>() + PARTS.len() - 1;
    let text = name.get(at..at + length)?;
    let mut parts = text.split(|byte| matches!(byte, b'-' | b'_'));
    let is_uuid = PARTS.iter().all(|length| {
        parts.next().is_some_and(|part| part.len() == *length && part.iter().all(u8::is_ascii_hexdigit))
    });
    let is_end = name.get(at + length).is_none_or(|byte| !byte.is_ascii_alphanumeric());
    (is_uuid && is_end && text.iter().any(u8::is_ascii_digit)).then_some(at + length)
}

#[cfg(test)]
mod tests {
    use super::fold_name;
    use crate::{Mode, fingerprint};

    #[test]
    fn what_a_program_made_up_is_folded() {
        for (name, expected) in [
            ("search_tmp_5cc0108165e221_57009269", "search_tmp_?"),
            ("tmp_64b0c1d2e3f4", "tmp_?"),
            ("orders_2024_01", "orders_?"),
            ("orders_2024_01_archive", "orders_?_archive"),
            ("shard_0017", "shard_?"),
            ("t_123", "t_?"),
            ("sbtest12", "sbtest?"),
            ("p2024w07_eu", "?_eu"),
            ("tmp_550e8400-e29b-41d4-a716-446655440000", "tmp_?"),
            ("tmp_550e8400_e29b_41d4_a716_446655440000_x", "tmp_?_x"),
            ("sess_k3j9x0qz", "sess_?"),
            ("2024_orders", "?_orders"),
            ("20240101", "?"),
            ("caf\u{e9}_2024", "caf\u{e9}_?"),
        ] {
            let mut out = Vec::new();
            assert!(fold_name(name.as_bytes(), &mut out), "{name}");
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{name}");
        }
        for name in ["orders", "facade", "deadbeef", "tmp_?", "a-b", ""] {
            assert!(!fold_name(name.as_bytes(), &mut Vec::new()), "{name}");
        }
    }

    #[test]
    fn tables_are_folded_and_nothing_else() {
        for (text, expected) in [
            (
                "SELECT e.a FROM `p` AS `e1` JOIN `tmp_5cc0108165e221_57009269` AS `r2` ON e1.c1 = r2.c2",
                "select e.a from `p` as `e1` join `tmp_?` as `r2` on e1.c1 = r2.c2",
            ),
            (
                "select t_1.c1, x.address2 from t_1, u2 x where t_1.id = 5",
                "select `t_?`.c1, x.address2 from `t_?`, `u?` x where `t_?`.id = ?",
            ),
            (
                "create temporary table if not exists t5 (c1 int, key k1 (c1))",
                "create temporary table if not exists `t?`(c1 int, key k1(c1))",
            ),
            (
                "insert into tenant_17.orders_2024 (a1) values (1)",
                "insert into `tenant_?`.`orders_?`(a1) values (?+)",
            ),
            ("use tenant_17", "use `tenant_?`"),
            ("drop database tenant_17", "drop database `tenant_?`"),
            (
                "select a from m_01 union all select a from m_02 union all select a from m_03",
                "select a from `m_?` union all select a from `m_?`",
            ),
            (
                "select t1.a from t1 join t2 on t1.a = t2.a",
                "select `t?`.a from `t?` join `t?` on `t?`.a = `t?`.a",
            ),
            ("select a from plain where b1 = 2", "select a from plain where b1 = ?"),
            ("select f1(a) from t order by c1", "select f1(a) from t order by c1"),
            ("with c1 as (select 1) select * from c1", "with c1 as (select ?) select * from c1"),
        ] {
            let mut out = Vec::new();
            fingerprint(Mode::Folded, text.as_bytes(), false, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), expected, "{text}");
            let mut again = Vec::new();
            fingerprint(Mode::Folded, &out, false, &mut again);
            assert_eq!(out, again, "{text}");
        }
    }
}
