//! Words of fingerprints: in lower case, and what may follow them.

/// Appends ASCII in lower case.
#[inline(always)]
pub fn lower_onto(out: &mut Vec<u8>, text: &[u8], start: usize, end: usize) {
    let mut at = start;
    let length = out.len() + (end - start);
    out.reserve(end - start + 8);
    while at < end {
        if let Some(chunk) = text[at..].first_chunk::<8>() {
            out.extend_from_slice(&lower(u64::from_le_bytes(*chunk)).to_le_bytes());
        } else {
            out.extend(text[at..end].iter().map(u8::to_ascii_lowercase));
        }
        at += 8;
    }
    out.truncate(length);
}

/// Eight bytes at once.
#[inline(always)]
fn lower(bytes: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let low = bytes & (ONES * 0x7F);
    let above_z = low + ONES * (0x7F - b'Z' as u64);
    let from_a = low + ONES * (0x80 - b'A' as u64);
    let is_upper = !bytes & (from_a ^ above_z) & (ONES * 0x80);
    bytes | (is_upper >> 2)
}

pub fn ends_with_values(text: &[u8]) -> bool {
    let start = text.iter().rposition(|byte| !byte.is_ascii_alphanumeric()).map_or(0, |at| at + 1);
    matches!(&text[start..], b"values" | b"value")
}

/// Words that no operand is, so that a sign behind them belongs to what follows.
pub fn comes_before_operand(word: &[u8]) -> bool {
    comes_before_parenthesis(word)
        || matches!(
            word,
            b"return"
                | b"offset"
                | b"div"
                | b"mod"
                | b"case"
                | b"else"
                | b"escape"
                | b"separator"
                | b"default"
                | b"sounds"
                | b"distinct"
                | b"distinctrow"
                | b"to"
                | b"do"
                | b"sql_no_cache"
                | b"sql_calc_found_rows"
                | b"straight_join"
                | b"preceding"
                | b"rows"
                | b"range"
                | b"until"
                | b"if"
                | b"while"
        )
}

/// Words with a space between them and a parenthesis: no function is called so.
pub fn comes_before_parenthesis(word: &[u8]) -> bool {
    matches!(
        word,
        b"in"
            | b"values"
            | b"value"
            | b"and"
            | b"or"
            | b"not"
            | b"xor"
            | b"on"
            | b"by"
            | b"as"
            | b"is"
            | b"all"
            | b"any"
            | b"some"
            | b"set"
            | b"from"
            | b"join"
            | b"when"
            | b"then"
            | b"else"
            | b"like"
            | b"rlike"
            | b"regexp"
            | b"over"
            | b"where"
            | b"union"
            | b"using"
            | b"limit"
            | b"exists"
            | b"select"
            | b"having"
            | b"between"
            | b"interval"
            | b"except"
            | b"intersect"
            | b"with"
            | b"table"
            | b"into"
            | b"key"
            | b"index"
            | b"check"
            | b"returning"
    )
}
