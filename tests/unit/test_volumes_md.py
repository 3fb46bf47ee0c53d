"""Volumes of several devices, as far as no kernel is needed: what a plan may say, and what is journaled when."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.base.errors import DiskFull, NotReady, PlanError, Refused, TreatmentFailed
from headrace.experiment import design, plan
from headrace.experiment.frozen import Design
from headrace.experiment.volume import spec_of
from headrace.host.target import Completed
from headrace.lab import volumes
from headrace.lab.volumes import (
    DEVICES,
    FILESYSTEMS,
    MADE_OF_OTHERS,
    Device,
    DeviceSpec,
    Raid,
    VolumeSpec,
    geometry,
    reason_of,
)
from headrace.lab.volumes import _queues as queues
from headrace.lab.volumes.device import Site, Stripe
from headrace.lab.volumes.md import stripe

KIB = 1024
DISKS = tuple(f"/dev/disk/by-id/virtio-data{number}" for number in range(6))

PLAN = """
name = "raid"
[design]
kind = "factorial"
baseline = {{ level = "{first}"{baseline} }}
blocks = 2
{exclude}
[workload]
kind = "fio"
seconds = 1
[volume]
device = "{device}"
size = "512M"
{table}
[base]
{base}
[factors.level]
knob = "volume.raid_level"
levels = {levels}
{factors}
"""


def built(
    levels: Sequence[int] = (0, 6),
    *,
    device: str = "md",
    table: str = 'raid_over = "loop"',
    base: str = "",
    factors: str = "",
    exclude: str = "",
    baseline: str = "",
) -> Design:
    text = PLAN.format(
        baseline=baseline,
        first=levels[0],
        levels=list(levels),
        device=device,
        table=table,
        base=base,
        factors=factors,
        exclude=exclude,
    )
    return design.build(plan.parse(text, "raid.toml"), place="raid.toml")


def specs(made: Design) -> list[VolumeSpec]:
    return [spec_of(made.volume, treatment) for treatment in made.treatments]


# What a plan says


def test_each_setting_of_an_array_reaches_it() -> None:
    listed = f"devices = {json.dumps(DISKS)}"
    base = """
    "volume.raid_devices" = 4
    "volume.raid_chunk" = "64K"
    "volume.raid_bitmap" = "none"
    "volume.stripe_cache" = 4096
    "volume.initial_sync" = "wait"
    "volume.filesystem_size" = "400M"
    "volume.filesystem" = "ext4"
    "volume.read_ahead_kb" = 512
    """
    (first, second) = specs(built((5, 6), table=listed, base=base))
    assert first.device.raid == Raid(5, 64 * KIB, "none", 4096, "wait")
    assert second.device.raid == Raid(6, 64 * KIB, "none", 4096, "wait")
    assert [parent.id for parent in first.device.parents] == list(DISKS[:4])
    assert {parent.kind for parent in first.device.parents} == {"block"}
    assert first.filesystem_bytes == 400 * KIB * KIB
    assert first.queue == {"read_ahead_kb": "512"}


def test_a_machine_without_spare_disks_tries_it_over_loops() -> None:
    (first, _) = specs(built())
    assert [parent.kind for parent in first.device.parents] == ["loop"] * 4
    assert first.device.parents[0].size_bytes == 512 * KIB * KIB
    (first, _) = specs(built(base='"volume.raid_devices" = 6'))
    assert len(first.device.parents) == 6


def test_the_number_of_devices_can_be_a_factor() -> None:
    factor = '[factors.width]\nknob = "volume.raid_devices"\nlevels = [2, 4]'
    table = f"devices = {json.dumps(DISKS)}"
    made = built((0, 10), table=table, factors=factor, baseline=', width = "4"').treatments
    assert {treatment.settings["volume.raid_devices"] for treatment in made} == {2, 4}


ONE = """
name = "one"
[design]
kind = "factorial"
baseline = {{ filesystem = "xfs" }}
blocks = 2
[workload]
kind = "fio"
seconds = 1
[volume]
device = "block"
devices = {devices}
[factors.filesystem]
knob = "volume.filesystem"
levels = ["xfs", "ext4"]
"""


def test_a_block_volume_is_the_one_disk_that_is_listed() -> None:
    made = design.build(plan.parse(ONE.format(devices=json.dumps(DISKS[:1])), "one.toml"), place="one.toml")
    assert [(each.device.kind, each.device.id) for each in specs(made)] == [("block", DISKS[0])] * 2


@pytest.mark.parametrize("count", [0, 2])
def test_a_block_volume_of_another_number_of_disks_is_refused_before_anything_runs(count: int) -> None:
    text = ONE.format(devices=json.dumps(DISKS[:count]))
    with pytest.raises(PlanError, match=f"must list one disk, and lists {count}, in xfs") as error:
        design.build(plan.parse(text, "one.toml"), place="one.toml")
    assert error.value.hint == 'volume.device = "/dev/disk/by-id/..." names the one that is meant'


CHUNKS = '[factors.chunk]\nknob = "volume.raid_chunk"\nlevels = ["4K", "64K"]'


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        ({"levels": (0, 7)}, "volume.raid_level = 7: must be 0 or 1 or 10 or 5 or 6", ""),
        ({"base": '"volume.raid_chunk" = "48K"'}, "volume.raid_chunk = 48K: must be a power of two", ""),
        (
            {"base": '"volume.raid_chunk" = "2K"'},
            "volume.raid_chunk = '2K': must be a size",
            "4096",
        ),
        ({"base": '"volume.raid_bitmap" = "big"'}, "must be none or internal", ""),
        ({"base": '"volume.initial_sync" = "later"'}, "must be assume-clean or wait", ""),
        ({"base": '"volume.stripe_cache" = 3'}, "at least 17 \\(stripes\\)", ""),
        (
            {"levels": (0, 1), "factors": CHUNKS, "baseline": ', chunk = "4K"'},
            "volume.raid_chunk = 4K: RAID 1 has no chunk, every device holds all, in level=1 chunk=4K",
            'exclude = [{ level = "1", chunk = "4K" }]',
        ),
        (
            {"levels": (0, 1), "base": '"volume.raid_chunk" = "4K"'},
            "RAID 1 has no chunk",
            "in the levels that have one, instead of [base]",
        ),
        (
            {"base": '"volume.stripe_cache" = 512'},
            "volume.stripe_cache = 512: RAID 0 has none",
            "instead of [base]",
        ),
        ({"base": '"volume.raid_bitmap" = "internal"'}, "RAID 0 has nothing to resync", ""),
        ({"base": '"volume.raid_devices" = 3'}, "3 devices: RAID 6 needs at least 4", "[volume] devices"),
        ({"table": 'devices = ["/dev/disk/by-id/a"]'}, "1 device: RAID 0 needs at least 2", ""),
        (
            {"table": 'devices = ["/dev/disk/by-id/a"]', "base": '"volume.raid_devices" = 2'},
            "volume.raid_devices = 2: \\[volume\\] devices lists 1",
            'raid_over = "loop"',
        ),
        (
            {"table": 'devices = ["/dev/sda", "/dev/sdb", "/dev/sdc", "/dev/sdd"]'},
            "not a stable device name",
            "by-id",
        ),
        ({"table": f"devices = {json.dumps([DISKS[0]] * 4)}"}, "is listed twice in volume.devices", ""),
        ({"device": "lvm"}, "volume.raid_level = 6: a lvm volume has one of 0", ""),
        ({"device": "btrfs-raid"}, "volume.raid_level = 6: a btrfs-raid volume has one of 0, 1, 10", ""),
        (
            {"device": "dm-stripe", "base": '"volume.raid_bitmap" = "none"'},
            "no such setting",
            "",
        ),
        (
            {"device": "btrfs-raid", "levels": (0, 1), "base": '"volume.filesystem" = "xfs"'},
            "only btrfs spreads over several devices",
            "",
        ),
        (
            {"device": "loop"},
            "volume.raid_level = 0: a loop volume is one device",
            "btrfs-raid or dm-stripe or lvm",
        ),
    ],
)
def test_what_does_not_exist_is_refused_by_name(arguments: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(PlanError, match=message) as caught:
        built(**arguments)
    assert caught.value.place == "raid.toml"
    assert hint in (caught.value.hint or "")


def test_an_array_without_its_level_is_refused() -> None:
    text = PLAN.format(
        first="4K",
        levels="[]",
        device="md",
        table='raid_over = "loop"',
        base="",
        factors="",
        exclude="",
        baseline="",
    )
    text = text.replace('knob = "volume.raid_level"', 'knob = "volume.raid_chunk"').replace(
        "= []", '= ["4K", "64K"]'
    )
    with pytest.raises(
        PlanError, match=r"volume.raid_level is missing: a md volume has one of 0, 1, 10, 5, 6"
    ):
        design.build(plan.parse(text, "x"), place="x")


@pytest.mark.parametrize(
    ("name", "levels", "count"), [("pinterest-2015", {0}, 288), ("raid-xfs-ext4", {6, 10}, 60)]
)
def test_the_examples_build_arrays_of_four_disks(name: str, levels: set[int], count: int) -> None:
    path = Path(headrace.__file__).parent / "examples" / f"{name}.toml"
    loaded = plan.load(path).plan
    made = design.build(loaded, place=name)
    assert len(made.treatments) == count
    for spec in specs(made):
        volumes.check(spec)
        assert spec.device.raid
        assert spec.device.raid.level in levels
        assert [parent.id for parent in spec.device.parents] == list(DISKS[:4])
    # What the comments say can be done on a machine without spare disks.
    table = loaded.volume.model_copy(update={"raid_over": "loop", "devices": []})
    loops = loaded.model_copy(update={"volume": table})
    assert {p.kind for t in made.treatments for p in spec_of(loops.volume, t).device.parents} == {"loop"}


# Geometry


@pytest.mark.parametrize(
    ("level", "devices", "data"), [(0, 4, 4), (10, 4, 2), (10, 5, 5), (5, 4, 3), (6, 4, 2), (1, 2, 0)]
)
def test_the_stripe_of_each_level(level: int, devices: int, data: int) -> None:
    expected = Stripe(64 * KIB, data * 64 * KIB) if data else None
    assert stripe(level, 64 * KIB, devices) == expected


def test_xfs_tells_its_geometry_in_sectors() -> None:
    of_four = Stripe(64 * KIB, 256 * KIB)
    assert geometry.xfs_mismatch(of_four, ["rw", "sunit=128", "swidth=512", "noquota"]) is None
    told = geometry.xfs_mismatch(of_four, ["rw", "noquota"])
    assert told
    assert "sunit=0, swidth=0 (sectors of 512 bytes), and the array has sunit=128, swidth=512" in told


def test_ext4_tells_its_geometry_in_blocks() -> None:
    superblock = (
        "Block size:               4096\nRAID stride:              16\nRAID stripe width:        64\n"
    )
    assert geometry.ext4_mismatch(Stripe(64 * KIB, 256 * KIB), superblock) is None
    told = geometry.ext4_mismatch(Stripe(16 * KIB, 64 * KIB), superblock)
    assert told
    assert told.endswith("the array has stride=4, stripe_width=16 (blocks)")
    # A chunk of one block is no stride to mke2fs.
    one = superblock.replace("RAID stride:              16\n", "").replace(" 64\n", " 4\n")
    assert geometry.ext4_mismatch(Stripe(4 * KIB, 16 * KIB), one) is None
    assert geometry.ext4_mismatch(Stripe(4 * KIB, 16 * KIB), "") is not None


@pytest.mark.parametrize(
    "option", ["-d su=64k,sw=4", "-E stride=16,stripe-width=64", "sunit=8", "noalign", "stripe=4"]
)
def test_a_geometry_of_the_plans_own_is_left_alone(option: str) -> None:
    assert geometry.is_set_by([option])
    assert not geometry.is_set_by(["noatime", "-m reflink=0", "-i size=512"])


# Queues and file systems


def test_requests_wait_in_the_members_and_the_array_reads_ahead() -> None:
    array = Device("/dev/md0", members=("/dev/vda", "/dev/vdb"))
    assert queues(array, "scheduler") == ["vda", "vdb"]
    assert queues(array, "read_ahead_kb") == ["md0"]
    assert queues(Device("/dev/loop0"), "scheduler") == ["loop0"]
    several = replace(array, path="/dev/vda", others=("/dev/vdb",))
    assert queues(several, "read_ahead_kb") == ["vda", "vdb"]


def test_a_file_system_may_be_smaller_than_its_device_or_lie_on_several() -> None:
    device = Device("/dev/md0")
    assert FILESYSTEMS["xfs"].mkfs_argv(device, [], 2**30)[-3:] == ["-d", "size=1073741824", "/dev/md0"]
    assert FILESYSTEMS["ext4"].mkfs_argv(device, [], 2**30)[-2:] == ["/dev/md0", "1048576k"]
    assert FILESYSTEMS["btrfs"].mkfs_argv(device, [], 2**30)[-3:] == ["-b", "1073741824", "/dev/md0"]
    several = Device("/dev/vda", others=("/dev/vdb", "/dev/vdc"))
    assert FILESYSTEMS["btrfs"].mkfs_argv(several, [])[-3:] == ["/dev/vda", "/dev/vdb", "/dev/vdc"]


# What is done, in which order: a host that answers as Linux does, without being one


@dataclass
class Host:
    """Free disks behind their stable names; mdadm, LVM and dm that do as they are told."""

    disks: Mapping[str, Mapping[str, Any]]
    log: list[str] = field(default_factory=list)
    syncs: list[str] = field(default_factory=lambda: ["idle"])
    chunk_bytes: int = 64 * KIB
    mdadm: Completed = field(default_factory=lambda: Completed((), 0, b"", b""))
    drivers: tuple[str, ...] = ("/proc/mdstat", "/sys/class/misc/device-mapper")
    is_root: bool = True
    name: str = "host"

    async def exists(self, path: str) -> bool:
        return path in self.disks or path in self.drivers

    async def run(self, argv: Sequence[str], **_: Any) -> Completed:
        program = argv[0]
        if program not in ("readlink", "lsblk", "wipefs", "ls", "cat", "stat"):
            self.log.append(" ".join(argv))
        if program == "mdadm":
            return self.mdadm
        if program == "lsblk" and argv[-1] not in self._devices:
            return Completed(tuple(argv), 32, b"", b"not a block device")
        return Completed(tuple(argv), 0, self._answer(program, argv).encode(), b"")

    @property
    def _devices(self) -> list[str]:
        return [disk["path"] for disk in self.disks.values() if disk["size"]]

    def _answer(self, program: str, argv: Sequence[str]) -> str:
        if program == "readlink":
            return str(self.disks.get(argv[-1], {}).get("path", argv[-1]))
        if program == "lsblk":
            disk = next(d for d in self.disks.values() if d["path"] == argv[-1])
            shape = {
                "name": argv[-1],
                "type": "disk",
                "mountpoints": [None],
                "ro": False,
                "size": disk["size"],
            }
            return json.dumps({"blockdevices": [{**shape, **disk.get("lsblk", {})}]})
        if program == "ls":
            return "vda\nvdb\nmd0\nmd2\n"
        if program == "cat":
            return f"{self.chunk_bytes}\n"
        if program == "blockdev":
            return "1073741824\n1073745920\n"
        if program == "sh" and "dm/name" in argv[2]:
            return "dm-3\n"
        if program == "sh" and "sync_action" in argv:
            action = self.syncs.pop(0) if len(self.syncs) > 1 else self.syncs[0]
            return f"array_state clean\nsync_action {action}\nsync_completed none\nresync_start none\ndegraded 0\n"
        return ""


@dataclass
class Notes:
    """A journal that only writes down what it was asked to, in the host's own log."""

    log: list[str]
    owner: str = "me"

    async def record(self, entries: Sequence[Mapping[str, str]]) -> None:
        self.log.append("journal " + " ".join(entry["kind"] for entry in entries))

    async def apply(self, settings: Mapping[str, str]) -> list[Any]:
        self.log += [f"journal {path} = {value}" for path, value in settings.items()]
        return []


