//! What a statement is: its operation, its class, and whether it only reads.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

use crate::numbers::Numbers;
use sql::{self, Ending, Mode, Varying};

/// Operations of a replay: what has a latency of its own in the lines.
pub const OPERATIONS: [&str; 15] = [
    "select", "insert", "update", "delete", "replace", "call", "set", "begin", "commit", "rollback", "show",
    "ddl", "other", "prepare", "session",
];
const COMMIT: u16 = 8;
const ROLLBACK: u16 = 9;
pub const OTHER: u16 = 12;
pub const PREPARE: u16 = 13;
/// What is not a statement: ping, reset, change of the database.
pub const SESSION: u16 = 14;

/// Classes with numbers of their own; whatever is seen later is one class together.
const MAX_CLASSES: usize = 1_000;
/// Number of the class of all others.
pub const REST: u32 = 0;
/// Of what is not a statement.
pub const NONE: u32 = u32::MAX;
/// Texts that are remembered, and how long they may be: what is executed again and again is looked at once.
const MAX_TEXTS: usize = 1 << 16;
const MAX_TEXT: usize = 4 << 10;

/// What is known of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    pub operation: u16,
    pub class: u32,
    pub is_read_only: bool,
    /// What it ends beyond its session.
    pub ending: Option<Ending>,
    /// It has variables; it may leave the text of a KILL in one; it runs a text that is not in it.
    pub has_variables: bool,
    pub mentions_kill: bool,
    pub runs_other_text: bool,
    pub has_placeholders: bool,
    /// Whether others wait for it, and it for others, where the order of commits is kept.
    pub is_ordered: bool,
    /// It names a database whose sessions are played in another one.
    pub names_mapped: bool,
}

/// The name of a class.
#[derive(Clone, Debug)]
pub struct Class {
    pub id: String,
    pub fingerprint: Vec<u8>,
    /// Why its answers differ from server to server, or from one moment to the next.
    pub varying: Option<Varying>,
}

pub struct Classifier {
    texts: Numbers<u64, Known>,
    numbers: HashMap<Vec<u8>, u32>,
    classes: Vec<Class>,
    fingerprint: Vec<u8>,
    /// Recorded names of databases that have another one here.
    mapped: Vec<Vec<u8>>,
}

impl Classifier {
    pub fn new(mapped: Vec<Vec<u8>>) -> Self {
        let rest =
            Class { id: "others".to_owned(), fingerprint: b"(all other classes)".to_vec(), varying: None };
        Self {
            texts: Numbers::default(),
            numbers: HashMap::new(),
            classes: vec![rest],
            fingerprint: Vec::new(),
            mapped,
        }
    }

    pub fn know(&mut self, text: &[u8]) -> Known {
        if text.len() > MAX_TEXT {
            return self.look_at(text);
        }
        let hash = xxh3_64(text);
        if let Some(known) = self.texts.get(&hash) {
            return *known;
        }
        if self.texts.len() == MAX_TEXTS {
            self.texts.clear();
        }
        let known = self.look_at(text);
        self.texts.insert(hash, known);
        known
    }

    fn look_at(&mut self, text: &[u8]) -> Known {
        sql::fingerprint(Mode::Strict, text, false, &mut self.fingerprint);
        let class = match self.numbers.get(&self.fingerprint) {
            Some(class) => *class,
            None if self.classes.len() > MAX_CLASSES => REST,
            None => {
                let class = self.classes.len() as u32;
                let id = sql::class_id(Mode::Strict, &self.fingerprint);
                let varying = sql::varying(&self.fingerprint);
                self.classes.push(Class { id, fingerprint: self.fingerprint.clone(), varying });
                self.numbers.insert(self.fingerprint.clone(), class);
                class
            }
        };
        let operation = operation_of(sql::verb(text));
        let is_read_only = sql::is_read_only(text);
        let is_ordered = !is_read_only || matches!(operation, COMMIT | ROLLBACK);
        let has_variables = memchr::memchr(b'@', text).is_some();
        let may_have_placeholders = memchr::memchr(b'?', text).is_some();
        Known {
            operation,
            class,
            is_read_only,
            is_ordered,
            ending: sql::ending(text),
            has_variables,
            mentions_kill: has_variables && sql::mentions_kill(text),
            runs_other_text: sql::runs_other_text(text),
            names_mapped: !self.mapped.is_empty() && names_database(text, &self.mapped),
            has_placeholders: may_have_placeholders && !sql::kept_placeholders(text).is_empty(),
        }
    }

    /// The classes by their numbers.
    pub fn into_classes(self) -> Vec<Class> {
        self.classes
    }
}

