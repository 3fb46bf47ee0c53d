"""Classes of statements: those of pt mode are pt-query-digest's own, fingerprints and ids, by running both."""

from __future__ import annotations

import json
import random
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests import programs

#: Every rule of pt-query-digest 3.2, and what it stumbles over.
HAND_WRITTEN = [
    "SELECT /*!40001 SQL_NO_CACHE */ * FROM `foo`",
    "REPLACE /*foo.bar:3/3*/ INTO checksum.checksum (db, tbl) SELECT 'a', 'b'",
    "REPLACE /*foo.bar:3/33*/ INTO checksum.checksum (db, tbl) SELECT 'a', 'b'",
    "administrator command: Quit",
    "administrator command: Prepare",
    "CALL foo(1, 2, 'x')",
    "  call foo.bar (1, 2)",
    "call a(b)(c) (d)",
    "call foo",
    'select \'it\'\'s\', "say ""hi"""',
    r"select 'it\'s', 'a\\', b, \"x\"",
    r"select 'a\\' , b",
    "select 0xDEADBEEF, 0xdeadbeef, 1e5, 1E5, 1e+5, -5, +5, - 5, .5, 5., 1.5.6",
    "select _utf8mb4'abc', x'4D', X'4D', b'01', N'a'",
    "select a=a+1, a = a + 1, a-1, a - 1 from t1 where t1.c1=2",
    "select * from t where true and false or TRUEISH and a is null or b is NOT NULL and nullable",
    "select * from t where a in (1,2,3) and b in ('a', 'b') and c not in(1)",
    "select * from t where a in (now(), 1) and (a, b) in ((1, 2), (3, 4))",
    "select * from t where a in ( ? , ? ) , (1) and b",
    "insert into t (a, b) values (1, 2), (3, 4), (5, 'x)')",
    "insert into t (a, b) values (1, now()), (3, now())",
    "insert into t (a, b) values (1, 2), (3, 4) on duplicate key update a = values(a)",
    "insert into t (a, b) values (1, 2) on duplicate key update a = values(a), b = 3",
    "INSERT IGNORE INTO t(a,b)VALUES(1,2) , (3,4)",
    "INSERT  IGNORE  INTO t values (1),(2)",
    "insert low_priority into t values (1),(2)",
    "REPLACE INTO values_table VALUES(1,'a'),(2,'b')",
    "insert into t set a = 1, b = 2",
    "insert into t value (1, 2), (3, 4)",
    "select 1 -- comment",
    "select 1 -- it's a comment",
    "select 1 # comment\n from t",
    "select 1 --comment\r\n from t",
    "select a--1 from t",
    "select a /* c1 */ from /* c2\n */ t /*! straight_join */ where /**/ b = 1 /***/ and c = 2",
    "select /* open from t",
    "/* leading */ select 1",
    "use foo",
    "USE `foo`",
    "use foo bar",
    "select 1 union select 1 union select 1",
    "select 1 union all select 2 union all select 3",
    "select a from t where b = 1 union select a from t where b = 2",
    "select a from t where b = 1 union select a from t where b = 2 limit 5",
    "select a from t union select a from u union select a from u",
    "select a from (select b from c union select b from c) x",
    "select 1 union select 1 union all select 1",
    "select distinct a from t union all select distinct a from t order by a",
    "select a from t limit 5",
    "select a from t limit 5, 10",
    "select a from t limit 5,10",
    "select a from t limit 5 , 10",
    "select a from t limit 10 offset 5",
    "select a from (select b from u limit 5,6) x limit 1,2",
    "select a from t order by a asc",
    "select a from t order by a ASC, b DESC, c asc limit 3",
    "select a from t order by a asc , b   asc,c asc",
    "select a from t group by a asc order by b asc",
    "select ascii, asc from t order by ascii asc, ascension",
    "select a from t order by asc asc asc",
    "select a  from\tt\n where   b = 1 ",
    "\n select 1 \n",
    "Select A.B, C.D From E.F Where G = 'H'",
    "select '' , \"\" , ' ', 'a\nb'",
    "select 'unterminated",
    "select \"mixed 'quotes\" , 'mixed \"quotes'",
    "select 'a' 'b'",
    "select `1a`, `b-1`, 1a, a1b2, t1.2x from db2.t3",
    "select 'é', 'ß', ü from Ä",
    "select '\U0001f600', x from t",
    "update t set a = 1, b='x' where id=3 and c like '%x%'",
    "delete from t where a between 1 and 2",
    "select a from t where d = '2020-01-01 10:00:00' and e > date_sub(now(), interval 3 day)",
    "set @a = 1, @b := 'x'",
    "SET NAMES utf8mb4",
    "begin",
    "COMMIT",
    "select a from t where b=-1 and c=+1 and d=a-1 and e=f+-1",
    "select x?, b?, a?b from t where c=?",
    "select 1x, 0b01, 0x, x0, xx1, b1 from t",
    "select -- a\n 1",
    "select --",
    "select #",
    "select a.b.c, .1, 1., a.1 from t",
    "select value (1), values (2), invalues (3), in (4)",
    "select f(null), NULLIF(null, a), null+1, 'null'",
    "select abcdef0123, 12abcdefg, 9.9.9.9, +-+-1",
    "show tables like 'x%'",
    "load data infile '/tmp/x' into table t",
    "create table t (a int(11) default '0', b decimal(10,2))",
    "select json_extract(doc, '$.a[0].b') from t where doc->'$.x' = 1",
    "select * from t where a in (select 1)",
    "select * from t where a in ('x',\n 'y',\n'z')",
    "select 1;select 2",
]