def host(count: int = 4, **options: Any) -> tuple[Host, Site]:
    disks = {name: {"path": f"/dev/vd{'abcdef'[i]}", "size": 2**30} for i, name in enumerate(DISKS[:count])}
    made = Host(disks, **options)
    return made, Site(made, Notes(made.log), "/scratch", "volume")  # type: ignore[arg-type]


def array(level: int = 6, kind: str = "md", count: int = 4, **raid: Any) -> DeviceSpec:
    parents = tuple(DeviceSpec("block", 0, name) for name in DISKS[:count])
    return DeviceSpec(kind, 0, "", parents, Raid(level, **raid))


async def test_everything_is_in_the_journal_before_it_is_done() -> None:
    machine, site = host(syncs=["resync", "resync", "idle"])
    spec = array(chunk_bytes=64 * KIB, stripe_cache=1024, initial_sync="wait")
    device = await DEVICES["md"].attach(site, spec)
    assert device.path == "/dev/md1", "the first name that nobody has"
    assert device.members == ("/dev/vda", "/dev/vdb", "/dev/vdc", "/dev/vdd")
    assert device.stripe == Stripe(64 * KIB, 128 * KIB)
    steps = [re.sub(r" --uuid=\S+", "", step) for step in machine.log]
    assert steps[:3] == [
        "journal wipe wipe wipe wipe",
        "journal array",
        "mdadm --create /dev/md1 --run --quiet --metadata=1.2 --name=headrace --level=6 --raid-devices=4 "
        "--chunk=64K --bitmap=internal /dev/vda /dev/vdb /dev/vdc /dev/vdd",
    ]
    assert "journal /sys/block/md1/md/stripe_cache_size = 1024" in steps
    assert machine.syncs == ["idle"], "the sync was waited for"


