//! Replaces the generated part of a name with `?`: `orders_2024_01` becomes `` `orders_?` ``.
//!
//! - Names of tables, databases, partitions, indexes, constraints, routines, views, user variables, common table
//!   expressions and aliases are folded wherever they occur. A column is folded only if nobody would choose its name
//!   (`made_up`), or if it is one of many that differ only in a number.
//! - Neighbours in a list of partitions, views or such columns that have become equal are merged.
//! - `t1 JOIN t2` and `t2 JOIN t1` become the same, which is what folding is for.

mod made_up;

use std::collections::{HashMap, HashSet};

use super::finder::{bare, name_places};
use super::lexer::{Kind, Lexer, Token};
use made_up::{Place, fold_name};

/// A statement with this many columns that differ only in digits was generated.
const FAMILY: usize = 8;
/// Each of these words is followed by a name.
const OBJECTS: [&[u8]; 16] = [
    b"call",
    b"procedure",
    b"function",
    b"trigger",
    b"event",
    b"index",
    b"key",
    b"constraint",
    b"unique",
    b"fulltext",
    b"spatial",
    b"sequence",
    b"tablespace",
    b"server",
    b"window",
    b"over",
];

/// Writes the strict fingerprint with folded names to `out`. Returns whether any name was folded.
pub fn fold(fingerprint: &[u8], out: &mut Vec<u8>) -> bool {
    out.clear();
    let names = Names::of(fingerprint);
    let (mut folded, mut last) = (Vec::new(), Vec::new());
    let (mut copied, mut last_at) = (0, None);
    for (at, token) in names.tokens.iter().enumerate() {
        let Some(role) = names.roles[at] else { continue };
        let name = name_of(fingerprint, *token);
        let place = names.place(role, &name);
        folded.clear();
        if !fold_name(&name, place, &mut folded) {
            continue;
        }
        let is_list =
            matches!(role, Role::Listed | Role::Partition) || role == Role::Column && place == Place::Object;
        let is_again = is_list
            && at >= 2
            && last_at == Some(at - 2)
            && last == folded
            && names.tokens[at - 1].kind == Kind::Comma
            && names.tokens.get(at + 1).is_none_or(|next| matches!(next.kind, Kind::Comma | Kind::Close));
        if !is_again {
            out.extend_from_slice(&fingerprint[copied..token.start]);
            put_quoted(&folded, token.kind == Kind::Variable, out);
        }
        copied = token.end;
        last.clone_from(&folded);
        last_at = Some(at);
    }
    out.extend_from_slice(&fingerprint[copied..]);
    copied > 0
}

fn put_quoted(name: &[u8], is_variable: bool, out: &mut Vec<u8>) {
    if is_variable {
        out.push(b'@');
    }
    out.push(b'`');
    for &byte in name {
        out.push(byte);
        if byte == b'`' {
            out.push(byte);
        }
    }
    out.push(b'`');
}

fn part(text: &[u8], token: Token) -> &[u8] {
    &text[token.start..token.end]
}

/// A name without its quotes, or a variable without its `@`.
fn name_of(text: &[u8], token: Token) -> Vec<u8> {
    match token.kind {
        Kind::Variable => part(text, token)[1..].to_vec(),
        _ => bare(part(text, token)),
    }
}

/// What a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Object,
    Partition,
    /// An item of a list in which equal neighbours are merged.
    Listed,
    /// A column, or a table that is never followed by a dot.
    Alias,
    Column,
}

/// A name that is defined in the statement.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    is_alias: bool,
    /// A dot follows it somewhere, so it is a table.
    has_dot: bool,
}

#[derive(Default)]
struct Names {
    tokens: Vec<Token>,
    /// For each token; `None` if it is not a name or has no digits.
    roles: Vec<Option<Role>>,
    is_table: Vec<bool>,
    known: HashMap<Vec<u8>, Known>,
    /// The columns that differ only in digits, by folded name.
    families: HashMap<Vec<u8>, HashSet<Vec<u8>>>,
}

impl Names {
    fn of(text: &[u8]) -> Self {
        let mut names = Self::default();
        if !text.iter().any(u8::is_ascii_digit) {
            return names;
        }
        let mut lexer = Lexer::new(text);
        while let Some(token) = lexer.next() {
            names.tokens.push(token);
        }
        let mut places = name_places(Lexer::new(text), text).into_iter().peekable();
        for token in &names.tokens {
            while places.next_if(|place| place.start < token.start).is_some() {}
            names.is_table.push(places.next_if(|place| place.start == token.start).is_some());
        }
        names.roles = vec![None; names.tokens.len()];
        for at in 0..names.tokens.len() {
            names.define(text, at);
        }
        for at in 0..names.tokens.len() {
            names.refer(text, at);
        }
        names
    }