/// Whether a statement names one of these databases itself: of a table, of a procedure that it calls, or as what it makes
/// or drops. Functions are not looked for.
fn names_database(text: &[u8], databases: &[Vec<u8>]) -> bool {
    let is_named = |name: &[u8]| databases.iter().any(|database| database.eq_ignore_ascii_case(name));
    let is_qualifier = |name: &Vec<u8>| memchr::memchr_iter(b'.', name).any(|dot| is_named(&name[..dot]));
    if sql::tables(text).iter().any(is_qualifier) {
        return true;
    }
    let ends = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'`' | b'"' | b'.' | b'(' | b';');
    let mut words = text.split(ends).filter(|word| !word.is_empty());
    match sql::verb(text).as_ref().to_ascii_lowercase().as_slice() {
        b"create" | b"alter" | b"drop" => {
            let kind = words.nth(1).unwrap_or_default();
            let is_database = kind.eq_ignore_ascii_case(b"database") || kind.eq_ignore_ascii_case(b"schema");
            is_database && words.any(is_named)
        }
        b"call" => words.nth(1).is_some_and(is_named),
        _ => false,
    }
}

fn operation_of(verb: impl AsRef<[u8]>) -> u16 {
    let verb = verb.as_ref().to_ascii_lowercase();
    let name = match &verb[..] {
        b"with" | b"table" | b"values" => "select",
        b"start" => "begin",
        b"desc" | b"describe" | b"explain" => "show",
        b"create" | b"alter" | b"drop" | b"truncate" | b"rename" => "ddl",
        other => std::str::from_utf8(other).unwrap_or("other"),
    };
    let statements = &OPERATIONS[..usize::from(OTHER)];
    statements.iter().position(|operation| *operation == name).map_or(OTHER, |place| place as u16)
}

#[cfg(test)]
mod tests {
    use super::{COMMIT, Classifier, MAX_CLASSES, OPERATIONS, OTHER, PREPARE, REST, ROLLBACK, SESSION};

    #[test]
    fn operations_have_their_names() {
        assert_eq!(OPERATIONS[usize::from(COMMIT)], "commit");
        assert_eq!(OPERATIONS[usize::from(ROLLBACK)], "rollback");
        assert_eq!(OPERATIONS[usize::from(OTHER)], "other");
        assert_eq!(OPERATIONS[usize::from(PREPARE)], "prepare");
        assert_eq!(OPERATIONS[usize::from(SESSION)], "session");
    }

    #[test]
    fn statements_are_known_by_what_they_do() {
        let mut classifier = Classifier::new(Vec::new());
        for (text, operation, reads) in [
            ("SELECT 1", "select", true),
            ("WITH a AS (SELECT 1) SELECT * FROM a", "select", true),
            ("insert into t values (1)", "insert", false),
            ("COMMIT", "commit", true),
            ("ALTER TABLE t ADD a INT", "ddl", false),
            ("LOCK TABLES t READ", "other", false),
        ] {
            let known = classifier.know(text.as_bytes());
            assert_eq!(OPERATIONS[usize::from(known.operation)], operation, "{text}");
            assert_eq!(known.is_read_only, reads, "{text}");
            assert_eq!(known.is_ordered, !reads || text == "COMMIT", "{text}");
        }
        let one = classifier.know(b"SELECT a FROM t WHERE b = 1");
        assert_eq!(one, classifier.know(b"SELECT a FROM t WHERE b = 2"));
        assert_ne!(one.class, classifier.know(b"SELECT a FROM u WHERE b = 2").class);
    }

    #[test]
    fn statements_that_name_a_mapped_database_are_known() {
        let mut classifier = Classifier::new(vec![b"shop".to_vec()]);
        for (text, expected) in [
            ("select * from shop.item", true),
            ("update `shop`.`item` set a = 1", true),
            ("insert into t select * from u join SHOP.v", true),
            ("drop database if exists shop", true),
            ("create schema `shop`", true),
            ("call shop.refill(1)", true),
            // A table, an alias, a value, a part of a name.
            ("select shop.id from item shop where shop.id = 1", false),
            ("select * from shop", false),
            ("select 'shop.item' from t", false),
            ("select * from my_shop.item", false),
            ("drop table shop", false),
            ("call refill('shop')", false),
            ("use shop", false),
        ] {
            assert_eq!(classifier.know(text.as_bytes()).names_mapped, expected, "{text}");
        }
        assert!(!Classifier::new(Vec::new()).know(b"select * from shop.item").names_mapped);
    }

    #[test]
    fn classes_have_a_limit() {
        let mut classifier = Classifier::new(Vec::new());
        for number in 0..MAX_CLASSES + 10 {
            let table: String =
                number.to_string().bytes().map(|digit| char::from(digit - b'0' + b'a')).collect();
            classifier.know(format!("SELECT 1 FROM z{table}").as_bytes());
        }
        assert_eq!(classifier.classes.len(), MAX_CLASSES + 1);
        assert_eq!(classifier.know(b"SELECT 1 FROM other").class, REST);
    }
}
