//! Names that are values by their place, and names in double quotes.

use proptest::collection::vec;
use proptest::prelude::*;
use sql::{Mode, Scheme, anonymise, fingerprint};

fn strict(text: &[u8]) -> String {
    let mut out = Vec::new();
    fingerprint(Mode::Strict, text, false, &mut out);
    let found = String::from_utf8_lossy(&out).into_owned();
    let mut again = Vec::new();
    fingerprint(Mode::Strict, &out, false, &mut again);
    assert_eq!(String::from_utf8_lossy(&again), found, "{}", String::from_utf8_lossy(text));
    found
}

fn hidden(text: &str) -> String {
    let mut out = Vec::new();
    anonymise(text.as_bytes(), false, &Scheme { key: [7; 32], ..Scheme::default() }, &mut out);
    String::from_utf8(out).unwrap()
}

/// Statements as the manuals of MySQL 8 and 9 and MariaDB 10.11 and 11 have them: `¤` is a user, `§` a host, `¢` a role,
/// each with or without quotes; `¶` is a text in quotes.
const STATEMENTS: &[&str] = &[
    "CREATE USER ¤@§ IDENTIFIED BY '¶'",
    "CREATE USER IF NOT EXISTS ¤@§ IDENTIFIED WITH caching_sha2_password BY '¶' PASSWORD EXPIRE INTERVAL 90 DAY, ¤@§ IDENTIFIED BY '¶' DEFAULT ROLE ¢, ¢ REQUIRE SUBJECT '¶' AND ISSUER '¶' ACCOUNT LOCK COMMENT '¶'",
    "CREATE OR REPLACE USER ¤ IDENTIFIED VIA ed25519 USING PASSWORD('¶') OR unix_socket",
    "ALTER USER IF EXISTS ¤@§ IDENTIFIED BY '¶' REPLACE '¶' RETAIN CURRENT PASSWORD",
    "ALTER USER ¤ DEFAULT ROLE ¢@§",
    "ALTER USER USER() IDENTIFIED BY '¶'",
    "ALTER USER ¤ ADD 2 FACTOR IDENTIFIED BY '¶'",
    "DROP USER ¤@§, ¤",
    "DROP USER IF EXISTS ¤ @ §",
    "RENAME USER ¤@§ TO ¤@§, ¤ TO ¤",
    "CREATE ROLE ¢, ¢@§",
    "CREATE OR REPLACE ROLE ¢ WITH ADMIN ¤@§",
    "DROP ROLE IF EXISTS ¢, ¢",
    "GRANT SELECT (a, b), INSERT ON d.t TO ¤@§ WITH GRANT OPTION",
    "GRANT ALL PRIVILEGES ON *.* TO ¤@§, ¤ REQUIRE X509 WITH MAX_QUERIES_PER_HOUR 5 GRANT OPTION",
    "GRANT EXECUTE ON PROCEDURE d.p TO ¤ IDENTIFIED BY '¶'",
    "GRANT ¢, ¢ TO ¤@§, ¤ WITH ADMIN OPTION",
    "GRANT PROXY ON ¤@§ TO ¤@§",
    "GRANT SELECT ON d.t TO ¤ AS ¤@§ WITH ROLE ALL EXCEPT ¢, ¢",
    "GRANT USAGE ON *.* TO CURRENT_USER IDENTIFIED BY '¶'",
    "REVOKE SELECT, GRANT OPTION ON d.t FROM ¤@§, ¤",
    "REVOKE ALL PRIVILEGES, GRANT OPTION FROM ¤@§",
    "REVOKE ¢, ¢ FROM ¤@§",
    "REVOKE ADMIN OPTION FOR ¢ FROM ¤",
    "REVOKE IF EXISTS ¢ FROM ¤ IGNORE UNKNOWN USER",
    "REVOKE PROXY ON ¤@§ FROM ¤",
    "SET ROLE ¢, ¢",
    "SET ROLE ALL EXCEPT ¢",
    "SET DEFAULT ROLE ¢, ¢ TO ¤@§, ¤",
    "SET DEFAULT ROLE ¢ FOR ¤@§",
    "SET DEFAULT ROLE NONE TO ¤",
    "SET PASSWORD FOR ¤@§ = PASSWORD('¶')",
    "SET PASSWORD FOR ¤ = '¶' REPLACE '¶'",
    "SET SESSION AUTHORIZATION ¤@§",
    "SHOW GRANTS FOR ¤@§ USING ¢, ¢",
    "SHOW CREATE USER ¤@§",
    "KILL HARD QUERY USER ¤@§",
    "KILL USER ¤",
    "CLONE INSTANCE FROM ¤@§:3306 IDENTIFIED BY '¶'",
    "CHANGE REPLICATION SOURCE TO SOURCE_USER = '¶', PRIVILEGE_CHECKS_USER = ¤@§, SOURCE_HOST = '¶'",
    "CHANGE MASTER TO MASTER_HOST='¶', MASTER_USER='¶', MASTER_PASSWORD='¶'",
    "CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (USER '¶', HOST '¶', PASSWORD '¶')",
    "START GROUP_REPLICATION USER='¶', PASSWORD='¶'",
    "CREATE DEFINER=¤@§ TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.b = '¶'",
    "/*!50003 CREATE*/ /*!50017 DEFINER=¤@§*/ /*!50003 TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.b = '¶' */",
    "CREATE OR REPLACE ALGORITHM = MERGE DEFINER = ¤ @ § SQL SECURITY DEFINER VIEW v AS SELECT 1",
    "ALTER DEFINER=¤@§ VIEW v AS SELECT a FROM t",
    "/*!50013 DEFINER=¤@§ SQL SECURITY DEFINER */",
    "CREATE DEFINER = ¢ PROCEDURE p() SELECT 1",
    "CREATE DEFINER = CURRENT_USER() EVENT e ON SCHEDULE EVERY 1 DAY DO DROP USER ¤@§",
    "CREATE PROCEDURE p() BEGIN SET ROLE ¢; GRANT ¢ TO ¤; IF a THEN DROP USER ¤; END IF; END",
    "CREATE PROCEDURE p() REVOKE ¢ FROM ¤",
    "BEGIN NOT ATOMIC CREATE USER ¤; END",
    "SET STATEMENT max_statement_time = 5 FOR CREATE USER ¤",
    "SELECT 1; DROP USER ¤@§; SELECT 2",
    "/* it's */ GRANT ¢ TO ¤ -- ¶",
];

