"""The cases by MySQL Connector/Python, in pure Python: its C library's authentication no longer fits MariaDB."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import mysql.connector as library
import spoken


def connect(case: str, **options: Any) -> Any:
    encrypted = spoken.TLS or case == "tls"
    options = {
        "user": spoken.account(case),
        "password": spoken.PASSWORD,
        "database": spoken.CLIENT,
        "autocommit": True,
        "ssl_disabled": not encrypted,
        "collation": "utf8mb4_general_ci",
        **options,
    }
    return contextlib.closing(
        library.connect(host=spoken.HOST, port=spoken.PORT, use_pure=True, auth_plugin="mysql_native_password",
                        **options)
    )  # fmt: skip


def read(connection: Any, statement: str) -> None:
    """The statement and all of its results."""
    for result in connection.cmd_query_iter(statement):
        if "columns" in result:
            connection.get_rows()


def text() -> None:
    with connect("text") as connection:
        for statement in spoken.STATEMENTS["text"]:
            read(connection, statement)
        connection.ping()
        connection.cmd_ping()
        connection.cmd_init_db(spoken.CLIENT)
        connection.cmd_statistics()
        with contextlib.closing(connection.cursor()) as cursor:
            cursor.executemany("INSERT INTO t (name, price) VALUES (%s, %s)", [("a\0\n\\'", 1), ("b", None)])


def prepared() -> None:
    insert, select, count, absent, wrong = spoken.STATEMENTS["prepared"]
    for statement, rows in (
        (insert, spoken.ROWS),
        (select, ((-(2**63), 5), (0, None))),
        (count, ((), ())),
        (absent, ((1,),)),
        (wrong, ((1,),)),
    ):
        with (
            connect("prepared") as connection,
            contextlib.closing(connection.cursor(prepared=True)) as cursor,
            contextlib.suppress(library.Error),
        ):
            for row in rows:
                cursor.execute(statement, row)
                if cursor.with_rows:
                    cursor.fetchall()


def prepared_sql() -> None:
    raise spoken.Absent("it is the clients' without prepared statements")


def multi() -> None:
    with connect("multi") as connection:
        for statement in spoken.STATEMENTS["multi"]:
            with contextlib.suppress(library.Error):
                read(connection, statement)


def local() -> None:
    with (
        connect("local", allow_local_infile=True) as connection,
        contextlib.closing(connection.cursor()) as cursor,
    ):
        for statement in spoken.STATEMENTS["local"]:
            cursor.execute(statement)
            if cursor.with_rows:
                cursor.fetchall()


def cursors() -> None:
    """Executed by hand: the library fetches from cursors, but has no word of its own to open one."""
    raise spoken.Absent("Connector/Python opens no cursors of the server")


def unbuffered() -> None:
    with connect("unbuffered") as connection, contextlib.closing(connection.cursor(buffered=False)) as cursor:
        cursor.execute("SELECT * FROM many")
        while cursor.fetchmany(100):
            pass


def change_user() -> None:
    with connect("change_user") as connection:
        read(connection, "SELECT 'before'")
        connection.cmd_change_user(spoken.account("change_user_b"), spoken.PASSWORD, spoken.CLIENT)
        read(connection, "SELECT name FROM t WHERE id = 1")
        with contextlib.suppress(library.Error):
            connection.cmd_reset_connection()
        read(connection, f"USE {spoken.CLIENT}")
        read(connection, "SELECT name FROM t WHERE id = 4")


def compression() -> None:
    with connect("compression", compress=True) as connection:
        read(connection, "SELECT name FROM t WHERE id = 1")
        read(connection, "SELECT * FROM many")
        read(connection, spoken.of_length(100_000))
        with contextlib.closing(connection.cursor(prepared=True)) as cursor:
            cursor.execute("SELECT name FROM t WHERE id = ?", (3,))
            cursor.fetchall()


def tls() -> None:
    with connect("tls") as connection:
        read(connection, "SELECT name FROM t WHERE id = 1")


def large() -> None:
    with connect("large") as connection:
        for length in spoken.LARGE:
            read(connection, spoken.of_length(length))


def kill() -> None:
    for how in ("KILL QUERY", "KILL"):
        with connect("kill") as killer, contextlib.ExitStack() as stack:
            victim = stack.enter_context(connect("kill"))

            def sleep(victim: Any = victim) -> None:
                with contextlib.suppress(library.Error):
                    read(victim, "SELECT SLEEP(5)")

            thread = threading.Thread(target=sleep)
            thread.start()
            thread.join(0.5)
            read(killer, f"{how} {victim.connection_id}")
            thread.join()
            if how == "KILL QUERY":
                read(victim, "SELECT 'still here'")


def errors() -> None:
    with connect("errors") as connection:
        for statement in spoken.STATEMENTS["errors"]:
            with contextlib.suppress(library.Error):
                read(connection, statement)
    for wrong in ({"password": "wrong"}, {"database": "absent"}):
        with contextlib.suppress(library.Error), connect("errors", **wrong):
            pass


if __name__ == "__main__":
    spoken.run({name: case for name, case in globals().items() if callable(case) and name.islower()})
