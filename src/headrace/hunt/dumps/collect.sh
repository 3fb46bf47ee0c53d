#!/bin/sh
# What `headrace hunt --from DIRECTORY` needs of this host and its MySQL or MariaDB server, as plain text.
#
#   sh collect.sh [-s SECONDS] [-o DIRECTORY] [OPTIONS OF THE mysql CLIENT]
#   sh collect.sh -s 30 --socket=/run/mysqld/mysqld.sock --user=root       (a password: from ~/.my.cnf)
#
# It only reads: files of /proc and /sys once a second, and over one login SHOW GLOBAL STATUS, SHOW FULL PROCESSLIST
# and, every fifth second, SHOW ENGINE INNODB STATUS. Each memcached here is asked twice for its `stats`. Another login before asks whether the server lets us in: if
# not, and options of the client were given, nothing is read. It needs no root and installs nothing. Values in statements,
# variables that may be passwords, option files, rows, and other programs' command lines are not written.
# If it is interrupted it removes what it has written, and no process stays.
set -u
umask 077
LC_ALL=C PATH=$PATH:/usr/bin:/bin:/usr/sbin:/sbin
export LC_ALL PATH
seconds=30 out='' pid='' server='' groups=''
usage() { echo "usage: sh collect.sh [-s SECONDS (2 to 600)] [-o DIRECTORY] [OPTIONS OF THE mysql CLIENT]" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case $1 in
    -s) [ $# -gt 1 ] || usage; seconds=$2; shift 2 ;;
    -o) [ $# -gt 1 ] || usage; out=$2; shift 2 ;;
    -h | --help) usage ;;
    --password=?* | -p?*) echo "a password in an argument is seen by everybody: put it into ~/.my.cnf" >&2; exit 2 ;;
    *) break ;;
  esac
done
case $seconds in '' | *[!0-9]*) usage ;; esac
[ "$seconds" -ge 2 ] && [ "$seconds" -le 600 ] || usage
out=${out:-headrace-$(uname -n)-$(date -u +%Y%m%dT%H%M%S)}
case $out in *[!/]*) while [ "${out%/}" != "$out" ]; do out=${out%/}; done ;; *) usage ;; esac

# Whoever owns a folder above may change what its names mean, while root fills it. So each folder on the way is entered
# and held open: 7 is where we began, 8 the folder above, 9 the new one. A link of another user is not followed. What
# may be entered and not read cannot be held; root may read all.
enter() { # FOLDER: one step of the way, from where we are
  [ -r . ] || { cd -P "./$1" || exit 1; return; }
  exec 6<. && cd -P "./$1" || exit 1
  case $1 in . | ..) return ;; esac
  [ .. -ef /proc/$$/fd/6/ ] && return
  maker=$(ls -ldn "/proc/$$/fd/6/$1" 2>/dev/null | awk '/^l/ { print $3 }')
  [ "$maker" = 0 ] || [ "$maker" = "$(id -u)" ] || { echo "cannot write to $out: $1 is another user's link" >&2; exit 1; }
}
began=$PWD
[ -r . ] && exec 7<. && began=/proc/$$/fd/7/
left=$out called=${out##*/}
case $out in /*) cd / ;; esac
while left=${left#"${left%%[!/]*}"} && [ "$left" != "${left%%/*}" ]; do
  enter "${left%%/*}"
  left=${left#*/}
