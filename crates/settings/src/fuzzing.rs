//! What fuzzers drive: a journal and a history that may say anything. Compiled for `cargo fuzz` only.

use super::journal::{Content, Open};
use super::{history, keys, undo};

/// Both are read; nothing that they say is done.
///
/// # Panics
///
/// That is what it looks for; also where a journal without its torn end says something else.
pub fn journal(data: &[u8]) {
    if let Ok(content) = Content::parse(data) {
        content.check(data);
        content.open.iter().for_each(check);
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    for kept in history::parse(text).unwrap_or_default() {
        kept.entries.iter().for_each(check);
        let line = serde_json::to_string(&kept).expect("what was read can be written");
        assert_eq!(history::parse(&line).expect("what was written can be read"), [kept]);
    }
}

/// What is kept of an entry is the entry.
fn check(entry: &Open) {
    let _ = (keys::keys(&entry.undo), undo::subject(&entry.undo));
    let text = serde_json::to_string(entry).expect("what was read can be written");
    assert_eq!(serde_json::from_str::<Open>(&text).expect("what was written can be read"), *entry);
}
