//! The values of a sampler that changed since its last line. Within a second most counters of a host do not change, so
//! such a line is a fraction of a whole one: less traffic, and less CPU for whoever follows many hosts.

/// Appends the values of `now` that differ from those of `last`. If the two do not have the same series in the same
/// order, it appends nothing and returns false. Both are what `Values` writes between a line's inner braces:
/// `"metric":{"label":7},...`.
pub fn append(last: &[u8], now: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let is_same_series = compare(last, now, out).is_some();
    if !is_same_series {
        out.truncate(start);
    }
    is_same_series
}

fn compare(mut last: &[u8], mut now: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut is_first = true;
    while !now.is_empty() {
        let count = name_len(now)? + b":{".len();
        let metric = take_same(&mut last, &mut now, count)?;
        let mut is_open = false;
        loop {
            let count = name_len(now)? + b":".len();
            let label = take_same(&mut last, &mut now, count)?;
            let (old, new) = (take_number(&mut last), take_number(&mut now));
            if old != new {
                if is_open || !is_first {
                    out.push(b',');
                }
                if !is_open {
                    out.extend_from_slice(metric);
                }
                (is_open, is_first) = (true, false);
                out.extend_from_slice(label);
                out.extend_from_slice(new);
            }
            if take_same(&mut last, &mut now, 1)? == b"}" {
                break;
            }
        }
        if is_open {
            out.push(b'}');
        }
        if !now.is_empty() {
            take_same(&mut last, &mut now, b",".len())?;
        }
    }
    last.is_empty().then_some(())
}

/// The next bytes, if both have the same.
fn take_same<'a>(last: &mut &[u8], now: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (found, rest) = now.split_at_checked(count)?;
    *last = last.strip_prefix(found)?;
    *now = rest;
    Some(found)
}

/// Of a JSON string, with its quotes.
fn name_len(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

fn take_number<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let count = text.iter().take_while(|byte| !matches!(byte, b',' | b'}')).count();
    let (number, rest) = text.split_at(count);
    *text = rest;
    number
}

#[cfg(test)]
mod tests {
    use super::append;
    use crate::sample::values::Values;
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    /// Short names of what a parser may trip over.
    const NAME: &str = "[ab\",:{}\\\\\n]{0,3}";

    type Metrics = BTreeMap<String, BTreeMap<String, u64>>;

    fn written(values: &mut Values, metrics: &Metrics) -> Value {
        for (metric, labels) in metrics {
            values.metric(metric);
            for (label, number) in labels {
                values.value(label, *number);
            }
        }
        let mut line = Vec::new();
        values.write_line(&mut line, "x", 1, 2);
        serde_json::from_slice(&line).expect("one line of JSON")
    }

    fn metrics(text: Value) -> Metrics {
        serde_json::from_value(text).expect("metric -> label -> number")
    }

    #[test]
    fn only_what_changed_is_written() {
        let mut values = Values::of_changes();
        let mut now = metrics(json!({"a": {"x": 1, "y\"\\,}": 2}, "b": {"": 3}, "c": {"x": 4, "z": 5}}));
        assert_eq!(written(&mut values, &now)["values"], json!(now));
        assert_eq!(written(&mut values, &now)["changed"], json!({}));
        now.get_mut("a").unwrap().insert("y\"\\,}".to_owned(), 22);
        now.get_mut("c").unwrap().extend([("x".to_owned(), 6), ("z".to_owned(), 7)]);
        let line = written(&mut values, &now);
        assert_eq!(line["changed"], json!({"a": {"y\"\\,}": 22}, "c": {"x": 6, "z": 7}}));
        assert_eq!(line["values"], Value::Null);
        // A new series: the line is whole again.
        now.get_mut("b").unwrap().insert("new".to_owned(), 0);
        assert_eq!(written(&mut values, &now)["values"], json!(now));
        now.remove("c");
        assert_eq!(written(&mut values, &now)["values"], json!(now));
        now.clear();
        assert_eq!(written(&mut values, &now)["values"], json!({}));
    }

    #[test]
    fn a_sample_that_failed_is_not_compared() {
        let mut values = Values::of_changes();
        let now = metrics(json!({"a": {"x": 1}}));
        written(&mut values, &now);
        values.single("a", 7);
        values.clear();
        assert_eq!(written(&mut values, &now)["changed"], json!({}));
    }

    proptest! {
        #[test]
        fn changes_on_top_of_the_last_line_are_the_next(
            first in btree_map(NAME, btree_map(NAME, any::<u64>(), 1..4), 0..4),
            shares in vec(any::<bool>(), 9),
        ) {
            let mut values = Values::of_changes();
            written(&mut values, &first);
            let mut next = first.clone();
            let all = next.values_mut().flat_map(BTreeMap::values_mut);
            for (number, is_other) in all.zip(shares) {
                *number = number.wrapping_add(u64::from(is_other));
            }
            let mut merged = first;
            for (metric, labels) in metrics(written(&mut values, &next)["changed"].take()) {
                merged.get_mut(&metric).unwrap().extend(labels);
            }
            prop_assert_eq!(merged, next);
        }

        #[test]
        fn any_two_texts_end(last in "[\",:{}0-9a\\\\]{0,40}", now in "[\",:{}0-9a\\\\]{0,40}") {
            let mut out = b"before".to_vec();
            prop_assert!(append(last.as_bytes(), now.as_bytes(), &mut out) || out == b"before");
        }
    }
}