TABLES = ["t", "sbtest1", "`my table`", "db.users", "`a`.`b2`", "log_2020_01"]
COLUMNS = ["a", "c1", "`id`", "u.name", "count_5", "x", "b"]
BLANKS = [" ", " ", " ", "  ", "\n", "\t", " /* note 1 */ ", " -- it is\n", " # x\n"]


def literal(rng: random.Random) -> str:
    """One literal as clients write them; quotes only where both sides read them alike is not asked for."""
    number = rng.randrange(10 ** rng.randrange(1, 9))
    return rng.choice(
        [
            str(number),
            f"-{number}",
            f"{number}.{number}",
            f"{number}e{number % 9}",
            f"0x{number:x}",
            f"0x{number:X}",
            f"x'{number:04x}'",
            f"'word{number}'",
            f"'it''s {number}'",
            f"'it\\'s {number}'",
            f'"dou{number}ble"',
            f"_utf8'{number}'",
            "NULL",
            "true",
            "''",
            f"'{number}\\\\'",
            f"'2020-01-{number % 28 + 1:02}'",
            "now()",
            f"@v{number % 3}",
        ]
    )


def condition(rng: random.Random) -> str:
    column, operator = rng.choice(COLUMNS), rng.choice(["=", " = ", ">", "<=", " != ", " like ", " <=> "])
    values = ", ".join(literal(rng) for _ in range(rng.randrange(1, 6)))
    return rng.choice(
        [
            f"{column}{operator}{literal(rng)}",
            f"{column} in ({values})",
            f"{column} NOT IN({values})",
            f"{column} between {literal(rng)} and {literal(rng)}",
            f"{column} is not null",
            f"{column}={column}+{literal(rng)}",
        ]
    )