    fn define(&mut self, text: &[u8], at: usize) {
        let token = self.tokens[at];
        let is_name = match token.kind {
            Kind::Word | Kind::Quoted => true,
            Kind::Variable => !part(text, token).starts_with(b"@@"),
            _ => false,
        };
        if !is_name || !part(text, token).iter().any(u8::is_ascii_digit) {
            return;
        }
        let is_object = self.is_table[at] || token.kind == Kind::Variable;
        let role = if is_object { Role::Object } else { self.role(text, at) };
        self.roles[at] = Some(role);
        if self.is_table[at] || role == Role::Alias {
            self.known.entry(name_of(text, token)).or_default().is_alias |= role == Role::Alias;
        }
    }

    /// Applies roles found elsewhere in the statement to every use of the same name.
    fn refer(&mut self, text: &[u8], at: usize) {
        if self.roles[at].is_none() || self.is_table[at] {
            return;
        }
        let name = name_of(text, self.tokens[at]);
        let has_dot = self.tokens.get(at + 1).is_some_and(|next| next.kind == Kind::Dot);
        let is_behind_dot = at > 0 && self.tokens[at - 1].kind == Kind::Dot;
        if let Some(known) = self.known.get_mut(&name) {
            known.has_dot |= has_dot;
            let is_of_alias = is_behind_dot && at > 1 && self.roles[at - 2] == Some(Role::Alias);
            if has_dot || known.is_alias && (!is_behind_dot || is_of_alias) {
                self.roles[at] = Some(Role::Alias);
            }
        }
        if self.roles[at] == Some(Role::Column) {
            let mut folded = Vec::new();
            if fold_name(&name, Place::Object, &mut folded) {
                self.families.entry(folded).or_default().insert(name);
            }
        }
    }

    /// How much of a name may be generated.
    fn place(&self, role: Role, name: &[u8]) -> Place {
        match role {
            Role::Object | Role::Listed => Place::Object,
            Role::Partition => Place::Partition,
            Role::Alias if self.known.get(name).is_some_and(|known| known.has_dot) => Place::Object,
            Role::Alias => Place::Alias,
            Role::Column => {
                let mut folded = Vec::new();
                let is_one_of_many = fold_name(name, Place::Object, &mut folded)
                    && self.families.get(&folded).is_some_and(|family| family.len() >= FAMILY);
                if is_one_of_many { Place::Object } else { Place::Column }
            }
        }
    }

    /// The role of a name in a place where no table can be named.
    fn role(&self, text: &[u8], at: usize) -> Role {
        let before = |back: usize| at.checked_sub(back).map(|at| self.tokens[at]);
        let word = |back: usize| match before(back) {
            Some(token) if token.kind == Kind::Word => part(text, token),
            _ => b"",
        };
        let is_object = |back: usize| OBJECTS.contains(&word(back));
        let role_before = |back: usize| at.checked_sub(back).and_then(|at| self.roles[at]);
        let is_table = |back: usize| at.checked_sub(back).is_some_and(|at| self.is_table[at]);
        if self.begins_part(text, at) {
            return Role::Alias;
        }
        match before(1).map(|token| token.kind) {
            Some(Kind::Dot) if is_object(3) || role_before(2) == Some(Role::Object) && !is_table(2) => {
                Role::Object
            }
            Some(Kind::Comma) => match role_before(2) {
                Some(role @ (Role::Listed | Role::Partition)) => role,
                _ => Role::Column,
            },
            Some(Kind::Open) if word(2) == b"partition" => Role::Partition,
            Some(Kind::Open) if is_hint(word(2), word(3)) => Role::Listed,
            Some(Kind::At) => Role::Object,
            Some(Kind::Close | Kind::Placeholder | Kind::List | Kind::Quoted) => Role::Alias,
            Some(Kind::Word) => match word(1) {
                b"partition" | b"subpartition" => Role::Partition,
                b"view" => Role::Listed,
                b"exists" if word(3) == b"view" || word(4) == b"view" => Role::Listed,
                b"exists" if is_object(3) || is_object(4) => Role::Object,
                b"to" if is_object(3) => Role::Object,
                b"as" => Role::Alias,
                b"with" | b"recursive" => Role::Alias,
                _ if is_object(1) => Role::Object,
                _ if is_table(1) || role_before(1).is_some() => Role::Alias,
                _ => Role::Column,
            },
            _ => Role::Column,
        }
    }

    /// `name AS (`: a common table expression, or a window.
    fn begins_part(&self, text: &[u8], at: usize) -> bool {
        matches!(
            (self.tokens.get(at + 1), self.tokens.get(at + 2)),
            (Some(word), Some(open)) if part(text, *word) == b"as" && open.kind == Kind::Open
        )
    }
}

