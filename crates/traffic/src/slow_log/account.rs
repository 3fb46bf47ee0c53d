//! Parses `account[user] @ host [address]  Id: 12`: who sent a statement. Names can contain anything, even brackets.

use memchr::memmem;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account<'a> {
    /// Who logged in. The account before it can differ (a proxy user, the anonymous account).
    pub(crate) user: &'a [u8],
    /// The name of the client's host, or its address where the server knows no name.
    pub(crate) host: &'a [u8],
    pub(crate) id: Option<u64>,
}

/// Reads from the right, because the client cannot choose anything there.
pub(crate) fn parse(line: &[u8]) -> Option<Account<'_>> {
    let line = line.trim_ascii_end();
    let (line, id) = match line.last()? {
        b']' => (line, None),
        _ => {
            let colon = last(b':', line)?;
            let line_before = line[..colon].strip_suffix(b"Id")?.trim_ascii_end();
            (line_before, Some(number(line[colon + 1..].trim_ascii_start())?))
        }
    };
    let line = line.strip_suffix(b"]")?;
    let bracket = last(b'[', line)?;
    let address = &line[bracket + 1..];
    let names = &line[..bracket];
    let sign = last(b'@', names)?.checked_sub(2)?;
    let plain = names[sign..].starts_with(b"] @ ").then_some(sign);
    let changed = || [&b"] @\n"[..], b"] @\t"].iter().find_map(|sign| memmem::rfind(names, sign));
    let at = plain.or_else(|| memmem::rfind(names, b"] @ ")).or_else(changed)?;
    let name = names[at + 4..].trim_ascii();
    Some(Account { user: user(&names[..at])?, host: if name.is_empty() { address } else { name }, id })
}

/// Whether a name has bytes that no server writes: zeros from a block that was never written, or a terminal's output.
pub(super) fn is_damaged(account: &Account<'_>) -> bool {
    account.user.iter().chain(account.host).any(u8::is_ascii_control)
}

/// The last of these bytes. It is a few steps back, which is cheaper than a SIMD search.
#[inline]
fn last(byte: u8, text: &[u8]) -> Option<usize> {
    text.iter().rposition(|found| *found == byte)
}

/// Whether a line ends as servers end it: with an address in brackets, or the number of the thread.
pub(super) fn is_whole(line: &[u8]) -> bool {
    let line = line.trim_ascii_end();
    let digits = line.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    line.ends_with(b"]") || digits > 0 && line[..line.len() - digits].trim_ascii_end().ends_with(b"Id:")
}

/// `account[user`: mostly the same name twice.
fn user(text: &[u8]) -> Option<&[u8]> {
    let half = text.len() / 2;
    if text.len() % 2 == 1 && text[half] == b'[' && text[..half] == text[half + 1..] {
        return Some(&text[half + 1..]);
    }
    memchr::memchr(b'[', text).map(|bracket| &text[bracket + 1..])
}

fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 19 {
        return None;
    }
    text.iter().try_fold(0u64, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + u64::from(byte - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn is(line: &str, user: &str, host: &str, id: Option<u64>) {
        let account = Account { user: user.as_bytes(), host: host.as_bytes(), id };
        assert_eq!(parse(line.as_bytes()), Some(account), "{line}");
    }

    #[test]
    fn as_servers_write_them() {
        is("root[root] @ localhost []", "root", "localhost", None);
        is("root[root] @ localhost []  Id:    12", "root", "localhost", Some(12));
        is("app[app] @  [10.0.0.1]  Id: 325920", "app", "10.0.0.1", Some(325_920));
        is("app[app] @ web1.example [::1]  Id:     3", "app", "web1.example", Some(3));
        is("[SQL_SLAVE] @  []  Id:     5", "SQL_SLAVE", "", Some(5));
        is("proxied[login] @ h []", "login", "h", None);
        is("[nobody] @ h []", "nobody", "h", None);
    }

    #[test]
    fn hostile_names() {
        is("a] @ b [c[a] @ b [c] @ h [10.0.0.1]  Id: 7", "a] @ b [c", "h", Some(7));
        is("x[]  Id: 5[x[]  Id: 5] @ h []  Id: 9", "x[]  Id: 5", "h", Some(9));
        is("[][[]] @ h []", "[]", "h", None);
    }

    #[test]
    fn what_is_none() {
        for line in
            ["", "root", "root[root] @ localhost", "root[root] @ localhost []  Id: x", "] @ []", "a] @ h []"]
        {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
    }
}
