"""The commands ``size prove``, ``predictions`` and ``measure``: recordings played on a copy."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.base.errors import PlanError
from headrace.base.model import ServerLogin
from headrace.capacity.commands.size_app import size_app
from headrace.cli.options import NO_LOGIN, duration, grouped
from headrace.cli.shell import Json, PageFile, TargetOption, on_target, show, stderr

if TYPE_CHECKING:
    from headrace.capacity.prove import Listener

#: They do not fit, as of ``size merge``.
NO_FIT = 13


Blocks = Annotated[int, typer.Option(min=3, max=100, help="How many times each is played.")]
Duration = Annotated[
    float | None, duration("--duration", text="Length of a play [as long as the shortest recording].")
]
Warmup = Annotated[
    float,
    duration("--warmup", text="Warm-up at the start of each play, not counted.", least_s=0, default="5s"),
]
Reset = Annotated[
    str, typer.Option(metavar="COMMAND", help="Run on the target before each play, to restore the copy.")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed for the order of plays.")]


@dataclass(frozen=True)
class PlayOptions:
    """How they are played."""

    blocks: Blocks = 3
    duration_s: Duration = None
    warmup_s: Warmup = 5.0
    sessions: Annotated[
        str, typer.Option(metavar="xN", help="Together, play N copies of each session: x2.")
    ] = ""
    scale_writes: Annotated[bool, typer.Option("--scale-writes", help="Let the copies write.")] = False
    read_only: Annotated[bool, typer.Option("--read-only", help="Play only statements that only read.")] = (
        False
    )
    max_lag: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="They do not fit if 1% of statements are sent later than this: 10ms [1s]."
        ),
    ] = ""
    p99_s: Annotated[
        float | None, duration("--p99", text="They do not fit if a p99 is above this: 5ms.", least_s=1e-6)
    ] = None
    reset: Reset = ""


@size_app.command(
    epilog="Example: headrace size prove shop.rec blog.rec --mysql-socket /run/copy.sock --html proof.html",
)
@grouped
def prove(
    recordings: Annotated[
        list[str], typer.Argument(metavar="RECORDING...", help="Recordings with literals, on the target.")
    ],
    target: TargetOption = "local",
    how: PlayOptions = PlayOptions(),
    seed: Seed = 1,
    page: PageFile = None,
    login: ServerLogin = NO_LOGIN,
    as_json: Json = False,
) -> None:
    """Play recordings alone and together, and compare the two.

    On a copy of the databases, on the host that is to carry them. Exits with 13 if they do not fit: statements are
    sent too late, or a p99 is above the limit. Predictions are kept; `headrace size predictions` shows how many
    came true.
    """
    from headrace.capacity.prove import MAX_LAG, Asked
    from headrace.capacity.prove import prove as play
    from headrace.capacity.report.prove import page_of

    if len(set(recordings)) < len(recordings):
        raise PlanError(
            "named twice", place=max(recordings, key=recordings.count), hint="copies: --sessions x2"
        )
    copies = _copies(how.sessions)
    flags = {"--read-only": how.read_only, "--scale-writes": how.scale_writes}
    options = [flag for flag, is_set in flags.items() if is_set]
    options += ["--max-lag", how.max_lag or MAX_LAG]
    asked = Asked(
        tuple(recordings), how.blocks, how.duration_s or 0.0, how.warmup_s, copies,
        how.p99_s, how.reset, tuple(options), seed,
    )  # fmt: skip
    with _told() as listen:
        proof = on_target(target, lambda host: play(host, asked, login, listen))
    content = page_of(proof)
    show(content, as_json, page)
    if not proof.holds:
        raise typer.Exit(NO_FIT)


@size_app.command(
    epilog="Example: headrace size measure shop.rec --mysql-socket /run/copy.sock --top 10",
)
@grouped
def measure(
    recording: Annotated[
        str, typer.Argument(metavar="RECORDING", help="A recording with literals, on the target.")
    ],
    target: TargetOption = "local",
    classes: Annotated[
        list[str] | None,
        typer.Option("--class", metavar="ID", help="This class, as `headrace digest` names it; repeatable."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, max=50, help="Classes with the most time.")] = 5,
    blocks: Blocks = 3,
    duration_s: Duration = None,
    warmup_s: Warmup = 5.0,
    speed: Annotated[
        float, typer.Option(min=0.01, max=1000, metavar="FACTOR", help="Speed factor: more calls in a play.")
    ] = 1.0,
    reset: Reset = "",
    seed: Seed = 1,
    page: PageFile = None,
    login: ServerLogin = NO_LOGIN,
    as_json: Json = False,
) -> None:
    """Measure what one call of each query class costs. Plays each class alone.

    For classes that `headrace size demand` cannot separate, and to check its estimates. Use a copy of the
    databases; nothing else should run there.
    """
    from headrace.capacity.measure import measure as play
    from headrace.capacity.prove import MAX_LAG, Asked
    from headrace.capacity.report.measure import page_of

    asked = Asked(
        (recording,), blocks, duration_s or 0.0, warmup_s, reset=reset,
        options=("--max-lag", MAX_LAG), seed=seed, speed=speed,
    )  # fmt: skip
    with _told() as listen:
        found = on_target(target, lambda host: play(host, asked, login, classes or (), top, listen))
    content = page_of(found)
    show(content, as_json, page)


@size_app.command(epilog="Example: headrace size predictions")
def predictions(page: PageFile = None, as_json: Json = False) -> None:
    """Show how many predictions came true. Counts those of `headrace size prove`, `full` and `merge`."""
    from headrace.capacity import predictions as kept
    from headrace.capacity.report.prove import calibration_page

    content = calibration_page(kept.calibration(kept.every()), str(kept.path()))
    show(content, as_json, page)


@contextlib.contextmanager
def _told() -> Iterator[Listener]:
    """What is played, and the time left."""
    with stderr().status("reading ...") as status:

        def listen(what: str, left_s: float) -> None:
            left = f"{left_s / 60:.0f} min" if left_s > 90 else f"{left_s:.0f} s"
            status.update(f"{what}; {left} left")

        yield listen


def _copies(text: str) -> int:
    if not text:
        return 1
    match = re.fullmatch(r"x([1-9]\d{0,2})", text)
    if match is None:
        raise typer.BadParameter(f"--sessions {text!r}: write x2, at most x999")
    return int(match[1])
