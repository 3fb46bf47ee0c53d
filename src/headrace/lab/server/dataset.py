"""Golden copies: data that are loaded once and restored to the same bytes before every trial."""

from __future__ import annotations

import contextlib
import hashlib
import json
import posixpath
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headrace.base.errors import Busy, CommandFailed, DiskFull, Refused, StoreError, TargetError
from headrace.base.model import OWNER_VARIABLE, ServerEndpoint, Value
from headrace.host.target import Target, to_the_end
from headrace.lab.server.process import DATABASE, MARK, PrivateServer
from headrace.lab.server.program import Program, locate, server_account
from headrace.lab.server.spec import ServerSpec

FORMAT_VERSION = 1

#: Given up while loading only: a build that is interrupted is thrown away whole. The buffer pool's dump is
#: left out of the copy, because it would warm some treatments' caches and not others.
LOADING_OPTIONS: Mapping[str, Value] = {
    "innodb_flush_log_at_trx_commit": 0,
    "innodb_doublewrite": 0,
    "innodb_buffer_pool_size": "512M",
    "innodb_buffer_pool_dump_at_shutdown": False,
    "skip_log_bin": True,
}
SETTLING_OPTIONS: Mapping[str, Value] = {"innodb_buffer_pool_dump_at_shutdown": False, "skip_log_bin": True}
SLOW_SHUTDOWN_LIMIT_S = 3600.0


@dataclass(frozen=True)
class Manifest:
    """``manifest.json``: file -> size in bytes, time of change, content hash. Paths are below ``data``.

    ``checksum`` is over every (path, size, hash). ``allocated_bytes`` is what a copy takes on a disk.
    """

    vendor: str
    version: str
    layout: Mapping[str, str]
    allocated_bytes: int
    files: Mapping[str, tuple[int, str, str]]
    checksum: str

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT_VERSION, **asdict(self)}, indent=1) + "\n"

    @staticmethod
    def parse(text: str, place: str) -> Manifest:
        """Raises StoreError when it is damaged."""
        try:
            content: dict[str, Any] = json.loads(text)
            if content.pop("format") != FORMAT_VERSION:
                raise ValueError("another format")
            files = {
                path: (int(size), str(time), str(h)) for path, (size, time, h) in content["files"].items()
            }
            manifest = Manifest(**{**content, "files": files})
            if checksum_of(files) != manifest.checksum:
                raise ValueError("its checksum does not match its files")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise StoreError(
                f"the data set's manifest is damaged: {error}",
                place=place,
                hint="remove its directory: it will be rebuilt",
            ) from error
        return manifest


def checksum_of(files: Mapping[str, tuple[int, str, str]]) -> str:
    digest = hashlib.sha256()
    for path, (size, _, content) in sorted(files.items()):
        digest.update(f"{path}\0{size}\0{content}\n".encode())
    return digest.hexdigest()


async def dataset_folder(target: Target, spec: ServerSpec, root: str, dataset: Mapping[str, Value]) -> str:
    """The folder under ``root`` for a data set: one for each vendor, version, layout and content."""
    program = await locate(target, spec)
    identity = json.dumps([dict(dataset), spec.layout], sort_keys=True)
    key = hashlib.sha256(identity.encode()).hexdigest()[:12]
    return f"{root}/{spec.vendor.value}-{program.version}-{key}"