/// `use index (`, `force index for join (`.
fn is_hint(last: &[u8], before: &[u8]) -> bool {
    matches!(last, b"index" | b"key") && matches!(before, b"use" | b"force" | b"ignore")
        || last == b"join" && before == b"for"
}

#[cfg(test)]
mod tests {
    use crate::{Mode, fingerprint};

    const FOLDED: &[(&str, &str)] = &[
        (
            "SELECT e.a FROM `p` AS `e1` JOIN `tmp_5cc0108165e221_57009269` AS `r2` ON e1.c1 = r2.c2",
            "select e.a from `p` as `e?` join `tmp_?` as `r?` on `e?`.c1 = `r?`.c2",
        ),
        (
            "select t_1.c1, x.address2 from t_1, u2 x where t_1.id = 5",
            "select `t_?`.c1, x.address2 from `t_?`, `u?` x where `t_?`.id = ?",
        ),
        (
            "create temporary table if not exists t5 (c1 int, s2 float8, key k1 (c1))",
            "create temporary table if not exists `t?`(c1 int, s2 float8, key `k?`(c1))",
        ),
        (
            "insert into tenant_17.orders_2024 (a1) values (1)",
            "insert into `tenant_?`.`orders_?`(a1) values (?+)",
        ),
        ("use tenant_17", "use `tenant_?`"),
        ("drop database tenant_17", "drop database `tenant_?`"),
        (
            "select a from m_01 union all select a from m_02 union all select a from m_03",
            "select a from `m_?` union all select a from `m_?`",
        ),
        (
            "select t1.a from t1 join t2 on t1.a = t2.a",
            "select `t?`.a from `t?` join `t?` on `t?`.a = `t?`.a",
        ),
        ("select a from plain where b1 = 2", "select a from plain where b1 = ?"),
        ("select sha2(a, 256) from t order by c1", "select sha2(a, ?) from t order by c1"),
        (
            "with c1 as (select 1 as a), c2 as (select 2) select * from c1 join c2",
            "with `c?` as (select ? as a), `c?` as (select ?) select * from `c?` join `c?`",
        ),
        (
            "select user0_.id as id1_0_0_, user0_.name as name2_0_0_ from users user0_ where user0_.id = 4",
            "select `user?_`.id as `id?_`, `user?_`.name as `name?_` from users `user?_` where `user?_`.id = ?",
        ),
        (
            "select _0.a from (select b as col_3 from x) _0 order by _0.col_3",
            "select `_?`.a from (select b as `col_?` from x) `_?` order by `_?`.`col_?`",
        ),
        (
            "select sum(a) subtotal_1 from t group by subtotal_1",
            "select sum(a) subtotal_1 from t group by subtotal_1",
        ),
        (
            "select a from t partition (p20240101, p20240102, pmax) where b = 1",
            "select a from t partition(`p?`, pmax) where b = ?",
        ),
        (
            "alter table t add partition (partition p7 values less than (9))",
            "alter table t add partition(partition `p?` values less than(?))",
        ),
        ("alter table t drop partition p1, p2", "alter table t drop partition `p?`"),
        ("alter table t drop index idx_4f2a1", "alter table t drop index `idx_?`"),
        ("select a from t force index (ix_12, ix_13)", "select a from t force index (`ix_?`)"),
        ("drop view if exists v_17, v_18", "drop view if exists `v_?`"),
        ("call shop.proc_17(1)", "call shop.`proc_?`(?)"),
        ("set @p0 = 1, @p1 = @@sort_buffer_size", "set @`p?` = ?, @`p?` = @@sort_buffer_size"),
        (
            "alter table t add constraint fk_rails_1e3f2ab9c8 foreign key (a1) references u (id)",
            "alter table t add constraint `fk_rails_?` foreign key (a1) references u(id)",
        ),
        (
            "insert into t (c1, c2, c3, c4, c5, c6, c7, c8, d) values (1)",
            "insert into t(`c?`, d) values (?+)",
        ),
        (
            "select convert(a using utf8mb4) collate utf8mb4_0900_ai_ci, inet6_aton(ipv6) from s3_objects",
            "select convert(a using utf8mb4) collate utf8mb4_0900_ai_ci, inet6_aton(ipv6) from s3_objects",
        ),
        (
            "select address1, address2, cf_10023 from customers",
            "select address1, address2, `cf_?` from customers",
        ),
    ];

    #[test]
    fn names_are_folded_by_where_they_stand() {
        for (text, expected) in FOLDED {
            let mut out = Vec::new();
            fingerprint(Mode::Folded, text.as_bytes(), false, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), *expected, "{text}");
            let mut again = Vec::new();
            fingerprint(Mode::Folded, &out, false, &mut again);
            assert_eq!(out, again, "{text}");
        }
    }
}
