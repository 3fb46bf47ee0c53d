"""Slow logs as MariaDB writes them, of any length, the same for the same seed: what a busy shop would log.

A tenth of the events are TPC-C's, a tenth long statements of an object mapper, the rest sysbench's
``oltp_read_write``, whose shares of statements are its own.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

#: Busy seconds that are made once and then come again under later times.
SECONDS = 64
EVENTS_A_SECOND = 2500
START_S = 1_700_000_000
_STAMP = b"\x00STAMP\x00"

_OLTP = [
    (10, "SELECT c FROM sbtest{t} WHERE id={id}"),
    (1, "SELECT c FROM sbtest{t} WHERE id BETWEEN {id} AND {id2}"),
    (1, "SELECT SUM(k) FROM sbtest{t} WHERE id BETWEEN {id} AND {id2}"),
    (1, "SELECT c FROM sbtest{t} WHERE id BETWEEN {id} AND {id2} ORDER BY c"),
    (1, "SELECT DISTINCT c FROM sbtest{t} WHERE id BETWEEN {id} AND {id2} ORDER BY c"),
    (1, "UPDATE sbtest{t} SET k=k+1 WHERE id={id}"),
    (1, "UPDATE sbtest{t} SET c='{c}' WHERE id={id}"),
    (1, "DELETE FROM sbtest{t} WHERE id={id}"),
    (1, "INSERT INTO sbtest{t} (id, k, c, pad) VALUES ({id}, {id2}, '{c}', '{pad}')"),
    (1, "BEGIN"),
    (1, "COMMIT"),
]
_TPCC = [
    "SELECT c_discount, c_last, c_credit, w_tax FROM customer, warehouse "
    "WHERE w_id = {t} AND c_w_id = w_id AND c_d_id = {d} AND c_id = {id}",
    "SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = {t} AND d_id = {d} FOR UPDATE",
    "UPDATE district SET d_next_o_id = {id} WHERE d_id = {d} AND d_w_id = {t}",
    "INSERT INTO new_orders (no_o_id, no_d_id, no_w_id) VALUES ({id},{d},{t})",
    "SELECT s_quantity, s_data, s_dist_01, s_dist_02 FROM stock WHERE s_i_id = {id} AND s_w_id = {t} FOR UPDATE",
    "INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_quantity, ol_amount, ol_dist_info) "
    "VALUES ({id},{d},{t},1,{id2},5,123.45,'{pad}')",
    "UPDATE customer SET c_balance=-10.5, c_ytd_payment=10.5 WHERE c_w_id = {t} AND c_d_id = {d} AND c_id = {id}",
]


def statement(chance: random.Random) -> str:
    """One statement of the mix."""
    values = {
        "t": chance.randrange(1, 9),
        "d": chance.randrange(1, 11),
        "id": chance.randrange(1, 1_000_000),
        "id2": chance.randrange(1, 1_000_000),
        "c": "-".join(f"{chance.randrange(10**10, 10**11)}" for _ in range(10)),
        "pad": "-".join(f"{chance.randrange(10**10, 10**11)}" for _ in range(5)),
    }
    kind = chance.random()
    if kind < 0.1:
        return chance.choice(_TPCC).format(**values)
    if kind < 0.2:
        return _mapped(chance)
    weights = [weight for weight, _ in _OLTP]
    return chance.choices(_OLTP, weights)[0][1].format(**values)


def _mapped(chance: random.Random) -> str:
    """What an object mapper writes: every column by name, long lists, a comment of where it came from."""
    table = chance.randrange(40)
    columns = ", ".join(
        f"`orders_{table}`.`column_{n}` AS `c{n}_{table}_`" for n in range(chance.choice((12, 24)))
    )
    listed = ", ".join(str(chance.randrange(10**6)) for _ in range(chance.randrange(1, 60)))
    return (
        f"/* app:shop,request:{chance.randrange(16**8):08x} */ SELECT {columns} FROM `orders_{table}` "
        f"LEFT OUTER JOIN `customers` ON `customers`.`id` = `orders_{table}`.`customer_id` "
        f"WHERE `orders_{table}`.`id` IN ({listed}) "
        f"AND `orders_{table}`.`state` = 'open it''s {chance.randrange(99)}' "
        f"ORDER BY `orders_{table}`.`created_at` DESC LIMIT {chance.randrange(1, 100)}"
    )


def many_classes(chance: random.Random) -> str:
    """A short statement of one of 10,000 classes, some of them far more often than others: a third of all follow a
    steep law, so that the rest reach the others."""
    steep = min(int(chance.paretovariate(0.6)) - 1, 10**9) % 10_000
    number = steep if chance.random() < 1 / 3 else chance.randrange(10_000)
    return f"SELECT a, b FROM shard_{number} WHERE id = {chance.randrange(10**6)}"


def second(seed: int, events: int, make: Callable[[random.Random], str]) -> bytes:
    """The events of one second without its `# Time:` line, their stamps to be filled in."""
    chance = random.Random(seed)
    out = []
    for _ in range(events):
        response = min(chance.lognormvariate(-9.0, 1.3), 20.0)
        rows = chance.choice((0, 1, 1, 1, 100))
        user, host = chance.choice((("shop", "10.0.0.5"), ("shop", "10.0.0.6"), ("report", "10.0.1.9")))
        out.append(
            f"# User@Host: {user}[{user}] @  [{host}]\n"
            f"# Thread_id: {chance.randrange(100, 400)}  Schema: shop  QC_hit: No\n"
            f"# Query_time: {response:.6f}  Lock_time: {response / 9:.6f}  "
            f"Rows_sent: {rows}  Rows_examined: {rows * 3}\n"
            f"# Rows_affected: 0  Bytes_sent: {rows * 190 + 11}\n"
            f"SET timestamp={_STAMP.decode()};\n{make(chance)};\n"
        )
    return "".join(out).encode()


def slow_log(
    total_bytes: int, seed: int = 1, make: Callable[[random.Random], str] = statement
) -> Iterator[bytes]:
    """A log of at least so many bytes, second after second, each of ``EVENTS_A_SECOND``. Times are UTC."""
    busy = [second(seed * SECONDS + number, EVENTS_A_SECOND, make) for number in range(SECONDS)]
    header = (
        b"/usr/sbin/mariadbd, Version: 10.11.6-MariaDB-log (Debian 12). started with:\n"
        b"Tcp port: 3306  Unix socket: /run/mysqld/mysqld.sock\nTime\t\t    Id Command\tArgument\n"
    )
    yield header
    done, number = len(header), 0
    while done < total_bytes:
        now_s = START_S + number
        stamp = time.strftime("# Time: %y%m%d %H:%M:%S\n", time.gmtime(now_s)).encode()
        part = stamp + busy[number % SECONDS].replace(_STAMP, str(now_s).encode())
        yield part
        done += len(part)
        number += 1
