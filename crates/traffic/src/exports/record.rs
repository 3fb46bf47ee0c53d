//! One record of an export: a row of a table, or one object of JSON with the paths of its values as names.

use crate::slow_log::MAX_EVENT_BYTES;

/// Values of one record are kept up to this size together: a statement as long as a log may have, and what is around it.
const MOST_BYTES: usize = MAX_EVENT_BYTES + (1 << 20);
/// Fields beyond are not kept. `performance_schema` has 39 columns, a document of a log shipper some dozens.
const MOST_FIELDS: usize = 512;

/// A value as it was written, without its quotes and escapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'r> {
    Null,
    /// Text, a number or a boolean: tables have no types, and JSON's numbers are kept as they were written.
    Text(&'r [u8]),
}

impl<'r> Value<'r> {
    /// The text; `None` where there is none.
    pub(super) fn text(self) -> Option<&'r [u8]> {
        match self {
            Value::Null => None,
            Value::Text(text) => Some(text),
        }
    }
}

/// What the next record is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It is whole.
    Record,
    /// What was read of it is no JSON; reading goes on behind it.
    Broken(&'static str),
    End,
}

/// Names and values in one buffer, which is used again for the next record.
#[derive(Debug, Default)]
pub(super) struct Record {
    bytes: Vec<u8>,
    fields: Vec<Field>,
    /// Something of it found no room.
    pub(super) is_cut: bool,
}

#[derive(Clone, Copy, Debug)]
struct Field {
    name: (usize, usize),
    value: Option<(usize, usize)>,
}

impl Record {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        // One huge record must not cost its memory for ever.
        self.bytes.shrink_to(1 << 20);
        self.fields.clear();
        self.is_cut = false;
    }

    pub(super) fn push(&mut self, name: &[u8], value: Value<'_>) {
        let text = value.text().unwrap_or_default();
        let room = MOST_BYTES.saturating_sub(self.bytes.len() + name.len());
        if self.fields.len() >= MOST_FIELDS || room == 0 {
            self.is_cut = true;
            return;
        }
        self.is_cut |= text.len() > room;
        let name = self.keep(name);
        let value = value.text().map(|text| self.keep(&text[..text.len().min(room)]));
        self.fields.push(Field { name, value });
    }

    fn keep(&mut self, part: &[u8]) -> (usize, usize) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(part);
        (from, self.bytes.len())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], Value<'_>)> {
        let part = |(from, to): (usize, usize)| &self.bytes[from..to];
        self.fields.iter().map(move |field| {
            (part(field.name), field.value.map_or(Value::Null, |value| Value::Text(part(value))))
        })
    }

    /// The value of the first field that one of the names names; see [`is_named`].
    pub(super) fn get(&self, names: &[&str]) -> Option<Value<'_>> {
        names
            .iter()
            .find_map(|wanted| self.iter().find(|(name, _)| is_named(name, wanted)).map(|(_, value)| value))
    }

    /// The same where it is text that is not empty.
    pub(super) fn text(&self, names: &[&str]) -> Option<&[u8]> {
        self.get(names)?.text().filter(|text| !text.is_empty())
    }

    pub(super) fn has(&self, names: &[&str]) -> bool {
        self.get(names).is_some()
    }
}

/// Text of a stranger in a sentence: no control characters, and not long.
pub(super) fn shown(text: &[u8], characters: usize) -> String {
    let cut = &text[..text.len().min(characters * 4)];
    let whole = String::from_utf8_lossy(cut);
    whole.chars().take(characters).map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// What wraps a document around a record: Azure's and GCP's properties, Elasticsearch's source, Splunk's result.
const WRAPPERS: [&[u8]; 6] =
    [b"properties.", b"_source.", b"result.", b"jsonpayload.", b"dimensions.", b"fields."];

/// Whether a field has this name (lower case), in any case, with any wrapper in front, and with the suffix of its type
/// that Azure's Log Analytics adds (`_s` text, `_d` number, `_t` time, `_b`, `_g`).
pub(super) fn is_named(name: &[u8], wanted: &str) -> bool {
    let wanted = wanted.as_bytes();
    let mut rest = argument(name);
    loop {
        if is_plainly(rest, wanted) {
            return true;
        }
        let wrapper = WRAPPERS.iter().find(|wrapper| {
            rest.len() > wrapper.len() && rest[..wrapper.len()].eq_ignore_ascii_case(wrapper)
        });
        match wrapper {
            Some(wrapper) => rest = &rest[wrapper.len()..],
            None => return false,
        }
    }
}

/// Functions whose result is the value of their first argument, in another form.
const FORMS: [&[u8]; 6] = [b"convert", b"cast", b"time_to_sec", b"ifnull", b"coalesce", b"trim"];

/// The column in `CONVERT(t.sql_text USING utf8mb4)`, which names the result where no other name was given; any other name
/// as it is.
pub(super) fn argument(name: &[u8]) -> &[u8] {
    let mut rest = name;
    while let Some(open) = rest.iter().position(|byte| *byte == b'(').filter(|_| name.ends_with(b")")) {
        if !FORMS.iter().any(|form| rest[..open].trim_ascii().eq_ignore_ascii_case(form)) {
            return name;
        }
        rest = rest[open + 1..].trim_ascii_start();
        let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'`');
        let end = rest.iter().position(|byte| !is_of_name(byte)).unwrap_or(rest.len());
        if rest.get(end) != Some(&b'(') {
            let column = &rest[..end];
            let column = &column[column.iter().rposition(|byte| *byte == b'.').map_or(0, |dot| dot + 1)..];
            return column.strip_prefix(b"`").and_then(|inner| inner.strip_suffix(b"`")).unwrap_or(column);
        }
    }
    name
}

fn is_plainly(name: &[u8], wanted: &[u8]) -> bool {
    if name.eq_ignore_ascii_case(wanted) {
        return true;
    }
    name.len() == wanted.len() + 2
        && name[wanted.len()] == b'_'
        && matches!(name[wanted.len() + 1], b's' | b'd' | b't' | b'b' | b'g')
        && name[..wanted.len()].eq_ignore_ascii_case(wanted)
}

#[cfg(test)]
mod tests {
    use super::{MOST_BYTES, MOST_FIELDS, Record, Value, is_named};

    #[test]
    fn names_in_every_wrapping() {
        for name in
            ["query_time", "QUERY_TIME", "query_time_d", "properties.query_time_d", "_source.query_time"]
        {
            assert!(is_named(name.as_bytes(), "query_time"), "{name}");
        }
        for name in [
            "CONVERT(query_time USING utf8mb4)",
            "time_to_sec(l.`query_time`)",
            "TRIM(cast(query_time as CHAR(9)))",
        ] {
            assert!(is_named(name.as_bytes(), "query_time"), "{name}");
        }
        for name in [
            "MAX(query_time)",
            "cast(max(query_time) as char)",
            "query_times",
            "query_time_x",
            "my.query_time",
            "properties.",
            "",
        ] {
            assert!(!is_named(name.as_bytes(), "query_time"), "{name}");
        }
    }

    #[test]
    fn a_record_has_bounds() {
        let mut record = Record::default();
        for number in 0..2 * MOST_FIELDS {
            record.push(number.to_string().as_bytes(), Value::Null);
        }
        assert_eq!((record.fields.len(), record.is_cut), (MOST_FIELDS, true));
        record.clear();
        record.push(b"a", Value::Text(&vec![b'x'; 2 * MOST_BYTES]));
        assert!(record.is_cut && record.text(&["a"]).unwrap().len() < MOST_BYTES);
    }
}
