"""The command line: help, errors, exit codes, and the README's own commands."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import typer.main
from typer.testing import CliRunner

from headrace import __version__, cli
from headrace.base.errors import TargetError
from headrace.cli import shell
from headrace.cli.commands import COMMANDS, GROUPS
from headrace.cli.shell import GUESSES, app
from headrace.experiment import design as designs
from headrace.experiment import plan as plans
from headrace.experiment import store
from headrace.experiment.commands.experiments import find_plan
from headrace.hunt.commands import top
from headrace.hunt.hunt import refused
from tests import synthetic
from tests.commands import headrace
from tests.folders import ROOT
from tests.unit.test_top_views import feed_of, shot_of

SCRIPTS = Path(sys.executable).parent


def started(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(SCRIPTS / "headrace"), *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=120,
        check=False,
    )


def test_help_names_every_command_and_the_version_is_the_packages() -> None:
    answer = started("--help")
    assert answer.returncode == 0
    for command in ("doctor", "facts", "run", "demo", "report", "status", "compare", "plan"):
        assert f"  {command} " in answer.stdout
    assert started("--version").stdout == f"headrace {__version__}\n"


@pytest.mark.parametrize("words", ["plan list", "plan show stock-to-all --json", "--help"])
def test_a_full_disk_behind_standard_output_is_an_error_like_any_other(words: str) -> None:
    command = [str(Path(sys.executable).with_name("headrace")), *words.split()]
    with Path("/dev/full").open("w") as full:
        answer = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert answer.returncode == 8, answer.stderr
    assert "standard output: no space left" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_an_output_without_the_characters_gets_plainer_ones(tmp_path: Path) -> None:
    file = plans.load(ROOT / "examples" / "stock-to-all.toml")
    folder = tmp_path / "a–b×c"
    store.ExperimentFolder.create(folder, file.text, designs.build(file.plan, place="x"))
    out = io.TextIOWrapper(io.BytesIO(), "ascii")
    with (
        mock.patch.object(sys, "argv", ["headrace", "report", str(folder)]),
        mock.patch.object(sys, "stdout", out),
        mock.patch.object(sys, "stderr", out),
        pytest.raises(SystemExit) as ended,
    ):
        cli.main()
    assert not ended.value.code
    out.flush()
    text = out.buffer.getvalue().decode()
    assert "a-bxc/report.html" in text
    # A dash where a cell has no value.
    assert " - " in text


#: What takes longer to import than a command's help may take. typer itself needs Pydantic for a command's options.
HEAVY = {"asyncio", "asyncssh", "duckdb", "jinja2", "numpy", "optuna", "pyarrow", "rich", "scipy", "textual"}


@pytest.mark.parametrize(
    ("arguments", "heavy", "modules"),
    [
        (["--version"], {*HEAVY, "pydantic", "typer"}, []),
        (["--help"], {*HEAVY, "pydantic"}, []),
        (["hunt", "--help"], HEAVY, ["hunt.commands.hunt"]),
        (["plan", "list", "--help"], HEAVY, ["experiment.commands.experiments"]),
        (["fleet", "drift", "--help"], HEAVY, ["fleet.command"]),
        (["no-such-command"], HEAVY, []),
    ],
    ids=lambda words: " ".join(sorted(words)),  # a set has no order of its own
)
def test_help_loads_the_module_of_its_command_and_nothing_heavy(
    arguments: list[str], heavy: set[str], modules: list[str]
) -> None:
    code = (
        f"import sys; sys.argv = {['headrace', *arguments]!r}\n"
        "from headrace.cli import main\nfrom headrace.cli.commands import COMMANDS\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"print(sorted({heavy!r} & set(sys.modules)), file=sys.stderr)\n"
        "print([m for m in COMMANDS if f'headrace.{m}' in sys.modules], file=sys.stderr)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stderr.splitlines()[-2:] == ["[]", str(modules)]


@pytest.mark.parametrize(
    "arguments", [["knobs", "--json"], ["rules"], ["digest", "{log}"]], ids=lambda words: words[0]
)
def test_what_a_command_does_not_use_it_does_not_import(arguments: list[str], tmp_path: Path) -> None:
    """Here: SSH on this host, and pandas, which Arrow takes where it is installed."""
    log = tmp_path / "slow.log"
    log.write_text("# Query_time: 1.0  Lock_time: 0.0  Rows_sent: 1  Rows_examined: 1\nselect 1;\n")
    words = [word.format(log=log) for word in arguments]
    code = (
        f"import sys; sys.argv = {['headrace', *words]!r}\n"
        "from headrace.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "print(sorted({'asyncssh', 'pandas'} & set(sys.modules)), file=sys.stderr)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stderr.splitlines()[-1] == "[]"


def test_each_command_is_in_one_group_of_the_help_and_in_one_line() -> None:
    names = [name for group in GROUPS.values() for name in group]
    assert sorted(names) == sorted(name for words in COMMANDS.values() for name in words)
    said = started("--help").stdout
    for words in COMMANDS.values():
        for name, summary in words.items():
            assert re.search(rf"^  {name} +{re.escape(summary)}$", said, re.M), name


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["hnt"], "hunt"),
        (["fleet", "hnt"], "hunt"),
        (["serve", "user", "ad"], "add"),
        (["journal"], "rollback --list"),
        (["sweep", "plan.toml"], "run"),
    ],
)
def test_a_command_that_does_not_exist_is_an_error_that_names_the_one_meant(
    words: list[str], meant: str
) -> None:
    answer = started(*words)
    assert answer.returncode == 2
    assert f"Did you mean '{meant}'?" in answer.stderr


def test_each_guess_leads_to_a_command_that_exists() -> None:
    cli.load()
    root = typer.main.get_command(app)
    for word, meant in GUESSES.items():
        command: Any = root
        assert word not in command.commands
        for name in meant.split():
            if name.startswith("-"):
                assert any(name in each.opts for each in command.params), meant
            else:
                command = command.commands[name]


def test_a_command_with_commands_takes_its_own_words_too(tmp_path: Path) -> None:
    """Options stand on either side of a source; a file of a command's name has a path."""
    for words, said in (
        ([str(tmp_path / "a.log"), "--top", "3"], "a.log: No such file"),
        (["--top", "3", str(tmp_path / "a.log")], "a.log: No such file"),
        (["compare", str(tmp_path / "a.log")], "Missing argument 'AFTER'"),
        (["./compare"], "./compare: No such file"),
    ):
        assert said in started("digest", *words).stderr
    assert (
        "Usage: headrace digest compare [OPTIONS] {BEFORE} {AFTER}"
        in started("digest", "compare", "-h").stdout
    )


