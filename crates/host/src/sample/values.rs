//! The JSON of one sample, written by hand into a reused buffer: a tick has thousands of numbers and no tree.

use std::collections::HashMap;
use std::io::Write;

use super::changes;

/// Collects `metric -> label -> number` of one sampler. A metric that gets no value is left out.
///
/// The values of one metric must be added together: JSON objects cannot be opened twice.
#[derive(Default)]
pub struct Values {
    text: Vec<u8>,
    metric: Vec<u8>,
    is_open: bool,
    /// The text of each sampler's last line, if lines of changes are written.
    last: Option<HashMap<&'static str, Vec<u8>>>,
}

impl Values {
    /// Each sampler's first line has all values, and so has a line whose series differ from the last one's. All others
    /// have `changed` instead, with the values that differ.
    pub fn of_changes() -> Self {
        Self { last: Some(HashMap::new()), ..Self::default() }
    }

    /// Starts a metric: the values that follow are its.
    pub fn metric(&mut self, name: &str) {
        if self.is_open {
            self.text.push(b'}');
            self.is_open = false;
        }
        self.metric.clear();
        write_string(&mut self.metric, name);
    }

    pub fn value(&mut self, label: &str, number: u64) {
        self.number_text(label, itoa::Buffer::new().format(number));
    }

    /// A number in JSON's notation, copied unchanged: a 64-bit float would lose digits of a counter.
    pub fn number_text(&mut self, label: &str, number: &str) {
        if self.is_open {
            self.text.push(b',');
        } else {
            if !self.text.is_empty() {
                self.text.push(b',');
            }
            self.text.extend_from_slice(&self.metric);
            self.text.extend_from_slice(b":{");
            self.is_open = true;
        }
        write_string(&mut self.text, label);
        self.text.push(b':');
        self.text.extend_from_slice(number.as_bytes());
    }

    /// A metric with one value.
    pub fn single(&mut self, name: &str, number: u64) {
        self.metric(name);
        self.value("", number);
    }

