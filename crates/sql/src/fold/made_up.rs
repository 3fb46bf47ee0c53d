//! Finds the generated part of a name. A wrong guess would merge classes with names that people chose, so the words that
//! people do write with digits are listed: algorithms, character sets, types, formats, versions, durations.

/// How much of a name may be generated depends on what it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Tables, databases, routines, indexes, and aliases in front of a dot: any digit.
    Object,
    /// A partition: as above, and even the known words below count as numbers.
    Partition,
    /// An alias of a column: not the `1` in `address1`.
    Alias,
    /// Columns and called functions: only hashes, numbers of three digits or more, and several numbers in a row.
    Column,
}

/// Words with digits that people use.
#[rustfmt::skip]
const KNOWN: &[&str] = &[
    "1080p", "2fa", "3des", "4g", "4k", "5g", "720p", "8k", "a11y", "a4", "adler32", "aes128", "aes192", "aes256", "alpha2",
    "alpha3", "amd64", "argon2", "argon2i", "argon2id", "arm64", "atan2", "auth0", "b2b", "b2c", "base32", "base36", "base58",
    "base62", "base64", "big5", "bip39", "blake2", "blake2b", "blake3", "bz2", "c2c", "c3p0", "chacha20", "co2", "covid19",
    "cp1250", "cp1251", "cp1252", "cp1256", "cp1257", "cp850", "cp852", "cp866", "cp932", "crc16", "crc32", "crc32c", "crc64",
    "d2c", "db2", "dec8", "des3", "e2e", "e2ee", "ean13", "ean8", "ec2", "ed25519", "es256", "es6", "exp2", "expm1", "ext4",
    "f2f", "face2face", "float32", "float4", "float64", "float8", "g2", "ga4", "gb18030", "gb2312", "gpt3", "gpt4", "h2", "h264",
    "h265", "h3", "hp8", "hs256", "html5", "http2", "http3", "i18n", "i386", "id3", "inet4", "inet6", "int1", "int16", "int2",
    "int24", "int3", "int32", "int4", "int64", "int8", "ip4", "ip6", "ipv4", "ipv6", "isbn10", "isbn13", "iso2", "iso3",
    "iso3166", "iso4217", "iso639", "iso8601", "iso9001", "jpeg2000", "json5", "k3s", "k8s", "keybcs2", "koi8", "koi8r", "koi8u",
    "l10n", "latin1", "latin2", "latin5", "latin7", "log10", "log1p", "log2", "log4j", "lz4", "m2m", "m365", "md2", "md4", "md5",
    "mp3", "mp4", "mpeg2", "mpeg4", "mqtt5", "murmur2", "murmur3", "mysql5", "mysql57", "mysql8", "mysql80", "n8n", "neo4j",
    "o2m", "o2o", "o365", "oauth1", "oauth2", "office365", "openid2", "p2p", "p50", "p75", "p90", "p95", "p99", "p999", "pbkdf2",
    "php5", "php7", "php8", "pkcs1", "pkcs11", "pkcs12", "pkcs7", "pkcs8", "pm10", "pm25", "python2", "python3", "q1", "q2", "q3",
    "q4", "r2", "rc4", "rs256", "rsa2048", "rsa4096", "s2s", "s3", "saml2", "sha1", "sha2", "sha224", "sha256", "sha3", "sha384",
    "sha512", "siphash24", "ssl3", "swe7", "tls1", "tls11", "tls12", "tls13", "top10", "top100", "top5", "ucs2", "ucs4", "utf16",
    "utf16le", "utf32", "utf7", "utf8", "utf8mb3", "utf8mb4", "uuid1", "uuid3", "uuid4", "uuid5", "uuid7", "w3c", "web2", "web3",
    "wifi6", "win10", "win11", "win32", "win64", "windows10", "windows11", "x11", "x25519", "x509", "x64", "x86", "xxh128", "xxh3",
    "xxh32", "xxh64", "xxhash32", "xxhash64", "y2k", "zip4", "zip5",
];

