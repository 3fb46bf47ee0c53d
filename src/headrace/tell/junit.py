"""JUnit's XML, which pipelines show as tests.

The first test is the verdict: a failure if it is worse, an error if there is none, because no data must not pass.
Each effect is a test: a failure if it is worse, skipped if it is open.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from headrace.base.effect import Verdict
from headrace.show import text
from headrace.show.notice import Conclusion, Notice
from headrace.tell import words
from headrace.tell.files import folder_of, write_whole

if TYPE_CHECKING:
    from headrace.tell.kind import Teller

#: What XML 1.0 has no place for.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def opened(place: str) -> Teller:
    path = Path(place)
    folder_of(path)
    return lambda notice: write_whole(path, content(notice))


def content(notice: Notice) -> str:
    name = _clean(f"headrace {notice.kind}: {notice.subject}")
    suite = ET.Element("testsuite", {"name": name})
    verdict = _case(suite, name, "verdict")
    if notice.conclusion is Conclusion.WORSE:
        _ended(verdict, "failure", "regression", notice.headline)
    elif notice.conclusion is Conclusion.RAISED:
        _ended(verdict, "failure", "alert", notice.headline)
    elif notice.conclusion is Conclusion.NOT_ENOUGH_DATA:
        _ended(verdict, "error", "inconclusive", notice.headline)
    ET.SubElement(verdict, "system-out").text = _clean(words.plain(notice), keep_lines=True)
    for each in notice.effects:
        case = _case(suite, name, f"{each.response} of {each.subject}")
        if each.verdict is Verdict.WORSE:
            _ended(case, "failure", "regression", words.sentence(each))
        elif each.verdict is Verdict.NOT_ENOUGH_DATA:
            _ended(case, "skipped", "", words.sentence(each))
        else:
            ET.SubElement(case, "system-out").text = _clean(words.sentence(each))
    for tag, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(suite.findall("testcase"))))
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _case(suite: ET.Element, suite_name: str, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", {"classname": suite_name, "name": _clean(name)})


def _ended(case: ET.Element, tag: str, kind: str, message: str) -> None:
    ET.SubElement(case, tag, {"message": _clean(message), **({"type": kind} if kind else {})})


def _clean(captured: str, *, keep_lines: bool = False) -> str:
    shown = text.clean_lines(captured) if keep_lines else text.clean(captured)
    return _NOT_XML.sub("�", shown)
