//! The pattern of a key: what all keys of one kind share, and nothing that tells whose key it is.
//!
//! Keys hold names of people, mail addresses and tokens, so everything is hidden that is not known to name a kind of
//! thing: digits, hashes, identifiers, text that is not ASCII, and every word that is not in a list of common ones. Who
//! runs the application can add its words, or have all of them shown.

use std::collections::HashSet;

/// Words that say what kind of thing it is.
const WORDS: &str = "\
    a account active activity address admin alert all api app archive article asset attribute auth author \
    avatar banner basket batch block blog book brand cache cached campaign card cart catalog category channel \
    checkout client comment comments company config contact content context count counter country coupon csrf \
    currency customer daily data date day db default detail details device doc document domain email entity \
    entry event events expire failed feature feed field file filter flag flags folder followers form forum \
    friends game geo global graph group groups hash header history hit hits home host hour hr html i id ids \
    image images inbox index info instance inventory invoice ip item items job jobs json key keys lang \
    language last latest limit link list local locale location lock log login mail map media member memtier \
    menu message messages meta metadata minute model module month name news nonce note notes notification \
    notifications object offer online option options order orders org owner page pages password path payment \
    permission permissions photo php place plan player points post posts preferences price product products \
    profile project promo query queue quota rank ranking rate ratelimit rating recent record redirect region \
    related report request response result results review reviews role roles route row rules s score search \
    section secure server service sess session sessions setting settings shard shop site slot snippet sql \
    stat state static stats status stock store sum summary table tag tags task team temp template tenant test \
    text thread throttle thumb ticket time timeline title tmp token top topic total tree type u uid unread \
    update url user users v value version video view views visit visitor vote week widget wiki xml year zone \
";
/// A longer run of letters is no word.
const LONGEST_WORD: usize = 24;
/// As many letters from a to f as this are a number.
const SHORTEST_HEX: usize = 8;

/// Which words are shown.
pub struct Shown {
    all: bool,
    words: HashSet<String>,
}

impl Shown {
    /// Beside the usual ones `all`, or words.
    pub fn new(asked: &[String]) -> Self {
        let usual = WORDS.split_whitespace().map(str::to_owned);
        let asked_small = asked.iter().map(|word| word.to_lowercase());
        Self { all: asked.iter().any(|word| word == "all"), words: usual.chain(asked_small).collect() }
    }

    fn has(&self, word: &[u8]) -> bool {
        let mut small = [0; LONGEST_WORD];
        let Some(small) = small.get_mut(..word.len()) else { return false };
        small.copy_from_slice(word);
        small.make_ascii_lowercase();
        self.all || std::str::from_utf8(small).is_ok_and(|word| self.words.contains(word))
    }
}

/// Appends a key's pattern. True if a word was hidden that an option could show.
pub fn fold(key: &[u8], shown: &Shown, out: &mut Vec<u8>) -> bool {
    let (mut at, mut has_hidden) = (0, false);
    // The last two parts by their marks, with their places: a third one alike makes it a list.
    let mut lately: [(&[u8], usize, usize); 2] = [(b"", 0, 0); 2];
    while at < key.len() {
        if !is_part(key[at]) {
            // What could end a line or move a terminal's cursor is no separator.
            out.push(if key[at].is_ascii_graphic() { key[at] } else { b'?' });
            at += 1;
            continue;
        }
        let (mark, length) = part(&key[at..], shown);
        let [before, last] = lately;
        if !mark.is_empty() && mark == last.0 && mark == before.0 && last.1 == before.2 + 1 {
            out.truncate(last.2);
            out.extend_from_slice(b"...");
            at = end_of_list(key, at, mark, shown);
            lately = [(b"", 0, 0); 2];
            continue;
        }
        let place = out.len();
        has_hidden |= mark == b"<word>";
        match mark {
            b"" => out.extend_from_slice(&key[at..at + length]),
            NUMBERED => {
                out.extend_from_slice(letters(&key[at..at + length]));
                out.extend_from_slice(b"<n>");
            }
            mark => out.extend_from_slice(mark),
        }
        at += length;
        lately = [last, (mark, place, out.len())];
    }
    has_hidden
}

/// Behind the last part of a list, which has a part here.
fn end_of_list(key: &[u8], mut at: usize, mark: &[u8], shown: &Shown) -> usize {
    let mut end = at;
    while at < key.len() {
        if !is_part(key[at]) {
            at += 1;
            continue;
        }
        let (next, length) = part(&key[at..], shown);
        if next != mark {
            break;
        }
        at += length;
        end = at;
    }
    end
}

const NUMBERED: &[u8] = b"word<n>";

fn is_part(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte >= 0x80 || matches!(byte, b'%' | b'@')
}

fn letters(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().take_while(|byte| byte.is_ascii_alphabetic()).count()]
}

/// What stands for the part that a key goes on with, empty for the part itself, and how long that is.
fn part<'a>(rest: &[u8], shown: &Shown) -> (&'a [u8], usize) {
    if let Some(length) = mail(rest) {
        return (b"<mail>", length);
    }
    if is_uuid(rest) {
        return (b"<uuid>", 36);
    }
    let length = rest.iter().take_while(|byte| is_part(**byte)).count();
    let part = &rest[..length];
    let word = letters(part);
    let after = &part[word.len()..];
    let is_hex = part.len() >= SHORTEST_HEX && part.iter().all(u8::is_ascii_hexdigit);
    let mark: &[u8] = if part.iter().all(u8::is_ascii_digit) {
        b"<n>"
    } else if part.iter().any(|byte| !byte.is_ascii_alphanumeric()) {
        b"<text>"
    } else if is_hex {
        b"<hex>"
    } else if after.is_empty() && word.len() <= LONGEST_WORD {
        if shown.has(word) { b"" } else { b"<word>" }
    } else if after.iter().all(u8::is_ascii_digit) && !word.is_empty() && shown.has(word) {
        NUMBERED
    } else {
        b"<id>"
    };
    (mark, length)
}

/// An address of mail that begins here.
fn mail(rest: &[u8]) -> Option<usize> {
    let is_local =
        |byte: &u8| byte.is_ascii_alphanumeric() || *byte >= 0x80 || b".!#$%&'*+/=?^_{}~-".contains(byte);
    let local = rest.iter().take_while(|byte| is_local(byte)).count();
    let domain = rest.get(local..)?.strip_prefix(b"@")?;
    let is_domain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte >= 0x80 || matches!(byte, b'.' | b'-');
    Some(local + 1 + domain.iter().take_while(|byte| is_domain(byte)).count())
}

fn is_uuid(rest: &[u8]) -> bool {
    let is_right = |(at, byte): (usize, &u8)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    rest.len() >= 36
        && rest[..36].iter().enumerate().all(is_right)
        && !rest.get(36).is_some_and(u8::is_ascii_alphanumeric)
}
