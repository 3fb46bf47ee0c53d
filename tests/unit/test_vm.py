"""Virtual machines without one: arguments, kernels' files, what is there and who may have it, errors."""

from __future__ import annotations

import asyncio
import itertools
import json
import lzma
import os
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.base.errors import Busy, NotReady, PlanError, TargetError
from headrace.host.target.local import LocalTarget
from headrace.lab import vm
from headrace.lab.vm import bzimage, cache, image, kernels, machine, processes, qemu, spec, state, stock
from headrace.lab.vm.spec import DiskSpec, VmSpec

SPEC = VmSpec(
    "lab", "6.1", disks=(DiskSpec(2 << 30, queues=4, iops=3000), DiskSpec(1 << 30, bytes_s=1 << 20))
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def kernel(driver: str = "nvme") -> kernels.Kernel:
    return kernels.Kernel("6.1.0-9-x", "linux-image-x", Path("/k/vmlinux"), Path("/k/modules.img"), driver)


def boot(tmp_path: Path, **changes: object) -> qemu.Boot:
    for name in ("data0.img", "data1.img"):
        (tmp_path / name).write_bytes(b"")
    made = qemu.Boot(SPEC, kernel(), tmp_path, 40022, "tcg", "ab" * 16)
    return replace(made, **changes)  # type: ignore[arg-type]


def values(argv: list[str], option: str) -> list[str]:
    return [value for name, value in itertools.pairwise(argv) if name == option]


# --- what is asked for


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "Lab"}, "a-z"),
        ({"name": "../lab"}, "a-z"),
        ({"name": "a" * 33}, "1 to 32"),
        ({"kernel": " "}, "no kernel"),
        ({"cpus": 0}, "cpus is 0"),
        ({"memory_bytes": 1 << 20}, "memory_bytes is 1,048,576"),
        ({"nic_queues": 0}, "nic_queues is 0"),
        ({"disks": (DiskSpec(),) * 25}, "number of disks is 25"),
        ({"disks": (DiskSpec(), DiskSpec(size_bytes=1000))}, "disk 1"),
        ({"disks": (DiskSpec(iops=-1),)}, "iops is -1"),
        ({"disks": (DiskSpec(queues=4096),)}, "1,024"),
    ],
)
def test_what_no_machine_can_be_is_refused_with_its_place(changes: dict[str, object], said: str) -> None:
    with pytest.raises(PlanError) as error:
        replace(SPEC, **changes).check()  # type: ignore[arg-type]
    assert said in str(error.value)


def test_a_spec_survives_its_json() -> None:
    SPEC.check()
    assert VmSpec.from_json(SPEC.as_json()) == SPEC


@pytest.mark.parametrize(
    ("text", "size"), [("512M", 512 << 20), ("1.5G", 3 << 29), ("4096", 4096), ("2GiB", 2 << 30)]
)
def test_sizes(text: str, size: int) -> None:
    assert spec.size_of(text, "--memory") == size


@pytest.mark.parametrize("text", ["", "G", "-1G", "4X", "1e9", "9" * 400])
def test_what_is_no_size_names_the_option(text: str) -> None:
    with pytest.raises(PlanError, match="--memory"):
        spec.size_of(text, "--memory")


# --- QEMU's arguments


def test_each_disk_has_its_stable_name_its_queues_and_its_limits(tmp_path: Path) -> None:
    argv = qemu.argv(boot(tmp_path))
    drives = {value.split(",")[1]: value for value in values(argv, "-drive")}
    assert "throttling.iops-total=3000" in drives["id=data0"]
    assert "bps-total" not in drives["id=data0"]
    assert "throttling.bps-total=1048576" in drives["id=data1"]
    devices = [value for value in values(argv, "-device") if "data" in value]
    assert devices == [
        "virtio-blk-pci,drive=data0,serial=data0,iothread=io0,num-queues=4",
        "virtio-blk-pci,drive=data1,serial=data1,iothread=io1",
    ]


def test_the_guest_is_reached_from_this_machine_only_and_reaches_nothing(tmp_path: Path) -> None:
    argv = qemu.argv(boot(tmp_path))
    assert values(argv, "-netdev") == ["user,id=net0,restrict=on,ipv6=off,hostfwd=tcp:127.0.0.1:40022-:22"]