const WORD: &str = "qxzvjk";

/// The forms of a name.
fn forms(name: &str) -> [String; 4] {
    [name.to_owned(), format!("`{name}`"), format!("'{name}'"), format!("\"{name}\"")]
}

/// The statement with names in a form.
fn filled(statement: &str, form: usize) -> String {
    let name = |kind: &str| forms(&format!("{WORD}{kind}"))[form].clone();
    let text = statement.replace('¤', &name("u")).replace('§', &name("h")).replace('¢', &name("r"));
    text.replace('¶', &format!("{WORD}t"))
}

#[test]
fn no_account_is_in_a_fingerprint_or_an_anonymised_statement() {
    for statement in STATEMENTS {
        let classes: Vec<_> = (0..4).map(|form| strict(filled(statement, form).as_bytes())).collect();
        for (form, class) in classes.iter().enumerate() {
            assert!(!class.contains(WORD), "{class}");
            assert_eq!(*class, classes[0], "the form of a name makes no class");
            let text = filled(statement, form);
            let out = hidden(&text);
            assert!(!out.to_lowercase().contains(WORD), "{text} -> {out}");
            // What comes out is the same statement.
            assert_eq!(strict(out.as_bytes()), *class, "{out}");
        }
    }
}

#[test]
fn an_account_has_one_pseudonym_everywhere() {
    let pseudonym = |text: &str| {
        let mut out = Vec::new();
        sql::anonymise_name(text.as_bytes(), &Scheme { key: [7; 32], ..Scheme::default() }, &mut out);
        String::from_utf8(out).unwrap()
    };
    let (user, host) = (pseudonym("jane"), pseudonym("10.20.30.40"));
    assert!(user != "jane" && host != "10.20.30.40");
    for (text, expected) in [
        ("drop user jane", format!("drop user `{user}`")),
        ("drop user jane@10.20.30.40", format!("drop user `{user}`@`{host}`")),
        ("drop user 'jane'@\"10.20.30.40\"", format!("drop user '{user}'@\"{host}\"")),
        ("grant r on *.* to `jane` @ `10.20.30.40`", format!("grant r on *.* to `{user}` @ `{host}`")),
        (
            "create definer=jane@'%' view v as select 1",
            format!("create definer=`{user}`@'%' view v as select "),
        ),
    ] {
        let out = hidden(text);
        assert!(out.starts_with(&expected), "{text} -> {out}");
    }
    assert_eq!(pseudonym("o'neil").len(), 6);
    assert_eq!(
        hidden("drop user `o'neil`").replace('`', "'"),
        format!("drop user '{}'", pseudonym("o'neil"))
    );
    assert_eq!(
        hidden("drop user 'o''neil'"),
        format!("drop user '{}'", pseudonym("o'neil").replace('\'', "''"))
    );
}

