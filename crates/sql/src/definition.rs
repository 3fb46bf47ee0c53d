//! Which numbers of a CREATE or ALTER are the form of a table.

use super::lexer::Kind;

/// What is known of a CREATE or ALTER: its numbers may be lengths and options, or data (DEFAULT, CHECK, partitions).
#[derive(Debug, Default)]
pub struct Definition {
    depth: usize,
    /// The last token was a word behind which a number is none of the data.
    is_behind_type: bool,
    is_behind_option: bool,
    /// The depth in the parentheses of a type, and in those of a key; 0 for none.
    type_depth: usize,
    key_depth: usize,
    is_key: bool,
}

impl Definition {
    /// Whether a number belongs to the form of a table.
    pub fn keeps(&mut self, part: &[u8], kind: Kind) -> bool {
        let is_any = |words: &[&str]| words.iter().any(|word| part.eq_ignore_ascii_case(word.as_bytes()));
        let behind_type = std::mem::take(&mut self.is_behind_type);
        let behind_option = std::mem::take(&mut self.is_behind_option);
        match kind {
            Kind::Word | Kind::Quoted => {
                let is_part_of_key = self.key_depth > 0 && self.depth == self.key_depth;
                self.is_behind_type = is_part_of_key || kind == Kind::Word && is_any(TYPES);
                self.is_behind_option = kind == Kind::Word && is_any(OPTIONS);
                self.is_key =
                    kind == Kind::Word && is_any(KEYS) || self.is_key && !is_any(&["check", "default"]);
            }
            Kind::Open => {
                self.depth += 1;
                if behind_type {
                    self.type_depth = self.depth;
                } else if std::mem::take(&mut self.is_key) {
                    self.key_depth = self.depth;
                }
            }
            Kind::Close => {
                for place in [&mut self.type_depth, &mut self.key_depth] {
                    if *place == self.depth {
                        *place = 0;
                    }
                }
                self.depth = self.depth.saturating_sub(1);
            }
            Kind::Comma if self.depth != self.key_depth => self.is_key = false,
            Kind::Operator => self.is_behind_option = behind_option && part == b"=",
            Kind::Number => return behind_option || self.type_depth > 0 && self.type_depth == self.depth,
            _ => {}
        }
        false
    }
}

/// Types with a length, and functions with a precision.
#[rustfmt::skip]
const TYPES: &[&str] = &[
    "bigint", "binary", "bit", "blob", "char", "character", "current_timestamp", "datetime", "dec", "decimal", "double",
    "fixed", "float", "int", "integer", "localtime", "localtimestamp", "mediumint", "nchar", "now", "number", "numeric",
    "nvarchar", "precision", "real", "smallint", "text", "time", "timestamp", "tinyint", "varbinary", "varchar",
    "varchar2", "varcharacter", "varying", "vector", "year",
];
const KEYS: &[&str] = &["key", "index", "unique"];
#[rustfmt::skip]
const OPTIONS: &[&str] = &[
    "avg_row_length", "checksum", "delay_key_write", "key_block_size", "max_rows", "min_rows", "pack_keys",
    "page_checksum", "page_compressed", "page_compression_level", "partitions", "stats_auto_recalc",
    "stats_persistent", "stats_sample_pages", "subpartitions", "transactional",
];