def test_help_has_no_type_names_of_python() -> None:
    assert not re.findall(r"<(?:list\W|float|int|str|path)", (ROOT / "docs/reference/cli.md").read_text())


@pytest.mark.parametrize("path", ["packaging/scripts/headrace", "src/headrace/__main__.py"])
def test_a_process_that_reads_the_entry_point_again_does_not_run_the_command_again(path: str) -> None:
    """As multiprocessing does for the processes that judge hosts: the same arguments, another name."""
    code = (
        f"import runpy, sys; sys.argv = ['headrace', '--version']; runpy.run_path({path!r}, run_name={{!r}})"
    )
    for name, said in (("__mp_main__", ""), ("__main__", f"headrace {__version__}\n")):
        argv = [sys.executable, "-c", code.format(name)]
        assert subprocess.run(argv, capture_output=True, text=True, check=True, cwd=ROOT).stdout == said


def test_as_a_module_it_has_the_installed_commands_name() -> None:
    script = """
import contextlib, pathlib, runpy, sys
sys.argv = ["headrace", "--version"]
with contextlib.suppress(SystemExit):
    runpy.run_module("headrace", run_name="__main__")
print(pathlib.Path("/proc/self/comm").read_text())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "headrace"


def test_the_table_of_commands_has_each_command_at_its_module() -> None:
    cli.load()
    there: dict[str, set[str]] = {}
    for command in app.registered_commands:
        assert command.callback is not None
        module = command.callback.__module__.removeprefix("headrace.")
        there.setdefault(module, set()).add(command.name or command.callback.__name__)
    for group in app.registered_groups:
        assert group.typer_instance is not None
        inner = group.typer_instance.registered_callback or group.typer_instance.registered_commands[0]
        assert inner.callback is not None
        module = inner.callback.__module__.removeprefix("headrace.")
        # A large group has a module for each of its parts, and one that has them all: size_full, size_merge; size.
        there.setdefault(module if module in COMMANDS else module.split("_")[0], set()).add(str(group.name))
    assert there == {module: set(words) for module, words in COMMANDS.items()}


def test_every_summary_fits_its_line() -> None:
    """Help cuts what is longer than a line of 80 columns."""
    cli.load()
    commands = [[], *([word] for words in COMMANDS.values() for word in words)]
    help_ = "".join(CliRunner().invoke(app, [*each, "--help"], terminal_width=80).output for each in commands)
    assert help_.count("\nCommands:\n") > 5
    assert not re.findall(r"^  [a-z]\S*  .*\.\.\.$", help_, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["runn"], 2, "No such command 'runn'. Did you mean 'run'?"),
        (["run"], 2, "PLAN"),
        (["run", "no-such.toml"], 3, "no such file"),
        (["plan", "show", "pyproject.toml"], 3, "pyproject.toml:1: "),
        (["report", "tests"], 9, "not an experiment directory"),
        (["report", "README.md"], 9, "it is a file"),
        (["compare", "tests", "src"], 9, "not an experiment directory"),
        (["facts", "--target", "/no/such/folder"], 3, "/no/such/folder"),
        (["facts", "--mysql-password-file", "/x"], 2, "names no server: add --mysql-socket"),
    ],
)
def test_wrong_input_is_one_clear_error_with_its_exit_code(
    arguments: list[str], code: int, said: str
) -> None:
    answer = headrace(*arguments)
    assert answer.returncode == code, answer.stderr
    assert said in answer.stderr
    assert answer.stdout == ""
    assert "Traceback" not in answer.stderr


def test_plan_show_prints_the_trials_and_the_hours() -> None:
    answer = headrace("plan", "show", "pinterest-2015")
    assert answer.returncode == 0, answer.stderr
    assert "about" in answer.stdout
    design = json.loads(headrace("plan", "show", "pinterest-2015", "--json").stdout)
    kernels, filesystems, chunks, tests, modes, threads = 2, 3, 4, 3, 2, 2
    assert len(design["treatments"]) == kernels * filesystems * chunks * tests * modes * threads
    assert design["hours"] > 0.5


def test_facts_of_a_saved_host() -> None:
    answer = headrace("facts", "--target", "tests/hosts/xen-16core-md", "--json")
    assert answer.returncode == 0, answer.stderr
    facts = json.loads(answer.stdout)
    assert facts["cpu"]["online_count"] == 16
    assert facts["md_arrays"][0]["level"] == "raid0"
    readable = headrace("facts", "--target", "tests/hosts/xen-16core-md").stdout
    assert "xvdb" in readable


def test_json_goes_to_standard_output_alone() -> None:
    answer = headrace("doctor", "--json")
    assert {"name", "ok", "detail", "remedy"} == set(json.loads(answer.stdout)[0])


def test_no_colour_when_asked_or_when_not_a_terminal() -> None:
    printed = started("doctor").stdout
    assert "\x1b[" not in printed
    assert "[green]" not in printed, "a style's name is not a word for readers"
    assert "ok  headrace-agent" in printed


def test_compare_says_what_differs_and_that_it_is_unpaired(tmp_path: Path) -> None:
    for name, gain in (("a", 1.0), ("b", 1.5)):
        synthetic.make(
            tmp_path / name, synthetic.Shape(effects={"STOCK": 1.0, "ALL": gain}, blocks=4, seconds=20)
        )
    answer = headrace("compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json")
    assert answer.returncode == 0, answer.stderr
    found = {(e["treatment"], e["response"]): e for e in json.loads(answer.stdout)["effects"]}
    assert found["ALL", "throughput"]["verdict"] == "better"
    assert found["ALL", "throughput"]["ratio"]["estimate"] == pytest.approx(1.5, rel=0.2)
    readable = headrace("compare", str(tmp_path / "a"), str(tmp_path / "b"))
    assert "ALL" in readable.stdout


def test_an_experiment_without_trials_is_reported_as_such(tmp_path: Path) -> None:
    file = plans.load(ROOT / "examples" / "stock-to-all.toml")
    design = designs.build(file.plan, place="x")
    store.ExperimentFolder.create(tmp_path / "e", file.text, design)
    answer = headrace("report", str(tmp_path / "e"))
    assert answer.returncode == 0, answer.stderr
    assert "0 of 45 trials" in headrace("status", str(tmp_path / "e")).stdout


def test_the_make_targets_of_the_readme_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert (
        set(re.findall(r"^make ([a-z-]+)", (ROOT / "README.md").read_text(), flags=re.MULTILINE)) <= targets
    )


def test_a_folder_of_an_examples_name_does_not_hide_the_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `headrace run kernels -o kernels` leaves one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernels").mkdir()
    assert find_plan(Path("kernels")).is_file()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("shell.run_until_signal(work)", "stopping ...\nstopped\n"),
        ("shell.on_target('local', lambda _: work())", "stopping ...\nstopped\n"),
        (
            "shell.on_target('local', lambda _: work(), changes=True)",
            "stopping: restoring the host first ...\nstopped; the host is restored\n",
        ),
        (
            "shell.run_trials(work)",
            "stopping: restoring the host first ...\nstopped; the host is restored, finished trials are kept\n",
        ),
    ],
)
def test_ctrl_c_says_what_there_was_to_restore(call: str, said: str) -> None:
    code = f"""
