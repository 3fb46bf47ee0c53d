"""Plans as people write them who have not read the reference: each has one mistake."""

from __future__ import annotations

GOOD = """name = "pool"

[design]
kind = "factorial"
baseline = "128M"
blocks = 5

[workload]
kind = "oltp"
seconds = 30
warmup_s = 5
connections = 16
table_size = 400_000

[factors.pool]
knob = "server.innodb_buffer_pool_size"
levels = ["128M", "512M", "1G"]
"""

FLUSH = '\n[factors.flush]\nknob = "server.innodb_flush_log_at_trx_commit"\nlevels = [1, 2]\n'

#: (text, replacement) pairs; an empty text appends the replacement.
CHANGES: dict[str, tuple[str, str]] = {
    "the name that others give to seconds": ("seconds = 30", "runtime_s = 40"),
    "no equals sign": ("connections = 16", "connections 16"),
    "a table with a colon": ("[workload]", "workload:"),
    "a quote forgotten in braces": ("", '\n[bundles.big]\n"server.innodb_log_file_size" = "1G\n'),
    "a list of factors": ("[factors.pool]", '[[factors]]\nname = "pool"'),
    "a knob for a factor": ("[factors.pool]", '[factors]\ninnodb_io_capacity = [200, 2000]\n[factors.pool]'),
    "levels beside the knob": (
        "",
        '\n[factors.flush]\nsafe = { "server.sync_binlog" = 1 }\nfast = { "server.sync_binlog" = 0 }\n',
    ),
    "a level that is a value": ('levels = ["128M", "512M", "1G"]', 'levels = { "128M" = "128M", big = "1G" }'),
    "the workload's settings alone": (
        '"server.innodb_buffer_pool_size"\nlevels = ["128M", "512M", "1G"]',
        '"workload.script"\nlevels = ["128M", "read_only"]',
    ),
    "a choice that is none": ("", '\n[base]\n"server.innodb_doublewrite" = "maybe"\n'),
    "one at a time": ('"factorial"', '"one-at-a-time"'),
    "a list without quotes": ('["128M", "512M", "1G"]', "[128M, 512M, 1G]"),
    "a value without quotes": ('kind = "oltp"', "kind = oltp"),
    "a quote forgotten": ('name = "pool"', 'name = "pool'),
    "a quote forgotten in a list": ('"512M", "1G"', '"512M, "1G"'),
    "a bracket forgotten": ('"512M", "1G"]', '"512M", "1G"'),
    "a colon for an equals sign": ("blocks = 5", "blocks: 5"),
    "quotes of a word processor": ('"pool"', "“pool”"),
    "True in capitals": ("blocks = 5", "blocks = 5\nuntil_decided = True"),
    "a key twice": ("blocks = 5", "blocks = 5\nblocks = 8"),
    "a table twice": ("", "\n[design]\nseed = 3\n"),
    "a header without its end": ("[workload]", "[workload"),
    "a knob without quotes": ("", '\n[base]\nserver.innodb_io_capacity = 2000\n'),
    "a name with a space": ('name = "pool"', 'name = "my pool/test"'),
    "no name": ('name = "pool"\n', ""),
    "a singular table": ("[factors.pool]", "[factor.pool]"),
    "values for levels": ("levels =", "values ="),
    "variable for knob": ("knob =", "variable ="),
    "one level": ('["128M", "512M", "1G"]', '["128M"]'),
    "one level that is no list": ('["128M", "512M", "1G"]', '"128M"'),
    "the same level twice": ('"512M", "1G"', '"1024M", "1G"'),
    "repetitions for blocks": ("blocks = 5", "repetitions = 5"),
    "no blocks at all": ("blocks = 5", "blocks = 0"),
    "blocks in words": ("blocks = 5", 'blocks = "five"'),
    "blocks as a fraction": ("blocks = 5", "blocks = 2.5"),
    "a kind of design from another book": ('"factorial"', '"full-factorial"'),
    "a ladder": ('"factorial"', '"ladder"'),
    "a baseline that is no level": ('baseline = "128M"', 'baseline = "default"'),
    "a baseline in another case": ('baseline = "128M"', 'baseline = "128m"'),
    "no baseline": ('baseline = "128M"\n', ""),
    "two factors, one baseline": ("", FLUSH),
    "two factors, half a baseline": ('baseline = "128M"', 'baseline = { pool = "128M" }'),
    "sysbench": ('kind = "oltp"', 'kind = "sysbench"'),
    "no kind of workload": ('kind = "oltp"\n', ""),
    "users": ("connections = 16", "users = 16"),
    "clients": ("connections = 16", "clients = 16"),
    "warmup": ("warmup_s = 5", "warmup = 5"),
    "duration": ("seconds = 30", "duration = 30"),
    "seconds with a unit": ("seconds = 30", 'seconds = "30s"'),
    "minutes as text": ("seconds = 30", 'seconds = "5m"'),
    "rows": ("table_size = 400_000", "rows = 400_000"),
    "rows as text": ("table_size = 400_000", 'table_size = "400k"'),
    "a threads factor": ("", '\n[factors.load]\nknob = "workload.concurrency"\nlevels = [1, 8]\n'),
    "the data set as a factor": ("", '\n[factors.rows]\nknob = "workload.table_size"\nlevels = [1000, 9000]\n'),
    "GB": ('"1G"', '"1GB"'),
    "a percentage": ('"1G"', '"75%"'),
    "a knob without its area": ('"server.innodb', '"innodb'),
    "a knob with a slip": ("buffer_pool_size", "bufer_pool_size"),
    "a kernel setting by its short name": ("server.innodb_buffer_pool_size", "vm.swappiness"),
    "base and factor": ("", '\n[base]\n"server.innodb_buffer_pool_size" = "2G"\n'),
    "when": (
        "",
        '\n[factors.log]\nknob = "server.innodb_log_file_size"\nlevels = ["96M", "1G"]\nwhen = { pool = "1G" }\n',
    ),
    "durability": ("", FLUSH.replace("[1, 2]", "[1, 0]")),
    "a server's settings in their own table": ("", "\n[server]\ninnodb_io_capacity = 2000\n"),
    "a choice with a slip": ("", '\n[base]\n"server.innodb_flush_method" = "O_DIRCT"\n'),
    "a switch in words": ("", '\n[base]\n"server.innodb_doublewrite" = "yes"\n'),
    "a file system in a directory": ("", '\n[base]\n"volume.filesystem" = "ext4"\n'),
    "volume.filesystem as a key": ("", '\n[volume]\nfilesystem = "ext4"\n'),
    "a vendor by its nickname": ("", '\n[server]\nvendor = "maria"\n'),
    "a host in [target]": ("", '\n[target]\nhost = "root@db1"\n'),
    "blocks in the wrong table": ("connections = 16", "connections = 16\nblocks = 7"),
    "alpha in the wrong table": ("[factors.pool]", "[factors.pool]\nalpha = 0.01"),
    "a bundle that is none": ('levels = ["128M", "512M", "1G"]', 'levels = { small = "small", big = "big" }'),
    "nested levels": ('levels = ["128M", "512M", "1G"]', 'levels = { a = { x = { y = 1 } }, b = {} }'),
    "more memory than any machine": ('"1G"', '"100T"'),
    "a comment of C": ("blocks = 5", "blocks = 5 // five"),
    "a comment of INI": ("blocks = 5", "blocks = 5 ; five"),
    "a comma at the end of a line": ("blocks = 5", "blocks = 5,"),
    "a word behind a number": ("blocks = 5", "blocks = 5 blocks"),
    "a list without brackets": ('["128M", "512M", "1G"]', "128, 512"),
    "an empty level": ('"512M", "1G"', '"512M", ""'),
    "an exclusion of a factor that is not there": ("", '\n[[design.exclude]]\npol = "1G"\n'),
    "an exclusion of a level that is not there": ("", '\n[[design.exclude]]\npool = "2G"\n'),
    "a password": ("", '\n[server]\npassword = "geheim"\n'),
    "a server's version": ("", '\n[server]\nversion = "8.0"\n'),
    "levels that are lists": ('["128M", "512M", "1G"]', '[["128M"], ["512M"]]'),
    "a time in minutes and seconds": ("seconds = 30", 'seconds = "1m30s"'),
    "a factor as its knob": (
        '[factors.pool]\nknob = "server.innodb_buffer_pool_size"\nlevels = ["128M", "512M", "1G"]',
        '[factors]\npool = "server.innodb_buffer_pool_size"',
    ),
    "a factor as its levels": (
        '[factors.pool]\nknob = "server.innodb_buffer_pool_size"\nlevels = ["128M", "512M", "1G"]',
        '[factors]\npool = ["128M", "512M", "1G"]',
    ),
    "a knob in capitals": ("server.innodb_buffer_pool_size", "server.INNODB_BUFFER_POOL_SIZE"),
    "a knob of SQL": ("server.innodb_buffer_pool_size", "@@global.innodb_buffer_pool_size"),
    "a line of an option file": ("server.innodb_buffer_pool_size", "innodb_buffer_pool_size=1G"),
    "levels in one text": ('["128M", "512M", "1G"]', '"128M, 512M, 1G"'),
    "a range": ('["128M", "512M", "1G"]', '"128M..1G"'),
    "a list of connections": ("connections = 16", "connections = [1, 16]"),
    "a script of sysbench's": ('kind = "oltp"', 'kind = "oltp"\nscript = "my.lua"'),
    "a socket": ("", '\n[server]\nsocket = "/run/mysqld.sock"\n'),
    "a URI": ("", '\n[server]\nuri = "mysql://root@localhost/test"\n'),
    "a response in its own table": ("", '\n[response]\nmetric = "tps"\n'),
    "a random seed": ("blocks = 5", 'blocks = 5\nseed = "random"'),
    "alpha in percent": ("blocks = 5", "blocks = 5\nalpha = 5"),
    "alpha with its sign": ("blocks = 5", 'blocks = 5\nalpha = "5%"'),
    "a margin in percent": ("blocks = 5", "blocks = 5\nmargin = 3"),
    "the size of the data": ("table_size = 400_000", 'data_size = "10G"'),
    "a workload's kind as a table": ("[workload]", "[workload.oltp]"),
    "a baseline in a list": ('baseline = "128M"', 'baseline = ["128M"]'),
    "a null": ("", '\n[base]\n"server.innodb_io_capacity" = null\n'),
    "a table's name with a blank": ("[factors.pool]", "[factors.my pool]"),
    "two kinds of quotes": ('name = "pool"', "name = 'pool\""),
    "a path of Windows": ('name = "pool"', 'name = "C:\\data"'),
    "a comma behind a table": ("[workload]", "[workload],"),
    "two equals signs": ("blocks = 5", "blocks == 5"),
    "a sum": ("seconds = 30", "seconds = 10 + 20"),
    "a decimal comma": ("warmup_s = 5", "warmup_s = 2,5"),
    "commas between thousands": ("table_size = 400_000", "table_size = 400,000"),
    "JSON": (GOOD, '{"name": "pool", "design": {"kind": "factorial"}}\n'),
    "a blank from a web page": ("blocks = 5", "blocks\N{NO-BREAK SPACE}= 5"),
    "a comma forgotten": ('"128M", "512M"', '"128M" "512M"'),
    "a number that begins with 0": ("blocks = 5", "blocks = 05"),
    "braces over several lines": ('baseline = "128M"', 'baseline = {\n  pool = "128M",  # as it is\n}'),
    "a setting of another database": ("server.innodb_buffer_pool_size", "server.shared_buffers"),
    "two workloads": ('kind = "oltp"', 'kind = ["oltp", "tpcc"]'),
    "runs for blocks": ("blocks = 5", "runs = 5"),
    "levels of several knobs in a list": (
        '["128M", "512M", "1G"]', '[{ innodb_buffer_pool_size = "128M", innodb_log_file_size = "96M" }, {}]',
    ),
    "a knob as a dotted key": (
        '[factors.pool]\nknob = "server.innodb_buffer_pool_size"\nlevels =',
        "[factors]\nserver.innodb_buffer_pool_size =",
    ),
}  # fmt: skip

