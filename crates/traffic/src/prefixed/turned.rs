//! Whether the lines of a general log whose newest events come first were turned one by one, or event by event: a statement
//! of several lines tells, because in the wrong order it makes no sense.

use memchr::memmem;

use crate::general_log;
use crate::pieces::is_of_banner;

/// How the lines that continue statements stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lines {
    /// Below what they continue, in their order.
    Own,
    /// Above it, the last one first.
    Turned,
    /// As much speaks for the one as for the other.
    Unclear,
}

/// Ends of a line behind which a statement goes on.
const CONTINUED: [&[u8]; 12] =
    [b",", b"(", b"=", b"select", b"from", b"where", b"and", b"or", b"on", b"set", b"values", b"by"];
/// Words that begin a clause, in the order in which a statement has them.
const CLAUSES: [(&[u8], u8); 20] = [
    (b"select", 1),
    (b"update", 1),
    (b"insert", 1),
    (b"delete", 1),
    (b"from", 2),
    (b"into", 2),
    (b"join", 3),
    (b"left", 3),
    (b"inner", 3),
    (b"on", 3),
    (b"set", 3),
    (b"values", 3),
    (b"where", 4),
    (b"and", 4),
    (b"or", 4),
    (b"group", 5),
    (b"having", 6),
    (b"order", 7),
    (b"limit", 8),
    (b"for", 9),
];
/// What a line with a condition continues.
const CONDITIONED: [&[u8]; 5] = [b"on", b"where", b"and", b"or", b"having"];
/// Statements that nothing follows.
const WHOLE: [&[u8]; 5] = [b"commit", b"rollback", b"begin", b"start", b"use"];
/// Commands that have a statement.
const WITH_STATEMENT: [&[u8]; 3] = [b"Query", b"Prepare", b"Execute"];

/// By the lines between events, of a text whose events fall.
pub(super) fn lines(text: &[u8]) -> Lines {
    let (mut own, mut turned) = (0, 0);
    let mut above: Option<&[u8]> = None;
    let mut run: Vec<&[u8]> = Vec::new();
    let mut is_any = false;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let line = line.trim_ascii_end();
        if line.is_empty() || is_of_banner(line) {
            continue;
        }
        if !general_log::is_event(&[line, b"\n"].concat()) {
            run.push(line);
            continue;
        }
        if !run.is_empty() {
            is_any = true;
            own += faults(above, run.iter().copied());
            turned += faults(Some(line), run.iter().rev().copied());
            run.clear();
        }
        above = Some(line);
    }
    match own.cmp(&turned) {
        std::cmp::Ordering::Less => Lines::Own,
        std::cmp::Ordering::Greater => Lines::Turned,
        std::cmp::Ordering::Equal if is_any => Lines::Unclear,
        std::cmp::Ordering::Equal => Lines::Own,
    }
}

/// What makes no sense of a statement with these lines behind its first one.
fn faults<'l>(first: Option<&'l [u8]>, lines: impl Iterator<Item = &'l [u8]>) -> u32 {
    let Some(statement) = first.and_then(statement) else { return 2 };
    if WHOLE.iter().any(|word| begins_with(statement, word)) {
        return 2;
    }
    let mut faults = 0;
    let (mut clause, mut depth, mut quotes): ((&[u8], u8), i32, u32) = ((b"", 0), 0, 0);
    let mut last: &[u8] = b"";
    for line in std::iter::once(statement).chain(lines) {
        let line = line.trim_ascii();
        let begun = CLAUSES.iter().find(|(word, _)| begins_with(line, word));
        // Inside of parentheses a statement of its own may stand.
        if let Some((word, place)) = begun.filter(|_| depth == 0) {
            let is_condition = matches!(*word, b"and" | b"or");
            let is_wrong = is_condition && !CONDITIONED.contains(&clause.0);
            faults += u32::from(is_wrong || *place < clause.1 || *word == b"where" && clause.0 == b"values");
        }
        let found = CLAUSES.iter().filter_map(|clause| Some((rfind_word(line, clause.0)?, *clause)));
        clause = found.max_by_key(|(at, _)| *at).map_or(clause, |(_, clause)| clause);
        for byte in line {
            match byte {
                b'(' => depth += 1,
                b')' => depth -= 1,
                b'\'' => quotes += 1,
                _ => {}
            }
        }
        faults += u32::from(depth < 0);
        depth = depth.max(0);
        last = line;
    }
    let is_open = CONTINUED.iter().any(|end| ends_with(last, end));
    faults + u32::from(is_open) + u32::from(depth > 0) + u32::from(quotes % 2 == 1)
}

