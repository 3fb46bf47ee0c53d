//! The tables that a statement names.

use super::finder::tables_in;
use super::lexer::Lexer;
use super::readings;

/// Tables of a statement, `table` or `database.table`, in the order in which they appear, each once and 256 at most. Names are as
/// written, without their quotes. Names of WITH are no tables.
#[must_use]
pub fn tables(text: &[u8]) -> Vec<Vec<u8>> {
    let (mut tables, is_doubtful) = tables_in(Lexer::new(text), text);
    if is_doubtful {
        // A name that some readings lack may be part of a value.
        for other in readings::others(text) {
            let (same, _) = tables_in(other, text);
            tables.retain(|table| same.contains(table));
        }
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::tables;

    #[test]
    fn tables_are_found() {
        for (text, expected) in [
            ("select c from sbtest1 where id=1", "sbtest1"),
            (
                "SELECT * FROM `my db`.`a``b` x, c AS y LEFT JOIN d.e ON f(y.a, 2) = x.b, g WHERE 1",
                "my db.a`b c d.e g",
            ),
            (
                "select (select max(a) from u), extract(year from d) from t where x in (select y from v, w)",
                "u t v w",
            ),
            (
                "with recursive c (n) as (select 1 from base union select n from c), d as (select 1 from c) select * from c, d, t",
                "base t",
            ),
            ("insert into t (a, b) select a, b from u on duplicate key update a = values(a)", "t u"),
            ("INSERT IGNORE t VALUES (1)", "t"),
            ("replace low_priority into a.b set x = replace(y, 'from z', '')", "a.b"),
            ("update a, b join c using (id) set a.x = 1, b.y = 2 where z in (1)", "a b c"),
            ("delete a, b from x as a join y as b on a.i = b.i where a.c = 1", "x y"),
            ("delete from a using t1 as a join t2", "a t1 t2"),
            (
                "create table if not exists t (id int, key (id), foreign key (a) references o (id) on delete cascade)",
                "t o",
            ),
            ("create table a like b", "a b"),
            ("create index i on t (a)", "t"),
            ("drop table if exists a, b.c", "a b.c"),
            ("truncate table t", "t"),
            ("truncate t", "t"),
            ("alter table t add column x int, add index (x)", "t"),
            ("rename table a to b, c to d", "a b c d"),
            ("lock tables a write, b as x read", "a b"),
            ("show columns from t from d", "t"),
            ("show tables from d", ""),
            ("load data infile 'x' into table t", "t"),
            ("select a into @x from t", "t"),
            ("select * from (select * from a) b join (c, d) on 1", "a c d"),
            ("select * from t where a is distinct from b for update", "t"),
            ("select 1 from dual", ""),
            ("select * from a use index (x, y) where b = 1 limit 3, 4", "a"),
            ("select * from json_table('[1]', '$[*]' columns (a int path '$')) j, t", "t"),
            ("select a from t union all select b from u", "t u"),
            ("select 1; delete from t; update u set x = 1", "t u"),
            ("insert into t values (?+)", "t"),
            ("explain select * from t", "t"),
            ("desc t", "t"),
            ("call p(1)", ""),
            ("/*!50001 select */ 1 from t", "t"),
        ] {
            let found = tables(text.as_bytes());
            let found: Vec<_> = found.iter().map(|name| String::from_utf8_lossy(name)).collect();
            let wanted = if text.contains("my db") {
                vec!["my db.a`b", "c", "d.e", "g"]
            } else {
                expected.split(' ').filter(|name| !name.is_empty()).collect()
            };
            assert_eq!(found, wanted, "{text}");
        }
    }
}