def test_a_multi_queue_card_is_a_second_one_with_an_interrupt_a_queue(tmp_path: Path) -> None:
    made = boot(tmp_path, spec=replace(SPEC, nic_queues=4), address="10.73.0.2/24")
    argv = qemu.argv(made)
    assert values(argv, "-netdev")[1] == "tap,id=net1,fds=@TAP@"
    assert "virtio-net-pci,netdev=net1,mq=on,vectors=10,romfile=" in values(argv, "-device")
    assert "headrace_address=10.73.0.2/24" in values(argv, "-append")[0]


@pytest.mark.parametrize(
    ("accel", "words"), [("kvm", ["kvm", "host"]), ("tcg", ["tcg,thread=single,tb-size=256", "max"])]
)
def test_the_cpu_is_the_hosts_own_or_emulated(tmp_path: Path, accel: qemu.Accel, words: list[str]) -> None:
    argv = qemu.argv(boot(tmp_path, accel=accel))
    assert values(argv, "-accel") + values(argv, "-cpu") == words


def test_the_root_is_on_the_driver_that_the_kernel_brings(tmp_path: Path) -> None:
    argv = qemu.argv(boot(tmp_path, kernel=kernel("virtio-blk")))
    assert "root=PARTUUID=68656164-01 " in values(argv, "-append")[0]
    assert "headrace_disks=/dev/vda,/dev/vdb" in values(argv, "-append")[0]
    assert not [value for value in values(argv, "-device") if value.startswith("nvme")]


def test_a_comma_in_a_path_ends_no_option(tmp_path: Path) -> None:
    place = tmp_path / "a,b"
    place.mkdir()
    argv = qemu.argv(boot(tmp_path, folder=place))
    assert f"file={tmp_path}/a,,b/root.qcow2" in values(argv, "-drive")[0]


# --- kernels


def test_versions_sort_as_numbers_and_a_prefix_ends_at_a_dot() -> None:
    names = ["linux-image-6.12.9-cloud-amd64", "linux-image-6.12.43+deb12-cloud-amd64"]
    assert max(names, key=kernels.natural) == names[1]
    assert not kernels._is("6.12.9", "6.1")
    assert kernels._is("6.1.0-40", "6.1")


@pytest.mark.parametrize(
    ("package", "taken"),
    [
        ("linux-image-6.12.43+deb12-cloud-amd64", True),
        ("linux-image-6.12-cloud-amd64", False),
        ("linux-image-6.12.43+deb12-amd64", False),
        ("linux-image-6.12.43+deb12-cloud-amd64-dbg", False),
        ("linux-image-6.12.43+deb12-cloud-amd64-unsigned", False),
        ("linux-image-6.1.0-40-cloud-amd64", False),
    ],
)
def test_only_images_of_that_version_are_taken(package: str, taken: bool) -> None:
    assert kernels._is_cloud_kernel(package, "6.12") is taken


async def test_a_version_that_apt_does_not_know_says_what_to_do() -> None:
    with pytest.raises(NotReady, match=r"no Debian cloud kernel 2\.4") as error:
        await kernels.kernel_of(LocalTarget(), "2.4", lambda _: None)
    assert "vmlinuz" in str(error.value.hint)


@pytest.mark.parametrize("name", ["newest", "6", "6.1; rm", "6.1*"])
async def test_what_is_neither_version_nor_path_is_refused(name: str) -> None:
    with pytest.raises(PlanError, match="neither a version nor a path"):
        await kernels.kernel_of(LocalTarget(), name, lambda _: None)


async def test_a_kernel_of_ones_own_must_be_one_and_have_its_modules(tmp_path: Path) -> None:
    for path, content, said in (
        ("missing", None, "cannot be read"),
        ("text", b"no kernel", "not a Linux kernel"),
        ("vmlinuz", bzimage_of(b"x", "9.9.9-own"), "no modules of 9.9.9-own"),
    ):
        if content is not None:
            (tmp_path / path).write_bytes(content)
        with pytest.raises(PlanError, match=said):
            await kernels.kernel_of(LocalTarget(), str(tmp_path / path), lambda _: None)


def test_the_root_driver_follows_what_is_built_in() -> None:
    nvme = ["kernel/fs/ext4/ext4.ko", "kernel/drivers/nvme/host/nvme.ko"]
    virtio = ["kernel/fs/ext4/ext4.ko", "a/virtio_blk.ko", "a/virtio_pci.ko"]
    assert kernels._root_driver(nvme, "x") == "nvme"
    assert kernels._root_driver(virtio, "x") == "virtio-blk"
    for missing in (nvme[1:], virtio[:2], []):
        with pytest.raises(PlanError, match="built in"):
            kernels._root_driver(missing, "x")


