//! Parses memcached's replies in the classic text protocol as they arrive. Values are skipped, not kept: their size
//! costs no memory here.

/// memcached's own messages and the line before a value are far shorter.
const LONGEST_LINE: usize = 2048;
const LONGEST_KEY: usize = 250;

/// A whole reply to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The value of `Replies::key`.
    Value,
    /// There is no such item to get.
    Miss,
    Stored,
    Deleted,
    /// There is no such item to delete.
    NotFound,
    Version,
    Refused(Refusal),
}

/// An error line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub kind: RefusalKind,
    /// The whole line.
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// `ERROR`: no command of this name.
    Command,
    /// `CLIENT_ERROR`: the request breaks the protocol.
    Client,
    /// `SERVER_ERROR`: the server could not do it; the connection is good for the next request.
    Server,
}

/// Reads the replies of one connection. After an error there is nothing more to read.
#[derive(Default)]
pub struct Replies {
    stage: Stage,
    /// The start of a line whose end has not arrived.
    partial: Vec<u8>,
    key: Vec<u8>,
}

#[derive(Clone, Copy, Default)]
enum Stage {
    /// The first line of a reply.
    #[default]
    First,
    /// Missing bytes of a value.
    Data(u64),
    DataEnd,
    /// After the value of the only requested key.
    End,
}

impl Replies {
    /// The key of the last value.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Takes bytes from the front of the input until a reply is complete; None: it is not. Fails with what is
    /// malformed.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Reply>, &'static str> {
        loop {
            if let Stage::Data(left) = &mut self.stage {
                let count = input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *input = &input[count..];
                *left -= count as u64;
                if *left > 0 {
                    return Ok(None);
                }
                self.stage = Stage::DataEnd;
            }
            let end = input.iter().position(|byte| *byte == b'\n');
            let (line, rest) = input.split_at(end.map_or(input.len(), |end| end + 1));
            *input = rest;
            if self.partial.len() + line.len() > LONGEST_LINE {
                return Err("a line that does not end");
            }
            let reply = match end {
                None => {
                    self.partial.extend_from_slice(line);
                    return Ok(None);
                }
                Some(_) if self.partial.is_empty() => self.take(line)?,
                Some(_) => {
                    let mut whole = std::mem::take(&mut self.partial);
                    whole.extend_from_slice(line);
                    self.take(&whole)?
                }
            };
            if reply.is_some() {
                return Ok(reply);
            }
        }
    }

    /// Takes a complete line.
    fn take(&mut self, line: &[u8]) -> Result<Option<Reply>, &'static str> {
        let line = line.strip_suffix(b"\r\n").ok_or("a line without a carriage return")?;
        let reply = match std::mem::take(&mut self.stage) {
            Stage::DataEnd if line.is_empty() => {
                self.stage = Stage::End;
                return Ok(None);
            }
            Stage::DataEnd => return Err("a value longer than announced"),
            Stage::End if line == b"END" => Reply::Value,
            Stage::End => Reply::Refused(refusal(line).ok_or("something else than the end behind a value")?),
            Stage::First | Stage::Data(_) => match line {
                b"END" => Reply::Miss,
                b"STORED" => Reply::Stored,
                b"DELETED" => Reply::Deleted,
                b"NOT_FOUND" => Reply::NotFound,
                _ if line.starts_with(b"VERSION ") => Reply::Version,
                _ => match line.strip_prefix(b"VALUE ") {
                    Some(head) => {
                        let (key, bytes) = value_head(head).ok_or("the line before a value")?;
                        self.key.clear();
                        self.key.extend_from_slice(key);
                        self.stage = Stage::Data(bytes);
                        return Ok(None);
                    }
                    None => Reply::Refused(refusal(line).ok_or("an unknown reply")?),
                },
            },
        };
        Ok(Some(reply))
    }
}

/// Key and length of a value, from `<key> <flags> <bytes>`.
fn value_head(head: &[u8]) -> Option<(&[u8], u64)> {
    let mut words = head.split(|byte| *byte == b' ');
    let key = words.next().filter(|key| (1..=LONGEST_KEY).contains(&key.len()))?;
    let mut number = || std::str::from_utf8(words.next()?).ok()?.parse::<u64>().ok();
    let (_flags, bytes) = (number()?, number()?);
    words.next().is_none().then_some((key, bytes))
}