#[test]
fn what_names_no_account_stays() {
    for text in [
        "create definer=current_user sql security invoker view v as select a from t",
        "alter table t drop user, drop role, add definer int, alter user set default null",
        "select user, role, definer from t where definer = host",
        "select user(), current_user() from mysql.user",
        "set role none",
        "set role default",
        "set default role all to current_user()",
        "show grants for current_user",
        "show grants",
        "grant all on *.* to current_user with grant option",
        "create table t (user int, role int, `definer` int)",
        "kill query @a",
        "rename table user to role",
        "set @role = a, sql_mode = b",
    ] {
        assert_eq!(hidden(text), text);
        assert_eq!(strict(text.as_bytes()).replace(' ', ""), text.replace(' ', "").replace("null", "?"));
    }
}

#[test]
fn names_of_savepoints_and_prepared_statements_are_values() {
    for (text, expected) in [
        ("SAVEPOINT `s140_x1`", "savepoint ?"),
        ("savepoint s140_x1", "savepoint ?"),
        ("ROLLBACK TO SAVEPOINT a1", "rollback to savepoint ?"),
        ("rollback work to a1", "rollback work to ?"),
        ("ROLLBACK", "rollback"),
        ("rollback and chain", "rollback and chain"),
        ("RELEASE SAVEPOINT `a``1`", "release savepoint ?"),
        ("PREPARE stmt_17 FROM 'select 1'", "prepare ? from ?"),
        ("PREPARE stmt_17 FROM @sql", "prepare ? from @sql"),
        ("EXECUTE stmt_17 USING @a, @b", "execute ? using @a, @b"),
        ("EXECUTE IMMEDIATE 'select 1' USING 5", "execute immediate ? using ?"),
        ("DEALLOCATE PREPARE stmt_17", "deallocate prepare ?"),
        ("DROP PREPARE stmt_17", "drop prepare ?"),
        ("XA START 'a17','b',1", "xa start ?, ?, ?"),
        (
            "savepoint a; select savepoint from t; release savepoint a",
            "savepoint ?; select savepoint from t; release savepoint ?",
        ),
        ("select execute, prepare from t", "select execute, prepare from t"),
        ("select get_lock('lock_17', 5)", "select get_lock(?+)"),
    ] {
        assert_eq!(strict(text.as_bytes()), expected, "{text}");
    }
    // Names of the program, which hold no value: they stay where statements are to run.
    assert_eq!(hidden("rollback to savepoint a1"), "rollback to savepoint a1");
}

