//! JSON for people: indented, but what fits on a line stays on it.

use std::fmt::Write;

use serde_json::Value;

const LINE_CHARS: usize = 110;

pub fn pretty(value: &Value) -> String {
    let mut text = String::new();
    write_value(value, 0, 0, &mut text);
    text.push('\n');
    text
}

/// `used`: how much of the line is already used, in addition to the indentation.
fn write_value(value: &Value, depth: usize, used: usize, out: &mut String) {
    let flat = value.to_string();
    let is_long = 2 * depth + used + flat.len() > LINE_CHARS;
    let pad = "  ".repeat(depth);
    match value {
        // A row of numbers or words reads better on one line, however long, than down the page.
        Value::Array(items) if is_long && items.iter().any(|item| item.is_object() || item.is_array()) => {
            out.push_str("[\n");
            for (at, item) in items.iter().enumerate() {
                let _ = write!(out, "{pad}  ");
                write_value(item, depth + 1, 1, out);
                out.push_str(if at + 1 < items.len() { ",\n" } else { "\n" });
            }
            let _ = write!(out, "{pad}]");
        }
        Value::Object(entries) if !entries.is_empty() && (is_long || depth == 0) => {
            out.push_str("{\n");
            for (at, (key, item)) in entries.iter().enumerate() {
                let key = Value::from(key.as_str()).to_string();
                let _ = write!(out, "{pad}  {key}: ");
                write_value(item, depth + 1, key.len() + 3, out);
                out.push_str(if at + 1 < entries.len() { ",\n" } else { "\n" });
            }
            let _ = write!(out, "{pad}}}");
        }
        _ => out.push_str(&flat),
    }
}

#[cfg(test)]
mod tests {
    use super::pretty;
    use serde_json::{Value, json};

    #[test]
    fn short_values_stay_on_one_line_and_the_text_means_the_same() {
        let value = json!({
            "cpus": (0..64).collect::<Vec<_>>(),
            "list": [{"name": "a".repeat(60), "text": "b\"\n".repeat(20)}, {"name": "short"}],
            "empty": {}, "none": null,
        });
        let text = pretty(&value);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        assert!(text.contains("  \"cpus\":"));
        assert!(text.contains("\n    {\"name\":\"short\"}\n"));
    }
}