/// Words that belong to the number after them: `iso_3166`, `last_30`.
#[rustfmt::skip]
const NUMBERED: &[&str] = &[
    "aes", "area", "ascii", "atan", "base", "code", "covid", "cp", "crc", "ean", "error", "form", "fortune", "generation", "gpt",
    "gtin", "http", "int", "ip", "ipv", "isbn", "iso", "last", "latin", "level", "log", "md", "mysql", "naics", "next", "oauth",
    "office", "past", "pbkdf", "phase", "php", "priority", "python", "quarter", "rfc", "rsa", "sha", "sic", "ssl", "stage",
    "status", "step", "tier", "tls", "top", "type", "upc", "utf", "uuid", "version", "web", "win", "windows",
];

/// Words that belong to the digit they end in, such as `level3`; programs rarely number these.
#[rustfmt::skip]
const PERSONAL: &[&str] = &[
    "addr", "address", "answer", "dim", "email", "fax", "gen", "generation", "level", "line", "lvl", "mobile", "name", "option",
    "phase", "phone", "photo", "priority", "quarter", "question", "stage", "step", "street", "tel", "telephone", "tier", "type",
    "version", "zip",
];

/// Units that make the number before them a duration or an amount: `24h`, `30_days`.
#[rustfmt::skip]
const UNITS: &[&str] = &[
    "d", "day", "days", "g", "gb", "h", "hour", "hours", "hr", "hrs", "k", "kb", "kg", "km", "m", "mb", "min", "mins", "minute",
    "minutes", "mo", "mon", "month", "months", "ms", "mth", "px", "s", "sec", "second", "seconds", "secs", "tb", "w", "week",
    "weeks", "x", "y", "year", "years", "yr",
];

/// Appends the name with `?` for its generated parts. Returns false, and appends nothing, if it has none.
pub fn fold_name(name: &[u8], place: Place, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let is_cautious = place == Place::Column || place == Place::Alias && is_personal(name);
    let numbers = name.split(|byte| !byte.is_ascii_digit()).filter(|part| !part.is_empty()).count();
    // As in `id1_0_0_` and `col_0_0_`.
    let is_counted = numbers >= 2 && name.ends_with(b"_");
    let mut at = 0;
    let mut before: &[u8] = b"";
    while at < name.len() {
        let uuid = uuid_end(name, at);
        let end = uuid.unwrap_or_else(|| word_end(name, at));
        if end == at {
            out.push(name[at]);
            at += 1;
            continue;
        }
        let word = &name[at..end];
        let around = Around { before, after: next_word(&name[end..]), is_alone: is_alone(word, name) };
        if uuid.is_some() {
            put_mark(out, start);
        } else if !word.iter().any(u8::is_ascii_digit)
            || place != Place::Partition && around.keeps(word, place)
        {
            out.extend_from_slice(word);
        } else if is_hash(word) {
            put_mark(out, start);
        } else if is_cautious && !is_counted && !has_long_number(word) {
            out.extend_from_slice(word);
        } else {
            put_without_digits(word, out, start);
        }
        before = word;
        at = end;
    }
    if out[start..] == *name {
        out.truncate(start);
        return false;
    }
    true
}

/// The end of the run of letters and digits that begins here.
fn word_end(name: &[u8], at: usize) -> usize {
    let end = name[at..].iter().position(|byte| !byte.is_ascii_alphanumeric());
    end.map_or(name.len(), |length| at + length)
}

/// The letters and digits behind a separator.
fn next_word(rest: &[u8]) -> &[u8] {
    let start = rest.iter().position(u8::is_ascii_alphanumeric).unwrap_or(rest.len());
    &rest[start..word_end(rest, start)]
}

/// Whether the rest of the name is only `_`.
fn is_alone(word: &[u8], name: &[u8]) -> bool {
    word.len() == name.iter().filter(|byte| **byte != b'_').count()
}

fn is_in(list: &[&str], word: &[u8]) -> bool {
    list.iter().any(|known| word.eq_ignore_ascii_case(known.as_bytes()))
}

