"""Plans and designs: what is accepted, what an error says, and what the order of trials promises."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from headrace.base.errors import PlanError
from headrace.base.model import Role
from headrace.experiment import design as designs
from headrace.experiment import kinds, space
from headrace.experiment import plan as plans
from headrace.experiment.frozen import Design, Skipped
from tests.folders import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))

LADDER = """
name = "t"
[design]
kind = "cumulative"
baseline = "STOCK"
blocks = 3
seed = 7
[design.rungs]
STOCK = []
MYSQL = ["mysql"]
ALL = ["mysql", "je"]
[workload]
kind = "sysbench-oltp"
seconds = 5
[bundles.mysql]
"server.innodb_buffer_pool_size" = "1G"
[bundles.je]
"server.allocator" = "jemalloc"
"""

FACTORIAL = """
name = "t"
[design]
kind = "factorial"
baseline = { filesystem = "xfs", mount = "plain" }
[workload]
kind = "fio"
seconds = 5
[volume]
device = "loop"
[factors.filesystem.levels]
xfs = { "volume.filesystem" = "xfs" }
journal = { "volume.filesystem" = "ext4", "volume.mount_options" = ["data=journal"] }
[factors.mount.levels]
plain = {}
noatime = { "volume.mount_options" = ["noatime"] }
[factors.io]
knob = "workload.rw"
levels = ["randread", "randwrite"]
"""


def build(text: str, *, is_root: bool = True) -> Design:
    return designs.build(plans.parse(text, "t.toml"), place="t.toml", is_root=is_root)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_every_example_is_a_valid_design(path: Path) -> None:
    plan = plans.load(path).plan
    design = kinds.build(plan, place=str(path))
    assert design.trials


def test_the_baseline_stands_twice_in_every_block_and_all_else_once() -> None:
    design = build(LADDER)
    for block in (1, 2, 3):
        trials = [t for t in design.trials if t.block == block]
        assert Counter(t.treatment for t in trials) == {"STOCK": 2, "MYSQL": 1, "ALL": 1}
        assert sorted(t.role for t in trials if t.treatment == "STOCK") == [Role.BASELINE, Role.REPEAT]
        assert [t.position for t in trials] == [1, 2, 3, 4]
    assert [t.number for t in design.trials] == list(range(1, 13))


def test_the_order_is_random_by_block_and_repeats_with_the_seed() -> None:
    text = LADDER.replace("blocks = 3", "blocks = 20")
    orders = {tuple(t.treatment for t in build(text).trials if t.block == block) for block in range(1, 21)}
    assert len(orders) > 3
    assert build(text).trials == build(text).trials
    assert build(text).trials != build(text.replace("seed = 7", "seed = 8")).trials


def test_the_baselines_role_is_not_tied_to_its_place_in_the_block() -> None:
    design = build(LADDER.replace("blocks = 3", "blocks = 40"))
    first: Counter[Role] = Counter()
    for block in range(1, 41):
        pair = [t for t in design.trials if t.block == block and t.treatment == "STOCK"]
        first[min(pair, key=lambda t: t.position).role] += 1
    assert min(first[Role.BASELINE], first[Role.REPEAT]) >= 10


def test_workload_factors_are_conditions_with_a_baseline_each() -> None:
    design = build(FACTORIAL)
    assert set(design.baselines) == {"io=randread", "io=randwrite"}
    assert design.baselines["io=randread"] == "filesystem=xfs mount=plain @ io=randread"
    assert len(design.treatments) == 8
    assert sum(t.block == 1 for t in design.trials) == 8 + 2


def test_a_ladder_of_the_baseline_alone_measures_the_noise_of_the_machine() -> None:
    text = LADDER.replace('MYSQL = ["mysql"]\nALL = ["mysql", "je"]\n', "")
    design = build(text)
    assert design.baselines == {"": "STOCK"}
    assert [t.treatment for t in design.trials] == ["STOCK"] * 6


def test_list_knobs_accumulate_over_factors() -> None:
    treatment = build(FACTORIAL).treatment("filesystem=journal mount=noatime @ io=randread")
    assert treatment.settings["volume.mount_options"] == ["data=journal", "noatime"]


def test_excluded_combinations_are_left_out() -> None:
    rule = '\n[[design.exclude]]\nfilesystem = "journal"\nmount = "noatime"\n'
    design = build(FACTORIAL + rule)
    assert len(design.treatments) == 6


def test_without_root_the_rest_still_runs_and_what_is_left_out_is_named() -> None:
    text = LADDER.replace('"je"]', '"je", "host"]') + '\n[bundles.host]\n"host.vm.swappiness" = 1\n'
    text = text.replace("[workload]", '[volume]\ndevice = "loop"\n[workload]')
    design = build(text, is_root=False)
    assert [t.name for t in design.treatments] == ["STOCK", "MYSQL"]
    assert design.skipped == (Skipped("ALL", "host.vm.swappiness needs root"),)
    assert "ordinary directory" in design.notes[0]


def test_without_root_a_treatment_is_never_stripped_into_a_copy_of_the_baseline() -> None:
    text = FACTORIAL.replace(
        "[factors.filesystem.levels]", '[base]\n"volume.filesystem" = "xfs"\n[factors.filesystem.levels]'
    )
    design = build(
        text.replace('"volume.mount_options" = ["noatime"]', '"volume.mount_options" = ["noatime"]'),
        is_root=False,
    )
    assert {t.configuration for t in design.treatments} == {"filesystem=xfs mount=plain"}
    assert any("journal" in left_out.treatment for left_out in design.skipped)


def test_host_settings_of_every_treatment_are_named_when_left_out() -> None:
    design = build(LADDER + '\n[base]\n"host.vm.swappiness" = 1\n', is_root=False)
    assert design.notes == ("without root: not set: host.vm.swappiness",)


def test_the_hash_changes_with_anything_that_is_measured() -> None:
    original = build(LADDER).hash
    assert build(LADDER).hash == original
    assert build(LADDER.replace('"1G"', '"2G"')).hash != original
    assert build(LADDER.replace("seconds = 5", "seconds = 6")).hash != original


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("seconds = 5", "seconds = -1", ["workload.seconds = -1", "above 0"]),
        ("seconds = 5", "", ["workload.seconds", "required"]),
        ("seconds = 5", "secs = 5", ["workload.seconds", "required", "hint: seconds = 5"]),
        ("blocks = 3", 'blocks = "many"', ["design.blocks = 'many'", "whole number"]),
        ("blocks = 3", "block = 3", ["design.block = 3", "no such key"]),
        ('kind = "cumulative"', 'kind = "leader"', ["design.kind = 'leader'", "factorial", "cumulative"]),
        ('MYSQL = ["mysql"]', 'MYSQL = ["mysqll"]', ["design.rungs.MYSQL", "'mysqll'", "mysql, je"]),
        ('baseline = "STOCK"', 'baseline = "STOCKS"', ["design.baseline", "'STOCKS'", "STOCK, MYSQL, ALL"]),
        ("allocator", "alocator", ["server.alocator"]),
        ("sysbench-oltp", "sysbench-oltq", ["workload.kind", "sysbench-oltq", "sysbench-oltp"]),
        ("seconds = 5", "seconds = 5\nthread = 8", ["thread", "threads"]),
        ("[bundles.je]", '[bundles.je]\n"server.innodb_flush_log_at_trx_commit" = 2', ["reduces durability"]),
        ("[bundles.je]", '[bundles.je]\n"server.innodb_buffer_pool_size" = "2G"', ["set twice", "1G", "2G"]),
        ("[workload]", "[workload", ["a ] is missing"]),
        ("[bundles.je]", '[bundles.je]\n"workload.table_size" = 5', ["workload.table_size", "data set"]),
        (
            "[bundles.je]",
            '[bundles.je]\n"server.innodb_page_size" = "8k"',
            ["layout of the data files", "[base]"],
        ),
    ],
)
def test_an_error_names_file_key_value_and_what_was_allowed(old: str, new: str, said: list[str]) -> None:
    assert old in LADDER
    with pytest.raises(PlanError) as caught:
        build(LADDER.replace(old, new))
    text = str(caught.value)
    assert re.match(r"t\.toml(:\d+)?: ", text)
    for part in said:
        assert part in text


@pytest.mark.parametrize("levels", ['["1M", "2M", "1024K"]', "[1, 2, 1]", '["none", "none"]'])
def test_levels_that_mean_the_same_are_refused(levels: str) -> None:
    same = FACTORIAL.replace('levels = ["randread", "randwrite"]', f"levels = {levels}")
    with pytest.raises(PlanError, match=r"factors\.io\.levels: .* are the same"):
        build(same)


@pytest.mark.parametrize(
    ("knob", "levels"),
    [
        ("server.innodb_buffer_pool_size", '["8192K", 8388608]'),
        ("server.innodb_flush_neighbors", '[1, "1"]'),
        ("server.performance_schema", '[true, "ON"]'),
        ("workload.size", '["16M", 16777216]'),
    ],
)
def test_two_spellings_of_one_setting_are_one_level(knob: str, levels: str) -> None:
    text = FACTORIAL.replace('knob = "workload.rw"', f'knob = "{knob}"')
    if not knob.startswith("workload."):
        text = text.replace('mount = "plain"', 'mount = "plain", io = "x"')
    with pytest.raises(PlanError, match=r"factors\.io\.levels: .* are the same"):
        build(text.replace('levels = ["randread", "randwrite"]', f"levels = {levels}"))


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        (
            "[workload]",
            '[bundles.again]\n"server.innodb_buffer_pool_size" = "1024M"\n[workload]',
            "'MYSQL' and 'AGAIN'",
        ),
        (
            "[workload]",
            '[base]\n"server.innodb_buffer_pool_size" = "1024M"\n[workload]',
            "'STOCK' and 'MYSQL'",
        ),
    ],
)
def test_one_configuration_under_two_names_and_in_two_spellings_is_refused(
    old: str, new: str, names: str
) -> None:
    text = LADDER.replace(old, new)
    if "again" in new:
        text = text.replace('MYSQL = ["mysql"]', 'MYSQL = ["mysql"]\nAGAIN = ["again"]')
    with pytest.raises(PlanError, match=f"{names} are the same") as caught:
        build(text)
    assert "server.innodb_buffer_pool_size = '1" in str(caught.value)


def test_named_levels_in_two_spellings_are_refused() -> None:
    named = '[factors.io.levels]\nsmall = { "workload.size" = "16M" }\nsame = { "workload.size" = 16777216 }'
    listed = '[factors.io]\nknob = "workload.rw"\nlevels = ["randread", "randwrite"]'
    with pytest.raises(PlanError, match=r"are the same: workload\.size = '16M' and 16777216"):
        build(FACTORIAL.replace(listed, named))


def test_a_configuration_may_be_compared_with_itself() -> None:
    twice = LADDER.replace("STOCK = []", 'STOCK = []\nALSO = []\nORDER = ["je", "mysql"]')
    assert len(build(twice).treatments) == 5


def test_one_spelling_in_a_search_too() -> None:
    levels = {"pool": plans.KnobRange(knob="server.innodb_buffer_pool_size", levels=["1G", "1024M"])}
    with pytest.raises(PlanError, match=r"tune\.knobs\.pool\.levels: '1G' and '1024M' are the same"):
        space.check(levels, [])


def test_a_factor_needs_two_levels() -> None:
    with pytest.raises(PlanError, match=r"factors\.io: must be at least two levels"):
        build(FACTORIAL.replace('"randread", "randwrite"', '"randread"'))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"1G"', '"900T"', "server.innodb_buffer_pool_size = '900T'"),
        (
            '"server.innodb_buffer_pool_size" = "1G"',
            '"server.innodb_log_file_size" = "900T"',
            "server.innodb_log_file_size = '900T'",
        ),
        (
            '"server.innodb_buffer_pool_size" = "1G"',
            '"server.tmp_table_size" = 900000000000000',
            "server.tmp_table_size = 900000000000000",
        ),
        ("[workload]", '[volume]\ndevice = "loop"\nsize = "900T"\n[workload]', "volume.size = '900T'"),
        ("[workload]", '[machine]\nmemory = "900T"\n[workload]', "machine.memory = '900T'"),
    ],
)
def test_a_size_of_no_machine_is_refused(old: str, new: str, said: str) -> None:
    with pytest.raises(PlanError, match="no machine has") as caught:
        build(LADDER.replace(old, new))
    assert said in str(caught.value)
    assert build(LADDER.replace('"1G"', '"12T"')).treatments


def test_a_load_of_no_machine_is_refused() -> None:
    with pytest.raises(PlanError, match=r"workload\.size = '900T': at most 64T: no machine has that"):
        build(FACTORIAL.replace('kind = "fio"', 'kind = "fio"\nsize = "900T"'))


def test_the_largest_number_of_a_server_means_no_limit() -> None:
    knob = "server.tmp_disk_table_size"
    for value in ('"18446744073709551615"', "9223372036854775807", '"8E"', '"64T"'):
        assert build(
            LADDER.replace('"server.innodb_buffer_pool_size" = "1G"', f'"{knob}" = {value}')
        ).treatments


def test_weaker_durability_is_accepted_when_the_plan_allows_it_by_name() -> None:
    weak = LADDER.replace("[bundles.je]", '[bundles.je]\n"server.innodb_flush_log_at_trx_commit" = 2')
    allowed = 'seed = 7\nallow_weaker_durability = ["server.innodb_flush_log_at_trx_commit"]'
    assert build(weak.replace("seed = 7", allowed)).treatments


@pytest.mark.parametrize(
    ("text", "size"), [("4G", 4 << 30), ("512M", 512 << 20), ("10", 10), ("1TiB", 1 << 40)]
)
def test_sizes(text: str, size: int) -> None:
    assert plans.size_in_bytes(text) == size


def test_without_root_the_volume_is_a_folder_for_the_runner_too() -> None:
    design = build(LADDER.replace("[workload]", '[volume]\ndevice = "loop"\n[workload]'), is_root=False)
    assert design.volume.device == "directory"