/// What an event's line has behind its command, where that is one with a statement.
fn statement(line: &[u8]) -> Option<&[u8]> {
    let behind = |name: &[u8]| memmem::find(line, name).map(|at| &line[at + name.len()..]);
    WITH_STATEMENT
        .iter()
        .filter_map(|name| behind(name))
        .max_by_key(|rest| rest.len())
        .map(<[u8]>::trim_ascii_start)
}

fn begins_with(text: &[u8], word: &[u8]) -> bool {
    text.len() >= word.len()
        && text[..word.len()].eq_ignore_ascii_case(word)
        && text.get(word.len()).is_none_or(|byte| !byte.is_ascii_alphanumeric())
}

fn ends_with(text: &[u8], end: &[u8]) -> bool {
    text.len() >= end.len() && text[text.len() - end.len()..].eq_ignore_ascii_case(end)
}

fn rfind_word(text: &[u8], word: &[u8]) -> Option<usize> {
    let is_begin = |at: usize| at == 0 || !text[at - 1].is_ascii_alphanumeric() && text[at - 1] != b'_';
    (0..text.len()).rev().find(|at| is_begin(*at) && begins_with(&text[*at..], word))
}

#[cfg(test)]
mod tests {
    use super::{Lines, lines};

    #[test]
    fn statements_of_several_lines_tell_whether_lines_or_events_were_turned() {
        let time = "2026-03-01T10:00:00Z\t    3 ";
        let commit = format!("{time}Query\tcommit\n");
        let whole = [format!("{time}Connect\ta@b on shop\n"), format!("{time}Quit\t\n")];
        for statement in [
            "select a,\n  b",
            "SELECT a\nFROM t\nWHERE b = 3",
            "SELECT a\n\t, b\n\tFROM t\n\tWHERE b = 3",
            "update stock set qty = 1\n  where item = 4\n  and warehouse = 3",
            "insert into t (a)\nvalues (1),\n(2)",
            "select a from (\n select b from t\n) c",
        ] {
            let events =
                [whole[0].clone(), format!("{time}Query\t{statement}\n"), commit.clone(), whole[1].clone()];
            let newest_first: String = events.iter().rev().map(String::as_str).collect();
            let turned: String = events.concat().lines().rev().map(|line| format!("{line}\n")).collect();
            assert_eq!(lines(newest_first.as_bytes()), Lines::Own, "{statement}");
            assert_eq!(lines(turned.as_bytes()), Lines::Turned, "{statement}");
        }
        // Beside a statement that goes on as well.
        let update = format!("{time}Query\tupdate t set a = 1\n where b = 2\n and c = 3\n");
        let insert = format!("{time}Query\tinsert into t values (1, 2)\n");
        let turned =
            [update, insert].concat().lines().rev().map(|line| format!("{line}\n")).collect::<String>();
        assert_eq!(lines(turned.as_bytes()), Lines::Turned);
        assert_eq!(lines(commit.repeat(3).as_bytes()), Lines::Own);
        let either = format!("{time}Query\tcall p\n  x\n{time}Query\tcall q\n");
        assert_eq!(lines(either.as_bytes()), Lines::Unclear);
    }
}
