"""Rollouts on pages: who may approve what, and who may take it back."""

from __future__ import annotations

import asyncio
import html
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from headrace.rollout.book import Book
from headrace.rollout.plan import make
from headrace.rollout.rules import Rules, StageRule
from headrace.web import app, rollouts, sessions
from headrace.web.site import Site
from headrace.web.users import Role
from tests.below import go_below
from tests.history import PASSWORD, site
from tests.unit.test_rollout_expected import judged, lab
from tests.unit.test_staged import SETTINGS, topology


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Book:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    stages = (
        StageRule(name="replicas", take="replicas", approval=True),
        StageRule(name="sources", take="sources"),
    )
    return Book.make(make(SETTINGS, topology("a", 2), Rules(stage=stages), 1))


@pytest.fixture
def found(tmp_path: Path) -> Site:
    return site(tmp_path)


@pytest.fixture
def client(found: Site) -> Iterator[TestClient]:
    with TestClient(app.application(found), base_url="http://localhost") as client:
        yield client


def log_in(client: TestClient, role: Role) -> str:
    """The token that forms carry."""
    client.post("/login", data={"name": role.word, "password": PASSWORD})
    go_below(client)
    return client.get("/").text.partition('data-token="')[2].partition('"')[0]


def again(book: Book) -> Book:
    return Book.open(book.plan.id)


def test_the_list_and_the_page_say_what_waits(client: TestClient, book: Book) -> None:
    log_in(client, Role.VIEWER)
    [row] = client.get("/api/rollouts.json").json()["rows"]
    assert (row["id"], row["state"], row["hosts"]) == (book.plan.id, "planned", 3)
    page = client.get("/rollout", params={"id": book.plan.id}).text
    assert "server.innodb_io_capacity=2000" in page
    assert "Stage replicas needs the approval" in page
    assert client.get("/rollout", params={"id": book.plan.id[:4]}).status_code == 404
    assert client.get("/rollout", params={"id": "../.."}).status_code == 404


def test_the_lab_is_shown_next_to_production(client: TestClient, book: Book) -> None:
    log_in(client, Role.VIEWER)
    alone = judged(None, 1 / 1.15)
    assert "Lab and production</h2>" not in client.get("/rollout", params={"id": alone.plan.id}).text
    assert not client.get("/api/rollouts.json").json().get("note")
    with_it = judged(lab(), 1 / 1.15, seed=2)
    page = client.get("/rollout", params={"id": with_it.plan.id}).text
    assert "Lab and production</h2>" in page
    assert "throughput +18.0% (+12.0% to +24.0%), better" in page
    assert "-15.3% (-19.4% to -10.7%)" in page
    listed = client.get("/rollouts").text
    assert "lab -15.3% (-19.4% to -10.7%), production" in listed
    assert "One rollout is too few for an interval" in listed


def test_an_approver_approves_the_plan_that_was_shown(client: TestClient, book: Book, found: Site) -> None:
    token = log_in(client, Role.APPROVER)
    form = {"plan": book.plan.id, "stage": "replicas", "token": token, "password": PASSWORD}
    assert f'name="plan" value="{book.plan.id}"' in client.get("/rollout", params={"id": book.plan.id}).text
    assert client.post("/rollout/approve", data={**form, "token": "forged"}).status_code == 403
    for wrong in ({"plan": "0" * 12}, {"plan": book.plan.id[:11]}, {"stage": "sources"}, {"stage": "none"}):
        client.post("/rollout/approve", data={**form, **wrong})
        assert not again(book).state.approvals
    with book.hold():
        held = client.post("/rollout/approve", data=form)
        assert "another command is working" in held.text
    client.post("/rollout/approve", data=form)
    approval = again(book).state.approvals["replicas"]
    assert approval["by"] == "approver"
    assert approval["until"] > time.time()
    lines = [json.loads(line) for line in found.audit.path.read_text().splitlines()]
    assert [line["ok"] for line in lines if line["action"] == "rollout approve"] == [False] * 5 + [True]


