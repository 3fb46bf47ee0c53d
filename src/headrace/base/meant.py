"""What a word in a plan was meant to be: by its meaning in other tools first, then by its letters."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

#: Our words, each with what other benchmarks, designs and option files call it.
_MEANINGS: dict[str, str] = {
    # Workloads' options.
    "connections": "threads clients concurrency users sessions vus num_threads terminals virtual_users conns",
    "threads": "connections clients concurrency users sessions vus num_threads terminals conns workers",
    "numjobs": "jobs threads connections clients concurrency workers",
    "iodepth": "queue_depth qd depth io_depth",
    "warmup_s": "warmup warm_up warmup_time warmup_seconds warm_up_s ramp_time rampup ramp_up prewarm",
    "seconds": "duration time runtime run_time length secs duration_s time_s measure measure_s seconds_s window "
    "max_time minutes runtime_s run_time_s test_time testtime",
    "table_size": "rows size table_rows rows_per_table oltp_table_size scale",
    "tables": "num_tables table_count tables_count oltp_tables_count",
    "script": "test mode lua lua_script workload profile",
    "rate": "qps tps target_rate ops rps throughput",
    "bs": "blocksize block_size block size",
    "rw": "readwrite mode pattern io",
    "warehouses": "scale scale_factor w warehouse",
    "steady_within_s": "steady until_steady settle settle_s",
    # Tables and their keys.
    "kind": "type name benchmark tool",
    "blocks": "reps repetitions replicates replications repeats repeat runs iterations rounds passes samples n",
    "baseline": "reference control default base baselines",
    "seed": "random_seed rng",
    "alpha": "significance p confidence p_value",
    "equivalence": "margin tolerance delta",
    "exclude": "except skip without forbid constraints when only",
    "response": "metric objective measure goal",
    "levels": "values options settings choices level value variants",
    "knob": "name variable parameter param setting key option sysctl",
    "factors": "factor variables parameters knobs",
    "base": "settings global globals defaults common config mysqld my.cnf always fixed",
    "workload": "benchmark load test bench",
    "design": "experiment study plan",
    "volume": "storage disk filesystem device",
    "target": "host machine_under_test ssh remote",
    "vendor": "type flavour flavor name product kind database",
    "binary": "path mysqld program executable mysqld_path",
    "address": "host hostname server ip url addr",
    "identity_file": "key ssh_key identity private_key",
    "devices": "disks disk device_list",
    "name": "title id",
    "minutes": "budget time_limit limit max_minutes",
    "until_decided": "until_proven adaptive sequential",
    # Values.
    "factorial": "full full-factorial full_factorial fullfactorial grid ab a/b crossed all "
    "ofat one-at-a-time one-factor-at-a-time compare comparison ab-test abtest",
    "screening": "plackett-burman pb fractional fractional-factorial screen",
    "cumulative": "ladder stepwise steps incremental one-by-one",
    "leave-one-out": "ablation loo leave_one_out drop-one",
    "race": "bandit tournament successive-halving racing halving",
    "switchback": "crossover ab-switch toggle",
    "sysbench-oltp": "sysbench oltp_read_write oltp_read_only oltp_write_only sysbench_oltp sysbench-mysql",
    "sysbench-fileio": "fileio sysbench_fileio",
    "tpcc": "tpc-c tpcc-mysql hammerdb go-tpc tproc-c",
    "oltp": "mysql mariadb readwrite",
    "memcached": "memcache memtier mc",
    "fio": "disk io fileio",
    "sql": "queries query custom mysqlslap own",
    "replay": "playback slowlog slow-log traffic",
    "mariadb": "maria mariadb-server",
    "mysql": "oracle mysql-server mysqld",
    "percona": "percona-server ps",
}


def meant(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant; None if nothing is near."""
    choices = list(known)
    plain = word.lower().replace("-", "_")
    for choice in choices:
        if plain == choice.lower().replace("-", "_"):
            return choice
    for choice in choices:
        if plain in (other.replace("-", "_") for other in _MEANINGS.get(choice, "").split()):
            return choice
    near = difflib.get_close_matches(word, choices, n=1, cutoff=0.7)
    return near[0] if near else next((c for c in choices if len(c) > 3 and c in plain), None)