async def test_assumed_clean_is_said_to_mdadm_and_a_stripe_has_neither_sync_nor_bitmap() -> None:
    machine, site = host()
    await DEVICES["md"].attach(site, array(10))
    assert "--assume-clean" in machine.log[2]
    machine, site = host()
    await DEVICES["md"].attach(site, array(0))
    assert "--assume-clean" not in machine.log[2]
    assert "--bitmap" not in machine.log[2]


async def test_the_devices_are_looked_at_together() -> None:
    """Each device takes several commands, and each command a round trip."""
    machine, site = host()
    run, all_asked = machine.run, asyncio.Barrier(4)

    async def together(argv: Sequence[str], **options: Any) -> Completed:
        if argv[0] in ("readlink", "lsblk", "wipefs"):
            await asyncio.wait_for(all_asked.wait(), 60)
        return await run(argv, **options)

    machine.run = together  # type: ignore[method-assign]
    device = await DEVICES["md"].attach(site, array())
    assert device.members == ("/dev/vda", "/dev/vdb", "/dev/vdc", "/dev/vdd")


async def test_one_device_that_is_not_free_and_none_is_touched() -> None:
    for change, kind, message in (
        ({"lsblk": {"mountpoints": ["/srv"]}}, Refused, "is in use: /srv"),
        (
            {"lsblk": {"children": [{"name": "md7", "type": "raid1"}]}},
            Refused,
            r"has something on it: md7 \(raid1\)",
        ),
        ({"path": "/dev/vda"}, Refused, "/dev/vda is listed under two names"),
        ({"size": 0}, Refused, "/dev/vdd is not a block device"),
    ):
        machine, site = host()
        last = {**machine.disks[DISKS[3]], **change}
        machine.disks = {**machine.disks, DISKS[3]: last}
        with pytest.raises(kind, match=message):
            await DEVICES["md"].attach(site, array())
        assert machine.log == []
    machine, site = host(3)
    with pytest.raises(Refused, match="there is no such device"):
        await DEVICES["md"].attach(site, array())
    assert machine.log == []