async def build_dataset(
    target: Target,
    spec: ServerSpec,
    folder: str,
    owner: str,
    load: Callable[[ServerEndpoint], Awaitable[None]],
) -> None:
    """Make a golden copy in ``folder``: a new server, loaded by ``load``, shut down slowly.

    Of the spec only vendor, binary and layout variables count. ``load`` finds the empty database of its
    endpoint. Nothing appears under ``folder`` until all is done; what an interrupted build left is removed
    by the next. Raises what ``PrivateServer.start`` and ``load`` raise.
    """
    if await target.exists(folder):
        raise Busy("a data set already exists here", place=folder)
    program = await locate(target, spec)
    # The run folder's name is short, because a socket's path is.
    draft, rundir = f"{folder}.part", f"{folder}.run"
    await _remove(target, draft, rundir)
    await target.run(["mkdir", "-p", "-m", "0755", posixpath.dirname(folder), draft])
    try:
        await _load(target, spec, program, draft, rundir, owner, load)
        manifest = await _describe(target, spec, program, draft)
        await target.write(f"{draft}/manifest.json", manifest.to_json().encode())
        await target.run(["sync", "-f", draft], timeout_s=None)
        await target.run(["mv", "-T", draft, folder])
    finally:
        await to_the_end(_remove(target, draft, rundir))


async def restore_dataset(
    target: Target,
    folder: str,
    datadir: str,
    *,
    owner: str = "",
    verify: bool = False,
    share_blocks: bool = False,
) -> None:
    """Make ``datadir`` hold the same bytes as the golden copy, owned by the server's account.

    A data folder of headrace that stands there is replaced, any other Refused. ``verify`` reads everything
    again. ``share_blocks`` lets the file system share blocks with the golden copy (reflink): quicker, but
    then the first write to each block is a copy, which a measured server must not pay. Holes stay holes.
    Raises StoreError when the golden copy was changed, DiskFull before anything is written.
    """
    manifest = await _read_manifest(target, folder)
    await _refuse_changed(target, folder, manifest)
    parent = posixpath.dirname(datadir)
    await target.run(["mkdir", "-p", parent])
    await _remove_old(target, datadir)
    await _require_room(target, parent, manifest)
    draft = f"{datadir}.part"
    reflink = "auto" if share_blocks else "never"
    copy = ["cp", "-a", "--sparse=auto", f"--reflink={reflink}", "-T", f"{folder}/data", draft]
    try:
        await target.run(copy, env={OWNER_VARIABLE: owner} if owner else None, timeout_s=None)
        if account := await server_account(target):
            await target.run(["chown", "-R", account, draft])
        if verify:
            await _verify(target, draft, manifest)
        await target.run(["mv", "-T", draft, datadir])
    except CommandFailed as error:
        if "No space left" in str(error):
            raise _no_room(parent, manifest, None) from error
        raise
    finally:
        await to_the_end(_remove(target, draft))


async def _load(
    target: Target,
    spec: ServerSpec,
    program: Program,
    draft: str,
    rundir: str,
    owner: str,
    load: Callable[[ServerEndpoint], Awaitable[None]],
) -> None:
    def server(options: Mapping[str, Value]) -> PrivateServer:
        own = ServerSpec(spec.vendor, spec.binary, {**options, **spec.layout})
        return PrivateServer(target, own, f"{draft}/data", rundir, owner)

    loader = server({**LOADING_OPTIONS, **program.family.loading_options(program.version_numbers)})
    await loader.initialise()
    async with _running(loader) as endpoint:
        await loader.query(f"CREATE DATABASE {DATABASE}")
        await load(endpoint)
    # Stock options again, so that redo log and doublewrite buffer are as a stock server makes them. The slow
    # shutdown leaves nothing to purge or to recover: a server with another redo log opens these data.
    settler = server(SETTLING_OPTIONS)
    async with _running(settler):
        await settler.query("SET GLOBAL innodb_fast_shutdown = 0")


@contextlib.asynccontextmanager
async def _running(server: PrivateServer) -> AsyncIterator[ServerEndpoint]:
    """A server that is shut down cleanly, or killed when the work under it failed."""
    endpoint = await server.start()
    try:
        yield endpoint
    except BaseException:
        await to_the_end(server.stop(discard=True))
        raise
    exit_code = await server.stop(timeout_s=SLOW_SHUTDOWN_LIMIT_S)
    if exit_code != 0:
        raise TargetError(f"the server did not shut down cleanly: {await server.last_words()}")


