"""`headrace report --self-check`: how often headrace reports a difference where there is none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.base.errors import NothingMeasured
from headrace.cli.shell import print_json, stderr, stdout


@dataclass(frozen=True)
class SelfCheck:
    """What to check headrace's own verdicts on."""

    self_check: Annotated[
        bool,
        typer.Option(
            "--self-check",
            help="Measure how often headrace's verdicts are false alarms, in FOLDER's A/A pairs or simulated.",
        ),
    ] = False
    rollouts: Annotated[
        bool, typer.Option("--rollouts", help="With --self-check: simulate rollouts over fleets.")
    ] = False
    studies: Annotated[
        int,
        typer.Option(
            "--studies", min=100, max=1_000_000, help="With --self-check: simulated studies of each kind."
        ),
    ] = 2000
    alpha: Annotated[
        float,
        typer.Option("--alpha", min=0.0001, max=0.5, help="With --self-check: the rate that is promised."),
    ] = 0.05
    seed: Annotated[int, typer.Option("--seed", help="With --self-check: of the random numbers.")] = 1


def check(folder: Path | None, asked: SelfCheck, *, as_json: bool) -> None:
    """Print the rates of false alarms, and exit with 1 if one exceeds alpha by more than chance allows."""
    from headrace.experiment.report.history import words as report
    from headrace.experiment.stats import audit as audits
    from headrace.rollout import fleets, paired_fleets
    from headrace.show import terminal

    if folder is not None and asked.rollouts:
        raise typer.BadParameter("give a FOLDER or --rollouts")
    if folder is None:
        stderr().print(f"{asked.studies} studies of each kind ...", style="dim")
        kinds = (fleets.simulate, paired_fleets.simulate) if asked.rollouts else (audits.simulate,)
        rates = [
            rate for simulate in kinds for rate in simulate(asked.studies, alpha=asked.alpha, seed=asked.seed)
        ]
    else:
        rates = _rates_of(folder, asked)
    if as_json:
        print_json(report.rates_json(rates))
    else:
        stdout().print(terminal.show(report.rates(rates)))
    if not all(rate.holds for rate in rates):
        raise typer.Exit(1)


def _rates_of(folder: Path, asked: SelfCheck) -> list[Any]:
    """The rates on an experiment's own baseline. Raises NothingMeasured."""
    from headrace.experiment.stats import audit as audits
    from headrace.experiment.stats.study import baseline_trials
    from headrace.experiment.stats.trials import RESPONSES
    from headrace.experiment.store import ExperimentFolder

    trials = baseline_trials(ExperimentFolder.open(folder))
    rates = [
        rate
        for own in trials.values()
        for response in RESPONSES
        if (rate := audits.of_pairs(response, own, alpha=asked.alpha, seed=asked.seed))
    ]
    if not rates:
        raise NothingMeasured(
            "no two blocks with both trials of the baseline", place=str(folder), hint="headrace run PLAN"
        )
    return rates