#[test]
fn double_quotes_are_of_names_where_no_string_can_be() {
    for (text, expected) in [
        (r#"select * from "orders" where "a" = 'x'"#, "select * from `orders` where `a` = ?"),
        (r#"select * from "customers" where "a" = 'x'"#, "select * from `customers` where `a` = ?"),
        (
            r#"select "a" from t join "u" on "t"."id" = "u"."id""#,
            "select `a` from t join `u` on `t`.`id` = `u`.`id`",
        ),
        (r#"select t."a" from t where b = "c""#, "select t.`a` from t where b = `c`"),
        (r#"select * from a, "b" where "c" in ("x", "y")"#, "select * from a, `b` where `c` in (?+)"),
        (r#"insert into "t" ("a", "b") values ('x', "y")"#, "insert into `t`(`a`, `b`) values (?+)"),
        (r#"insert into t ("a", "b") values ('x', 5)"#, "insert into t(`a`, `b`) values (?+)"),
        (r#"UPDATE "Orders" SET "a" = 5 WHERE "b" = 'x'"#, "update `Orders` set `a` = ? where `b` = ?"),
        (r#"update t set "a" = 5 where "b" = 'x'"#, "update t set `a` = ? where `b` = ?"),
        (r#"delete from "t" where "a""b`c" = 1"#, "delete from `t` where `a\"b``c` = ?"),
        (r#"create table "t" ("a" int)"#, "create table `t`(`a` int)"),
        (r#"select 1 from (select "a" from "t") x"#, "select ? from (select `a` from `t`) x"),
        (
            r#"with "c" as (select 1 from "t") select * from "c""#,
            "with `c` as (select ? from `t`) select * from `c`",
        ),
        // Nothing shows it: strings.
        (r#"select "a" from t"#, "select ? from t"),
        (
            r#"select "a" as "b", trim("x" from "y"), substring("ab" from 2) from t where c = "d" group by "e""#,
            "select ? as ?, trim(? from ?), substring(? from ?) from t where c = ? group by ?",
        ),
        (r#"insert into t values ("a", "b")"#, "insert into t values (?+)"),
        (
            r#"select concat("a", "b.c", 'x".') from t where d like "%" or e = "f""#,
            "select concat(?+) from t where d like ? or e = ?",
        ),
        (r#"prepare s from "select 1""#, "prepare ? from ?"),
        (
            r#"load data infile "f" into table t fields terminated by ",""#,
            "load data infile ? into table t fields terminated by ?",
        ),
        (r#"set character set "utf8", names "latin1""#, "set character set ?, names ?"),
        (r#"select a from t into outfile "f""#, "select a from t into outfile ?"),
    ] {
        assert_eq!(strict(text.as_bytes()), expected, "{text}");
    }
    assert_eq!(
        hidden(r#"select "a" from "t" where "b" = 5"#),
        format!(r#"select "a" from "t" where "b" = {}"#, &hidden("5"))
    );
}

#[test]
fn a_name_that_would_swallow_its_backtick_is_a_value() {
    // In GBK, 0x81 and a backtick are one character; 0x81 and a double quote are none.
    let expected = "select * from t.? where a = ?";
    assert_eq!(strict(b"select * from t.\"\x81\" where a = 1"), expected);
    assert_eq!(strict(b"select * from t.\"\x81`b\" where a = 1"), expected);
    assert_eq!(strict("select * from t.\"é\" where a = 1".as_bytes()), "select * from t.`é` where a = ?");
}

#[test]
fn statements_in_strings_are_anonymised_as_statements() {
    for (text, start, end) in [
        (
            "PREPARE s FROM 'SELECT a FROM t WHERE b = 71717171'",
            "PREPARE s FROM 'SELECT a FROM t WHERE b = ",
            "'",
        ),
        (
            "EXECUTE IMMEDIATE \"SELECT a FROM t WHERE b = 71717171\"",
            "EXECUTE IMMEDIATE \"SELECT a FROM t WHERE b = ",
            "\"",
        ),
        ("EXECUTE IMMEDIATE 'SELECT ''qxzvjk'', b FROM t'", "EXECUTE IMMEDIATE 'SELECT ''", "'', b FROM t'"),
        (r"prepare s from 'select \'qxzvjk\', \'it\\\'s\' from t'", "prepare s from 'select ''", " from t'"),
        ("EXECUTE IMMEDIATE 'DROP USER qxzvjk@localhost'", "EXECUTE IMMEDIATE 'DROP USER `", "`'"),
        (
            "EXECUTE IMMEDIATE 'EXECUTE IMMEDIATE ''SELECT 71717171'''",
            "EXECUTE IMMEDIATE 'EXECUTE IMMEDIATE ''SELECT ",
            "'''",
        ),
    ] {
        let out = hidden(text);
        assert!(out.starts_with(start) && out.ends_with(end), "{text} -> {out}");
        assert!(!out.contains("71717171") && !out.contains("qxzvjk"), "{text} -> {out}");
    }
    // A part of a statement may be a value.
    let out = hidden("EXECUTE IMMEDIATE CONCAT('SELECT ', 'qxzvjk')");
    assert!(!out.contains("qxzvjk"), "{out}");
}

/// A name of an account with the mark in it, in any quotes that it may have.
fn account_name() -> impl Strategy<Value = String> {
    let quoted = ("[ -&(-[\\]-_a-~é日]{0,6}", 0..3_usize).prop_map(|(inside, quotes)| {
        let inside = inside.replace(['"', '`', '\''], ".");
        let (quote, escaped) = [("'", "''"), ("\"", "\"\""), ("`", "``")][quotes];
        // Ends and doubled quotes are where names are cut.
        format!("{quote}{WORD}{inside}{escaped}{WORD}{quote}")
    });
    let plain = prop::sample::select(&["", "to", "user_", "select", "$", "_x", "é", "1a"][..])
        .prop_map(|start| format!("{start}{WORD}"));
    prop_oneof![2 => quoted, 1 => plain]
}

fn between() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&["", "", "", " ", "\n", "/* qxzvjk */", " /* ' */ ", "/*!50017 */"][..])
}

/// A table as three clients write it.
fn table(name: &str, form: usize) -> String {
    [format!("`{name}`"), format!("\"{name}\""), format!("\"d\".\"{name}\"")][form].clone()
}

/// Statements of tables `¤` and `§` and of values `¶`, in which a name is certain.
const SHAPES: &[&str] = &[
    "select a from ¤ where b = ¶",
    "select a from ¤ where b = ¶ order by c",
    "select a from ¤ join § on ¤.x = §.x where c in (¶, ¶)",
    "select a from ¤, § where c like ¶",
    "insert into ¤ (a, b) values (¶, ¶), (¶, ¶)",
    "insert into ¤ (a, b) values (¶, now())",
    "update ¤ set a = ¶ where b = ¶",
    "update ¤ set a = ¶, b = c",
    "delete from ¤ where b = ¶",
    "select a from (select b from ¤) x where c = ¶",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_character_of_an_account_is_left(
        number in 0..STATEMENTS.len(), names in vec(account_name(), 12), blanks in vec((between(), between()), 12),
    ) {
        let (mut names, mut blanks) = (names.iter(), blanks.iter());
        let mut text = String::new();
        for letter in STATEMENTS[number].chars() {
            match letter {
                '¤' | '§' | '¢' => text += names.next().expect("twelve names"),
                '¶' => text += "qxzvjk",
                '@' => {
                    let (before, behind) = blanks.next().expect("twelve blanks");
                    text += &format!("{before}@{behind}");
                }
                other => text.push(other),
            }
        }
        let class = strict(text.as_bytes());
        prop_assert!(!class.contains(WORD), "{} -> {}", text, class);
        prop_assert_eq!(&class, &strict(filled(STATEMENTS[number], 2).as_bytes()), "{}", text);
        let out = hidden(&text);
        prop_assert!(!out.to_lowercase().contains(WORD), "{} -> {}", text, out);
        prop_assert_eq!(strict(out.as_bytes()), class, "{} -> {}", text, out);
    }

    #[test]
    fn classes_differ_where_shapes_do(
        one in (0..SHAPES.len(), 0..3_usize, 0..3_usize, 0..1000_u32),
        other in (0..SHAPES.len(), 0..3_usize, 0..3_usize, 0..1000_u32),
    ) {
        let names = ["orders", "customers", "items"];
        let of = |(shape, name, form, value): (usize, usize, usize, u32)| {
            let text = SHAPES[shape].replace('¤', &table(names[name], form)).replace('§', &table("joined", form));
            strict(text.replace('¶', &format!("'v{value}'")).as_bytes())
        };
        // Quotes of either kind make one class, a database another.
        let shape = |(shape, name, form, _): (usize, usize, usize, u32)| (shape, name, form == 2);
        prop_assert_eq!(of(one) == of(other), shape(one) == shape(other), "{} {}", of(one), of(other));
    }

    #[test]
    fn any_words_of_account_statements_have_a_class_that_is_its_own(
        words in vec(prop::sample::select(&[
            "grant", "revoke", "to", "from", "on", "drop user", "create role", "set default role", "set password for", "role",
            "savepoint", "rollback to", "prepare", "execute", "definer =", "create", "alter", "for", "with admin", "as", "@",
            "@h", "@@h", "x", "`x`", "'x'", "\"x\"", "?", "?+)", ",", ".", "(", ")", ";", "=", "5", "null", "_utf8", "-", "user",
            "current_user", "all", "option", "begin", "2e", "t.2e", "from \"x\"", "\"x\".", "into t (", "set \"x\" =", "values", "in (", "union",
        ][..]), 0..14), spaces in vec(any::<bool>(), 14),
    ) {
        let mut text = String::new();
        for (word, space) in words.iter().zip(spaces) {
            text += word;
            if space {
                text.push(' ');
            }
        }
        strict(text.as_bytes());
        hidden(&text);
    }
}

#[test]
fn double_quotes_where_only_names_can_be() {
    for (text, expected) in [
        (r#"select distinct "a" from "t""#, "select distinct `a` from `t`"),
        (r#"call "p"(1)"#, "call `p`(?)"),
        (r#"create view "v" as select 1"#, "create view `v` as select ?"),
        (r#"show create procedure "p""#, "show create procedure `p`"),
        (r#"select * from t join u using ("id")"#, "select * from t join u using (`id`)"),
        (r#"select * from t force index ("i") where a = 1"#, "select * from t force index (`i`) where a = ?"),
        (
            r#"insert into t values (1) on duplicate key update "a" = 1"#,
            "insert into t values (?+) on duplicate key update `a` = ?",
        ),
        (r#"select event "x" from t"#, "select event ? from t"),
        (r#"select a from t where a is distinct from "x""#, "select a from t where a is distinct from ?"),
    ] {
        assert_eq!(strict(text.as_bytes()), expected, "{text}");
    }
    // An index's name settles it, and is no table.
    let text = br#"select * from t use index for join ("i") where a = 1"#;
    assert_eq!(sql::tables(text), [b"t"]);
    assert_eq!(sql::tables(br"select distinct `a` from `t`"), [b"t"]);
    assert_eq!(sql::tables(br"select distinct t.`a`, 'x' from t, u"), [&b"t"[..], b"u"]);
}
