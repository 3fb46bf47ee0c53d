"""Outputs of which no rule makes anything: named as what they are, and never taken for something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.base.errors import StoreError
from headrace.hunt import hunt as hunts
from headrace.hunt.dumps.kinds import KINDS
from headrace.hunt.dumps.kinds.named import what_is
from headrace.hunt.dumps.piece import About, Kernel, Said, Unread

#: What the answer says, and the first lines of what a program printed.
OUTPUTS = (
    (
        "vmstat or iostat of BSD",
        "                        extended device statistics  \ndevice       r/s     w/s\n",
    ),
    (
        "vmstat or iostat of BSD",
        " procs  memory       page                    disks     faults         cpu\n r b w\n",
    ),
    ("iostat of BSD or Solaris", "    r/s    w/s   kr/s   kw/s wait actv wsvc_t asvc_t  %w  %b device\n"),
    ("of AIX or Solaris", "\nSystem configuration: lcpu=8 mem=16384MB ent=1.00\n"),
    ("of macOS", "Mach Virtual Memory Statistics: (page size of 16384 bytes)\n"),
    ("counters of Windows", '"(PDH-CSV 4.0) (W. Europe Standard Time)(-60)","\\\\DB1\\Processor(_Total)"\n'),
    (
        "the output of free in another language",
        "               gesamt       belegt        frei     geteilt Puff/Cache  verfügbar\n"
        "Speicher:    24700000    21000000      200000       10000     3500000      300000\n"
        "Swap:         2000000     1999000        1000\n",
    ),
    (
        "docker stats",
        "CONTAINER  CPU %  MEM USAGE / LIMIT  MEM %  NET I/O\n"
        "f3c2b0a1d9e8  187.32%  3.214GiB / 4GiB  80.35%  1.2GB / 3.4GB\n",
    ),
    (
        "docker stats",
        '{"BlockIO":"12.3GB / 45.6GB","CPUPerc":"187.32%","Container":"f3c2b0a1d9e8","ID":"f3c2b0a1\n',
    ),
    (
        "podman stats",
        "ID  NAME  CPU %  MEM USAGE / LIMIT  MEM %  NET IO  BLOCK I\n"
        "f3c2b0a1d9e8  db  12.40%  412MB / 8.2GB  5.02%  1.2kB / 936B  4.1MB /\n",
    ),
    (
        "kubectl top",
        "NAME  CPU(cores)   MEMORY(bytes)\nmysql-0  1873m  3291Mi\nweb-5d9c7b6c4f-abcde  12m  120Mi\n",
    ),
    ("kubectl top", "NAMESPACE  NAME  CPU(cores)   MEMORY(bytes)\nprod  mysql-0  1873m  3291Mi\n"),
    (
        "numastat",
        "\n"
        "Per-node process memory usage (in MBs) for PID 1234 (mysqld)\n"
        "  Node 0  Node 1  Total\n"
        "  --------------- --------------- ---------------\n",
    ),
    (
        "ethtool -S",
        "NIC statistics:\n  rx_packets: 123456789\n  tx_packets: 987654321\n  rx_bytes: 12345678901\n",
    ),
    (
        "wear, heat",
        "Smart Log for NVME device:nvme0n1 namespace-id:ffffffff\n"
        "critical_warning\t\t\t: 0\n"
        "temperature\t\t\t\t: 84 C (357 Kelvin)\n"
        "available_spare\t\t\t\t: 100%\n",
    ),
    ("wear, heat", '{\n  "critical_warning":0,\n'),
    (
        "dstat",
        "You did not select any stats, using -cdngy by default.\n"
        "--total-cpu-usage-- -dsk/total- -net/total- ---paging-- ---system--\n"
        "usr sys idl wai stl| read  writ| recv  send|  in   out | int   csw\n"
        "  3   1  95   1   0| 123k  456k|   0  0 |   0  0 |1234  2345\n",
    ),
    (
        "dool",
        "-----total-usage---- -dsk/total- -net/total- ---paging-- ---system--\n"
        "usr sys idl wai stl| read  writ| recv  send|  in   out | int   csw\n"
        "  3   1  95   1   0| 123k  456k|   0  0 |   0  0 |1234  2345\n",
    ),
    (
        "dstat",
        '"Dstat 0.7.4 CSV output"\n'
        '"Author:","Dag Wieers <dag@wieers.com>",,,,"URL:","http://dag.wieers.com/home-made/dstat/"\n'
        '"Host:","db1",,,,"User:","root"\n'
        '"Cmdline:","dstat -cd --output d.csv",,,,"Date:","29 Nov 2026 12:00:00 UTC"\n',
    ),
    ("nmon", "AAA,progname,nmon\nAAA,command,nmon -f -s 1 -c 3\nAAA,version,16n\nAAA,host,db1\n"),
    (
        "glances",
        "timestamp,cpu.cpucore,cpu.ctx_switches,cpu.idle,cpu.total,cpu.user,load.min1,mem.percent,m\n"
        "2026-11-29 12:00:00,2,1234,95.0,5.0,3.0,0.5,45.0,8364888064\n"
        "2026-11-29 12:00:01,2,2234,80.0,20.0,12.0,0.6,45.1,8364888064\n",
    ),
    (
        "glances",
        "timestamp,load_cpucore,load_min1,load_min15,load_min5,cpu_total,cpu_user,mem_percent\n"
        "2026-11-29 12:00:00,2,0.5,0.3,0.4,5.0,3.0,45.0\n",
    ),
    (
        "iotop",
        "Total DISK READ :  0.00 B/s | Total DISK WRITE :  12.34 M/s\n"
        "Actual DISK READ:  0.00 B/s | Actual DISK WRITE:  23.45 M/s\n"
        "  TID  PRIO  USER  DISK READ  DISK WRITE  SWAPIN  IO>  COMMAND\n"
        "   1234 be/4 mysql  0.00 B/s   12.34 M/s  0.00 % 87.65 % mysqld\n",
    ),
    (
        "perf report",
        "# To display the perf.data header info, please use --header/--header-only options.\n"
        "#\n"
        "#\n"
        "# Total Lost Samples: 0\n",
    ),
    (
        "perf top",
        "   PerfTop:  3456 irqs/sec  kernel:23.4%  exact:  0.0% lost: 0/0 drop: 0/0 [4000Hz cpu-clo\n"
        "-------------------------------------------------------------------------------\n"
        "\n"
        "  32.10%  mysqld  [.] row_search_mvcc\n",
    ),
    (
        "BCC",
        "TIME  PID  IP LADDR:LPORT  T> RADDR:RPORT  STATE\n"
        "12:00:00 0  4  10.0.0.1:3306  R> 10.0.0.2:41234  ESTABLISHED\n",
    ),
    (
        "BCC",
        "Tracing block device I/O... Hit Ctrl-C to end.\n"
        "^C\n"
        "  usecs  : count  distribution\n"
        "  0 -> 1  : 0  |  |\n",
    ),
    (
        "pt-pmp",
        "  12 io_getevents(libaio.so.1),LinuxAIOHandler::collect(os0file.cc:2345),fil_aio_wait\n"
        "  4 poll(libc.so.6),vio_io_wait(mysqld)\n",
    ),
    (
        "gdb",
        "\n"
        'Thread 2 (Thread 0x7ffff7d8a640 (LWP 1235) "ib_io_ibuf"):\n'
        "#0  0x00007ffff7e5a1d9 in io_getevents () from /lib64/libaio.so.1\n"
        "#1  0x0000555556a1b2c3 in LinuxAIOHandler::collect () at os0file.cc:2345\n",
    ),
    (
        "strace",
        "% time  seconds  usecs/call  calls  errors syscall\n"
        "------ ----------- ----------- --------- --------- ----------------\n"
        " 87.65  1.234567  1234  1000  fsync\n",
    ),
    (
        "error log",
        "2026-11-29T12:00:00.123456Z 0 [System] [MY-010116] [Server] /usr/sbin/mysqld (mysqld 8.0.3\n"
        "2026-11-29T12:00:01.123456Z 0 [Warning] [MY-010068] [Server] CA certificate ca.pem is self\n",
    ),
    ("option file", "[mysqld]\ninnodb_buffer_pool_size = 4G\nmax_connections=500\n"),
    (
        "another program",
        " >>  MySQLTuner 2.5.2\n"
        "\t * Jean-Marie Renouard <jmrenouard@gmail.com>\n"
        " >>  Bug reports, feature requests, and downloads at http://mysqltuner.pl/\n"
        "\n",
    ),
    (
        "mdstat",
        "Personalities : [raid1] [raid6] [raid5] [raid4]\n"
        "md0 : active raid1 sdb1[1] sda1[0]\n"
        "  1048576 blocks super 1.2 [2/1] [U_]\n"
        "  [=>...................]  recovery =  9.1% (95424/1048576) finish=1.1min speed=13632K/sec\n",
    ),
    (
        "zpool iostat",
        "  capacity  operations  bandwidth\n"
        "pool  alloc   free   read  write   read  write\n"
        "----------  -----  -----  -----  -----  -----  -----\n"
        "tank  1.23T  2.34T  123  456  12.3M  45.6M\n",
    ),
    (
        "arcstat",
        "  time  read  miss  miss%  dmis  dm%  pmis  pm%  mmis  mm%  size  c  avail\n"
        "12:00:00  12  3  25  3   25  0  0  0  0  7.5G  7.8G   1.2G\n",
    ),
    (
        "lsblk",
        "NAME  MAJ:MIN RM  SIZE RO TYPE MOUNTPOINTS\n"
        "zram0 253:0  0  0B  0 disk\n"
        "vda   254:0  0  256G  0 disk /run/netns\n"
        "  /\n",
    ),
    ("lsblk -J", '{\n   "blockdevices": [\n      {\n         "name": "zram0",\n'),
    (
        "ip link",
        "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN mode DEFAULT group def\n"
        "  link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00\n"
        "  RX:   bytes  packets errors dropped  missed   mcast\n"
        "  18185073086 15544676  0  0  0  0\n",
    ),
    (
        "vmstat -s",
        "  24684092 K total memory\n"
        "  4105760 K used memory\n"
        "  4835192 K active memory\n"
        "  11563624 K inactive memory\n",
    ),
    (
        "pressure",
        "some avg10=0.05 avg60=1.05 avg300=2.95 total=1338590285\n"
        "full avg10=0.00 avg60=0.00 avg300=0.58 total=105184475\n",
    ),
    ("loadavg", "13.40 10.49 7.30 22/231 16856\n"),
    (
        "by its own path",
        "Limit  Soft Limit  Hard Limit  Units\n"
        "Max cpu time  unlimited  unlimited  seconds\n"
        "Max file size  unlimited  unlimited  bytes\n"
        "Max data size  unlimited  unlimited  bytes\n",
    ),
    (
        "no rule uses",
        "Linux 6.18.44-fc-v657 (vm) \t11/30/26 \t_x86_64_\t(2 CPU)\n"
        "\n"
        "00:00:27  tps  rtps  wtps  dtps   bread/s   bwrtn/s   bdscd/s\n"
        "00:00:28  0.00  0.00  0.00  0.00  0.00  0.00  0.00\n",
    ),
    (
        "no rule uses",
        "Linux 6.18.44-fc-v657 (vm) \t11/30/26 \t_x86_64_\t(2 CPU)\n"
        "\n"
        "00:00:36  dentunusd   file-nr  inode-nr  pty-nr\n"
        "00:00:37  517981  3539  323339  0\n",
    ),
    (
        "iostat -c",
        "Linux 6.18.44-fc-v657 (vm) \t11/30/26 \t_x86_64_\t(2 CPU)\n"
        "\n"
        "avg-cpu:  %user   %nice %system %iowait  %steal   %idle\n"
        "  60.28   15.24   12.61  0.63  0.08   11.16\n",
    ),
    (
        "pidstat -h",
        "Linux 6.18.44-fc-v657 (vm) \t11/30/26 \t_x86_64_\t(2 CPU)\n"
        "\n"
        "# Time  UID  PID  %usr %system  %guest   %wait  %CPU   CPU  Command\n"
        "00:00:50  0  1  0.00  0.99  0.00  0.00  0.99  0  process_api\n",
    ),
    (
        "lsof",
        "COMMAND  PID USER   FD   TYPE DEVICE SIZE/OFF  NODE NAME\n"
        "bash  1698 root  cwd  DIR  254,0  4096  5308621 /srv/shop\n"
        "bash  1698 root  rtd  DIR  254,0  4096  2 /\n"
        "bash  1698 root  txt  REG  254,0  1265648   246999 /usr/bin/bash\n",
    ),
    (
        "mount;",
        "proc on /proc type proc (rw,relatime)\n"
        "sysfs on /sys type sysfs (rw,relatime)\n"
        "devtmpfs on /dev type devtmpfs (rw,relatime,size=12334492k,nr_inodes=3083623,mode=755)\n"
        "tmpfs on /dev/shm type tmpfs (rw,relatime,size=24684092k)\n",
    ),
    (
        "ps:",
        "UID  PID  PPID   LWP  C NLWP STIME TTY  TIME CMD\n"
        "root  1  0  1  0   14 Nov29 ?  00:01:15 /process_api --firecracker-init --ad\n"
        "root  1  0  59  0   14 Nov29 ?  00:00:00 /process_api --firecracker-init --ad\n"
        "root  1  0  60  0   14 Nov29 ?  00:00:00 /process_api --firecracker-init --ad\n",
    ),
)


@pytest.mark.parametrize(("says", "text"), OUTPUTS, ids=[says for says, _ in OUTPUTS])
def test_what_no_rule_uses_is_named(says: str, text: str) -> None:
    pieces = [piece for kind in KINDS for piece in kind.read(text)]
    assert all(isinstance(piece, About | Unread) for piece in pieces)
    named = [piece.why for piece in pieces if isinstance(piece, Unread)] or [what_is(text) or ""]
    assert any(says in why for why in named), named
    assert any(" read" in why or "has" in why or "asked" in why for why in named)


def test_what_is_named_is_said_alone_and_beside_what_is_read(tmp_path: Path) -> None:
    says, text = OUTPUTS[0]
    (tmp_path / "stats.txt").write_text(text)
    with pytest.raises(StoreError, match=f"stats.txt: {says}"):
        hunts.saved(tmp_path)
    (tmp_path / "meminfo").write_text("MemTotal:       100 kB\nMemFree:        50 kB\n")
    origin = hunts.saved(tmp_path).origin
    assert origin is not None
    assert any(each.startswith(f"stats.txt: {says}") for each in origin.unread)


def test_the_kernels_log_has_its_events_said_and_no_others(tmp_path: Path) -> None:
    killed = "Out of memory: Killed process 1234 (mysqld) total-vm:12345678kB"
    for start in ("[12345.678901] ", "[Sun Nov 29 23:35:05 2026] ", "Nov 29 12:00:00 db1 kernel: "):
        log = f"{start} <TASK>\n{start}{killed}\n{start}usb 1-1: new device\n"
        pieces = [piece for kind in KINDS for piece in kind.read(log)]
        assert [piece.text for piece in pieces if isinstance(piece, Said)] == [
            "the kernel's log has 1 line of the OOM killer, whether of the time watched or before; the last: "
            f"{killed}"
        ]
        (tmp_path / "dmesg").write_text(log)
        with pytest.raises(StoreError, match="of the OOM killer"):
            hunts.saved(tmp_path)
    (piece,) = (piece for kind in KINDS for piece in kind.read("[ 1.000001] usb 1-1: new device\n"))
    assert isinstance(piece, Unread)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("proc/net/sockstat", "sockets: used 15\nTCP: inuse 9 orphan 0 tw 9382 alloc 9 mem 1115\n"),
        ("proc/net/softnet_stat", f"{' '.join(['022f36f5'] * 13)}\n{' '.join(['00000000'] * 13)}\n"),
    ],
)
def test_single_files_that_rules_use_are_read(path: str, text: str) -> None:
    assert [piece for kind in KINDS for piece in kind.read(text)] == [Kernel(path, text)]