done
[ -r . ] && exec 8<.
mkdir "./$called" || { echo "cannot make $out" >&2; exit 1; } # a new one: nothing of yours is overwritten
enter "$called"
[ -O . ] && [ -z "$(ls -A)" ] && { [ ! -r .. ] || [ .. -ef /proc/$$/fd/8/ ]; } || { echo "cannot write to $out: it changed meanwhile" >&2; exit 1; }
exec 9<. && cd "$began" || exit 1
said=$out out=/proc/$$/fd/9
remove() { rm -rf -- "$out"/*; rmdir -- "$out/../$called"; }

undo() { trap '' HUP INT TERM; [ "$pid" ] && kill "$pid" 2>/dev/null; wait; remove; echo "interrupted: nothing was kept" >&2; exit 130; }
trap undo HUP INT TERM

keep() { # FOLDER FILE...: at most 1 MiB of each file, under its own path in the folder
  to=$1; shift
  for file; do
    [ -f "$file" ] && [ -r "$file" ] || continue
    mkdir -p "$to${file%/*}" && head -c 1048576 "$file" >"$to$file" 2>/dev/null || rm -f "$to$file"
  done
}

groups() { # PROCESS: the folders of its control groups and of those above, as far as this or its own mounts show them
  { cat /proc/self/mountinfo && echo : && cat "$1/mountinfo"; echo : && cat "$1/cgroup"; } 2>/dev/null | awk -v own="$1/root" '
    BEGIN { part = 1 }
    $0 == ":" { part++; next }
    part < 3 {
      split($0, half, " - "); split(half[2], kind, " ")
      if (kind[1] == "cgroup2") kind[3] = ""
      else if (kind[1] != "cgroup") next
      count = split(kind[3], name, ",")
      if (!count) name[count = 1] = ""
      for (; count; count--) { top[part, name[count]] = $4 == "/" ? "" : $4; place[part, name[count]] = (part == 2 ? own : "") $5 }
      next
    }
    {
      sub(/^[0-9]*:/, ""); controller = $0; sub(/[:,].*/, "", controller); sub(/^[^:]*:/, "")
      for (by = 1; by < 3; by++) if ((by, controller) in place) {
        below = substr($0, length(top[by, controller]) + 1)
        if (index($0, top[by, controller]) != 1 && top[by, controller] != "") continue
        if (below ~ /(^|\/)\.\.(\/|$)/ || below !~ /^(\/|$)/) continue
        print path = place[by, controller]
        count = split(below, step, "/")
        for (i = 1; i <= count; i++) if (step[i] != "") print path = path "/" step[i]
        break
      }
    }' | sort -u | head -n 64
}

in_groups() { # FOLDER FILE...: these files of all control groups of servers
  into=$1; shift
  printf '%s\n' "$groups" | while IFS= read -r group; do
    [ "$group" ] && for name; do keep "$into" "$group/$name"; done
  done
}

