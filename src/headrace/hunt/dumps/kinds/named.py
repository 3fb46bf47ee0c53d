"""Outputs that say too little for a rule: by the beginning of each, what it is and what to give instead.

Each pattern is of a text's beginning: what is part of a larger report is that report's.
"""

from __future__ import annotations

import re

from headrace.hunt.dumps.kinds.sar import READ_PARTS

_COLLECT = "as headrace collect keeps it"
_FILES = "headrace facts on the host, or a directory with its proc/ and sys/, has them"
_PROGRAMS = f"/proc/PID/stat, twice, {_COLLECT}, or top -b -n 3 is read"
_WEAR = "the wear, heat and errors of a device; whether it is slow, iostat -x 1 10 shows, which is read"
_CPU_AND_DISK = "vmstat 1 10, mpstat -P ALL 1 10 and iostat -x 1 10, or sadf -j FILE -- -A are read"
_LINUX = (
    "only hosts of Linux are judged; of the server, SHOW GLOBAL STATUS, twice, and process lists are read"
)
_SERVER = "SHOW GLOBAL STATUS, twice, SHOW GLOBAL VARIABLES and SHOW FULL PROCESSLIST are read"

#: Beginning of the text -> what it is. A title may stand behind some lines of another kind, such as a prompt.
_ROWS = (
    (
        r"(?:CONTAINER ID|CONTAINER|ID) +(?:NAME +)?CPU % +MEM USAGE",
        f"docker stats or podman stats; {_PROGRAMS}",
    ),
    (r"\{[^\n]*\"CPUPerc\" ?:", f"docker stats; {_PROGRAMS}"),
    (
        r"(?:NAMESPACE +)?(?:POD +)?NAME +CPU\(cores\) ",
        f"kubectl top, means of a minute; of its node {_CPU_AND_DISK}",
    ),
    (r"Per-node (?:numastat|process memory usage|system memory usage)", f"numastat; of NUMA nodes, {_FILES}"),
    (r"NAME +(?:MAJ:MIN|FSTYPE|ALIGNMENT|ROTA|KNAME|TYPE|SIZE)\b", f"lsblk; of block devices, {_FILES}"),
    (r"NAME=\"[^\n]*\" (?:MAJ:MIN|FSTYPE|KNAME|TYPE|ALIGNMENT)=", f"lsblk -P; of block devices, {_FILES}"),
    (r"\{\s*\"blockdevices\" ?:", f"lsblk -J; of block devices, {_FILES}"),
    (r"\{\s*\"lscpu\" ?:", "lscpu -J; lscpu without -J is read"),
    (r"NIC statistics:", "ethtool -S without a limit that a cloud sets: /proc/net/dev, twice, is read"),
    (r"Settings for \S+:\n\s", f"ethtool; of interfaces, {_FILES}"),
    (r"(?:Ring|Channel|Coalesce|Pause) parameters for ", f"ethtool; of interfaces, {_FILES}"),
    (r"Smart Log for NVME device", _WEAR),
    (r"\{\s*\"critical_warning\" ?:", _WEAR),
    (r"Node +(?:Generic +)?SN +Model ", f"nvme list; of block devices, {_FILES}"),
    (r"smartctl \d", _WEAR),
    (r"-+total-(?:cpu-)?usage-+|----system---- ", f"dstat or dool; {_CPU_AND_DISK}"),
    (r"\"(?:pcp-)?(?:[Dd]stat|dool|Dool) [\d.]+ CSV", f"dstat or dool; {_CPU_AND_DISK}"),
    (r"AAA,(?:progname|command|version),", f"a recording of nmon; {_CPU_AND_DISK}"),
    (r"timestamp,(?:\w+[._]){1,3}\w+,", f"glances --export csv; {_CPU_AND_DISK}"),
    (r"\{\"\w+\": ?\{[^\n]{0,4000}\"(?:cpucore|min15)\" ?:", f"glances in JSON; {_CPU_AND_DISK}"),
    (r"(?:cpu|mem|load)(?:\.\w+)?: [\d.{]", f"glances --stdout; {_CPU_AND_DISK}"),
    (r" *Total DISK READ ?:", f"iotop; {_PROGRAMS}, with /proc/PID/io"),
    (
        r"# (?:To display the perf\.data header|Samples: |Overhead +Command)",
        "perf report; perf script is read",
    ),
    (r" *PerfTop: ", "perf top; perf script is read"),
    (r"(?:# started on [^\n]*\n\s*)?Performance counter stats for ", "perf stat; perf script is read"),
    (
        r"%? ?time +seconds +usecs/call +calls",
        "strace -c, which slows down what it watches; perf script is read",
    ),
    (
        r"Tracing [^\n]*\.\.\.|TIME +PID +(?:IP|COMM)\b|PID +COMM +",
        f"a tool of BCC or bpftrace; {_CPU_AND_DISK}",
    ),
    (r" +\d+,\d+ +\d+ +\d+ +\d+\.\d{9} +\d+ +[A-Z]+ +[A-Z]+ ", "blkparse; iostat -x 1 10 is read"),
    (r"Thread \d+ \(Thread 0x[0-9a-f]+|\[New LWP \d+\]", "stacks of gdb; perf script is read"),
    (r" +\d+ [\w:~<>*]+(?:\(\S*\))?,\w", "stacks of pt-pmp; perf script is read"),
    (r"[\w./\[\]-]+(?:;[^\n;]+)+ \d+\n", "folded stacks; perf script is read"),
    (r"\d+: +/\S+[^\n]*\nAddress +Kbytes ", f"pmap; of the server's memory, {_FILES}"),
    (r"COMMAND +PID +(?:TID +\w* *)?USER +FD +TYPE ", f"lsof; of the server's files, {_FILES}"),
    (r"UID +PID +PPID +LWP +C ", f"ps: its CPU time is since each process's start; {_PROGRAMS}"),
    (r"# Time +UID +PID ", f"pidstat -h; {_PROGRAMS}"),
    (r" *\d\d:\d\d:\d\d up [^\n]*\nUSER +TTY ", f"w; {_CPU_AND_DISK}"),
    (r"\d+: \S+: <[A-Z_,]+> mtu ", "ip link; /proc/net/dev, twice, is read"),
    (r"Kernel Interface table", "netstat -i; /proc/net/dev, twice, is read"),
    (r" +\d+ K total memory\n", "vmstat -s: totals since the start; vmstat 1 10 is read"),
    (r"Cache +Num +Total +Size", "vmstat -m; /proc/meminfo is read"),
    (r"\w\S* on /\S* type \w+ \(", f"mount; of file systems, {_FILES}"),
    (
        r"\S+ +alloc +free +read +write|.*capacity +operations +bandwidth",
        "zpool iostat; iostat -x 1 10 is read",
    ),
    (r" +time +(?:hit%|read) ", "arcstat; /proc/spl/kstat/zfs/arcstats, twice, is read"),
    (r"[\w-]+ \([0-9a-f]{33}\) dm-\d+", f"multipath -ll; of block devices, {_FILES}"),
    (r" +(?:PV +VG|VG +#PV|LV +VG) ", f"a list of LVM; of block devices, {_FILES}"),
    (r"Personalities : ", f"/proc/mdstat; of arrays, {_FILES}"),
    (r"\d{4}-\d\d-\d\d[T ]+\d+:\d\d:\d\d[\d.Z+:-]* \d+ \[\w+\]", f"the server's error log; {_SERVER}"),
    (
        r"(?:#[^\n]*\n|\s)*\[(?:mysqld|mariadbd?|client|server|client-server|mysql)\S*\]\n",
        f"an option file, so what a start takes; {_SERVER}",
    ),
    (
        r" *(?:>> +MySQLTuner |-- MYSQL PERFORMANCE TUNING PRIMER)",
        f"the advice of another program; {_SERVER}",
    ),
    (r"\[R[OW]\] \w+ \(\? for help\)|MySQL on \S+ \(", f"innotop or mytop; {_SERVER}"),
    (r"sysbench \d|\{\s*\"fio version\"", "the result of a benchmark; headrace import reads it"),
    (r"avg-cpu: ", "iostat -c: of all CPUs together; mpstat -P ALL 1 10 is read"),
    (r"interface: \S+\nIP address is:", "iftop; /proc/net/dev, twice, is read"),
    (r"insert query update delete ", "mongostat, of another kind of server"),
    (
        r" *(?:extended device statistics|procs +memory +page )",
        f"vmstat or iostat of BSD or Solaris; {_LINUX}",
    ),
    (r" *device +r/s +w/s +kr/s| +r/s +w/s +kr/s +kw/s ", f"iostat of BSD or Solaris; {_LINUX}"),
    (r" *kthr +memory +page |System configuration: lcpu=", f"vmstat of AIX or Solaris; {_LINUX}"),
    (
        r"Mach Virtual Memory Statistics|(?: +disk\d+)+ +cpu +load average",
        f"vm_stat or iostat of macOS; {_LINUX}",
    ),
    (r"\"\(PDH-CSV \d", f"counters of Windows (typeperf, Performance Monitor); {_LINUX}"),
    (r"(?:Core\t)?CPU\tAvg_MHz", f"turbostat; {_CPU_AND_DISK}"),
    (r"some avg10=", "a file of /proc/pressure, which does not say of what: by its own path it is read"),
    (
        r"[\d.]+ [\d.]+ [\d.]+ \d+/\d+ \d+\n?\Z",
        "/proc/loadavg, of CPUs and disks together; /proc/stat, twice, is read",
    ),
    (r"\d+\.\d\d \d+\.\d\d\n?\Z", "/proc/uptime; by its own path it is the clock of other files"),
    (
        r"(?:major minor +#blocks|Filename\t+Type\t|#subsys_name\t|slabinfo - version|Linux version |"
        r"Node \d+, zone |  sl  local_address|Limit +Soft Limit|Name:\t|rchar: \d|nr_periods \d|"
        r"usage_usec \d|\d+: (?:FLOCK|POSIX)|"
        r"\d+ \(.{1,16}\) [RSDTtZXI] \d+ |\S+ \(\d+, #threads: \d+\)|[0-9a-f]+-[0-9a-f]+ [r-][w-][x-][ps] |"
        r"\d+ \d+ \d+:\d+ / /\S* |\S+ /\S* \w+ rw,|\d+:[\w,=]*:/|BOOT_IMAGE=|\d+\t\d+\t\d+\n?\Z|console=|root=)",
        "a file of /proc or /sys that is only read by its own path, in a directory with proc/ and sys/",
    ),
    (r"\d\d:\d\d:\d\d(?: \w+)?; \w+; ", "the output of sadf -r; sadf -j FILE -- -A prints what is read"),
    (
        r"<\?xml [^\n]*\n<!DOCTYPE svg|<svg\b",
        "a picture, such as sadf -g draws; sadf -j FILE -- -A prints what is read",
    ),
    (r"\d\d:\d\d:\d\d(?: [AP]M)? +[%A-Za-z]", f"a part of sar that no rule uses; {READ_PARTS} are read"),
)
#: A text, what it is; for lines before it that a shell or a script wrote.
KNOWN = tuple(
    (re.compile(rf"\A(?:[^\n]{{0,200}}\n){{0,3}}?\s*?(?:{pattern})"), what) for pattern, what in _ROWS
)
#: Of a text longer than that only the beginning is looked at.
MOST_LOOKED_AT = 8_000


def what_is(text: str) -> str | None:
    """What a text is that no reader knows, and what to give instead; None for what is not known at all."""
    start = text[:MOST_LOOKED_AT]
    return next((what for pattern, what in KNOWN if pattern.match(start)), None)
