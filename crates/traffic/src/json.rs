//! An event as one JSON object: the same whatever prints it. What a source does not know is null.

use std::fmt::Write as _;

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::digest::group::command_name;
use super::event::{Event, Outcome};
use super::measures::Measure;

/// The event with the text that is shown of its statement. Bytes that are no UTF-8 are replaced.
pub struct Object<'a> {
    pub event: &'a Event<'a>,
    pub text: &'a [u8],
}

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Object { event, text } = *self;
        let (outcome, errno) = match event.outcome {
            Outcome::Unknown => ("unknown", None),
            Outcome::Ok => ("ok", None),
            Outcome::Error(errno) => ("error", Some(errno)),
            Outcome::Unanswered => ("unanswered", None),
        };
        let [user, host, database, text] =
            [event.user, event.host, event.database, text].map(String::from_utf8_lossy);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("start_ns", &event.start_ns)?;
        map.serialize_entry("response_ns", &event.response_ns)?;
        map.serialize_entry("first_byte_ns", &event.first_byte_ns)?;
        map.serialize_entry("session", &event.session)?;
        map.serialize_entry("connection", &event.connection)?;
        map.serialize_entry("user", &user)?;
        map.serialize_entry("host", &host)?;
        map.serialize_entry("database", &database)?;
        map.serialize_entry("command", &command_name(event.command))?;
        map.serialize_entry("outcome", outcome)?;
        map.serialize_entry("errno", &errno)?;
        map.serialize_entry("text", &text)?;
        map.serialize_entry("text_bytes", &event.text.len())?;
        map.serialize_entry("is_cut", &event.is_cut)?;
        map.serialize_entry("statement", &event.statement)?;
        map.serialize_entry("parameters", &hex(event.parameters))?;
        map.serialize_entry("parameter_count", &event.parameter_count)?;
        for measure in Measure::ALL {
            map.serialize_entry(measure.name(), &event.measures.get(measure))?;
        }
        map.serialize_entry("checksum", &event.checksum)?;
        map.end()
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
