use super::JsonRecords;
use crate::exports::bytes::Bytes;
use crate::exports::record::{Next, Record, Value};

type Fields = Vec<(String, Option<String>)>;

fn read(text: &[u8], wanted: &str) -> (Vec<Fields>, Vec<&'static str>) {
    // Small pieces, so that everything is cut somewhere.
    let mut records = JsonRecords::new(Bytes::with_buffer(text, 7), wanted.as_bytes());
    let (mut record, mut found, mut broken) = (Record::default(), Vec::new(), Vec::new());
    loop {
        match records.next(&mut record).unwrap() {
            Next::Record => found.push(fields(&record)),
            Next::Broken(why) => broken.push(why),
            Next::End => return (found, broken),
        }
    }
}

fn fields(record: &Record) -> Fields {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    record.iter().map(|(name, value)| (text(name), value.text().map(text))).collect()
}

fn paths(text: &str) -> Vec<String> {
    let mut records = JsonRecords::new(Bytes::new(text.as_bytes()), b"");
    records.paths(16).into_iter().map(|path| String::from_utf8(path).unwrap()).collect()
}

#[test]
fn records_are_found_by_their_path() {
    assert_eq!(paths(r#"{"events":[{"message":"a"}],"next":"f/1"}"#), ["", "events", "events[]"]);
    assert_eq!(paths(r#"[{"a":1},{"b":{"c":2}}]"#), ["", "[]", "[].b"]);
    assert_eq!(paths(r#"{"results":[[{"field":"a","value":"b"}]]}"#)[2..], ["results[]", "results[][]"]);
    let (found, broken) =
        read(br#"{"events":[{"message":"a","n":1},{"message":"b\n\"c","n":null}],"x":{"y":[]}}"#, "events[]");
    assert!(broken.is_empty(), "{broken:?}");
    let value = |name: &str, value: &str| (name.to_owned(), Some(value.to_owned()));
    assert_eq!(
        found,
        [
            vec![value("message", "a"), value("n", "1")],
            vec![value("message", "b\n\"c"), ("n".to_owned(), None)]
        ]
    );
    let text = br#"{"a":{"b":{"c":"d"}},"list":["first","second"],"of":[{"no":1}],"e":true} {"a":2}"#;
    let (found, _) = read(text, "");
    assert_eq!(
        found,
        [vec![value("a.b.c", "d"), value("list", "first"), value("e", "true")], vec![value("a", "2")]]
    );
    let (found, _) = read(
        br#"{"results":[[{"field":"@message","value":"m"},{"field":"@ptr","value":"p"}],[]],"status":"Complete"}"#,
        "results[]",
    );
    assert_eq!(found, [vec![value("@message", "m"), value("@ptr", "p")], vec![]]);
}

#[test]
fn escapes() {
    let (found, _) = read(br#"{"a":"\u00e9\ud83d\ude00\/\t\ud83dx\udc00"}"#, "");
    assert_eq!(found[0][0].1.as_deref(), Some("\u{e9}\u{1f600}/\t\u{fffd}x\u{fffd}"));
}

#[test]
fn a_broken_line_costs_itself() {
    let text = b"{\"a\":1}\n{\"a\":\"cut\n{\"a\":2}\nno JSON\n{\"a\" 3}\n{\"a\":4}}\n{\"a\":5}\n";
    let (found, broken) = read(text, "");
    let values: Vec<_> = found.iter().map(|fields| fields[0].1.clone().unwrap()).collect();
    assert_eq!(values, ["1", "2", "4", "5"]);
    assert_eq!(broken.len(), 4, "{broken:?}");
}

#[test]
fn a_text_that_ends_anywhere_gives_no_record_that_was_not_whole() {
    let text = br#"[{"a":"x\u00e9","b":{"c":12}},{"a":"y","b":{"c":3}}]"#;
    let whole = read(text, "[]").0;
    for end in 0..text.len() {
        let (found, broken) = read(&text[..end], "[]");
        assert!(whole.starts_with(&found), "{end}");
        assert_eq!(broken.is_empty(), end == 0, "{end}: the end is said");
    }
}

#[test]
fn depth_and_length_are_bounded() {
    let deep = format!("{{\"a\":1,\"b\":{}1{}}}", "[{\"x\":".repeat(100_000), "}]".repeat(100_000));
    let (found, broken) = read(deep.as_bytes(), "");
    assert_eq!((found.len(), found[0].len(), broken.len()), (1, 1, 0));
    let open = "[".repeat(100_000);
    assert_eq!(read(open.as_bytes(), "[]").0.len(), 0);
    let objects = "{\"a\":".repeat(100_000);
    assert_eq!(read(objects.as_bytes(), "").0.len(), 0);
    let long = format!("{{\"a\":\"{}\",\"n\":1e999,\"m\":{}}}", "x".repeat(17 << 20), "9".repeat(100));
    let mut records = JsonRecords::new(Bytes::new(long.as_bytes()), b"");
    let mut record = Record::default();
    // A number of a hundred digits is none.
    assert!(matches!(records.next(&mut record).unwrap(), Next::Broken(_)));
    assert!(record.is_cut && record.text(&["a"]).unwrap().len() <= 16 << 20);
    assert_eq!(record.get(&["n"]), Some(Value::Text(b"1e999")));
}