_NO_KNOB = ('knob = "server.innodb_buffer_pool_size"\n', "")
_WEAK = "server.innodb_flush_log_at_trx_commit"


def _baseline(text: str) -> tuple[str, str]:
    return 'baseline = "128M"', f"baseline = {text}"


#: Mistakes that need more than one change.
ALSO: dict[str, tuple[tuple[str, str], ...]] = {
    "two factors, half a baseline": (("", FLUSH),),
    "two factors, one baseline": (("blocks = 5", f'blocks = 5\nallow_weaker_durability = ["{_WEAK}"]'),),
    "durability": (_baseline('{ pool = "128M", flush = "1" }'),),
    "a bundle that is none": (_NO_KNOB, _baseline('"small"')),
    "nested levels": (_NO_KNOB, _baseline('"a"')),
    "when": (_baseline('{ pool = "128M", log = "96M" }'),),
    "a threads factor": (_baseline('{ pool = "128M" }'),),
    "the data set as a factor": (_baseline('{ pool = "128M" }'),),
}


def plan(name: str) -> str:
    """The text of the plan with this mistake."""
    text = GOOD
    for old, new in (CHANGES[name], *ALSO.get(name, ())):
        assert old in text, (name, old)
        text = text.replace(old, new, 1) if old else text + new
    return text
