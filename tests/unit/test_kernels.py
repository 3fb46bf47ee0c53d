"""The kernel as a factor: which plans are right, what boots cost, and what reports say of machines."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path

import pytest

from headrace.base.errors import PlanError, TargetError
from headrace.experiment import boot, kinds, labs, machine, plan, report, runner
from headrace.experiment import design as designs
from headrace.experiment.stats import study
from headrace.experiment.store import ExperimentFolder
from headrace.host.agent.stable import without_what_changes_by_itself
from headrace.host.target import TargetSpec
from headrace.lab import vm
from headrace.show import jsonform, terminal
from tests import synthetic
from tests.written import printed

PLAN = """
name = "kernels"
[target]
{target}
[design]
kind = "factorial"
baseline = {{ kernel = "/boot/a", jobs = "1" }}
blocks = {blocks}
[workload]
kind = "fio"
seconds = {seconds}
rw = "read"
size = "4M"
ioengine = "psync"
[factors.jobs]
levels.1 = {{ "host.vm.swappiness" = 60 }}
levels.2 = {{ "host.vm.swappiness" = 61 }}
[factors.kernel]
knob = "machine.kernel"
levels = ["/boot/a", "/boot/b"]
"""


def parsed(target: str = 'address = "vm"', blocks: int = 2, seconds: float = 1) -> plan.Plan:
    return plan.parse(PLAN.format(target=target, blocks=blocks, seconds=seconds), "plan.toml")


def test_a_kernel_is_changed_once_a_block_and_is_hard_for_the_analysis_too() -> None:
    design = designs.build(parsed(blocks=4), place="plan.toml")
    assert design.hard == ["kernel"]
    for block in range(1, 5):
        order = [design.treatment(t.treatment).levels["kernel"] for t in design.trials if t.block == block]
        changes = sum(a != b for a, b in itertools.pairwise(order))
        assert len(order) == 5
        assert changes == 1


def test_boots_are_part_of_what_a_plan_takes() -> None:
    design = designs.build(parsed(blocks=4), place="plan.toml")
    kernels = [design.treatment(t.treatment).levels["kernel"] for t in design.trials]
    changes = sum(a != b for a, b in itertools.pairwise(kernels))
    assert runner.boot_seconds(design) == runner.BOOT_S * (changes + 1)


def test_a_factor_that_reboots_stands_before_those_that_are_hard_for_other_reasons() -> None:
    text = PLAN.format(target='address = "vm"', blocks=2, seconds=1)
    loaded = plan.parse(text.replace("blocks = 2", 'blocks = 2\nhard = ["jobs"]'), "plan.toml")
    assert designs.build(loaded, place="plan.toml").hard == ["kernel", "jobs"]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ('address = "local"', "never reboots 'local'"),
        ('address = "root@db1"', "the plan does not allow"),
        ('address = "root@db1"\n[machine]\nallow_reboot = true', "the plan does not allow"),
        ('address = "root@db1"\n[machine]\nhosts = ["db1"]', "the plan does not allow"),
        ('address = "root@db1"\n[machine]\nallow_reboot = true\nhosts = ["db2"]', "reboot of db1"),
    ],
)
def test_what_nobody_allowed_to_reboot_is_refused(target: str, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        designs.build(parsed(target), place="plan.toml")


def test_a_treatment_without_a_kernel_is_refused_where_others_have_one() -> None:
    text = PLAN.format(target='address = "vm"', blocks=2, seconds=1)
    text = text.partition("[factors.kernel]")[0].replace('kernel = "/boot/a", ', "")
    with pytest.raises(PlanError, match="names no kernel"):
        designs.build(plan.parse(text, "plan.toml"), place="plan.toml")
    with_one = text.replace("[design]", '[machine]\nkernel = "6.1"\n[design]')
    assert designs.build(plan.parse(with_one, "plan.toml"), place="plan.toml").treatments


def test_a_kernel_of_all_treatments_needs_the_same_leave() -> None:
    text = PLAN.format(target='address = "local"\n[machine]\nkernel = "6.1"', blocks=2, seconds=1)
    text = text.partition("[factors.kernel]")[0].replace('kernel = "/boot/a", ', "")
    with pytest.raises(PlanError, match="never reboots 'local'"):
        designs.build(plan.parse(text, "plan.toml"), place="plan.toml")


def test_a_listed_host_may_reboot() -> None:
    listed = 'address = "root@db1:2222"\n[machine]\nallow_reboot = true\nhosts = ["db1"]'
    design = designs.build(parsed(listed), place="plan.toml")
    assert str(design.boot_of(design.treatments[0])) == "/boot/a"


ARGUED = """
[factors.mitigations]
levels.on = { "machine.arguments" = "" }
levels.off = { "machine.arguments" = "mitigations=off  preempt=full" }
"""


def test_arguments_are_part_of_what_boots() -> None:
    text = PLAN.format(target='address = "vm"', blocks=2, seconds=1).replace(
        "[factors.kernel]", f"{ARGUED}[factors.kernel]"
    )
    text = text.replace("baseline = { ", 'baseline = { mitigations = "on", ')
    design = designs.build(plan.parse(text, "plan.toml"), place="plan.toml")
    boots = {str(design.boot_of(each)) for each in design.treatments}
    assert "/boot/a with mitigations=off preempt=full" in boots
    assert len(boots) == 2 * len({each.partition(" ")[0] for each in boots})
    lines = [design.boot_of(design.treatment(trial.treatment)) for trial in design.trials]
    changes = sum(one != other for one, other in itertools.pairwise(lines))
    assert changes < 2 * len(boots)  # hard to change: once a block, not once a trial


@pytest.mark.parametrize(
    ("target", "arguments", "said"),
    [
        (
            'address = "root@db1"\n[machine]\nallow_reboot = true\nhosts = ["db1"]',
            "quiet",
            "only a virtual machine",
        ),
        ('address = "vm"\n[machine]', "init=/bin/sh", "the machine's own"),
        ('address = "vm"\n[machine]', "headrace_name=x", "the machine's own"),
        ('address = "vm"\n[machine]', "-- single", "the machine's own"),
        ('address = "vm"\n[machine]', "quiet=ä", "printable ASCII"),
    ],
)
def test_arguments_that_cannot_be_are_refused(target: str, arguments: str, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        designs.build(parsed(f'{target}\narguments = "{arguments}"'), place="plan.toml")


def test_a_level_without_a_word_needs_a_name() -> None:
    text = PLAN.format(target='address = "vm"', blocks=1, seconds=1)
    text += '[factors.quiet]\nknob = "machine.arguments"\nlevels = ["quiet", ""]\n'
    text = text.replace("baseline = { ", 'baseline = { quiet = "quiet", ')
    with pytest.raises(PlanError, match="empty level needs a name"):
        designs.build(plan.parse(text, "plan.toml"), place="plan.toml")


def test_arguments_without_a_kernel_are_refused() -> None:
    text = PLAN.format(target='address = "vm"\n[machine]\narguments = "quiet"', blocks=2, seconds=1)
    text = text.partition("[factors.kernel]")[0].replace('kernel = "/boot/a", ', "")
    with pytest.raises(PlanError, match="no kernel"):
        designs.build(plan.parse(text, "plan.toml"), place="plan.toml")


def test_a_race_of_kernels_is_refused() -> None:
    text = PLAN.format(target='address = "vm"', blocks=2, seconds=1).replace('"factorial"', '"race"')
    with pytest.raises(PlanError, match="needs a reboot"):
        kinds.build(plan.parse(text, "plan.toml"), place="plan.toml")


def test_the_frozen_design_knows_the_machine_but_not_who_may_reboot() -> None:
    one = designs.build(parsed('address = "vm"\n[machine]\nmemory = "1G"'), place="p")
    other = designs.build(parsed('address = "vm"\n[machine]\nmemory = "2G"'), place="p")
    kept = designs.build(parsed('address = "vm"\n[machine]\nmemory = "1G"\nkeep = true'), place="p")
    assert one.hash != other.hash
    assert one.hash == kept.hash


@pytest.mark.parametrize(
    ("wanted", "release", "fits"),
    [
        ("6.1", "6.1.0-18-cloud-amd64", True),
        ("6.1", "6.12.9+bpo-amd64", False),
        ("6.12", "6.12.9+bpo-amd64", True),
        ("6.12", "6.12-rc1", True),
        ("6.1.0-18-cloud-amd64", "6.1.0-18-cloud-amd64", True),
        ("6.1.0-18", "6.1.0-18-cloud-amd64", True),
        ("6.1.0-1", "6.1.0-18-cloud-amd64", False),
    ],
)
def test_which_release_is_meant(wanted: str, release: str, fits: bool) -> None:
    assert boot.is_kernel(wanted, release) is fits


def test_the_name_of_a_virtual_machine_is_one_experiments() -> None:
    first = machine.vm_name("kernels", "hash", Path("/a"))
    assert first == machine.vm_name("kernels", "hash", Path("/a"))
    assert first != machine.vm_name("kernels", "hash", Path("/b"))
    vm.VmSpec(machine.vm_name("A.very_long.name" * 6, "hash", Path("/a"))).check()


def test_an_error_of_a_machine_that_is_still_there_is_told_as_it_is(tmp_path: Path) -> None:
    class Unmoved(machine.AsItIs):
        boots = True

    async def work() -> None:
        design = designs.build(parsed(), place="plan.toml")
        folder = ExperimentFolder.create(tmp_path / "out", "", design)
        lab = labs.Labs(Unmoved(TargetSpec("local")), folder, design, lambda _: None)
        lab._spec = TargetSpec("local")
        lab._boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        await lab.lost(TargetError("the tool is gone"))

    with pytest.raises(TargetError, match="the tool is gone"):
        asyncio.run(work())


def test_every_report_of_an_emulated_machine_says_so_and_a_comparison_too(tmp_path: Path) -> None:
    folders = [synthetic.make(tmp_path / name) for name in ("a", "b")]
    said = "only the direction of a difference can be trusted"
    assert not any(said in note for note in study.compare_experiments(*folders).notes)
    for path in tmp_path.glob("a/trials/*/trial.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "accel": "tcg"}))
    folder = ExperimentFolder.open(folders[0].path)
    assert any(said in note for note in study.compare_experiments(folder, folders[1]).notes)
    written = report.of(folder)
    page = report.write(written, folder)
    assert said in page.read_text()
    assert any(said in caution for caution in jsonform.render(written)["cautions"])
    assert said in printed(terminal.render(written), width=200)


def test_two_boots_of_one_kernel_are_one_configuration_and_two_command_lines_are_not() -> None:
    def stable(identity: str, file_max: str, option: str) -> object:
        line = f"root=/dev/vda {option} headrace_id={identity}"
        data = {"kernel": {"command_line": line}, "sysctls": {"fs.file-max": file_max}}
        return without_what_changes_by_itself(data)

    def device(number: str, scheduler: str, known: list[str]) -> object:
        queue = {"scheduler": scheduler, "schedulers": known}
        partition = {"name": "vda1", "device_number": number}
        disk = {"name": "vda", "device_number": number, "queue": queue, "partitions": [partition]}
        mount = {"mount_point": "/", "device_number": number, "block_device": "vda"}
        return without_what_changes_by_itself({"block_devices": [disk], "file_systems": [mount]})

    assert stable("a", "97756", "quiet") == stable("b", "97731", "quiet")
    # Devices are numbered as they are found; a scheduler is known once its module is loaded, as by a trial.
    assert device("259:1", "none", ["none"]) == device("259:2", "none", ["none", "mq-deadline"])
    assert device("259:1", "none", ["none"]) != device("259:1", "mq-deadline", ["none"])
    assert stable("a", "97756", "quiet") != stable("a", "97756", "mitigations=off")