async def test_devices_of_different_sizes_are_told() -> None:
    machine, site = host()
    machine.disks = {**machine.disks, DISKS[1]: {"path": "/dev/vdb", "size": 2**31}}
    await DEVICES["md"].attach(site, array())
    assert "different sizes, 1.0 GiB to 2.0 GiB" in site.warnings[0]
    small = replace(array(), parents=(DeviceSpec("block", 2**33, DISKS[0]), *array().parents[1:]))
    with pytest.raises(DiskFull, match=r"1.0 GiB, and the plan asks for 8.0 GiB"):
        await DEVICES["md"].attach(site, small)


async def test_what_mdadm_says_is_the_reason() -> None:
    words = b"mdadm: /dev/vdd is too small: 40K\nmdadm: create aborted\n"
    _, site = host(mdadm=Completed((), 1, b"", words))
    with pytest.raises(
        TreatmentFailed, match="cannot create RAID 6: mdadm: /dev/vdd is too small: 40K; mdadm: create"
    ):
        await DEVICES["md"].attach(site, array())


@pytest.mark.parametrize(("kind", "module"), [("md", "md_mod"), ("lvm", "dm_mod"), ("dm-stripe", "dm_mod")])
async def test_a_kernel_without_the_driver_is_told_before_anything_is_taken(kind: str, module: str) -> None:
    machine, site = host(drivers=())
    with pytest.raises(NotReady, match=f"this kernel has no {module}"):
        await DEVICES[kind].attach(site, array(0, kind))
    assert machine.log == [f"modprobe {module}"]


