//! What is in quotes: a name, or a statement in a string of PREPARE and EXECUTE IMMEDIATE.

/// The quote of a string without a prefix; `None` for hex digits and what is between dollar tags.
pub fn quote(part: &[u8]) -> Option<u8> {
    match part {
        [quote @ (b'\'' | b'"'), .., _] | [b'N' | b'n', quote @ (b'\'' | b'"'), .., _] => Some(*quote),
        _ => None,
    }
}

/// What a name, or a string with or without a prefix, says: without quotes, doubled quotes and, in a string, escapes. What
/// has no quotes is as it is.
pub fn content(part: &[u8]) -> Vec<u8> {
    let start = usize::from(matches!(part, [b'N' | b'n', b'\'' | b'"', ..]));
    let Some(&quote) = part.get(start).filter(|byte| b"'\"`".contains(byte)) else { return part.to_vec() };
    let inner = &part[start + 1..];
    let inner = inner.strip_suffix(&[quote]).unwrap_or(inner);
    let mut out = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\\' if quote != b'`' => match bytes.next() {
                Some(b'n') => out.push(b'\n'),
                Some(b't') => out.push(b'\t'),
                Some(b'r') => out.push(b'\r'),
                Some(b'b') => out.push(8),
                Some(b'0') => out.push(0),
                Some(b'Z') => out.push(26),
                // Only the patterns of LIKE have these, and there the backslash stays.
                Some(escaped @ (b'%' | b'_')) => out.extend_from_slice(&[b'\\', *escaped]),
                Some(escaped) => out.push(*escaped),
                None => out.push(b'\\'),
            },
            byte => {
                out.push(byte);
                if byte == quote {
                    bytes.next();
                }
            }
        }
    }
    out
}

/// Appends a name or a string: its quotes doubled and, in a string, its backslashes. Without backslashes it is the same
/// whether a backslash escapes or not.
pub fn put_quoted(quote: u8, text: &[u8], out: &mut Vec<u8>) {
    out.push(quote);
    for &byte in text {
        match byte {
            0 if quote != b'`' => out.extend_from_slice(b"\\0"),
            b'\\' if quote != b'`' => out.extend_from_slice(b"\\\\"),
            byte => {
                out.push(byte);
                if byte == quote {
                    out.push(byte);
                }
            }
        }
    }
    out.push(quote);
}

#[cfg(test)]
mod tests {
    use super::{content, put_quoted, quote};
    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert_eq, prop_oneof, proptest};
    use proptest::strategy::Just;

    #[test]
    fn what_is_in_quotes() {
        for (part, expected) in [
            (r"'it''s'", "it's"),
            (r"'it\'s \n \%'", "it's \n \\%"),
            ("`a``b\\c`", "a`b\\c"),
            (r#"N"say ""x""""#, "say \"x\""),
            ("plain", "plain"),
            ("'", ""),
        ] {
            assert_eq!(String::from_utf8_lossy(&content(part.as_bytes())), expected, "{part}");
        }
        assert_eq!((quote(b"x'41'"), quote(b"N'a'"), quote(b"$$a$$")), (None, Some(b'\''), None));
    }

    proptest! {
        #[test]
        fn what_was_put_in_quotes_comes_out(
            text in vec(any::<u8>(), 0..30), quote in prop_oneof![Just(b'\''), Just(b'"'), Just(b'`')],
        ) {
            let mut out = Vec::new();
            put_quoted(quote, &text, &mut out);
            let mut expected = text.clone();
            if quote != b'`' {
                // A backslash in front of % or _ is doubled, and so comes out alone.
                expected = text;
            }
            prop_assert_eq!(content(&out), expected);
        }
    }
}