def test_what_cannot_be_noted_is_not_approved(client: TestClient, book: Book, found: Site) -> None:
    """As when the disk is full; but a change is taken back all the same."""
    token = log_in(client, Role.APPROVER)
    found.audit.path.unlink(missing_ok=True)
    found.audit.path.symlink_to("/dev/full")
    form = {"plan": book.plan.id, "stage": "replicas", "token": token, "password": PASSWORD}
    assert "audit log cannot be written" in client.post("/rollout/approve", data=form).text
    assert not again(book).state.approvals
    answer = client.post("/rollout/abort", data={"plan": book.plan.id, "token": token})
    assert "audit log" not in answer.text
    found.audit.path.unlink()
    client.post("/rollout/approve", data=form)
    lines = [json.loads(line) for line in found.audit.path.read_text().splitlines()]
    assert [line["action"] for line in lines] == ["rollout approve asked", "rollout approve"]


def test_guesses_from_elsewhere_keep_no_approver_from_approving(book: Book, found: Site) -> None:
    page = app.application(found)
    with (
        TestClient(page, base_url="http://localhost", client=("192.0.2.1", 1)) as guesser,
        TestClient(page, base_url="http://localhost", client=("192.0.2.2", 1)) as owner,
    ):
        form = {"plan": book.plan.id, "stage": "replicas"}
        token = log_in(guesser, Role.APPROVER)
        for i in range(sessions.FREE_TRIES + 2):
            last = guesser.post("/rollout/approve", data={**form, "token": token, "password": f"wrong {i}"})
        assert "too many wrong passwords" in last.text
        token = log_in(owner, Role.APPROVER)
        owner.post("/rollout/approve", data={**form, "token": token, "password": PASSWORD})
    assert again(book).state.approvals["replicas"]["by"] == "approver"


def test_without_tls_a_session_alone_approves_nothing(client: TestClient, book: Book, found: Site) -> None:
    """Others may listen on the port while we do not, and a page shows its token to whoever has the session."""
    token = log_in(client, Role.APPROVER)
    page = client.get("/rollout", params={"id": book.plan.id}).text
    assert 'type="password" name="password"' in page
    form = {"plan": book.plan.id, "stage": "replicas", "token": token}
    for wrong in ({}, {"password": ""}, {"password": "guess"}, {"password": PASSWORD + "x"}):
        answer = client.post("/rollout/approve", data={**form, **wrong})
        assert "the password is wrong" in answer.text
    for _ in range(3):
        answer = client.post("/rollout/approve", data={**form, "password": "guess"})
    assert "too many wrong passwords" in answer.text
    assert "too many" in client.post("/rollout/approve", data={**form, "password": PASSWORD}).text
    assert not again(book).state.approvals


def test_with_tls_the_browser_binds_the_session_to_this_host(tmp_path: Path, book: Book) -> None:
    found = site(tmp_path)
    found.is_secure = True
    with TestClient(app.application(found), base_url="https://localhost") as client:
        answer = client.post(
            "/login", data={"name": "approver", "password": PASSWORD}, follow_redirects=False
        )
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-headrace=")
        assert "Secure" in cookie
        assert "Path=/;" in cookie
        assert "domain" not in cookie.lower()
        page = client.get("/rollout", params={"id": book.plan.id}).text
        assert 'name="password"' not in page
        value = client.cookies["__Host-headrace"]
        client.cookies.clear()
        plain = client.get("/", headers={"cookie": f"headrace={value}"}, follow_redirects=False)
        assert plain.status_code == 303


@pytest.mark.parametrize(
    ("role", "may_approve", "may_abort"), [(Role.VIEWER, False, False), (Role.OPERATOR, False, True)]
)
def test_a_role_that_does_not_suffice(
    client: TestClient, book: Book, role: Role, may_approve: bool, may_abort: bool
) -> None:
    token = log_in(client, role)
    form = {"plan": book.plan.id, "stage": "replicas", "token": token}
    assert client.post("/rollout/approve", data=form).status_code == 403
    assert bool(again(book).state.approvals) is may_approve
    assert (client.post("/rollout/abort", data=form).status_code == 200) is may_abort
    assert bool(again(book).stop_asked()) is may_abort


def test_a_session_that_ended_approves_nothing(client: TestClient, book: Book, found: Site) -> None:
    token = log_in(client, Role.APPROVER)
    found.sessions.users.remove("approver")
    form = {"plan": book.plan.id, "stage": "replicas", "token": token}
    assert client.post("/rollout/approve", data=form).status_code == 401
    assert not again(book).state.approvals