async def test_a_chunk_that_the_kernel_made_something_else_of_is_no_treatment() -> None:
    _, site = host(chunk_bytes=512 * KIB)
    with pytest.raises(TreatmentFailed, match="a chunk of 524288 bytes, and 4096 was asked for"):
        await DEVICES["md"].attach(site, array(0, chunk_bytes=4096))


async def test_a_stripe_of_the_device_mapper_is_as_long_as_its_shortest_device_allows() -> None:
    machine, site = host(2)
    device = await DEVICES["dm-stripe"].attach(site, array(0, "dm-stripe", 2, chunk_bytes=16 * KIB))
    assert device.path == "/dev/dm-3"
    assert device.uuid
    create = machine.log[-2]
    assert machine.log[:1] == ["journal wipe wipe"]
    assert machine.log[-3] == "journal mapped"
    assert create.endswith(f"--table 0 {2 * 2**30 // 512} striped 2 32 /dev/vda 0 /dev/vdb 0")


async def test_a_volume_group_is_known_by_uuids_that_we_gave() -> None:
    machine, site = host(2)
    await DEVICES["lvm"].attach(site, array(0, "lvm", 2))
    assert machine.log[:2] == ["journal wipe wipe", "journal mapped"]
    made = [step for step in machine.log if step.startswith("pvcreate")]
    assert len(made) == 2
    assert all(re.search(r"--uuid \w{6}(-\w{4}){5}-\w{6} --norestorefile /dev/vd", step) for step in made)
    assert any("--stripes 2 --stripesize 64k --extents 100%FREE" in step for step in machine.log)