/// The neighbours of a word.
struct Around<'a> {
    before: &'a [u8],
    after: &'a [u8],
    is_alone: bool,
}

impl Around<'_> {
    /// Whether a person chose the digits of a word.
    fn keeps(&self, word: &[u8], place: Place) -> bool {
        let digits = word.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == word.len() {
            return self.keeps_number(digits);
        }
        // Alone, `s3` is a table's third alias.
        let is_short = word.len() <= 2 && self.is_alone && place != Place::Column;
        if !is_short && is_known(word) {
            return true;
        }
        let letters = word.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
        let (number, unit) = word.split_at(digits);
        let is_ordinal = digits > 0 && is_in(&["st", "nd", "rd", "th"], unit);
        let is_length = matches!(number.len(), 1..=3) && is_in(UNITS, unit) && !self.is_alone;
        let is_version = letters == 1
            && word[0].eq_ignore_ascii_case(&b'v')
            && word.len() <= 3
            && word[1..].iter().all(u8::is_ascii_digit)
            && !self.is_alone;
        let is_personal =
            word.len() == letters + 1 && is_in(PERSONAL, &word[..letters]) && place != Place::Alias;
        is_ordinal || is_length || is_version || is_personal
    }

    fn keeps_number(&self, digits: usize) -> bool {
        let is_amount = digits <= 3 && self.after.len() > 1 && is_in(UNITS, self.after);
        // `utf8mb4_0900_ai_ci`, `sha3_256`.
        let is_of_known = digits <= 4 && self.before.len() >= 4 && is_known(self.before);
        is_amount || digits <= 5 && is_in(NUMBERED, self.before) || is_of_known
    }
}

/// A known word, with or without other letters around it: `emailsha256`, `md5sum`.
fn is_known(word: &[u8]) -> bool {
    KNOWN.iter().any(|known| {
        let known = known.as_bytes();
        let Some(rest) = word.len().checked_sub(known.len()) else { return false };
        let is_at = |at: usize| word[at..at + known.len()].eq_ignore_ascii_case(known);
        let is_letters = |part: &[u8]| known.len() > 2 && part.iter().all(u8::is_ascii_alphabetic);
        is_at(0) && (rest == 0 || is_letters(&word[known.len()..]))
            || is_at(rest) && is_letters(&word[..rest])
    })
}

/// A word of at least four letters and one digit, such as `address1`. Generated numbers mostly follow shorter words.
fn is_personal(name: &[u8]) -> bool {
    let Some((last, rest)) = name.split_last() else { return false };
    let (rest, least) = rest.strip_suffix(b"_").map_or((rest, 4), |rest| (rest, 6));
    let letters = rest.iter().rev().take_while(|byte| byte.is_ascii_alphabetic()).count();
    last.is_ascii_digit() && letters >= least
}

/// Letters and digits that nobody would choose: hexadecimal digits, or several changes between letters and digits.
fn is_hash(word: &[u8]) -> bool {
    let digits = word.iter().filter(|byte| byte.is_ascii_digit()).count();
    let letters = word.len() - digits;
    let turns = word.windows(2).filter(|pair| pair[0].is_ascii_digit() != pair[1].is_ascii_digit()).count();
    let is_hex = word.iter().all(u8::is_ascii_hexdigit) && letters > 0;
    let is_long = word.len() >= 8 && digits > 2 && letters > 2 || word.len() >= 6 && word[0].is_ascii_digit();
    is_hex && (is_long || word.len() >= 4 && turns > 1) || turns >= 3 && word.len() >= 4
}

/// Three or more digits that are a word by themselves, or five or more inside one.
fn has_long_number(word: &[u8]) -> bool {
    let longest = word.split(|byte| !byte.is_ascii_digit()).map(<[u8]>::len).max().unwrap_or(0);
    longest >= 5 || longest >= 3 && longest == word.len()
}

/// Appends a `?`, unless only a separator would be between it and the last one.
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

/// The end of a UUID that begins here, with `-` or `_` between its parts.
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
mod tests;
