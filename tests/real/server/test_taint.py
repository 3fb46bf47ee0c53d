"""Text that real servers accepted under each mode and character set that changes where strings end.

What is in a literal, or is a password, by the server's own reading is in nothing that headrace keeps.

The server's digest decides what is a literal: it has names, and no values.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests.programs import agent_path
from tests.servers import KINDS, Server, started

CANARY = b"zqjxkvwp"
#: A fingerprint has not even the beginning.
BEGINNING = CANARY[:4]
MODES = (
    "",
    "NO_BACKSLASH_ESCAPES",
    "ANSI_QUOTES",
    "ANSI_QUOTES,NO_BACKSLASH_ESCAPES",
    "ANSI,PIPES_AS_CONCAT",
)
SETS = ("utf8mb4", "latin1", "gbk", "sjis", "cp932", "big5", "euckr", "gb2312")
STATEMENTS = 40
SEED = 20261122
#: Pieces of the insides of literals; `~` is a first byte that takes a backslash or a quote along, in some sets.
PIECES = (
    b"zqjxkvwp", b"zqjxkvwp", b"\\", b"\\\\", b"''", b"\\'", b'"', b"\xbf", b"\x81", b"\xc4\xe3", b" # ", b" -- ",
    b"/*", b"*/", b", ", b") ", b"`", b";", b"x", b" or ", b"\\0", b"\n", b"0x", b"e1", b"$a$",
)  # fmt: skip
TEMPLATES = (
    b"SELECT a FROM t WHERE b = @ AND c IN (@, @) OR a = @",
    b"INSERT INTO t (a, b) VALUES (@, @), (@, NOW())",
    b"UPDATE t SET a = @, b = CONCAT(@, a) WHERE c LIKE @ ORDER BY a LIMIT 5",
    b"SELECT @, a AS x, CONCAT(@, a) FROM t WHERE c = @",
    b"SELECT CASE WHEN a = @ THEN @ ELSE @ END FROM `t`",
    b"SELECT a FROM t WHERE b = _utf8mb4 @ COLLATE utf8mb4_bin AND c = N@ AND a = x'7a71' AND b = @ @",
    b"DELETE FROM t WHERE a = @ /* zqjxkvwp */ AND b BETWEEN @ AND @ # zqjxkvwp",
    b"/*!50000 SELECT @ */ /*M! , @ */",
    b"SET @zz = @",
)
SECRETS = {
    "mariadb": (
        "CREATE USER u§n IDENTIFIED BY '§'",
        "CREATE USER u§n IDENTIFIED VIA mysql_native_password USING PASSWORD('§') OR ed25519 USING PASSWORD('§')",
        "ALTER USER u§n IDENTIFIED BY '§' REQUIRE SSL",
        "GRANT SELECT ON *.* TO u§n IDENTIFIED BY '§' WITH GRANT OPTION",
        "GRANT USAGE ON *.* TO u§n@'a' IDENTIFIED BY '§', u§n@'b' IDENTIFIED BY '§'",
        "SET PASSWORD FOR u§n = PASSWORD('§')",
        "CHANGE MASTER TO MASTER_HOST='h', MASTER_USER='r', MASTER_PASSWORD='§'",
        "CHANGE MASTER 'c' TO master_password = \"§\", MASTER_SSL_CA = 'x'",
        "SELECT DES_ENCRYPT('a', '§'), ENCODE('a', '§'), DECODE('a', '§')",
        "CREATE TABLE f§n (a INT) ENGINE=FEDERATED CONNECTION='mysql://u:§@127.0.0.1:3306/d/t'",
        "CREATE TABLE c§n (a INT) ENGINE=CONNECT TABLE_TYPE=MYSQL CONNECTION='mysql://u:§@127.0.0.1/d/t'",
    ),
    "mysql": (
        "CREATE USER u§n IDENTIFIED BY '§'",
        "CREATE USER u§n IDENTIFIED WITH caching_sha2_password BY '§' REQUIRE SSL, v§n IDENTIFIED BY '§'",
        "ALTER USER u§n IDENTIFIED BY '§' REPLACE '§' RETAIN CURRENT PASSWORD",
        "ALTER USER USER() IDENTIFIED BY '§'",
        "SET PASSWORD FOR u§n = '§' REPLACE '§'",
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST='h', SOURCE_USER='r', SOURCE_PASSWORD='§' FOR CHANNEL 'x'",
        "START REPLICA USER='r' PASSWORD='§'",
        "START GROUP_REPLICATION USER='r', PASSWORD='§'",
        "CLONE INSTANCE FROM 'u'@'127.0.0.1':3307 IDENTIFIED BY '§'",
        "CREATE TABLE f§n (a INT) ENGINE=FEDERATED CONNECTION='mysql://u:§@127.0.0.1:3306/d/t'",
    ),
    "both": (
        "SET PASSWORD = '§'",
        "CREATE SERVER s§n FOREIGN DATA WRAPPER mysql OPTIONS (USER 'u', PASSWORD '§', HOST 'h')",
        "ALTER SERVER s§n OPTIONS (USER 'u', PASSWORD '§')",
        "SELECT AES_ENCRYPT('§', '§'), AES_DECRYPT(b, '§') FROM t",
        "UPDATE t SET b = AES_ENCRYPT('§', UNHEX(SHA2('§', 512)))",
        "INSERT INTO users (name, password) VALUES ('bob', '§')",
        "UPDATE users SET password = '§', name = 'x' WHERE password = '§'",
        "SET @password = '§'",
        "SET GLOBAL init_connect = 'SET PASSWORD = ''§'''",
        "PREPARE p FROM 'CREATE USER x§n IDENTIFIED BY ''§'''",
        "CREATE PROCEDURE p§n() SET PASSWORD = '§'",
        "CREATE EVENT e§n ON SCHEDULE EVERY 1 DAY DO ALTER USER u§n IDENTIFIED BY '§'",
    ),
}


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest, folder: Path) -> Iterator[Server]:
    options = ["--performance-schema=ON", "--max-digest-length=65536"]
    options += ["--performance-schema-max-digest-length=65536"]
    with started(request.param, folder / request.param, *options) as one:
        one.sql(
            "UPDATE performance_schema.setup_consumers SET enabled = 'YES' WHERE name LIKE 'events_statements%'",
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (a TEXT, b TEXT, c TEXT)",
            "CREATE TABLE shop.users (name TEXT, password TEXT)",
        )
        yield one


class Session:
    """A client that says bytes, and asks another session what the server made of them."""

    def __init__(self, server: Server) -> None:
        self.said = self._open(server)
        self.asked = self._open(server).cursor()
        self.asked.execute(
            "SELECT thread_id FROM performance_schema.threads WHERE processlist_id = %s",
            (self.said.thread_id(),),
        )
        ((self.thread,),) = self.asked.fetchall()

    @staticmethod
    def _open(server: Server) -> pymysql.Connection[Any]:
        link = pymysql.connect(
            unix_socket=server.socket, user="root", database="shop", ssl_disabled=True, charset="latin1"
        )
        link.encoding = "iso8859-1"  # of answers: any byte is a letter
        return link

    def say(self, text: bytes) -> bool:
        """Whether the server could parse it: what it means is no matter."""
        try:
            self.said.query(text)
        except pymysql.Error as error:
            return error.args[0] not in (1064, 1300, 1305, 3854)
        return True

    def names(self) -> bytes:
        """The last statement as the server digests it."""
        # A statement is in the history for certain only once the next one was answered.
        self.said.query("DO 0")
        self.asked.execute(
            "SELECT digest_text FROM performance_schema.events_statements_history WHERE thread_id = %s"
            " AND digest_text <> 'DO ?' ORDER BY event_id DESC LIMIT 1",
            (self.thread,),
        )
        ((text,),) = self.asked.fetchall()
        return str(text or CANARY.decode()).encode()


def statement(random_: random.Random, mode: str) -> bytes:
    text = b""
    for byte in random_.choice(TEMPLATES):
        if byte != ord("@"):
            text += bytes([byte])
            continue
        quote = b"'" if "ANSI" in mode or random_.random() < 0.7 else b'"'
        content = b"".join(random_.choices(PIECES, k=random_.randint(1, 5)))
        content = content.replace(b'"', b"") if quote == b'"' else content
        text += quote + content + quote
    return text.replace(b"\0", b"")


def log(path: Path, statements: Sequence[bytes], end: bytes = b";\n") -> Path:
    """A slow log of these, one session."""
    head = b"/usr/sbin/mysqld, Version: 8.0.31 (Source). started with:\nTcp port: 3306  Unix socket: /s\n"
    head += b"Time                 Id Command    Argument\n"
    with path.open("wb") as file:
        file.write(head)
        for number, text in enumerate(statements):
            at = datetime(2024, 3, 1, 12, tzinfo=UTC) + timedelta(seconds=number)
            file.write(f"# Time: {at:%Y-%m-%dT%H:%M:%S.%f}Z\n".encode())
            file.write(b"# User@Host: app[app] @ localhost []  Id: 1\n")
            file.write(b"# Query_time: 0.001  Lock_time: 0.000000 Rows_sent: 0  Rows_examined: 0\n")
            file.write(f"SET timestamp={int(at.timestamp())};\n".encode() + text + end)
    return path


def agent(*arguments: str | Path) -> bytes:
    argv = [str(agent_path()), *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def kept(folder: Path, statements: Sequence[bytes], *options: str, end: bytes = b";\n") -> bytes:
    """All that a recording of these holds."""
    source, to = log(folder / "a.log", statements, end), folder / "a.rec"
    agent("record", source, "--output", to, "--force", *options)
    return agent("events", to)


@pytest.mark.parametrize("mode", MODES)
def test_literals(server: Server, tmp_path: Path, mode: str) -> None:
    random_ = random.Random(f"{SEED} {mode}")
    accepted: list[bytes] = []
    for names in SETS:
        session = Session(server)
        if not session.say(f"SET NAMES {names}".encode()):
            continue  # this server does not have it
        assert session.say(f"SET sql_mode = '{mode}'".encode())
        said = 0
        for _ in range(STATEMENTS):
            text = statement(random_, mode)
            if session.say(text) and BEGINNING not in session.names().lower():
                accepted.append(text)
                said += 1
        session.said.close()
        assert said > STATEMENTS / 20, (names, said)
    nothing_is_left(tmp_path, accepted)
    # As a shipper's limit cuts them, with their semicolon.
    cut = [text[:length].rstrip(b"\n; ") for text in accepted for length in range(1, len(text))]
    nothing_is_left(tmp_path, [text for text in cut if text], end=b"\n")


def nothing_is_left(folder: Path, statements: Sequence[bytes], end: bytes = b";\n") -> None:
    source = log(folder / "literals.log", statements, end)
    for found in (
        agent("digest", source, "--no-samples", "--group", "class"),
        agent("digest", source, "--no-samples", "--group", "table"),
        kept(folder, statements, end=end),
    ):
        at = found.lower().find(BEGINNING)
        assert at < 0, found[max(0, at - 200) : at + 100]
    agent("record", source, "--output", folder / "b.rec", "--force", "--with-literals")
    agent("recording", "anonymise", folder / "b.rec", "--output", folder / "c.rec", "--force")
    found = agent("events", folder / "c.rec")
    # A statement that ends in a literal is left out, and said to be.
    assert found.count(b"\n") >= len(statements) // (1 if end == b";\n" else 4)
    at = found.lower().find(CANARY)
    assert at < 0, found[max(0, at - 300) : at + 100]


def test_passwords(server: Server, tmp_path: Path) -> None:
    vendor = "mariadb" if "MariaDB" in str(server.sql("SELECT VERSION()")[0][0]) else "mysql"
    session = Session(server)
    accepted = []
    for number, text in enumerate((*SECRETS[vendor], *SECRETS["both"])):
        said = text.replace("§n", str(number)).replace("§", CANARY.decode() + "A1!").encode()
        if session.say(said):
            accepted.append(said)
        else:
            print("not accepted:", text)
    for undo in ("SET PASSWORD = ''", "SET PASSWORD = PASSWORD('')", "SET GLOBAL init_connect = ''"):
        session.say(undo.encode())
    assert len(accepted) >= len(SECRETS["both"]) + len(SECRETS[vendor]) - 4
    for options in ((), ("--with-literals",)):
        found = kept(tmp_path, accepted, *options)
        at = found.find(CANARY)
        assert at < 0, found[max(0, at - 300) : at + 100]