async def test_btrfs_takes_all_devices_itself() -> None:
    machine, site = host(3)
    device = await DEVICES["btrfs-raid"].attach(site, array(1, "btrfs-raid", 3))
    assert (device.path, device.others) == ("/dev/vda", ("/dev/vdb", "/dev/vdc"))
    assert machine.log == ["journal wipe wipe wipe"]


def test_each_kind_of_several_devices_has_its_programs() -> None:
    programs = {"md": "mdadm", "lvm": "lvcreate", "dm-stripe": "dmsetup", "btrfs-raid": "wipefs"}
    assert set(programs) == MADE_OF_OTHERS
    for kind, program in programs.items():
        filesystem = "btrfs" if kind == "btrfs-raid" else "xfs"
        tools = volumes.required_tools(VolumeSpec(array(0, kind), filesystem, (), (), {}))
        assert program in [tool.program for tool in tools]


def test_what_mkfs_says_is_its_reason_without_how_it_is_used() -> None:
    xfs = "Filesystem must be larger than 300MB.\nUsage: mkfs.xfs\n/* blocksize */\t[-b size=num]\n"
    assert reason_of(xfs) == "Filesystem must be larger than 300MB."
    assert reason_of("mke2fs 1.47.0\next4: Device too small\n") == "mke2fs 1.47.0; ext4: Device too small"
    assert reason_of("Usage: mkfs.xfs\n[-b size]\n") == "Usage: mkfs.xfs; [-b size]"