import asyncio
from headrace.cli import shell
async def work():
    print("there", flush=True)
    await asyncio.sleep(60)
try:
    {call}
except shell.typer.Exit as end:
    raise SystemExit(end.exit_code)
"""
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.lstrip("\n") == said


def test_a_second_ctrl_c_tells_how_to_leave_a_host_that_is_never_restored() -> None:
    code = """
import asyncio
from headrace.cli import shell
async def work():
    try:
        print("there", flush=True)
        await asyncio.sleep(60)
    finally:
        print("restoring", flush=True)
        await asyncio.sleep(60)
shell.run_trials(work)
"""
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for said in ("there\n", "restoring\n"):
            assert process.stdout.readline() == said
            process.send_signal(signal.SIGINT)
        assert [process.stderr.readline() for _ in range(3)] == [
            "\n",
            "stopping: restoring the host first ...\n",
            "stopping: restoring the host first ... if it never ends: "
            f"kill -9 {process.pid}, then headrace rollback\n",
        ]
        process.kill()


@pytest.mark.parametrize(
    ("arguments", "code"), [(["report", "README.md", "--json"], 9), (["report", "--json", "--no-such"], 2)]
)
def test_an_error_under_json_is_an_object(arguments: list[str], code: int) -> None:
    answer = headrace(*arguments)
    assert answer.returncode == code
    error = json.loads(answer.stdout)["error"]
    assert error["exit_code"] == code
    assert error["message"]


def test_a_command_that_has_answered_in_json_adds_no_second_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A hunt whose login was refused printed its report and an error: no parser took both."""

    def answers(**_: object) -> None:
        shell.print_json({"why_no_server": "Access denied"})
        raise TargetError("the server was not examined: Access denied")

    monkeypatch.setattr(sys, "argv", ["headrace", "hunt", "--json"])
    monkeypatch.setattr(shell, "app", answers)
    with pytest.raises(SystemExit) as ended:
        shell.main()
    printed = capsys.readouterr()
    assert ended.value.code == TargetError.exit_code
    assert json.loads(printed.out) == {"why_no_server": "Access denied"}
    assert "Access denied" in printed.err