def elf(note: int = bzimage.XEN_PHYS32_ENTRY) -> bytes:
    """A kernel in miniature: one program header, of notes, the last of which is its entry."""
    notes = struct.pack("<III4sI", 4, 4, 1, b"GNU\0", 7) + struct.pack(
        "<III4sI", 4, 4, note, b"Xen\0", 0x1000
    )
    header = b"\x7fELF\x02".ljust(0x20, b"\0") + struct.pack("<Q", 64)
    header = header.ljust(0x36, b"\0") + struct.pack("<HH", 56, 1)
    segment = struct.pack("<IIQQQQQQ", bzimage.ELF_NOTE, 0, 120, 0, 0, len(notes), len(notes), 4)
    return header.ljust(64, b"\0") + segment + notes + b"\0" * 5000


def bzimage_of(payload: bytes, release: str = "6.1.0-x (somebody@there)") -> bytes:
    head = bytearray(0x400)
    head[0x1F1] = 1
    head[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", head, 0x20E, 0x100)
    head[0x300 : 0x300 + len(release) + 1] = release.encode() + b"\0"
    struct.pack_into("<II", head, 0x248, 0, len(payload))
    return bytes(head) + payload


def packed(how: str, content: bytes) -> bytes:
    size = struct.pack("<I", len(content))
    match how:
        case "gzip":
            packer = zlib.compressobj(wbits=31)
            return packer.compress(content) + packer.flush()
        case "xz":
            return lzma.compress(content) + size
        case "lzma":
            return lzma.compress(content, lzma.FORMAT_ALONE) + size
        case "zstd":
            return zstandard.compress(content) + size
    block: bytes = pa.compress(content, codec="lz4_raw", asbytes=True)
    return b"\x02\x21\x4c\x18" + struct.pack("<I", len(block)) + block + size


@pytest.mark.parametrize("how", ["gzip", "xz", "lzma", "zstd", "lz4"])
def test_the_plain_kernel_is_found_however_it_is_packed(how: str) -> None:
    content = bzimage_of(packed(how, elf()))
    assert bzimage.release_of(content) == "6.1.0-x"
    assert bzimage.direct_image(content) == elf()
    # Damaged or cut off, it is booted as it is, and QEMU says what it thinks of it.
    assert bzimage.direct_image(content[:-20]) is None
    assert bzimage.direct_image(bzimage_of(packed(how, elf(note=17)))) is None


@settings(max_examples=300)
@example(b"\x00\x80", 27610, "zstd")
@given(st.binary(max_size=600), st.integers(0, 0xFFFF), st.sampled_from(["gzip", "xz", "zstd", "lz4"]))
def test_no_file_makes_the_reader_fail(noise: bytes, place: int, how: str) -> None:
    whole = bytearray(bzimage_of(packed(how, elf())))
    start = place % len(whole)
    whole[start : start + len(noise)] = noise
    bzimage.direct_image(bytes(whole))
    bzimage.direct_image(bytes(noise))
    bzimage.direct_image(bzimage_of(packed(how, b"\x7fELF\x02" + noise)))


def test_the_image_is_named_by_what_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    before = image.current()
    assert image.current() == before
    monkeypatch.setattr(image, "PACKAGES", (*image.PACKAGES, "one-more"))
    assert image.current().key != before.key


def test_the_roots_partition_is_where_its_file_system_is(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(image.partition_table())
    os.truncate(disk, image.PARTITION_START_BYTES + image.ROOT_BYTES)
    argv = ["partx", "--show", "--noheadings", "--output", "START,SECTORS,UUID", str(disk)]
    answer = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    assert answer == ["2048", str(image.ROOT_BYTES // 512), f"{image.DISK_ID:08x}-01"]


# --- what is there


def record(pid: int = 0, **changes: object) -> state.Record:
    ticks, boot_id = processes.identity(pid) if pid else (0, "")
    made = state.Record(
        spec=SPEC,
        phase="running",
        owner="",
        release="6.1.0-9-x",
        image=image.current().key,
        accel="tcg",
        port=40022,
        machine_id="ab" * 16,
        namespace="",
        started_at=time.time(),
        pid=pid,
        start_ticks=ticks,
        boot_id=boot_id,
        steps=(("boot to ssh", 9.5),),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def place_of(made: state.Record) -> Path:
    place = state.machine_folder(made.spec.name)
    place.mkdir(exist_ok=True)
    state.write(place, made)
    return place


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A process that carries the mark of the machine ``lab``, as its QEMU does."""
    marked = {**os.environ, processes.MARK: str(state.machine_folder("lab"))}
    with subprocess.Popen(["sleep", "60"], env=marked) as process:
        # Until exec the child shows our own environment.
        while process.pid not in processes.marked(state.machine_folder("lab")):
            time.sleep(0.01)
        yield process
        process.kill()


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_an_emulated_machine_keeps_to_a_cpu_that_others_do_not_keep_to(
    other: subprocess.Popen[bytes],
) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(other.pid, cpus[-1:])
    ticks, boot_id = processes.identity(other.pid)
    place_of(record(pid=other.pid, start_ticks=ticks, boot_id=boot_id))
    assert machine._own_cpu() == cpus[-2 if len(cpus) > 1 else -1]
    # One that may use all CPUs, as under KVM, keeps nobody away.
    os.sched_setaffinity(other.pid, cpus)
    assert machine._own_cpu() == cpus[-1]


def test_a_record_survives_and_a_damaged_one_is_none(tmp_path: Path) -> None:
    made = record(os.getpid())
    place = place_of(made)
    assert state.read(place) == made
    whole = (place / "state.json").read_text()
    for damaged in (
        "",
        "[]",
        "{}",
        whole[:-9],
        whole.replace('"name": "lab"', '"name": "../.."'),
        '{"spec": 3}',
    ):
        (place / "state.json").write_text(damaged)
        assert state.read(place) is None


def test_a_number_that_another_process_has_now_is_a_dead_machine() -> None:
    alive = record(os.getpid())
    assert alive.alive
    assert not replace(alive, start_ticks=alive.start_ticks - 1).alive
    assert not replace(alive, boot_id="of another boot").alive
    assert not record(0).alive


def test_a_zombie_is_dead() -> None:
    child = subprocess.Popen(["sleep", "60"])
    made = record(child.pid)
    assert made.alive
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not made.alive
    child.wait()


async def test_states(other: subprocess.Popen[bytes]) -> None:
    place = place_of(record(other.pid))
    assert [one.state for one in vm.statuses()] == ["running"]
    assert [found.name for found in vm.running()] == ["lab"]
    state.write(place, record(other.pid, phase="booting"))
    assert [one.state for one in vm.statuses()] == ["unfinished"]
    assert vm.find("lab") is None
    async with cache.locked(place, "it", lambda _: None, 1):
        assert [one.state for one in vm.statuses()] == ["booting"]
    state.write(place, record(other.pid, start_ticks=1))
    assert [one.state for one in vm.statuses()] == ["dead"]
    assert vm.running() == []


async def test_a_machine_that_runs_is_taken_over(other: subprocess.Popen[bytes]) -> None:
    place_of(record(other.pid, owner="/e"))
    told: list[str] = []
    found = await vm.up(SPEC, told.append, owner="/e")
    assert (found.accel, found.release, found.spec) == ("tcg", "6.1.0-9-x", SPEC)
    assert (found.target.host, found.target.port, found.target.user) == ("127.0.0.1", 40022, "root")
    assert "reusing it" in told[0]


async def test_a_machine_of_another_version_is_its_owners_to_replace(other: subprocess.Popen[bytes]) -> None:
    place_of(record(other.pid, image="0" * 16))
    assert (await vm.up(SPEC, lambda _: None)).spec == SPEC  # as it is, since somebody may work on it
    with pytest.raises(TargetError, match="another version"):
        await vm.running()[0].reboot("6.12", lambda _: None)
    assert other.poll() is None


async def test_anothers_machine_and_another_spec_are_busy(other: subprocess.Popen[bytes]) -> None:
    place_of(record(other.pid, owner="/e"))
    with pytest.raises(Busy, match="belongs to /e"):
        await vm.up(SPEC, lambda _: None)
    with pytest.raises(Busy, match="cpus is 2, asked for 4") as error:
        await vm.up(replace(SPEC, cpus=4), lambda _: None, owner="/e")
    assert "headrace lab down lab" in str(error.value.hint)
    assert other.poll() is None


async def test_down_ends_every_process_of_the_machine_and_no_other(
    other: subprocess.Popen[bytes], stranger: subprocess.Popen[bytes]
) -> None:
    # The record names a stranger: QEMU died, and its number was given out again.
    place = place_of(record(stranger.pid, start_ticks=1))
    (place / "data0.img").write_bytes(b"x")
    assert await vm.down("lab")
    assert await asyncio.to_thread(other.wait, 5) == -9
    assert stranger.poll() is None
    assert not place.exists()
    assert not await vm.down("lab")


async def test_down_waits_for_whoever_boots_it(monkeypatch: pytest.MonkeyPatch) -> None:
    place = place_of(record(phase="booting"))
    monkeypatch.setattr(machine, "LOCK_PATIENCE_S", 0.3)
    told: list[str] = []
    async with cache.locked(place, "it", lambda _: None, 1):
        with pytest.raises(Busy, match="machine lab"):
            await vm.down("lab", told.append)
    assert "waiting" in told[0]
    assert await vm.down("lab")


async def test_a_folder_that_its_holder_removes_is_made_anew_for_the_next() -> None:
    place = state.machine_folder("lab")

    async def next_one() -> bool:
        async with cache.locked(place, "it", lambda _: None, 5):
            return place.is_dir()

    async with cache.locked(place, "it", lambda _: None, 1):
        waiting = asyncio.create_task(next_one())
        await asyncio.sleep(0.2)
        place.rmdir()
    assert await waiting


def test_a_lock_ends_with_its_process() -> None:
    place = state.machine_folder("lab")
    code = (
        "import asyncio, os, sys\nfrom pathlib import Path\nfrom headrace.lab.vm import cache\n"
        "async def main():\n"
        "    async with cache.locked(Path(sys.argv[1]), 'it', print, 1):\n"
        "        print('held', flush=True)\n        os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code, place], capture_output=True, check=False)
    assert (done.stdout, done.returncode) == (b"held\n", -9)
    assert not cache.is_locked(place)
    assert place.is_dir()


# --- errors that say what to install


@pytest.fixture
def _bare_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with nothing but a shell."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


@pytest.mark.usefixtures("_bare_path")
async def test_without_qemu_it_says_what_to_install_and_leaves_nothing() -> None:
    with pytest.raises(NotReady, match="missing: qemu-system-x86_64, qemu-img") as error:
        await vm.up(VmSpec("lab"), lambda _: None)
    assert error.value.hint == "apt-get install -y --no-install-recommends qemu-system-x86 qemu-utils"
    assert vm.statuses() == []
    assert not state.machine_folder("lab").exists()


@pytest.mark.usefixtures("_bare_path")
async def test_without_mmdebstrap_it_says_what_to_install() -> None:
    with pytest.raises(NotReady, match="mmdebstrap") as error:
        await image.root_image(LocalTarget(), lambda _: None)
    assert "mmdebstrap" in str(error.value.hint)


# --- the command


def lab(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "headrace"
    return subprocess.run(
        [program, "lab", *arguments], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["status"], 0, "headrace lab up"),
        (["down"], 0, "lab: not found"),
        (["ssh"], 6, "no machine 'lab' runs"),
        (["reboot", "mine"], 6, "no machine 'mine' runs"),
        (["up", "--accel", "xen"], 3, "must be kvm or tcg"),
        (["up", "--memory", "much"], 3, "--memory"),
        (["up", "UPPER"], 3, "a-z"),
        (["images", "--remove-unused"], 0, "removed: nothing"),
    ],
)
def test_the_command_says_what_is_and_what_to_do(arguments: list[str], code: int, said: str) -> None:
    answer = lab(*arguments)
    assert (answer.returncode, said in answer.stderr) == (code, True), answer.stderr


def test_status_in_json(other: subprocess.Popen[bytes]) -> None:
    place_of(record(other.pid))
    (found,) = json.loads(lab("status", "--json").stdout)
    assert (found["name"], found["state"], found["accel"]) == ("lab", "running", "tcg")
    assert "direction" in found["note"]
    assert found["spec"]["disks"][0]["iops"] == 3000
    assert "StrictHostKeyChecking=yes" in found["ssh"]["command"]
    assert "running" in lab("status").stdout


def test_images_that_are_used_stay(other: subprocess.Popen[bytes]) -> None:
    place_of(record(other.pid))
    for name, release in (("a", "6.1.0-9-x"), ("b", "6.12.1-x")):
        made = cache.folder("kernels", name)
        text = (
            f'{{"release": "{release}", "source": "s", "root_driver": "nvme", "image": "i", "modules": "m"}}'
        )
        (made / "kernel.json").write_text(text)
    assert [item.used_by for item in stock.items()] == [("lab",), ()]
    assert "6.12.1-x" in lab("images", "--remove-unused").stderr
    assert [item.name for item in stock.items()] == ["6.1.0-9-x"]


def test_what_each_boot_said_is_kept(tmp_path: Path) -> None:
    for words in ("first\n", "Oops: 0002\n"):
        (tmp_path / "console.log").write_text(words)
        machine._keep_console(tmp_path)
    assert (tmp_path / "console.old.log").read_text() == "first\nOops: 0002\n"
