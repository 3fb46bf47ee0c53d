"""MariaDB's Connector/C by its ABI: a client that executes a prepared statement for many rows at once."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Sequence
from ctypes import c_char, c_char_p, c_int, c_uint, c_ulong, c_void_p

_ARRAY_SIZE = 201
_LONG, _STRING = 3, 254
_NULL = b"\1"
#: What a parameter may be, beside a value.
Value = int | str | None


class _Bind(ctypes.Structure):
    _fields_ = (
        ("length", c_void_p), ("is_null", c_void_p), ("buffer", c_void_p), ("error", c_void_p),
        ("indicator", c_void_p), ("calls", c_void_p * 3), ("buffer_length", c_ulong), ("offset", c_ulong),
        ("length_value", c_ulong), ("flags", c_uint), ("pack_length", c_uint), ("buffer_type", c_int),
        ("flags_of_value", c_char * 4), ("extension", c_void_p),
    )  # fmt: skip


def library() -> ctypes.CDLL | None:
    """None where it is not installed."""
    name = ctypes.util.find_library("mariadb")
    if name is None:
        return None
    found = ctypes.CDLL(name)
    for function in ("mysql_init", "mysql_real_connect", "mysql_stmt_init"):
        getattr(found, function).restype = c_void_p
    found.mysql_stmt_error.restype = c_char_p
    found.mysql_stmt_affected_rows.restype = ctypes.c_uint64
    return found


class Connection:
    def __init__(self, found: ctypes.CDLL, port: int, user: str, password: str, database: str) -> None:
        self.library, self.handle = found, c_void_p(found.mysql_init(None))
        names = (c_char_p(text.encode()) for text in ("127.0.0.1", user, password, database))
        connected = found.mysql_real_connect(self.handle, *names, c_uint(port), None, c_ulong(0))
        assert connected, "no connection"

    def close(self) -> None:
        self.library.mysql_close(self.handle)

    def bulk(self, sql: str, rows: Sequence[Sequence[Value]], times: int = 1) -> int:
        """Prepare, execute for all rows at once so many times, close; the rows affected by the last."""
        found, text, count = self.library, sql.encode(), len(rows)
        statement = c_void_p(found.mysql_stmt_init(self.handle))

        def check(failed: int) -> None:
            assert not failed, found.mysql_stmt_error(statement)

        check(found.mysql_stmt_prepare(statement, c_char_p(text), c_ulong(len(text))))
        check(found.mysql_stmt_attr_set(statement, c_int(_ARRAY_SIZE), ctypes.byref(c_uint(count))))
        columns = list(zip(*rows, strict=True))
        binds, kept = (_Bind * len(columns))(), []
        for bind, column in zip(binds, columns, strict=True):
            indicators = (c_char * count)(*(_NULL if value is None else b"\0" for value in column))
            values: ctypes.Array[c_char_p] | ctypes.Array[c_int]
            if any(isinstance(value, str) for value in column):
                values = (c_char_p * count)(*(str(value).encode() for value in column))
                bind.buffer_type = _STRING
            else:
                values = (c_int * count)(*(int(value or 0) for value in column))
                bind.buffer_type = _LONG
            lengths = (c_ulong * count)(*(len(str(value).encode()) for value in column))
            kept += [indicators, values, lengths]
            bind.buffer, bind.length = ctypes.addressof(values), ctypes.addressof(lengths)
            bind.indicator = ctypes.addressof(indicators)
        check(found.mysql_stmt_bind_param(statement, binds))
        for _ in range(times):
            check(found.mysql_stmt_execute(statement))
        affected = int(found.mysql_stmt_affected_rows(statement))
        found.mysql_stmt_close(statement)
        return affected
