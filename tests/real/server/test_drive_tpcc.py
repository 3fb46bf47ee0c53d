"""TPC-C on a real MariaDB: the population, the twelve conditions, and a run that the database confirms."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from math import sqrt
from pathlib import Path
from typing import Any

import pytest

from tests.programs import agent_path
from tests.servers import Server, mariadb

WAREHOUSES = 2
DISTRICTS = 10 * WAREHOUSES
SHARES = {"new_order": 0.45, "payment": 0.43, "order_status": 0.04, "delivery": 0.04, "stock_level": 0.04}


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    options = ("--innodb-buffer-pool-size=256M", "--innodb-flush-log-at-trx-commit=0")
    with mariadb(folder / "m", *options) as running:
        yield running


@pytest.fixture(scope="module")
def loaded(server: Server) -> Server:
    """A server with two warehouses in the database tpcc."""
    server.sql("CREATE DATABASE tpcc")
    done = drive("load", server, "tpcc", warehouses=WAREHOUSES)
    assert isinstance(json.loads(done.splitlines()[-1]), dict)
    return server


def drive(command: str, server: Server, database: str, *, fails: bool = False, **spec: Any) -> str:
    """What a drive command prints; what it says on standard error where it must fail."""
    workload = {key: spec.pop(key) for key in ("warehouses", "times", "foreign_keys") if key in spec}
    text = json.dumps({"workload": {"kind": "tpcc", **workload}, **spec})
    argv = [agent_path(), "drive", command, "-", "--mysql-socket", server.socket, "--mysql-user", "root"]
    argv += ["--mysql-database", database]
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr if fails else done.stdout


def broken(server: Server, database: str = "tpcc", warehouses: int = WAREHOUSES) -> dict[int, int]:
    """Which conditions do not hold, and how often."""
    findings = json.loads(drive("verify", server, database, warehouses=warehouses))
    assert [finding["condition"] for finding in findings] == list(range(1, 13))
    assert all(finding["holds"] == (finding["violations"] == 0) and finding["what"] for finding in findings)
    return {finding["condition"]: finding["violations"] for finding in findings if not finding["holds"]}


def counts(lines: str) -> tuple[Counter[str], dict[str, Any]]:
    """How many operations of each kind ended well, before and after the window, too; and the last line."""
    ended: Counter[str] = Counter()
    last: dict[str, Any] = {}
    for line in lines.splitlines():
        last = json.loads(line)
        if last["kind"] in ("interval", "drain"):
            ended[last["operation"]] += last["count"]
            assert not last["failed"]["buckets"], last
    return ended, last


def number(server: Server, sql: str, database: str = "tpcc") -> int:
    rows = server.sql(f"USE {database}", sql)
    return int(str(rows[0][0]))


#: A statement that gives one number, and that number after the load.
POPULATION = {
    "SELECT COUNT(*) FROM tpcc_item": 100_000,
    "SELECT COUNT(*) FROM tpcc_item WHERE i_data LIKE '%ORIGINAL%'": pytest.approx(10_000, abs=500),
    "SELECT COUNT(*) FROM tpcc_item WHERE i_price BETWEEN 1 AND 100 AND i_im_id BETWEEN 1 AND 10000": 100_000,
    "SELECT COUNT(*) FROM tpcc_warehouse WHERE w_ytd = 300000 AND w_zip LIKE '____11111'": WAREHOUSES,
    "SELECT COUNT(*) FROM tpcc_district WHERE d_ytd = 30000 AND d_next_o_id = 3001 AND d_tax <= 0.2": DISTRICTS,
    "SELECT COUNT(*) FROM tpcc_stock": 100_000 * WAREHOUSES,
    "SELECT COUNT(*) FROM tpcc_stock WHERE s_w_id = 2 AND s_data LIKE '%ORIGINAL%'": pytest.approx(
        10_000, abs=500
    ),
    "SELECT COUNT(*) FROM tpcc_stock WHERE s_quantity BETWEEN 10 AND 100 AND LENGTH(s_dist_10) = 24": 100_000
    * WAREHOUSES,
    "SELECT COUNT(*) FROM tpcc_customer": 3000 * DISTRICTS,
    "SELECT COUNT(*) FROM tpcc_customer WHERE c_w_id = 2 AND c_d_id = 3 AND c_credit = 'BC'": pytest.approx(
        300, abs=90
    ),
    "SELECT COUNT(DISTINCT c_last) FROM tpcc_customer WHERE c_w_id = 1 AND c_d_id = 1 AND c_id <= 1000": 1000,
    "SELECT MIN(c_id) FROM tpcc_customer WHERE c_w_id = 1 AND c_d_id = 1 AND c_last = 'PRICALLYOUGHT'": 372,
    "SELECT COUNT(*) FROM tpcc_customer WHERE c_balance = -10 AND c_ytd_payment = 10 AND c_middle = 'OE'": 3000
    * DISTRICTS,
    "SELECT MIN(LENGTH(c_data)) >= 300 AND MAX(LENGTH(c_data)) = 500 FROM tpcc_customer": 1,
    "SELECT COUNT(*) FROM tpcc_history WHERE h_amount = 10": 3000 * DISTRICTS,
    "SELECT COUNT(DISTINCT o_w_id, o_d_id, o_c_id) FROM tpcc_orders": 3000 * DISTRICTS,
    "SELECT COUNT(*) FROM tpcc_orders WHERE o_id = o_c_id AND o_w_id = 1": pytest.approx(10, abs=15),
    "SELECT COUNT(*) FROM tpcc_orders WHERE o_carrier_id IS NULL": 900 * DISTRICTS,
    "SELECT MIN(no_o_id) + COUNT(*) FROM tpcc_new_order WHERE no_w_id = 1 AND no_d_id = 10": 2101 + 900,
    "SELECT MIN(o_ol_cnt) * 100 + MAX(o_ol_cnt) FROM tpcc_orders": 515,
    "SELECT COUNT(*) FROM tpcc_order_line": pytest.approx(30_000 * DISTRICTS, rel=0.01),
    "SELECT COUNT(*) FROM tpcc_order_line WHERE (ol_amount = 0) <> (ol_o_id < 2101)": 0,
    "SELECT COUNT(DISTINCT index_name) FROM information_schema.statistics WHERE table_schema = 'tpcc'": 3,
}


def test_the_population(loaded: Server) -> None:
    found = {sql: number(loaded, sql) for sql in POPULATION}
    assert found == POPULATION
    assert broken(loaded) == {}


def test_a_second_load_is_refused(loaded: Server) -> None:
    message = drive("load", loaded, "tpcc", warehouses=1, fails=True)
    assert "the table tpcc_" in message
    assert "drive clean" in message


LINE = "(ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info)"
HISTORY = "(h_c_w_id, h_c_d_id, h_c_id, h_w_id, h_d_id, h_date, h_amount, h_data)"
ORDER_1 = "o_w_id = 1 AND o_d_id = 1 AND o_id = 1"
LINES_1 = "ol_w_id = 1 AND ol_d_id = 1 AND ol_o_id = 1"
CUSTOMER_1 = "c_w_id = 1 AND c_d_id = 1 AND c_id = 1"
#: A delivery out of its turn, of an order in the midst of the new ones.
MIDST = "o_w_id = 1 AND o_d_id = 1 AND o_id = 2950"
LINES_MIDST = "ol_w_id = 1 AND ol_d_id = 1 AND ol_o_id = 2950"
CUSTOMER_MIDST = f"c_w_id = 1 AND c_d_id = 1 AND c_id = (SELECT o_c_id FROM tpcc_orders WHERE {MIDST})"
AMOUNT_MIDST = f"(SELECT SUM(ol_amount) FROM tpcc_order_line WHERE {LINES_MIDST})"
#: For each condition: what breaks it and no other, what mends it, and how many violations there are.
BREAKS: dict[int, tuple[list[str], list[str], int]] = {
    1: (
        [
            "UPDATE tpcc_warehouse SET w_ytd = w_ytd + 1 WHERE w_id = 1",
            f"INSERT INTO tpcc_history {HISTORY} VALUES (0, 0, 0, 1, 0, NOW(), 1, '')",
        ],
        [
            "UPDATE tpcc_warehouse SET w_ytd = w_ytd - 1 WHERE w_id = 1",
            "DELETE FROM tpcc_history WHERE h_d_id = 0",
        ],
        1,
    ),
    2: (
        ["UPDATE tpcc_district SET d_next_o_id = d_next_o_id + 1 WHERE d_id < 3"],
        ["UPDATE tpcc_district SET d_next_o_id = d_next_o_id - 1 WHERE d_id < 3"],
        2 * WAREHOUSES,
    ),
    3: (
        [
            "DELETE FROM tpcc_new_order WHERE no_w_id = 1 AND no_d_id = 1 AND no_o_id = 2950",
            f"UPDATE tpcc_orders SET o_carrier_id = 1 WHERE {MIDST}",
            f"UPDATE tpcc_order_line SET ol_delivery_d = NOW() WHERE {LINES_MIDST}",
            f"UPDATE tpcc_customer SET c_balance = c_balance + {AMOUNT_MIDST}, c_delivery_cnt = c_delivery_cnt + 1"
            f" WHERE {CUSTOMER_MIDST}",
        ],
        [
            "INSERT INTO tpcc_new_order (no_w_id, no_d_id, no_o_id) VALUES (1, 1, 2950)",
            f"UPDATE tpcc_orders SET o_carrier_id = NULL WHERE {MIDST}",
            f"UPDATE tpcc_order_line SET ol_delivery_d = NULL WHERE {LINES_MIDST}",
            f"UPDATE tpcc_customer SET c_balance = c_balance - {AMOUNT_MIDST}, c_delivery_cnt = c_delivery_cnt - 1"
            f" WHERE {CUSTOMER_MIDST}",
        ],
        1,
    ),
    4: (
        [f"INSERT INTO tpcc_order_line {LINE} VALUES (1, 1, 0, 1, 1, 1, 5, 1, '')"],
        ["DELETE FROM tpcc_order_line WHERE ol_o_id = 0"],
        1,
    ),
    5: (
        [
            f"UPDATE tpcc_orders SET o_carrier_id = NULL WHERE {ORDER_1}",
            f"UPDATE tpcc_order_line SET ol_delivery_d = NULL WHERE {LINES_1}",
        ],
        [
            f"UPDATE tpcc_orders SET o_carrier_id = 1 WHERE {ORDER_1}",
            f"UPDATE tpcc_order_line SET ol_delivery_d = NOW() WHERE {LINES_1}",
        ],
        1,
    ),
    6: (
        [
            f"UPDATE tpcc_orders SET o_ol_cnt = o_ol_cnt + 1 WHERE {ORDER_1}",
            "UPDATE tpcc_orders SET o_ol_cnt = o_ol_cnt - 1 WHERE o_w_id = 1 AND o_d_id = 1 AND o_id = 3000",
        ],
        [
            f"UPDATE tpcc_orders SET o_ol_cnt = o_ol_cnt - 1 WHERE {ORDER_1}",
            "UPDATE tpcc_orders SET o_ol_cnt = o_ol_cnt + 1 WHERE o_w_id = 1 AND o_d_id = 1 AND o_id = 3000",
        ],
        2,
    ),
    7: (
        [f"UPDATE tpcc_order_line SET ol_delivery_d = NULL WHERE {LINES_1} AND ol_number < 4"],
        [f"UPDATE tpcc_order_line SET ol_delivery_d = NOW() WHERE {LINES_1} AND ol_number < 4"],
        3,
    ),
    8: (
        [f"INSERT INTO tpcc_history {HISTORY} VALUES (0, 0, 0, 1, 0, NOW(), 1, '')"],
        ["DELETE FROM tpcc_history WHERE h_d_id = 0"],
        1,
    ),
    9: (
        [
            "UPDATE tpcc_district SET d_ytd = d_ytd + 0.01 WHERE d_w_id = 1 AND d_id = 1",
            "UPDATE tpcc_district SET d_ytd = d_ytd - 0.01 WHERE d_w_id = 1 AND d_id = 2",
        ],
        [
            "UPDATE tpcc_district SET d_ytd = d_ytd - 0.01 WHERE d_w_id = 1 AND d_id = 1",
            "UPDATE tpcc_district SET d_ytd = d_ytd + 0.01 WHERE d_w_id = 1 AND d_id = 2",
        ],
        2,
    ),
    10: (
        [
            "UPDATE tpcc_customer SET c_balance = c_balance + 0.01, c_ytd_payment = c_ytd_payment - 0.01"
            f" WHERE {CUSTOMER_1}"
        ],
        [
            "UPDATE tpcc_customer SET c_balance = c_balance - 0.01, c_ytd_payment = c_ytd_payment + 0.01"
            f" WHERE {CUSTOMER_1}"
        ],
        1,
    ),
    11: (
        [f"UPDATE tpcc_customer SET c_delivery_cnt = c_delivery_cnt + 1 WHERE {CUSTOMER_1}"],
        [f"UPDATE tpcc_customer SET c_delivery_cnt = c_delivery_cnt - 1 WHERE {CUSTOMER_1}"],
        1,
    ),
    12: (
        [f"UPDATE tpcc_customer SET c_ytd_payment = c_ytd_payment + 0.01 WHERE {CUSTOMER_1}"],
        [f"UPDATE tpcc_customer SET c_ytd_payment = c_ytd_payment - 0.01 WHERE {CUSTOMER_1}"],
        1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("condition", range(1, 13))
def test_each_condition_is_broken_alone(loaded: Server, condition: int) -> None:
    damage, repair, violations = BREAKS[condition]
    loaded.sql("USE tpcc", *damage)
    try:
        assert broken(loaded) == {condition: violations}
    finally:
        loaded.sql("USE tpcc", *repair)


def test_tables_of_another_size_are_refused(loaded: Server) -> None:
    """Empty or smaller tables would violate nothing."""
    message = drive("verify", loaded, "tpcc", warehouses=1, fails=True)
    assert "the tables have 2 warehouses, the SPEC says 1" in message


def test_a_payment_that_is_half_lost_is_seen_by_all_it_touches(loaded: Server) -> None:
    pay = "UPDATE tpcc_district SET d_ytd = d_ytd {} 5 WHERE d_w_id = 2 AND d_id = 3"
    loaded.sql("USE tpcc", pay.format("+"))
    try:
        assert broken(loaded) == {1: 1, 9: 1}
    finally:
        loaded.sql("USE tpcc", pay.format("-"))


def test_a_misplaced_order_is_seen_by_all_it_touches(loaded: Server) -> None:
    """The last order of a district stands in another one, which does not exist."""
    move = "UPDATE tpcc_orders SET o_d_id = {} WHERE o_w_id = 2 AND o_d_id = {} AND o_id = 3000"
    loaded.sql("USE tpcc", move.format(0, 9))
    try:
        assert broken(loaded) == {2: 1, 4: 1, 5: 1, 6: 1, 11: 1}
    finally:
        loaded.sql("USE tpcc", move.format(9, 0))


def test_the_database_confirms_what_the_driver_counted(loaded: Server) -> None:
    assert broken(loaded) == {}
    before = totals(loaded, "tpcc")
    lines = drive("run", loaded, "tpcc", warehouses=WAREHOUSES, connections=8, warmup_s=1, seconds=6)
    ended, end = counts(lines)
    assert (end["errors"], end["unfinished"], end["connections_lost"]) == ([], 0, 0)
    total = ended.total()
    assert total > 100
    for operation, share in SHARES.items():
        # Five standard deviations.
        assert abs(ended[operation] - total * share) <= 5 * sqrt(total * share * (1 - share)), ended
    done = totals(loaded, "tpcc")
    made = {name: done[name] - before[name] for name in done}
    assert made["payments"] == made["paid"] == ended["payment"]
    assert made["delivered"] == made["billed"] == 10 * ended["delivery"]
    rolled_back = ended["new_order"] - made["ordered"]
    assert 0 <= rolled_back <= ended["new_order"] * 0.01 + 5 * sqrt(ended["new_order"] * 0.01) + 1
    assert made["lines"] == made["stock_orders"]
    assert 5 * made["ordered"] <= made["lines"] <= 15 * made["ordered"]
    assert broken(loaded) == {}


def totals(server: Server, database: str) -> dict[str, int]:
    """What transactions leave behind, counted in the database."""
    questions = {
        "ordered": "SELECT SUM(d_next_o_id) FROM tpcc_district",
        "payments": "SELECT COUNT(*) FROM tpcc_history",
        "paid": "SELECT SUM(c_payment_cnt) FROM tpcc_customer",
        "delivered": "SELECT (SELECT COUNT(*) FROM tpcc_orders) - (SELECT COUNT(*) FROM tpcc_new_order)",
        "billed": "SELECT SUM(c_delivery_cnt) FROM tpcc_customer",
        "lines": "SELECT COUNT(*) FROM tpcc_order_line",
        "stock_orders": "SELECT SUM(s_order_cnt) FROM tpcc_stock",
    }
    return {name: number(server, sql, database) for name, sql in questions.items()}


def test_terminals_key_in_and_think(loaded: Server) -> None:
    """In the first seconds nobody has keyed in an order (18 s), and nobody comes twice before having thought."""
    run = drive(
        "run", loaded, "tpcc", warehouses=WAREHOUSES, times="specification", connections=100, seconds=10
    )
    ended, _ = counts(run)
    assert ended["new_order"] == 0
    # 43 of 100 come first with a payment: 3 s of keying in, and think times of 12 s in the mean.
    assert 5 <= ended["payment"] <= 60


def test_foreign_keys_hold_and_the_seed_gives_the_same_rows(loaded: Server) -> None:
    loaded.sql("CREATE DATABASE tpcc_keys")
    drive("load", loaded, "tpcc_keys", warehouses=1, foreign_keys=True)
    sql = "SELECT COUNT(*) FROM information_schema.referential_constraints WHERE constraint_schema = 'tpcc_keys'"
    assert number(loaded, sql) == 10
    # Neither the number of warehouses nor the connection that loads a row has a part in it.
    columns = "c_id, c_d_id, c_first, c_last, c_credit, c_discount"
    same = f"SELECT SUM(CRC32(CONCAT_WS(',', {columns}))) FROM tpcc_customer WHERE c_w_id = 1"
    assert number(loaded, same, "tpcc") == number(loaded, same, "tpcc_keys")
    ended, end = counts(
        drive("run", loaded, "tpcc_keys", warehouses=1, foreign_keys=True, connections=4, seconds=3)
    )
    assert {error["code"] for error in end["errors"]} <= {1205, 1213}
    assert ended["new_order"] > 0
    assert broken(loaded, "tpcc_keys", warehouses=1) == {}
    drive("clean", loaded, "tpcc_keys", warehouses=1, foreign_keys=True)
    assert (
        number(loaded, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'tpcc_keys'") == 0
    )
    assert "tpcc_warehouse" in drive("verify", loaded, "tpcc_keys", warehouses=1, fails=True)