    /// One metric per column. A row may be shorter than `names`: kernels append columns over the years, and missing
    /// counters are left out, never zero.
    pub fn table<'a, L, N>(&mut self, names: &[&str], rows: &'a [(L, N)])
    where
        L: AsRef<str> + 'a,
        N: AsRef<[u64]> + 'a,
    {
        for (column, name) in names.iter().enumerate() {
            self.metric(name);
            for (label, numbers) in rows {
                if let Some(number) = numbers.as_ref().get(column) {
                    self.value(label.as_ref(), *number);
                }
            }
        }
    }

    /// Appends the line of a sample that succeeded and makes room for the next.
    pub fn write_line(&mut self, line: &mut Vec<u8>, sampler: &'static str, time_ns: u64, cost_ns: u64) {
        if self.is_open {
            self.text.push(b'}');
        }
        write!(line, r#"{{"t_ns":{time_ns},"sampler":"{sampler}","ok":true,"cost_ns":{cost_ns},"#)
            .expect("memory");
        self.write_values(line, sampler);
        line.extend_from_slice(b"}}\n");
        self.clear();
    }

    fn write_values(&mut self, line: &mut Vec<u8>, sampler: &'static str) {
        let start = line.len();
        if let Some(all) = &mut self.last {
            line.extend_from_slice(br#""changed":{"#);
            let known = all.get_mut(sampler);
            let is_written = known.as_deref().is_some_and(|last| changes::append(last, &self.text, line));
            match known {
                Some(last) => std::mem::swap(last, &mut self.text),
                None => drop(all.insert(sampler, std::mem::take(&mut self.text))),
            }
            if is_written {
                return;
            }
            line.truncate(start);
        }
        line.extend_from_slice(br#""values":{"#);
        line.extend_from_slice(self.last.as_ref().map_or(&self.text, |all| &all[sampler]));
    }

    /// Drops everything: a sampler that failed half-way must not leave some of its values.
    pub fn clear(&mut self) {
        self.text.clear();
        self.is_open = false;
    }
}

/// Appends the line of a sample that failed.
pub fn write_failure(line: &mut Vec<u8>, sampler: &str, time_ns: u64, cost_ns: u64, error: &str) {
    write!(line, r#"{{"t_ns":{time_ns},"sampler":"{sampler}","ok":false,"cost_ns":{cost_ns},"error":"#)
        .expect("memory");
    write_string(line, error);
    line.extend_from_slice(b"}\n");
}

fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    if text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
        out.extend_from_slice(text.as_bytes());
    } else {
        for character in text.chars() {
            match character {
                '"' | '\\' => write!(out, "\\{character}"),
                '\0'..='\x1f' => write!(out, "\\u{:04x}", u32::from(character)),
                _ => write!(out, "{character}"),
            }
            .expect("memory");
        }
    }
    out.push(b'"');
}

/// Whether a text is a number as JSON writes it, so that it may be copied into JSON unchanged.
pub fn is_json_number(text: &[u8]) -> bool {
    fn digits(text: &[u8]) -> Option<&[u8]> {
        let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        (count > 0).then(|| &text[count..])
    }
    let unsigned = text.strip_prefix(b"-").unwrap_or(text);
    if unsigned.len() > 1 && unsigned[0] == b'0' && unsigned[1].is_ascii_digit() {
        return false;
    }
    let Some(mut rest) = digits(unsigned) else { return false };
    if let Some(fraction) = rest.strip_prefix(b".") {
        let Some(after) = digits(fraction) else { return false };
        rest = after;
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        let exponent = exponent.strip_prefix(b"+").or(exponent.strip_prefix(b"-")).unwrap_or(exponent);
        // Well written but too large, as 1e310, it would be read as infinity.
        let is_finite = str::from_utf8(text).is_ok_and(|t| t.parse().is_ok_and(f64::is_finite));
        return is_finite && digits(exponent).is_some_and(<[u8]>::is_empty);
    }
    rest.is_empty()
}

/// The values of a sampler as JSON, for the tests of parsers.
#[cfg(test)]
pub fn collect(write: impl FnOnce(&mut Values)) -> serde_json::Value {
    let mut values = Values::default();
    write(&mut values);
    let mut line = Vec::new();
    values.write_line(&mut line, "test", 1, 2);
    let mut record: serde_json::Value = serde_json::from_slice(&line).expect("one line of JSON");
    record["values"].take()
}

#[cfg(test)]
mod tests {
    use super::{Values, collect, is_json_number, write_failure};
    use proptest::prelude::{any, prop_assert_eq, proptest};
    use serde_json::json;

    #[test]
    fn values_are_nested_by_metric_and_label() {
        let values = collect(|values| {
            values.metric("empty");
            values.metric("user");
            values.value("cpu0", 1);
            values.value("all", u64::MAX);
            values.single("ctxt", 7);
            values.table(&["a", "b"], &[("x", vec![1, 2]), ("y", vec![3])]);
        });
        assert_eq!(
            values,
            json!({"user": {"cpu0": 1, "all": u64::MAX}, "ctxt": {"": 7}, "a": {"x": 1, "y": 3}, "b": {"x": 2}})
        );
    }

    #[test]
    fn a_cleared_sample_leaves_nothing_behind() {
        let mut values = Values::default();
        values.single("half", 1);
        values.clear();
        let mut line = Vec::new();
        values.write_line(&mut line, "cpu", 5, 6);
        assert_eq!(line, b"{\"t_ns\":5,\"sampler\":\"cpu\",\"ok\":true,\"cost_ns\":6,\"values\":{}}\n");
    }

    #[test]
    fn a_number_that_would_be_infinite_is_none() {
        assert!(!is_json_number(b"1e310") && !is_json_number(b"-1E+400"));
        assert!(is_json_number(b"1e308") && is_json_number(b"1.5e-400"));
    }

    proptest! {
        #[test]
        fn any_label_survives(label in any::<String>()) {
            let values = collect(|values| { values.metric("m"); values.value(&label, 1) });
            prop_assert_eq!(&values["m"][&label], &json!(1));
            let mut line = Vec::new();
            write_failure(&mut line, "psi", 1, 2, &label);
            let record: serde_json::Value = serde_json::from_slice(&line).unwrap();
            prop_assert_eq!(&record["error"], &json!(label));
        }

        #[test]
        fn what_passes_as_a_number_is_one(text in "-?[0-9eE.+-]{0,8}") {
            prop_assert_eq!(
                is_json_number(text.as_bytes()), serde_json::from_str::<serde_json::Number>(&text).is_ok(), "{}", text
            );
        }
    }
}