fn refusal(line: &[u8]) -> Option<Refusal> {
    let kind = match line.split(|byte| *byte == b' ').next()? {
        b"ERROR" => RefusalKind::Command,
        b"CLIENT_ERROR" => RefusalKind::Client,
        b"SERVER_ERROR" => RefusalKind::Server,
        _ => return None,
    };
    Some(Refusal { kind, message: String::from_utf8_lossy(line).into_owned() })
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_LINE, Refusal, RefusalKind, Replies, Reply};
    use proptest::prelude::{Just, Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};

    /// All replies of a stream that arrives in these pieces, and what is malformed after them. A value comes with its
    /// key.
    fn read(pieces: &[&[u8]]) -> (Vec<(Reply, Vec<u8>)>, Option<&'static str>) {
        let mut replies = Replies::default();
        let mut found = Vec::new();
        for piece in pieces {
            let mut input = *piece;
            loop {
                match replies.next(&mut input) {
                    Ok(Some(reply)) => found.push((reply, replies.key().to_vec())),
                    Ok(None) => break,
                    Err(what) => return (found, Some(what)),
                }
            }
            assert!(input.is_empty());
        }
        (found, None)
    }

    fn one(bytes: &[u8]) -> Result<Reply, Option<&'static str>> {
        match read(&[bytes]) {
            (mut found, None) if found.len() == 1 => Ok(found.remove(0).0),
            (_, malformed) => Err(malformed),
        }
    }

    #[test]
    fn every_reply() {
        assert_eq!(one(b"END\r\n"), Ok(Reply::Miss));
        assert_eq!(one(b"STORED\r\n"), Ok(Reply::Stored));
        assert_eq!(one(b"DELETED\r\n"), Ok(Reply::Deleted));
        assert_eq!(one(b"NOT_FOUND\r\n"), Ok(Reply::NotFound));
        assert_eq!(one(b"VERSION 1.6.18\r\n"), Ok(Reply::Version));
        assert_eq!(one(b"VALUE a 0 0\r\n\r\nEND\r\n"), Ok(Reply::Value));
        let refused = |kind, message: &str| Ok(Reply::Refused(Refusal { kind, message: message.to_owned() }));
        assert_eq!(one(b"ERROR\r\n"), refused(RefusalKind::Command, "ERROR"));
        let text = "ERROR Too many open connections";
        assert_eq!(one(b"ERROR Too many open connections\r\n"), refused(RefusalKind::Command, text));
        let text = "SERVER_ERROR out of memory writing get response";
        let bytes = b"VALUE a 0 1\r\nx\r\nSERVER_ERROR out of memory writing get response\r\n";
        assert_eq!(one(bytes), refused(RefusalKind::Server, text));
        assert_eq!(one(b"CLIENT_ERROR \xff\r\n"), refused(RefusalKind::Client, "CLIENT_ERROR \u{fffd}"));
    }

    #[test]
    fn a_value_may_look_like_anything() {
        let (found, malformed) = read(&[b"VALUE key 4294967295 7\r\nEND\r\n\r\n\r\nEND\r\nSTORED\r\n"]);
        assert_eq!(malformed, None);
        assert_eq!(found, [(Reply::Value, b"key".to_vec()), (Reply::Stored, b"key".to_vec())]);
    }

    #[test]
    fn what_is_malformed() {
        for bytes in [
            &b"\r\n"[..],
            b"STORED\n",
            b"stored\r\n",
            b"ERRORS\r\n",
            b"STORED \r\n",
            b"HTTP/1.1 400 Bad Request\r\n",
            b"VALUE\r\n",
            b"VALUE  0 1\r\n",
            b"VALUE a 0\r\n",
            b"VALUE a 0 x\r\n",
            b"VALUE a 0 -1\r\n",
            b"VALUE a 0 18446744073709551616\r\n",
            b"VALUE a 0 1 2\r\n",
            b"VALUE a 0 1\r\nxy\r\n",
            b"VALUE a 0 1\r\nx\r\nSTORED\r\n",
            b"VALUE a 0 1\r\nx\r\nVALUE b 0 1\r\n",
            &[&b"VALUE "[..], &[b'a'; 251], b" 0 1\r\n"].concat(),
            &[b'a'; LONGEST_LINE + 1],
        ] {
            assert!(matches!(one(bytes), Err(Some(_))), "{}", bytes.escape_ascii());
        }
        assert_eq!(one(&[b'a'; LONGEST_LINE]), Err(None), "its end may still come");
        assert_eq!(one(b"VALUE a 0 18446744073709551615\r\nx"), Err(None));
    }

    /// Anything, but mostly what a server could say.
    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let value = ("[a-z]{1,9}", prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(key, data)| {
            let head = format!("VALUE {key} 0 {}\r\n", data.len());
            [head.as_bytes(), &data, b"\r\nEND\r\n"].concat()
        });
        let line = prop_oneof![
            Just(&b"END\r\n"[..]),
            Just(&b"STORED\r\n"[..]),
            Just(&b"SERVER_ERROR out of memory storing object\r\n"[..]),
            Just(&b"VALUE a 0 3\r\n"[..]),
            Just(&b"\r\n"[..]),
        ]
        .prop_map(<[u8]>::to_vec);
        let junk = prop::collection::vec(any::<u8>(), 0..20);
        prop::collection::vec(prop_oneof![8 => value, 4 => line, 1 => junk], 0..12)
            .prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn it_does_not_matter_where_the_bytes_are_cut(
            bytes in stream(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            places.extend([0, bytes.len()]);
            places.sort_unstable();
            let pieces: Vec<&[u8]> = places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let whole = read(&[&bytes]);
            prop_assert_eq!(&read(&pieces), &whole);
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(&read(&single), &whole);
        }

        #[test]
        fn a_line_without_an_end_takes_no_memory(length in 0_usize..10_000, size in 1_usize..700) {
            let bytes = vec![b'x'; length];
            let mut replies = Replies::default();
            for mut piece in bytes.chunks(size) {
                if replies.next(&mut piece).is_err() {
                    break;
                }
            }
            prop_assert!(replies.partial.len() <= LONGEST_LINE);
        }
    }
}