def generated(rng: random.Random) -> str:
    table, blank = rng.choice(TABLES), rng.choice(BLANKS)
    where = f" and{rng.choice(BLANKS)}".join(condition(rng) for _ in range(rng.randrange(1, 4)))
    select = f"select{blank}{rng.choice(COLUMNS)}, {literal(rng)} from {table} where {where}"
    rows = [f"({literal(rng)}, {literal(rng)})" for _ in range(rng.randrange(1, 5))]
    union = rng.choice([" union ", " UNION ALL "])
    order = rng.choice(
        ["", " order by a asc", " ORDER BY a ASC, b desc", " group by a order by x  asc, b ASC"]
    )
    limit = rng.choice(["", " limit 5", " LIMIT 5,6", " limit 7 offset 8", " limit 1, 2"])
    return rng.choice(
        [
            f"{select}{order}{limit}",
            f"{select.upper()}{limit}",
            union.join([select] * rng.randrange(2, 5)) + order + limit,
            f"insert into {table} (a, b) values {', '.join(rows)}",
            f"INSERT IGNORE INTO {table} VALUES{','.join(rows)} on duplicate key update a=values(a)",
            f"replace into {table}{blank}values{blank}{' , '.join(rows)}",
            f"update {table} set a={literal(rng)},{blank}b = {literal(rng)} where {where}{limit}",
            f"delete from {table}{blank}where {where}{order}{limit}",
            f"call proc_{rng.randrange(3)}({literal(rng)},{literal(rng)})",
        ]
    )


def of_pt_query_digest(statements: list[str], folder: Path) -> dict[int, tuple[str, str, int]]:
    """For each class the number of its slowest statement: its id, its fingerprint, how many statements it has."""
    log = folder / "slow.log"
    with log.open("w") as file:
        for number, statement in enumerate(statements, 1):
            # The time tells which statement it is, where one differs.
            file.write(
                "# Time: 071218 11:48:27\n# User@Host: a[a] @ [10.0.0.1]\n"
                f"# Query_time: {number}.5  Lock_time: 0  Rows_sent: 0  Rows_examined: 0\n{statement};\n"
            )
    command = ["pt-query-digest", "--output", "json", "--limit", "100%", "--no-version-check", str(log)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    classes: list[dict[str, Any]] = json.loads(done.stdout)["classes"]
    return {
        int(float(found["metrics"]["Query_time"]["max"])) - 1: (
            found["checksum"],
            found["fingerprint"],
            int(found["query_count"]),
        )
        for found in classes
    }


def of_agent(statements: list[str], mode: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [programs.agent_path(), "fingerprint", "--mode", mode, "--null"],
        input="\0".join(statements).encode(),
        capture_output=True,
        timeout=60,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.needs("pt-query-digest")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_pt_mode_has_the_classes_of_pt_query_digest(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    # The log's own lines: USE is taken for the database, and blanks at the ends are not the statement's.
    hand_written = [text.strip() for text in HAND_WRITTEN if not text.lower().startswith("use ")]
    statements = hand_written + [generated(rng) for _ in range(400)]
    rng.shuffle(statements)
    theirs = of_pt_query_digest(statements, tmp_path)
    ours = of_agent(statements, "pt")
    assert len(ours) == len(statements)
    for number, (checksum, fingerprint, _) in theirs.items():
        mine = ours[number]
        assert mine["id"] == checksum, f"{statements[number]!r}\n{mine['fingerprint']!r}\n{fingerprint!r}"
        if fingerprint.isascii():
            assert mine["fingerprint"] == fingerprint, statements[number]
    counts = Counter(line["id"] for line in ours)
    assert counts == Counter({checksum: count for checksum, _, count in theirs.values()})
    assert len(counts) > 300


@pytest.mark.needs("pt-fingerprint")
def test_use_is_one_class_as_in_pt_fingerprint() -> None:
    statements = ["use foo", "USE `foo`"]
    peer = [
        subprocess.run(
            ["pt-fingerprint", "--query", text], capture_output=True, text=True, check=False
        ).stdout
        for text in statements
    ]
    assert [line["fingerprint"] + "\n" for line in of_agent(statements, "pt")] == peer


def test_strict_mode_leaves_nothing_that_pt_leaves() -> None:
    leaks = ["select 'it''s'", "select 0xDEADBEEF", "select _utf8mb4'abc'", r"select 'a\\' , 'b'"]
    for line in of_agent(leaks, "strict"):
        assert set(line["fingerprint"]) <= set("select?, "), line
    alike = ["select a=a+1 from t", "SELECT a = a + 2 /* x */ FROM t"]
    assert len({line["id"] for line in of_agent(alike, "strict")}) == 1
    assert len({line["id"] for line in of_agent(alike, "pt")}) == 2