redact() { # what mysql prints, without values of statements and without secrets
  awk -F '\t' '
    function secret(text) {
      text = tolower(text); gsub(/-/, "_", text)
      gsub(/validate_password|sha2_password_|sha256_password_|native_password_|old_passwords|expired_password|token_size/, " ", text)
      gsub(/password_(check|errors|history|length|lifetime|require_current|reuse|validation)/, " ", text)
      return text ~ /pass|pwd|secret|token|credential|sst_auth|access_key|filekey|_headers|http_proxy/
    }
    function clean(text) {
      gsub(/\\\\./, "", text); gsub(/\047[^\047]*\047/, "?", text); gsub(/"[^"]*"/, "?", text)
      sub(/[\047"].*/, "?", text); sub(/(\/\*|--|#).*/, "", text); gsub(/[0-9][0-9a-fA-FxX.]*/, "0", text)
      return text
    }
    /^TS [0-9.]+$/ { print; mode = ""; next }
    /^#(variables|status|processlist|innodb)$/ { mode = substr($0, 2); next }
    mode == "status" && NF > 1 { print }
    mode == "variables" && NF > 1 {
      if (secret($1) || secret($2) || $2 ~ /:\/\/[^\/]*@/ || $1 ~ /^init_/) $2 = "<removed>"
      print $1 "\t" $2
    }
    mode == "processlist" && NF > 7 { print $1 "\t" $2 "\t" $3 "\t" $4 "\t" $5 "\t" $6 "\t" $7 "\t" ($8 == "NULL" || $8 == "Info" ? $8 : clean($8)) }
    mode == "innodb" && /^(-+|=+|SEMAPHORES|TRANSACTIONS|FILE I\/O|LOG|BUFFER POOL AND MEMORY|INDIVIDUAL BUFFER POOL INFO|ROW OPERATIONS|END OF INNODB MONITOR OUTPUT|[0-9: -]+0x[0-9a-f]+ INNODB MONITOR OUTPUT)$/ { print }
    mode == "innodb" && /^(---TRANSACTION [0-9]+, ACTIVE |LOCK WAIT |History list|Log |Last checkpoint|Max checkpoint|Pending |--Thread |[0-9]+ queries inside)/ { print }
    mode == "innodb" && /created in file/ { print }
  '
}

ask() { # the statements, as long as it is watched; the client ends with them
  echo "SELECT '' AS '#variables'; SHOW GLOBAL VARIABLES;"
  turn=0
  while [ "$turn" -le "$seconds" ] && [ -e "$out/mysql.err" ]; do
    echo "SELECT CONCAT('TS ', UNIX_TIMESTAMP(NOW(6))) AS ''; SELECT '' AS '#status'; SHOW GLOBAL STATUS;"
    echo "SELECT '' AS '#processlist'; SHOW FULL PROCESSLIST;"
    [ $((turn % 5)) -eq 0 ] && printf '%s\n' "SELECT '' AS '#innodb'; SHOW ENGINE INNODB STATUS\\G"
    turn=$((turn + 1))
    sleep 1
  done
}

talker=''
for found in python3 bash socat nc; do # who can talk to a memcached; all but the first need a time limit
  command -v "$found" >/dev/null && { [ "$found" = python3 ] || command -v timeout >/dev/null; } && talker=$found && break
done
stats='stats\r\nstats settings\r\nstats items\r\nstats slabs\r\nquit\r\n'

talk() { # ADDRESS: what a memcached at HOST:PORT, or at a socket's path, answers within 3 s
  case $talker:$1 in
    python3:*) printf "$stats" | python3 -I -c 'import socket, sys, time
place, end = sys.argv[1], time.time() + 3
host, _, port = place.rpartition(":")
one = socket.socket(socket.AF_UNIX if place[0] == "/" else socket.AF_INET)
one.settimeout(3)
one.connect(place if place[0] == "/" else (host, int(port)))
one.sendall(sys.stdin.buffer.read())
while time.time() < end:
    more = one.recv(65536)
    if not more: break
    sys.stdout.buffer.write(more)' "$1" ;;
    bash:*) timeout 3 bash -c 'exec 3<>"/dev/tcp/${0%:*}/${0##*:}" && printf "$1" >&3 && cat <&3' "$1" "$stats" ;;
    socat:/*) printf "$stats" | timeout 3 socat -t 3 - "UNIX-CONNECT:$1" ;;
    socat:*) printf "$stats" | timeout 3 socat -t 3 - "TCP:$1" ;;
    nc:*) printf "$stats" | timeout 3 nc -w 3 "${1%:*}" "${1##*:}" ;;
  esac 2>/dev/null | tr -d '\r' | head -c 4194304 | awk '/^(STAT |END$|ERROR|CLIENT_ERROR|SERVER_ERROR)/'
}

listens() { # PROCESS: where a memcached listens: by its sockets, or where they cannot be seen by its options
  own=" $(ls -l "$1/fd" 2>/dev/null | sed -n 's/.*socket:\[\([0-9]*\)\]$/\1/p' | tr '\n' ' ')"
  place=$(awk -v own="$own" '$4 == "0A" && index(own, " " $10 " ") { if (!any || $2 ~ /7F:/) any = $2 } END { print any }' "$1/net/tcp" 2>/dev/null |
    sed -n 's/^\(..\)\(..\)\(..\)\(..\):\(....\)$/0x\4 0x\3 0x\2 0x\1 0x\5/p')
  [ "$place" ] && { printf '%d.%d.%d.%d:%d' $place | sed 's/^0\.0\.0\.0:/127.0.0.1:/'; return; }
  tr '\0' '\n' 2>/dev/null <"$1/cmdline" | awk '
    NR == 1 { next }
    want { given[want] = $0; want = ""; next }
    /^-[pls]$/ { want = substr($0, 2); next }
    /^-[pls]./ { given[substr($0, 2, 1)] = substr($0, 3); next }
    /^--(port|listen|unix-socket)=/ { letter = substr($0, 3, 1); sub(/^[^=]*=/, ""); given[letter == "u" ? "s" : letter] = $0 }
    END {
      if ("s" in given || "u" in given) { print given["s"]; exit }
      host = given["l"]; sub(/,.*/, "", host); sub(/^notls:/, "", host); port = given["p"] == "" ? 11211 : given["p"]
      if (host ~ /:/) { port = host; sub(/.*:/, "", port); sub(/:.*/, "", host) }
      if (host == "" || host == "0.0.0.0" || host == "*") host = "127.0.0.1"
      print host ":" port
    }'
}

