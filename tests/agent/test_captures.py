"""Captures as people have them: open sessions, balancers, tunnels, other protocols, and tcpdump's text."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.programs import agent_path

CASES = Path(__file__).parent.parent / "cases" / "captures"
#: What the text of tcpdump and the packets that it was printed from are named by.
INPUT_ONLY = ("inputs", "bytes", "places")


def run(*words: str, text: bytes | None = None) -> tuple[int, list[dict[str, Any]], str]:
    done = subprocess.run([agent_path(), "digest", *words], input=text, capture_output=True, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr.decode()


def calls(lines: list[dict[str, Any]]) -> dict[str, int]:
    return {line["fingerprint"]: line["count"] for line in lines if line["type"] == "class"}


def without_input(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    head = {key: value for key, value in lines[0].items() if key not in INPUT_ONLY}
    coverage = {key: value for key, value in head["coverage"].items() if key not in INPUT_ONLY}
    return [head | {"coverage": coverage}, *lines[1:]]


def test_a_session_that_stays_open_has_no_quit() -> None:
    code, lines, _ = run("--port", "33306", str(CASES / "open_at_end.pcap"))
    assert (code, calls(lines)) == (
        0,
        {"administrator command: Connect": 1, "select * from t where a = ?": 5},
    )


@pytest.mark.parametrize("name", ["open_at_end", "proxy_protocol", "vxlan"])
def test_without_a_port_the_first_server_that_greets_is_read(name: str) -> None:
    capture = CASES / f"{name}.pcap"
    named, found = run("--port", "33306", str(capture))[1], run(str(capture))[1]
    assert "greets on port 33306" in found[0]["coverage"].pop("places")[0]["reason"]
    assert named[0]["coverage"].pop("places") == []
    assert without_input(found) == without_input(named)
    assert calls(run("-", text=capture.read_bytes())[1]) == calls(named)


@pytest.mark.parametrize(("name", "tunnel"), [("vxlan", "VXLAN (VNI 42)"), ("gre_teb", "GRE")])
def test_mirrored_traffic_is_read_as_if_it_were_plain(name: str, tunnel: str) -> None:
    code, lines, _ = run("--port", "33306", str(CASES / f"{name}.pcap"))
    assert (code, lines[0]["coverage"]["tunnels"]) == (0, {tunnel: lines[0]["coverage"]["packets"]})
    assert lines[0]["coverage"]["other_packets"] == 0
    assert calls(lines)["select * from t where a = ?"] == 5


def test_a_balancers_header_names_the_client() -> None:
    code, lines, _ = run(
        "--port", "33306", "--group", "host,user,database", str(CASES / "proxy_protocol.pcap")
    )
    assert code == 0
    assert lines[0]["coverage"]["proxied_sessions"] == {"PROXY v1": 1, "PROXY v2": 1}
    assert lines[0]["coverage"]["midstream_sessions"] == 0
    keys = [line["key"] for line in lines if line["type"] == "class"]
    assert keys == [{"user": "app", "host": "203.0.113.9", "database": "shop"}]


def test_another_protocol_is_named_and_the_exit_code_says_that_nothing_was_read(tmp_path: Path) -> None:
    capture = str(CASES / "x_protocol.pcap")
    code, lines, error = run("--port", "33307", capture)
    assert (code, lines[0]["events"]) == (3, 0)
    assert lines[0]["coverage"]["foreign_sessions"] == {"MySQL's X protocol": 1}
    assert "none of the 1 sessions could be read: 1 MySQL's X protocol" in error
    recording = tmp_path / "empty.rec"
    done = subprocess.run(
        [agent_path(), "record", "--port", "33307", capture, "-o", recording],
        capture_output=True,
        check=False,
    )
    assert (done.returncode, recording.exists()) == (3, False)
    code, _, error = run("--port", "3308", capture)
    assert code == 3
    assert "19 TCP of other ports" in error


def test_text_of_tcpdump_gives_the_digest_of_its_packets() -> None:
    expected = without_input(run("--port", "33306", str(CASES / "open_at_end.pcap"))[1])
    text = CASES / "open_at_end.tcpdump.txt"
    assert without_input(run("--port", "33306", str(text))[1]) == expected
    assert without_input(run("--port", "33306", "-", text=text.read_bytes())[1]) == expected
    crlf = text.read_bytes().replace(b"\n", b"\r\n")
    assert without_input(run("--port", "33306", "-", text=crlf)[1]) == expected


@pytest.mark.skipif(not shutil.which("tcpdump"), reason="needs tcpdump")
@pytest.mark.parametrize("name", ["open_at_end", "vxlan", "proxy_protocol"])
def test_every_way_to_print_packets_is_read(name: str) -> None:
    capture = str(CASES / f"{name}.pcap")
    packets = run("--port", "33306", capture)[1]

    def printed(*options: str) -> list[dict[str, Any]]:
        command = ["tcpdump", "-r", capture, "-n", *options]
        text = subprocess.run(command, check=True, capture_output=True, env={"TZ": "UTC"}).stdout
        return run("--port", "33306", "-", text=text)[1]

    for bytes_of in ("-x", "-X", "-xx", "-XX"):
        for more in ([], ["-q"], ["-v"], ["-e", "-vv"], ["-#"]):
            for time in ("-tt", "-tttt"):
                assert without_input(printed(bytes_of, time, *more)) == without_input(packets)
    sums = [(line["count"], line["response_sum_ns"]) for line in packets if line["type"] == "class"]
    for undated in ([], ["-ttt"], ["-ttttt"]):
        found = printed("-x", *undated)
        assert "2 January 1970" in found[0]["coverage"]["places"][0]["reason"]
        assert [(line["count"], line["response_sum_ns"]) for line in found if line["type"] == "class"] == sums
    untimed = printed("-x", "-t")
    assert calls(untimed) == calls(packets)
    assert calls(printed("-x", "-t", "-#")) == calls(packets)
    assert all(line["timed"] == 0 for line in untimed if line["type"] == "class")
    text = subprocess.run(["tcpdump", "-r", capture, "-n", "-A"], check=True, capture_output=True).stdout
    code, _, error = run("-", text=text)
    assert code == 3
    assert "tcpdump -n -x -tttt" in error
