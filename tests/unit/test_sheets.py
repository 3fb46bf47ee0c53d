"""Spreadsheets as input: the right sheet, dates, merged cells and titles, and none without the library."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from headrace.base.errors import PlanError
from headrace.experiment import foreign
from tests.unit.test_extras import headrace_without

ROWS: list[list[object]] = [
    ["fs", "rep", "tps"],
    ["xfs", 1, 1000.5],
    ["xfs", 2, 1010],
    ["ext4", 1, 900],
    ["ext4", 2, 905],
]
RUNS = [("ext4", 900.0), ("ext4", 905.0), ("xfs", 1000.5), ("xfs", 1010.0)]


def workbook(path: Path, sheets: Mapping[str, Sequence[Sequence[object]]]) -> Path:
    """The least that is an .xlsx: strings in their cells, no styles."""
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    rel = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    numbers = range(1, len(sheets) + 1)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{package}/content-types"><Default Extension="rels" '
            f'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            '<Default Extension="xml" ContentType="application/xml"/></Types>',
        )
        file.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{package}/relationships"><Relationship Id="r" Type="{rel}/officeDocument" '
            'Target="xl/workbook.xml"/></Relationships>',
        )
        file.writestr(
            "xl/workbook.xml",
            f'<workbook xmlns="{main}" xmlns:r="{rel}"><sheets>'
            + "".join(
                f'<sheet name="{n}" sheetId="{i}" r:id="r{i}"/>' for i, n in zip(numbers, sheets, strict=True)
            )
            + "</sheets></workbook>",
        )
        file.writestr(
            "xl/_rels/workbook.xml.rels",
            f'<Relationships xmlns="{package}/relationships">'
            + "".join(
                f'<Relationship Id="r{i}" Type="{rel}/worksheet" Target="worksheets/s{i}.xml"/>'
                for i in numbers
            )
            + "</Relationships>",
        )
        for i, rows in zip(numbers, sheets.values(), strict=True):
            file.writestr(
                f"xl/worksheets/s{i}.xml",
                f'<worksheet xmlns="{main}"><sheetData>{body(rows)}</sheetData></worksheet>',
            )
    return path


def body(rows: Sequence[Sequence[object]]) -> str:
    found = []
    for r, row in enumerate(rows, 1):
        cells = []
        for column, value in zip("ABCDEFGH", row, strict=False):
            if value is None:
                continue
            if isinstance(value, str):
                cells.append(f'<c r="{column}{r}" t="inlineStr"><is><t>{escape(value)}</t></is></c>')
            else:
                cells.append(f'<c r="{column}{r}"><v>{value}</v></c>')
        found.append(f'<row r="{r}">{"".join(cells)}</row>')
    return "".join(found)


def runs(path: Path) -> list[tuple[str, float]]:
    table = foreign.read_csv(path, ["fs"], ["tps"])
    return sorted((row.levels["fs"], row.responses["tps"]) for row in table.rows)


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        [["Results of June"], [], *ROWS],
        [[None, *row] for row in ROWS],
        [*ROWS, ["Mittelwert", None, 953.9]],
        [["FS", "rep", "TPS (1/s)"], *ROWS[1:]],
        [ROWS[0], ROWS[1], [None, 2, 1010], ROWS[3], [None, 2, 905]],
    ],
)
def test_a_sheet_is_a_table(tmp_path: Path, rows: list[list[object]]) -> None:
    path = workbook(tmp_path / "t.xlsx", {"Sheet1": rows})
    assert runs(path) == RUNS


def test_the_sheet_with_the_columns_is_read_and_named(tmp_path: Path) -> None:
    path = workbook(tmp_path / "t.xlsx", {"Notes": [["who", "when"]], "June": ROWS, "Empty": []})
    assert runs(path) == RUNS
    assert "sheet 'June' is read, of 2" in " ".join(foreign.read_csv(path, ["fs"], ["tps"]).notes)
    # Numbers of lines are those of the sheet.
    bad = workbook(tmp_path / "b.xlsx", {"June": [["title"], *ROWS, ["xfs", 3, "abc"]]})
    with pytest.raises(PlanError, match="tps = 'abc'") as error:
        runs(bad)
    assert error.value.place == f"{bad}:7"


def test_two_sheets_that_may_be_the_table_are_a_question(tmp_path: Path) -> None:
    path = workbook(tmp_path / "t.xlsx", {"May": ROWS, "June": ROWS})
    with pytest.raises(PlanError, match="sheets May and June may all be the table"):
        runs(path)


def test_without_the_library_its_extra_is_named(tmp_path: Path) -> None:
    path = workbook(tmp_path / "t.xlsx", {"June": ROWS})
    done = headrace_without(
        "python_calamine", arguments=["import", str(path), "--factor", "fs", "--response", "tps"]
    )
    assert done.returncode == 3
    assert "pip install 'headrace[sheets]'" in done.stderr
    assert "Traceback" not in done.stderr


def corners(cell: str) -> str:
    """A sheet of two cells, one at each end."""
    first = '<row r="1"><c r="A1"><v>1</v></c></row>'
    return f'<sheetData>{first}<row r="{cell.lstrip("XFD")}"><c r="{cell}"><v>1</v></c></row></sheetData>'


@pytest.mark.parametrize("cell", ["XFD1048576", "Z300000"], ids=["17,180 million cells", "8 million"])
def test_a_small_file_of_very_many_cells_is_refused(tmp_path: Path, cell: str) -> None:
    path = workbook(tmp_path / "t.xlsx", {"June": ROWS})
    assert runs(path) == RUNS
    small = path.read_bytes()
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    sheet = parts["xl/worksheets/s1.xml"].decode()
    head, tail = sheet[: sheet.index("<sheetData>")], "</worksheet>"
    parts["xl/worksheets/s1.xml"] = (head + corners(cell) + tail).encode()
    with zipfile.ZipFile(path, "w") as file:
        for name, content in parts.items():
            file.writestr(name, content)
    assert path.stat().st_size < 2 * len(small)
    with pytest.raises(PlanError, match="too large when it is unpacked"):
        runs(path)


def test_a_pipe_or_a_device_is_no_table(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "device.csv").symlink_to("/dev/zero")
    for name in ("pipe.csv", "device.csv"):
        with pytest.raises(PlanError, match="not a plain file"):
            runs(tmp_path / name)


def test_rows_that_are_hidden_count_and_are_named(tmp_path: Path) -> None:
    """A filter hides what somebody did not believe, and it is in the file all the same."""
    path = workbook(tmp_path / "t.xlsx", {"June": ROWS})
    hidden = tmp_path / "h.xlsx"
    with zipfile.ZipFile(path) as file, zipfile.ZipFile(hidden, "w") as copy:
        for name in file.namelist():
            copy.writestr(name, file.read(name).replace(b'<row r="3">', b'<row r="3" hidden="1">'))
    (note,) = [each for each in foreign.read_csv(hidden, ["fs"], ["tps"]).notes if "hidden" in each]
    assert note.endswith("1 row hidden in the sheet (3) is read")
    assert not any("hidden" in each for each in foreign.read_csv(path, ["fs"], ["tps"]).notes)
