"""The winner as something to type or to copy."""

from __future__ import annotations

from pathlib import Path

from headrace.base.model import Treatment, Value
from headrace.change.apply import settings_of as asked
from headrace.experiment import report
from headrace.experiment.report import adopt
from headrace.experiment.report.view import opened
from headrace.knobs import catalogue as knobs
from headrace.show import html, jsonform, parts
from tests import synthetic


def settings(**values: Value) -> list[adopt.Setting]:
    named = {name.replace("__", "."): value for name, value in values.items()}
    return adopt.settings_of(Treatment("NEW", {}, named), Treatment("OLD", {}, {}), {})


def texts(view_parts: object) -> str:
    found = []
    for part in view_parts:  # type: ignore[attr-defined]
        if isinstance(part, parts.Details):
            found += [parts.plain(part.title), *(p.text for p in part.parts if isinstance(p, parts.Lines))]
        elif isinstance(part, parts.Note):
            found.append(part.text)
        elif isinstance(part, parts.Sentence):
            found.append(parts.plain(part.words))
    return "\n".join(found)


def test_the_proven_best_is_a_command_and_files(tmp_path: Path) -> None:
    folder = synthetic.make(tmp_path / "e")
    page = report.of(folder)
    content = jsonform.render(page)
    (best,) = content["adopt"]
    assert best["treatment"] == "ALL"
    assert best["settings"]["server.innodb_buffer_pool_size"] == "1G"
    assert "headrace apply" in html.render(page)
    said = texts(adopt._parts(opened(folder)))
    assert "times the throughput" in said
    assert "innodb_buffer_pool_size = 1G" in said
    assert "headrace rollback --last" in said
    # Whatever the page says is typed must be what `apply` understands.
    words = [word.rstrip("\\").strip() for word in best["command"].splitlines()]
    typed = [word for word in words if word.startswith(("server.", "host.")) and "=" in word]
    assert asked(typed, lambda _: None)


def test_where_nothing_is_proven_better_there_is_nothing_to_apply(tmp_path: Path) -> None:
    folder = synthetic.make(tmp_path / "e", synthetic.Shape(effects={"STOCK": 1.0, "X": 1.0}))
    assert list(adopt._parts(opened(folder))) == []


def test_what_an_experiment_from_others_names_is_no_command_of_its_own() -> None:
    knob = knobs.find("server.innodb_flush_log_at_trx_commit")
    weak = adopt.Setting("server.innodb_flush_log_at_trx_commit@;reboot", knob, 2, "")
    assert f"--allow-weaker '{weak.name}'" in adopt._command([weak])
    options = adopt.Setting("volume.mount_options@/x", knobs.find("volume.mount_options"), ["a\nreboot"], "")
    assert all(line.startswith("#") for line in adopt._command([options]).splitlines())


def test_what_keeps_less_after_a_crash_is_said_and_asked_for() -> None:
    (one,) = settings(server__innodb_flush_log_at_trx_commit=2)
    assert one.knob.weakness(one.value)
    assert "--allow-weaker server.innodb_flush_log_at_trx_commit" in adopt._command([one])


def test_sysctls_are_files_and_devices_are_asked_for() -> None:
    values: dict[str, Value] = {"host__vm.swappiness": 1, "volume__scheduler": "none", "host__rps_cpus": "f"}
    found = settings(**values)
    said = texts(adopt._ways(found))
    assert "vm.swappiness = 1" in said
    assert "[sysctl]\nvm.swappiness=1" in said
    assert "host.rps_cpus@RX=f" in said
    assert "volume.scheduler@DEVICE=none" in said


def test_what_no_running_host_takes_is_left_to_hands() -> None:
    said = adopt._command(settings(volume__filesystem="xfs", volume__mount_options=["noatime"]))
    assert "headrace apply" not in said
    assert "#   volume.filesystem = xfs" in said
    assert "#   volume.mount_options = noatime" in said


def test_settings_of_the_experiment_are_none_of_the_host() -> None:
    assert settings(workload__connections=64, machine__kernel="6.12") == []


def test_every_knob_can_be_said() -> None:
    for name, knob in knobs.CATALOGUE.items():
        value: Value = ["noatime"] if knob.kind is knobs.Kind.LIST else knob.allowed[0] if knob.allowed else 1
        assert name in adopt._command([adopt.Setting(name, knob, value, "")])
