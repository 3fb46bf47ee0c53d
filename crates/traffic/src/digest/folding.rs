//! Classes that differ only in digits and hashes of table names, as generated names do.

use std::collections::HashMap;

use sql::Mode;

use super::Digest;
use super::group::read_key;

impl Digest {
    /// The id that a class would have with `--fold-names`; `None` where it would be the same, or names cannot be folded.
    pub fn folded_id(&self, fingerprint: &[u8]) -> Option<String> {
        if self.options.mode != Mode::Strict {
            return None;
        }
        sql::folded(fingerprint).map(|folded| sql::class_id(Mode::Folded, &folded))
    }

    /// How many classes have another one from which they differ only so, and how many there are.
    pub fn alike_but_for_names(&self) -> (usize, usize) {
        let mut fingerprints: Vec<&[u8]> =
            self.classes.iter().filter_map(|(key, _)| read_key(&self.options.group, key).1).collect();
        fingerprints.sort_unstable();
        fingerprints.dedup();
        let mut counts: HashMap<String, usize> = HashMap::new();
        for fingerprint in &fingerprints {
            let own = || sql::class_id(self.options.mode, fingerprint);
            *counts.entry(self.folded_id(fingerprint).unwrap_or_else(own)).or_default() += 1;
        }
        (counts.into_values().filter(|count| *count > 1).sum(), fingerprints.len())
    }
}

#[cfg(test)]
mod tests {
    use crate::digest::lines::Source;
    use crate::digest::{Digest, DigestOptions};
    use crate::event::{Command, Event};
    use sql::Mode;

    fn of(mode: Mode, texts: &[&str]) -> Digest {
        let mut digest = Digest::new(&DigestOptions { mode, ..DigestOptions::default() });
        for text in texts {
            digest.count(&Event { text: text.as_bytes(), ..Event::new(1, 1, Command::Query) });
        }
        digest
    }

    #[test]
    fn folding_is_suggested_where_most_classes_differ_in_nothing_else() {
        let texts = ["select a from t_01", "select a from t_02", "select b from u", "select a from t_01"];
        let mut digest = of(Mode::Strict, &texts);
        assert_eq!(digest.alike_but_for_names(), (2, 3));
        let table = digest.table(&Source::default(), 10, 160);
        assert!(table.contains("--fold-names"), "{table}");
        for (mode, texts) in [
            (Mode::Folded, &texts[..]),
            (Mode::Strict, &texts[1..3]),
            (Mode::Strict, &["select a from t_1", "select b from t_2"]),
            (Mode::Strict, &[]),
        ] {
            let mut digest = of(mode, texts);
            assert_eq!(digest.alike_but_for_names().0, 0);
            assert!(!digest.table(&Source::default(), 10, 160).contains("--fold-names"));
        }
        assert_eq!(of(Mode::Folded, &texts).alike_but_for_names().1, 2);
    }
}