def test_a_form_of_a_session_that_ended_leads_to_the_login_and_back(client: TestClient, book: Book) -> None:
    form = {"plan": book.plan.id, "stage": "replicas", "token": log_in(client, Role.APPROVER)}
    client.cookies.clear()
    page = f"/rollout?id={book.plan.id}"
    sent = {"accept": "text/html", "referer": f"http://localhost{page}"}
    answer = client.post("/rollout/approve", data=form, headers=sent, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (
        303, f"/login?late=1&next=%2Frollout%3Fid%3D{book.plan.id}",
    )  # fmt: skip
    assert "nothing was done" in client.get(answer.headers["location"]).text
    elsewhere = {"accept": "text/html", "referer": "http://evil.example/rollout"}
    answer = client.post("/rollout/approve", data=form, headers=elsewhere, follow_redirects=False)
    assert answer.headers["location"] == "/login?late=1&next=%2F"
    foreign = {"accept": "text/html", "sec-fetch-site": "cross-site"}
    assert client.post("/rollout/approve", data=form, headers=foreign).status_code == 401
    assert not again(book).state.approvals


def test_a_form_that_is_refused_says_why_on_a_page(client: TestClient, book: Book) -> None:
    form = {"plan": book.plan.id, "stage": "replicas", "token": log_in(client, Role.OPERATOR)}
    sent = {"accept": "text/html", "referer": "http://localhost/rollout?id=<b>"}
    answer = client.post("/rollout/approve", data=form, headers=sent)
    assert answer.status_code == 403
    assert "Nothing was done: this needs the role approver." in answer.text
    assert "<b>" not in answer.text
    assert client.post("/rollout/approve", data=form).json() == {"error": "this needs the role approver"}


def test_an_approved_stage_is_not_asked_for_again(client: TestClient, book: Book) -> None:
    token = log_in(client, Role.APPROVER)
    book.approve("replicas", "ann")
    page = client.get("/rollout", params={"id": book.plan.id}).text
    assert "is approved by ann" in page
    assert "/rollout/approve" not in page
    book.note("approved", stage="replicas", by="ann", until=time.time() - 1)
    page = client.get("/rollout", params={"id": book.plan.id}).text
    assert "The approval by ann has expired." in page
    assert "/rollout/approve" in page
    assert token


@pytest.mark.parametrize("why", ["inconclusive", "idle"])
def test_a_stage_without_a_verdict_says_what_promotes_it(client: TestClient, book: Book, why: str) -> None:
    log_in(client, Role.APPROVER)

    def page() -> str:
        return html.unescape(client.get("/rollout", params={"id": book.plan.id}).text)

    first = book.plan.stages[0]
    command = f"headrace rollout approve {book.plan.id} --stage '{first.name}' --unjudged"
    assert command not in page()
    if why == "idle":
        book.note("idle", host=first.hosts[0], why="no queries")
    else:
        book.note(
            "verdict", stage=first.name, outcome="inconclusive", reason="too noisy", is_win=False, pairs=9
        )
    assert f"<code>{command}</code>" in page()
    book.approve(first.name, "ann", unjudged=True)
    assert command not in page()


async def test_an_abort_restores_the_hosts_or_asks_whoever_holds_it(book: Book, found: Site) -> None:
    with book.hold():
        rollouts.take_back(found, again(book), "ann")
        await asyncio.sleep(0)
        assert again(book).stop_asked() == "ann"
        assert not again(book).state.is_aborted
    # Whoever held it has ended without having done it.
    await asyncio.gather(*found.restoring)
    assert again(book).state.aborting == "aborted by ann"
    assert again(book).state.is_aborted
    assert rollouts.shown(again(book))["state"] == "taken back"


def test_what_a_log_says_is_text(client: TestClient, book: Book) -> None:
    book.note("aside", host="ar1", why="<script>alert(1)</script>")
    log_in(client, Role.VIEWER)
    page = client.get("/rollout", params={"id": book.plan.id, "said": "<img src=x>"}).text
    assert "<script>alert" not in page
    assert "<img" not in page
    assert "&lt;script&gt;alert" in page
