"""A verdict told: to files that other programs read, and to servers that refuse, hang and redirect."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import io
import json
import math
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from PIL import Image
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus_text

from headrace.base.effect import Verdict
from headrace.base.encode import plain
from headrace.base.errors import PlanError, StoreError, TargetError
from headrace.base.intervals import Interval
from headrace.show.notice import Conclusion, Notice, Told
from headrace.tell import http, junit, markdown, metrics, picture, words
from headrace.tell.places import Place, places_of, tell
from headrace.tell.saved import notice_of
from tests.commands import headrace
from tests.synthetic import Shape, make

WORSE = Told("all hosts", "p99", Interval(1.12, 1.08, 1.16), Verdict.WORSE)
OPEN = Told("all hosts", "p99.9", Interval(math.nan, None, None), Verdict.NOT_ENOUGH_DATA, "too few calls")
SAME = Told("all hosts", "p50", Interval(1.0, 0.99, 1.01), Verdict.EQUIVALENT)
NOTICE = Notice(
    kind="verify", subject="db[1-8]", conclusion=Conclusion.WORSE, headline="p99 is worse: 1.120x.",
    effects=(WORSE, OPEN, SAME), next="headrace rollback --last\n", at_s=1_772_000_000.0, counts={"hosts": 8},
)  # fmt: skip
HOSTILE = 'x"]]><script>\x1b[31m\x00\ud800|`*\n@everyone \u202e'
SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()


@pytest.mark.parametrize(
    ("verdicts", "conclusion"),
    [
        ("better worse equivalent", Conclusion.WORSE),
        ("better not-enough-data", Conclusion.BETTER),
        ("equivalent equivalent", Conclusion.EQUIVALENT),
        # The other may be worse, so nothing is proven to be equal.
        ("equivalent not-enough-data", Conclusion.NOT_ENOUGH_DATA),
        ("", Conclusion.NOT_ENOUGH_DATA),
    ],
)
def test_the_verdict_of_several_responses(verdicts: str, conclusion: Conclusion) -> None:
    assert Conclusion.worst(Verdict(each.replace("-", " ")) for each in verdicts.split()) is conclusion


@dataclass
class Received:
    """What a local server was sent, and what it answers with: codes in turn, the last one for ever."""

    codes: list[int] = field(default_factory=lambda: [200])
    sent: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    delay_s: float = 0.0
    url: str = ""


@contextlib.contextmanager
def receiver(**how: Any) -> Iterator[Received]:
    received = Received(**how)
    released = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.sent.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            released.wait(received.delay_s)
            codes = received.codes
            self.send_response(codes.pop(0) if len(codes) > 1 else codes[0])
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    received.url = f"http://127.0.0.1:{server.server_port}/hook"
    try:
        yield received
    finally:
        released.set()
        server.shutdown()
        server.server_close()
        thread.join()


def hook(tmp_path: Path, url: str, **more: object) -> str:
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    (tmp_path / "url").write_text(url)
    lines = ['url_file = "url"', 'secret_file = "secret"', *(f"{k} = {v}" for k, v in more.items())]
    (tmp_path / "hook.toml").write_text("\n".join(lines))
    return f"webhook:{tmp_path / 'hook.toml'}"


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "WAITS_S", (0.0,))


# -- The notice


def test_the_same_evidence_has_the_same_id() -> None:
    assert NOTICE.id == replace(NOTICE, id="", link="https://ci/1").id
    assert NOTICE.id != replace(NOTICE, id="", effects=(WORSE,)).id


def test_a_notice_survives_its_json() -> None:
    content = json.loads(json.dumps({"notice": plain(NOTICE)}, allow_nan=False))
    found = Notice.from_json(content, "x")
    assert math.isnan(found.effects[1].ratio.estimate)
    assert plain(found) == plain(NOTICE)


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        {"notice": None},
        {"notice": {"kind": "x"}},
        {"notice": {**vars(NOTICE), "conclusion": "great"}},
    ],
)
def test_anything_else_is_refused(content: Any) -> None:
    with pytest.raises(StoreError, match="verdict"):
        Notice.from_json(content, "x")


# -- Files


def test_junit_is_read_by_a_parser(tmp_path: Path) -> None:
    path = tmp_path / "v.xml"
    assert not tell(NOTICE, places_of([f"junit:{path}"]))
    suite = ET.parse(path).getroot()[0]
    assert {k: suite.get(k) for k in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4", "failures": "2", "errors": "0", "skipped": "1",
    }  # fmt: skip
    assert suite[0].find("failure") is not None
    assert suite[2].find("skipped") is not None
    undecided = ET.fromstring(junit.content(replace(NOTICE, conclusion=Conclusion.NOT_ENOUGH_DATA)))
    error = undecided[0][0].find("error")
    assert error is not None
    assert error.get("type") == "inconclusive"


def test_metrics_are_read_by_both_parsers(tmp_path: Path) -> None:
    assert not tell(NOTICE, places_of([f"metrics:{tmp_path}"]))
    [path] = tmp_path.iterdir()
    assert path.suffix == ".prom"
    assert path.stat().st_mode & 0o777 == 0o644  # node_exporter is another user
    for parse in (openmetrics, prometheus_text):
        families = parse(path.read_text())
        found = {family.name: family.samples for family in families}
        verdicts = {s.labels["verdict"]: s.value for s in found["headrace_verdict"]}
        assert [name for name, value in verdicts.items() if value] == ["worse"]
        [low] = [s for s in found["headrace_verdict_ratio_low"] if s.labels["response"] == "p99"]
        assert (low.value, low.labels["subject"]) == (1.08, "db[1-8]")
    assert not tell(replace(NOTICE, conclusion=Conclusion.BETTER), places_of([f"metrics:{tmp_path}"]))
    assert len(list(tmp_path.iterdir())) == 1


def test_markdown_is_appended_and_can_be_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "summary.md"
    for _ in range(2):
        assert not tell(NOTICE, places_of([f"markdown:{path}", "markdown:-"]))
    assert path.read_text().count("### headrace verify") == 2
    assert capsys.readouterr().out == path.read_text()
    assert "| all hosts | p99 | 1\\.120 |".replace("\\.", ".") in path.read_text()


def test_hostile_names_stay_text() -> None:
    bad = replace(
        NOTICE, subject=HOSTILE, headline=HOSTILE, link="javascript:alert(1)",
        effects=(replace(WORSE, subject=HOSTILE),),
    )  # fmt: skip
    root = ET.fromstring(junit.content(bad))
    assert [each.tag for each in root.iter() if each.tag == "script"] == []
    found = markdown.content(bad)
    assert "<script>" not in found.replace("\\<script\\>", "")
    assert "](javascript" not in found
    assert "\x1b" not in found
    for family in openmetrics(metrics.content(bad, 1.0)):  # type: ignore[no-untyped-call]
        assert all("\x1b" not in sample.labels["subject"] for sample in family.samples)


def test_the_picture_shows_what_has_an_interval(tmp_path: Path) -> None:
    path = picture.drawn(NOTICE, tmp_path / "v.png")
    assert path is not None
    with Image.open(path) as image:
        assert image.size == (picture.WIDTH, picture.HEAD + 2 * picture.ROW + 40)
        colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 20) or ()}
    assert (0xC4, 0x32, 0x2B) in colours
    assert picture.drawn(replace(NOTICE, effects=(OPEN,)), tmp_path / "none.png") is None


# -- Servers


def test_a_webhook_is_signed_as_the_standard_says(tmp_path: Path) -> None:
    with receiver() as found:
        assert not tell(NOTICE, places_of([hook(tmp_path, found.url)]))
    [(_, headers, body)] = found.sent
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = hmac.new(b"0123456789abcdef01234567", signed, hashlib.sha256).digest()
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
    assert Notice.from_json(json.loads(body), "body").conclusion is Conclusion.WORSE


def test_a_busy_server_is_asked_again_with_the_same_message(tmp_path: Path) -> None:
    with receiver(codes=[503, 429, 204]) as found:
        assert not tell(NOTICE, places_of([hook(tmp_path, found.url)]))
    assert len({headers["webhook-id"] for _, headers, _ in found.sent}) == 1
    assert len(found.sent) == 3


@pytest.mark.parametrize(("code", "times"), [(400, 1), (302, 1), (307, 1), (500, 3)])
def test_a_refusal_is_reported_without_the_address(tmp_path: Path, code: int, times: int) -> None:
    """A redirect is not followed: the signature would go to another host."""
    with receiver(codes=[code]) as found:
        [failure] = tell(NOTICE, places_of([hook(tmp_path, f"{found.url}/T0KEN")]))
    assert len(found.sent) == times
    assert f"HTTP {code}" in failure.error.message
    assert "T0KEN" not in str(failure.error) + failure.place


def test_a_server_that_hangs_holds_nothing_up(tmp_path: Path) -> None:
    with receiver(delay_s=3600) as found:
        started = time.monotonic()
        [failure] = tell(NOTICE, places_of([hook(tmp_path, found.url)]), most_s=0.3)
        assert time.monotonic() - started < 30
    assert "not done within" in failure.error.message
    with receiver(delay_s=3600) as found:
        [failure] = tell(NOTICE, places_of([hook(tmp_path, found.url, timeout_s=0.2, attempts=2)]))
    assert "no answer within 0.2 s, 2 attempts" in failure.error.message


def test_one_failure_does_not_keep_the_others_from_being_told(tmp_path: Path) -> None:
    def broken(_: Notice) -> None:
        raise RuntimeError("token=abc")

    def refused(_: Notice) -> None:
        raise TargetError("no", place="h")

    places = [Place("a:1", broken), Place("b:2", refused), *places_of([f"junit:{tmp_path / 'v.xml'}"])]
    found = tell(NOTICE, places)
    assert [each.place for each in found] == ["a:1", "b:2"]
    assert "abc" not in str(found[0].error)
    assert (tmp_path / "v.xml").exists()


def test_grafana_is_told_when_the_change_was_made(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("glsa_secret\n")
    with receiver() as found:
        base = found.url.removesuffix("/hook")
        (tmp_path / "g.toml").write_text(
            f'url = "{base}/"\ntoken_file = "token"\ndashboard_uid = "d1"\npanel_id = 3\ntags = ["prod"]\n'
        )
        hostile = replace(NOTICE, headline="<img src=x>")
        assert not tell(hostile, places_of([f"grafana:{tmp_path / 'g.toml'}"]))
    [(path, headers, body)] = found.sent
    content = json.loads(body)
    assert (path, headers["authorization"]) == ("/api/annotations", "Bearer glsa_secret")
    assert (content["time"], content["dashboardUID"], content["panelId"]) == (1_772_000_000_000, "d1", 3)
    assert content["tags"] == ["headrace", "verify", "worse", "prod"]
    assert "<img" not in content["text"]


def test_apprise_sends_the_picture_and_names_no_address(tmp_path: Path) -> None:
    with receiver() as found:
        address = found.url.replace("http://", "json://").replace("/hook", "/T0KEN")
        (tmp_path / "chats.conf").write_text(f"{address}\n")
        place = f"apprise:{tmp_path / 'chats.conf'}"
        assert not tell(NOTICE, places_of([place]))
        content = json.loads(found.sent[0][2])
        found.codes[:] = [500]
        [failure] = tell(NOTICE, places_of([place]))
    assert content["title"] == "headrace verify: db[1-8]: worse"
    assert content["type"] == "failure"
    assert "headrace rollback --last" in content["message"]
    png = base64.b64decode(content["attachments"][0]["base64"])
    assert Image.open(io.BytesIO(png)).format == "PNG"
    assert "1 of 1 refused it: JSON" in failure.error.message
    assert "T0KEN" not in str(failure.error)


@pytest.mark.parametrize(
    ("word", "content", "said"),
    [
        ("xml:a", "", "KIND:PLACE"),
        ("junit", "", "KIND:PLACE"),
        ("https://chat/T0KEN", "", "KIND:PLACE"),
        ("junit:{}/none/v.xml", "", "no such directory"),
        ("metrics:{}/none", "", "no such directory"),
        ("webhook:{}/none", "", "cannot be read"),
        ("webhook:{}/f", "url = 1", "url"),
        ("webhook:{}/f", "= T0KEN", "not TOML"),
        ("webhook:{}/f", 'secret_file = "f"', "name url or url_file"),
        ("webhook:{}/f", 'url = "file:///T0KEN"', "not http"),
        ("webhook:{}/f", 'url = "http://h"\ntoken = "T0KEN"', "token"),
        ("webhook:{}/f", 'url = "http://h"\nsecret_file = "absent"', "cannot be read"),
        ("grafana:{}/f", 'url = "http://h"', "token_file"),
        ("apprise:{}/f", "", "no address"),
        ("apprise:{}/none", "", "no such file"),
    ],
)
def test_wrong_places_are_refused_before_the_work(tmp_path: Path, word: str, content: str, said: str) -> None:
    (tmp_path / "f").write_text(content)
    with pytest.raises(PlanError, match=said) as found:
        places_of([word.format(tmp_path)])
    assert "T0KEN" not in str(found.value)


# -- The commands


def experiment(tmp_path: Path, effect: float, blocks: int = 8) -> Path:
    return make(tmp_path / f"e{effect}", Shape(effects={"STOCK": 1.0, "X": effect}, blocks=blocks)).path


@pytest.mark.parametrize(
    ("effect", "blocks", "code"), [(1.3, 8, 0), (0.7, 8, 13), (1.0, 1, 15)], ids=["better", "worse", "open"]
)
def test_tell_ends_as_the_verdict_does(tmp_path: Path, effect: float, blocks: int, code: int) -> None:
    path = tmp_path / "v.xml"
    folder = experiment(tmp_path, effect, blocks)
    found = headrace("tell", str(folder), "--to", f"junit:{path}", "--link", "https://ci/1")
    assert found.returncode == code, found.stderr
    text = path.read_text()
    assert "https://ci/1" in text
    assert notice_of(str(folder)).id in text


def test_the_winner_comes_with_its_command_and_the_way_back(tmp_path: Path) -> None:
    folder = make(tmp_path / "e", Shape(effects={"STOCK": 1.0, "MYSQL": 1.4}, blocks=8)).path
    found = notice_of(str(folder))
    assert found.conclusion is Conclusion.BETTER
    assert "headrace apply" in found.next
    assert "headrace rollback --last" in found.next


def test_a_place_that_fails_changes_the_code_of_tell_only(tmp_path: Path) -> None:
    folder = str(experiment(tmp_path, 1.3))
    (tmp_path / "t.csv").write_text("version,tps\n" + "".join(f"v{i},{1000 + i % 3}\n" for i in range(12)))
    with receiver(codes=[400]) as found:
        place = hook(tmp_path, found.url)
        said = headrace("tell", folder, "--to", place)
        assert (said.returncode, "not sent" in said.stderr) == (6, True)
        said = headrace("watch", str(tmp_path / "t.csv"), "--response", "tps", "--tell", place)
        assert (said.returncode, "not sent" in said.stderr) == (0, True)


def test_a_report_s_json_is_told_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "".join(f"v{i},{1000 if i < 8 else 800}.{i % 4}\n" for i in range(16))
    (tmp_path / "t.csv").write_text(f"version,tps\n{rows}")
    watch = ("watch", str(tmp_path / "t.csv"), "--response", "tps")
    now = headrace(*watch, "--json", "--tell", f"junit:{tmp_path / 'now.xml'}")
    assert now.returncode == 13
    (tmp_path / "w.json").write_text(now.stdout)
    later = headrace("tell", str(tmp_path / "w.json"), "--to", f"junit:{tmp_path / 'later.xml'}")
    assert later.returncode == 13
    assert (tmp_path / "now.xml").read_text() == (tmp_path / "later.xml").read_text()


def test_two_experiments_are_compared_for_a_pipeline(tmp_path: Path) -> None:
    a = make(tmp_path / "a", Shape(effects={"STOCK": 1.0, "X": 1.2}, blocks=6)).path
    b = make(tmp_path / "b", Shape(effects={"STOCK": 0.7, "X": 0.8}, blocks=6, seed=9)).path
    found = headrace("compare", str(a), str(b), "--tell", f"markdown:{tmp_path / 's.md'}")
    assert found.returncode == 13, found.stdout
    assert "headrace compare" in (tmp_path / "s.md").read_text()


@pytest.mark.parametrize("content", ["", "[1]", "{", '{"notice": 3}', "[" * 100_000])
def test_what_is_no_report_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "r.json").write_text(content)
    found = headrace("tell", str(tmp_path / "r.json"), "--to", "markdown:-")
    assert (found.returncode, "Traceback" in found.stderr) == (9, False)


def test_a_name_calls_nobody_in_a_chat() -> None:
    called = "@channel <!here> <@U1> @everyone root@db1"
    bad = replace(NOTICE, id="\x1b[2J@here", subject=called, headline=called)
    said = f"{words.title(bad)}\n{words.plain(bad)}"
    assert not re.search(r"(^|\s)@\w|@here|<[!@]", said)
    assert "root@db1" in said
    assert "\x1b" not in said


@pytest.mark.parametrize(
    "name",
    [
        "<https://x.example|report>",
        "<MAILTO:a@x.example|me>",
        "[report](https://x.example)",
        "![i](http://x)",
    ],
)
def test_a_name_is_no_link_that_shows_other_words(name: str) -> None:
    said = words.plain(replace(NOTICE, subject=name, headline=name, next=f"headrace apply {name}"))
    assert not re.search(r"<[a-zA-Z]+:|\]\(", said)
    assert "report: " in words.plain(replace(NOTICE, headline=name, link="https://own.example/r"))
