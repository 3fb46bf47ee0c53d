//! supervisord's own log at debug level: each piece of a program's output has a line with the program's name before it, and a
//! line end after it.

use super::time;

/// Levels of its lines.
const LEVELS: [&[u8]; 7] = [b"CRIT ", b"ERRO ", b"WARN ", b"INFO ", b"DEBG ", b"TRAC ", b"BLAT "];

/// A line such as `2026-03-01 10:32:03,123 DEBG 'mysqld' stdout output:`.
fn message(line: &[u8]) -> Option<&[u8]> {
    let (stamp, rest) = time::stamp(line)?;
    let rest = rest.strip_prefix(b",")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = rest[digits..].strip_prefix(b" ").filter(|_| stamp.is_local && digits == 3)?;
    LEVELS.iter().find_map(|level| rest.strip_prefix(*level))
}

/// Whether a line, without its end, is one of supervisord.
pub fn is_line(line: &[u8]) -> bool {
    message(line).is_some()
}

/// The program whose output follows this line.
pub fn output(line: &[u8]) -> Option<&[u8]> {
    let name = message(line)?.strip_prefix(b"'")?;
    let (name, rest) = name.split_at(memchr::memchr(b'\'', name)?);
    matches!(rest, b"' stdout output:" | b"' stderr output:").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_supervisord() {
        for (line, name) in [
            ("2026-03-01 10:32:03,123 DEBG 'mysqld' stdout output:", Some("mysqld")),
            ("2026-03-01 10:32:03,123 DEBG 'db:mysqld_00' stderr output:", Some("db:mysqld_00")),
            ("2026-03-01 10:32:03,123 INFO spawned: 'mysqld' with pid 9", None),
        ] {
            assert!(is_line(line.as_bytes()));
            assert_eq!(output(line.as_bytes()), name.map(str::as_bytes));
        }
        for line in [
            "2026-03-01 10:32:03 1 [Note] x",
            "2026-03-01 10:32:03,1 INFO x",
            "2026-03-01 10:32:03,123 x",
            "",
        ] {
            assert!(!is_line(line.as_bytes()));
        }
    }
}
