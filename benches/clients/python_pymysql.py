"""The cases by PyMySQL. It has no prepared statements, no compression and no change of user."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pymysql
import spoken
from pymysql.constants import CLIENT
from pymysql.cursors import SSCursor


def connect(case: str, **options: Any) -> Any:
    if spoken.TLS or case == "tls":
        options["ssl"] = {"check_hostname": False, "verify_mode": "none"}
    else:
        options["ssl_disabled"] = True
    options = {"user": spoken.account(case), "database": spoken.CLIENT, "autocommit": True, **options}
    return contextlib.closing(
        pymysql.connect(host=spoken.HOST, port=spoken.PORT, password=spoken.PASSWORD, **options)
    )


def read(cursor: Any, statement: str) -> None:
    """The statement and all of its results."""
    cursor.execute(statement)
    cursor.fetchall()
    while cursor.nextset():
        cursor.fetchall()


def text() -> None:
    with connect("text") as connection, connection.cursor() as cursor:
        for statement in spoken.STATEMENTS["text"]:
            read(cursor, statement)
        connection.ping(reconnect=False)
        connection.select_db(spoken.CLIENT)
        cursor.executemany("INSERT INTO t (name, price) VALUES (%s, %s)", [("a\0\n\\'", 1), ("b", None)])


def prepared() -> None:
    raise spoken.Absent("PyMySQL has no prepared statements of the protocol")


def prepared_sql() -> None:
    with connect("prepared_sql") as connection, connection.cursor() as cursor:
        for statement in spoken.STATEMENTS["prepared_sql"]:
            read(cursor, statement)


def multi() -> None:
    with connect("multi", client_flag=CLIENT.MULTI_STATEMENTS) as connection, connection.cursor() as cursor:
        for statement in spoken.STATEMENTS["multi"]:
            with contextlib.suppress(pymysql.Error):
                read(cursor, statement)


def local() -> None:
    with connect("local", local_infile=True) as connection, connection.cursor() as cursor:
        for statement in spoken.STATEMENTS["local"]:
            read(cursor, statement)


def cursors() -> None:
    raise spoken.Absent("PyMySQL has no cursors of the server")


def unbuffered() -> None:
    with connect("unbuffered", cursorclass=SSCursor) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM many")
        while cursor.fetchmany(100):
            pass


def change_user() -> None:
    raise spoken.Absent("PyMySQL cannot change the user of a connection")


def compression() -> None:
    raise spoken.Absent("PyMySQL cannot compress")


def tls() -> None:
    with connect("tls") as connection, connection.cursor() as cursor:
        read(cursor, "SELECT VARIABLE_VALUE <> '' FROM information_schema.SESSION_STATUS "
                     "WHERE VARIABLE_NAME = 'Ssl_cipher'")  # fmt: skip
        read(cursor, "SELECT name FROM t WHERE id = 1")


def large() -> None:
    with connect("large") as connection, connection.cursor() as cursor:
        for length in spoken.LARGE:
            read(cursor, spoken.of_length(length))


def kill() -> None:
    for how in ("KILL QUERY", "KILL"):
        with connect("kill") as victim, connect("kill") as killer, killer.cursor() as cursor:

            def sleep(victim: Any = victim) -> None:
                with contextlib.suppress(pymysql.Error), victim.cursor() as cursor:
                    read(cursor, "SELECT SLEEP(5)")

            thread = threading.Thread(target=sleep)
            thread.start()
            thread.join(0.5)
            read(cursor, f"{how} {victim.thread_id()}")
            thread.join()
            if how == "KILL QUERY":
                with victim.cursor() as cursor:
                    read(cursor, "SELECT 'still here'")


def errors() -> None:
    with connect("errors") as connection, connection.cursor() as cursor:
        for statement in spoken.STATEMENTS["errors"]:
            with contextlib.suppress(pymysql.Error):
                read(cursor, statement)
    for wrong in ({"password": "wrong"}, {"database": "absent"}):
        with contextlib.suppress(pymysql.Error), refused(**wrong):
            pass


def refused(**wrong: str) -> Any:
    options: dict[str, Any] = {"ssl": {"verify_mode": "none"}} if spoken.TLS else {"ssl_disabled": True}
    options |= {"user": spoken.account("errors"), "password": spoken.PASSWORD, **wrong}
    return contextlib.closing(pymysql.connect(host=spoken.HOST, port=spoken.PORT, **options))


if __name__ == "__main__":
    spoken.run({name: case for name, case in globals().items() if callable(case) and name.islower()})