ask_caches() { # each memcached of this host for its statistics
  for found in $caches; do
    at=$(date +%s.%N)
    case $at in *[!0-9.]* | *.) at=$(date +%s) ;; esac
    place=$(listens "$found")
    printf 'TS %s\nmemcached %s %s\n' "$at" "${found#/proc/}" "$place"
    own=$(readlink "$found/ns/net" 2>/dev/null)
    case $talker:$place in :*) echo "not asked: there is no python3, bash, socat or nc here"; continue ;;
      bash:/* | nc:/*) echo "not asked: at a Unix socket only python3 and socat can ask, and neither is here"; continue ;; esac
    if [ "$own" ] && [ "$own" != "$(readlink /proc/self/ns/net)" ]; then
      echo "not asked: it has a network of its own"
    else
      talk "$place"
    fi
  done >>"$out/memcached.txt"
}

client=$(command -v mariadb || command -v mysql)
what="this host and its server"
if [ "$client" ] && ! "$client" "$@" --batch --execute='DO 0' >/dev/null 2>"$out/mysql.err"; then
  { echo "the server does not let us in:"; head -n 3 "$out/mysql.err"; } >&2
  what="this host alone"
  if [ $# -gt 0 ] && ! grep -q 'ERROR 1040' "$out/mysql.err"; then
    remove
    echo "nothing was read: correct the options, or give none to read the host alone" >&2
    exit 1
  fi
fi
echo "reading $what for $seconds s into $said" >&2
if [ "$client" ]; then
  ask | "$client" "$@" --batch --unbuffered --force 2>"$out/mysql.err" | redact >"$out/mysql.txt" &
  pid=$!
else
  echo "no mysql or mariadb client here: the server is not asked" | tee "$out/mysql.err" >&2
fi
caches=''
for found in /proc/[0-9]*; do # a server of any user; of its options only those that say where it is
  read -r name 2>/dev/null <"$found/comm" || continue
  case $name in mysqld | mariadbd) server="$server $found" ;; memcached) caches="$caches $found" ;; esac
done
[ "$caches" ] && ask_caches
for found in $caches; do keep "$out" "$found/comm" "$found/stat" "$found/status" "$found/limits" "$found/cmdline"; done
keep "$out" /proc/cpuinfo /proc/version /proc/mounts /proc/mdstat /proc/cmdline /proc/swaps /proc/sys/vm/* /proc/sys/fs/*-max /proc/sys/fs/*-nr \
  /proc/sys/net/netfilter/nf_conntrack_count /proc/sys/net/netfilter/nf_conntrack_max /proc/sys/net/core/* /proc/sys/net/ipv4/tcp_* /proc/sys/net/ipv4/ip_local_port_range /proc/sys/kernel/osrelease /proc/sys/kernel/hostname /proc/sys/kernel/version /proc/sys/kernel/numa* \
  /proc/self/mountinfo /proc/1/mountinfo /etc/os-release /proc/meminfo /proc/stat /proc/uptime /sys/block/*/queue/* /sys/block/*/size /sys/block/*/dev /sys/block/*/ro \
  /sys/block/*/removable /sys/block/*/md/* /sys/block/*/dm/name /sys/block/*/dm/uuid /sys/block/*/*/partition /sys/block/*/*/dev /sys/block/*/*/size /sys/devices/system/cpu/online /sys/devices/system/cpu/isolated \
  /sys/devices/system/cpu/smt/active /sys/devices/system/cpu/cpu[0-9]*/topology/*_id /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_* /sys/devices/system/clocksource/clocksource0/* \
  /sys/devices/system/node/node*/cpulist /sys/kernel/mm/transparent_hugepage/* /sys/class/net/*/mtu /sys/class/net/*/speed /sys/class/net/*/operstate /sys/class/net/*/tx_queue_len
for found in $server; do
  keep "$out" "$found/comm" "$found/stat" "$found/status" "$found/limits" "$found/cgroup" "$found/mountinfo" "$found/oom_score_adj"
  [ -d "$out$found" ] && tr '\0' '\n' 2>/dev/null <"$found/cmdline" | awk 'NR == 1 || /^--(no-defaults$|(datadir|socket|port|basedir|tmpdir|user|pid-file|innodb[a-z_-]*)=)/' |
    tr '\n' '\0' >"$out$found/cmdline"
  groups=$(printf '%s\n' "$groups" && groups "$found")
done
groups=$(printf '%s\n' "$groups" | sort -u)
in_groups "$out" cgroup.controllers cpu.max cpu.weight cpu.cfs_quota_us cpu.cfs_period_us cpu.shares cpuset.cpus cpuset.cpus.effective cpuset.effective_cpus cpuset.mems \
  cpuset.mems.effective cpuset.effective_mems memory.max memory.high memory.swap.max memory.limit_in_bytes memory.memsw.limit_in_bytes pids.max io.max io.weight io.bfq.weight \
  io.cost.qos blkio.bfq.weight blkio.weight blkio.throttle.read_bps_device blkio.throttle.write_bps_device blkio.throttle.read_iops_device blkio.throttle.write_iops_device
cards=''
limits() { ethtool -S "$1" 2>/dev/null | awk '/_allowance_|ratelimit_packets/ { print; any = 1 } END { exit !any }'; }
for found in /sys/class/net/*/device; do # packets that a cloud holds back, where a card counts them
  found=${found%/device} found=${found##*/}
  limits "$found" >/dev/null && cards="$cards $found"
done
end=$(($(date +%s) + seconds))
while now=$(date +%s) && [ "$now" -le "$end" ]; do
  keep "$out/samples/$now" /proc/uptime /proc/stat /proc/meminfo /proc/vmstat /proc/diskstats /proc/interrupts /proc/softirqs /proc/net/dev /proc/net/snmp \
    /proc/net/netstat /proc/net/sockstat /proc/net/softnet_stat /proc/pressure/cpu /proc/pressure/io /proc/pressure/memory
  cat /proc/[0-9]*/stat 2>/dev/null | head -c 4194304 >"$out/samples/$now/proc/processes" # all of them, or none
  for found in $server; do keep "$out/samples/$now" "$found/stat" "$found/status" "$found/io"; done
  in_groups "$out/samples/$now" cpu.stat memory.events memory.failcnt memory.oom_control pids.current pids.events io.stat blkio.throttle.io_serviced blkio.throttle.io_service_bytes
  [ "$cards" ] && echo "TS $now" >>"$out/ethtool.txt"
  for found in $cards; do { echo "ethtool -S $found"; limits "$found"; echo; } >>"$out/ethtool.txt"; done
  sleep 1
done
[ "$caches" ] && ask_caches
[ "$pid" ] && wait "$pid"
trap - HUP INT TERM
[ -s "$out/mysql.err" ] && { echo "the server said:"; head -n 3 "$out/mysql.err"; } >&2
echo "done; read it, then send it: tar czf $said.tar.gz $said" >&2