async def _describe(target: Target, spec: ServerSpec, program: Program, draft: str) -> Manifest:
    data = f"{draft}/data"
    hashes = await _hashes(target, data)
    found = await _files(target, data)
    files = {path: (size, time, hashes[path]) for path, (size, time, _) in found.items()}
    allocated = sum(blocks for _, _, blocks in found.values())
    return Manifest(spec.vendor.value, program.version, spec.layout, allocated, files, checksum_of(files))


async def _files(target: Target, folder: str) -> dict[str, tuple[int, str, int]]:
    """Path -> size, time of change, allocated bytes."""
    listing = await target.run(
        ["find", folder, "-type", "f", "-printf", r"%s\t%T@\t%b\t%P\n"], timeout_s=None
    )
    files = {}
    for line in listing.text.removesuffix("\n").split("\n"):
        size, time, blocks, path = line.split("\t", 3)
        files[path] = (int(size), time, int(blocks) * 512)
    return files


async def _hashes(target: Target, folder: str) -> dict[str, str]:
    """Path -> SHA-256 of the content."""
    command = 'cd "$0" && find . -type f -exec sha256sum {} +'
    listing = await target.run(["sh", "-c", command, folder], timeout_s=None)
    return {line[66:].removeprefix("./"): line[:64] for line in listing.text.split("\n") if line}


async def _read_manifest(target: Target, folder: str) -> Manifest:
    place = f"{folder}/manifest.json"
    try:
        content = await target.read(place)
    except FileNotFoundError as error:
        raise StoreError("there is no data set here", place=folder) from error
    return Manifest.parse(content.decode("utf-8", "replace"), place)


async def _refuse_changed(target: Target, folder: str, manifest: Manifest) -> None:
    """Compare sizes and times: to read it all again before every trial would cost more than the copy."""
    found = {path: (size, time) for path, (size, time, _) in (await _files(target, f"{folder}/data")).items()}
    known = {path: (size, time) for path, (size, time, _) in manifest.files.items()}
    changed = sorted({path for path, _ in found.items() ^ known.items()})
    if changed:
        raise StoreError(
            f"the data set was changed after it was built: {', '.join(changed[:3])}",
            place=folder,
            hint="remove this directory: it will be rebuilt",
        )


async def _verify(target: Target, folder: str, manifest: Manifest) -> None:
    hashes = await _hashes(target, folder)
    known = {path: content for path, (_, _, content) in manifest.files.items()}
    changed = sorted({path for path, _ in hashes.items() ^ known.items()})
    if changed:
        raise StoreError(f"the copy differs from the data set: {', '.join(changed[:3])}", place=folder)


async def _remove_old(target: Target, datadir: str) -> None:
    content = await target.run(["ls", "-A", datadir], check=False)
    if content.exit_code == 0 and content.text and MARK not in content.text.splitlines():
        raise Refused(
            "this directory holds data that headrace did not create",
            place=datadir,
            hint="give another [target] scratch",
        )
    await _remove(target, datadir, f"{datadir}.part")


async def _remove(target: Target, *paths: str) -> None:
    await target.run(["rm", "-rf", "--one-file-system", "--", *paths], timeout_s=None)


async def _require_room(target: Target, folder: str, manifest: Manifest) -> None:
    answer = await target.run(["df", "-B1", "--output=avail", folder])
    free = int(answer.text.split()[-1])
    if free < manifest.allocated_bytes:
        raise _no_room(folder, manifest, free)


def _no_room(folder: str, manifest: Manifest, free_bytes: int | None) -> DiskFull:
    have = "" if free_bytes is None else f", {free_bytes / 2**20:.0f} MiB are free"
    return DiskFull(
        f"the data set needs {manifest.allocated_bytes / 2**20:.0f} MiB{have}",
        place=folder,
        hint='free some space, or give a larger volume: [volume] size = "..."',
    )