def test_the_reason_why_a_named_server_was_not_examined_comes_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shot = shot_of(feed_of())
    top._print(shot, refused({"mysql_status": "Access denied; tried again in 2 s"}))
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "The server was not examined: Access denied. This is about the host alone."
    top._print(shot, "")
    assert "not examined" not in capsys.readouterr().out


def test_a_setting_that_is_proved_live_is_not_taken_for_a_rule() -> None:
    """It fails at the server, which is not there, and no sooner."""
    import headrace.experiment.commands.prove  # noqa: F401 - registers the command

    words = ["prove", "--live", "server.innodb_io_capacity=300", "--mysql-socket", "/nonexistent/sock"]
    raised = CliRunner().invoke(app, words).exception
    assert raised is not None
    assert "no rule is called" not in str(raised)


def test_a_file_that_becomes_another_thing_meanwhile_is_an_error_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def changed(*_: object, **__: object) -> None:
        raise NotADirectoryError(20, "Not a directory", "/srv/x/.lock")

    monkeypatch.setattr(shell, "app", changed)
    done = headrace("status", "x")
    assert done.returncode == 9
    assert "/srv/x/.lock: Not a directory" in done.stderr


def test_a_full_disk_elsewhere_is_not_called_standard_output(tmp_path: Path) -> None:
    """A file of ours may have no name in the error: the output had room."""
    code = (
        "import errno, os, sys\n"
        "from headrace.cli.shell import _of_a_file\n"
        "sys.stderr.write(str(_of_a_file(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))))\n"
    )
    for path, says in ((tmp_path / "out", False), (Path("/dev/null"), False), (Path("/dev/full"), True)):
        with path.open("w") as output:
            command = [sys.executable, "-c", code]
            done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, check=False)
        assert ("standard output" in done.stderr) is says, done.stderr
