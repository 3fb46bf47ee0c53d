"""Rules about limits of the instance that a cloud keeps: no device of the host is full, and work still waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.hunt.rules.evidence import Evidence, NotEnough, number, share
from headrace.hunt.rules.rule import Confidence, Match, Remedy, Severity, rule

#: Packets per second that a limit held back, below which it is a burst; and the share of all that clients feel.
HELD_BACK_S, MUCH_HELD = 1.0, 0.001
#: Share of the time in which a volume was held back, above which it shows, and above which it limits.
HELD, HELD_LONG = 0.05, 0.25
#: Counter of the card -> the limit, and what to do.
ALLOWANCES = {
    "bw_in_allowance_exceeded": ("its bandwidth in", "bandwidth"),
    "bw_out_allowance_exceeded": ("its bandwidth out", "bandwidth"),
    "pps_allowance_exceeded": ("its packets per second", "packets"),
    "conntrack_allowance_exceeded": ("its tracked connections", "connections"),
    "linklocal_allowance_exceeded": ("its packets to local services (DNS, time, metadata)", "local"),
    "ratelimit_packets": ("the rate of its virtual card", "bandwidth"),
    "ratelimit_bytes": ("the rate of its virtual card", "bandwidth"),
}
#: A packet of a bulk transfer, where the card counts bytes.
PACKET_BYTES = 1500.0
STEPS = {
    "bandwidth": "Send less: fewer columns and rows, compressed replication, dumps at other hours. An "
    "instance that bursts is slower once its credits are used: a larger size has a higher baseline.",
    "packets": "Send fewer, larger packets: batch statements, keep connections open, jumbo frames within the VPC. "
    "Else a larger size.",
    "connections": "Security groups track each connection: keep connections open, and let rules that allow all "
    "traffic both ways leave it untracked. Idle ones are tracked for days: lower the interface's idle timeout.",
    "local": "Cache names on the instance (systemd-resolved, dnsmasq), set skip_name_resolve, and ask the "
    "metadata service less often.",
}
#: Counter of the volume -> whose limit it is, and of what.
VOLUME_LIMITS = {
    "volume_iops_us": ("volume", "operations per second"),
    "volume_bytes_us": ("volume", "throughput"),
    "instance_iops_us": ("instance", "operations per second to all its volumes"),
    "instance_bytes_us": ("instance", "throughput to all its volumes"),
}


@dataclass(frozen=True)
class Cloud:
    """A cloud: part of what its machines call themselves, and what of its own tells when it holds a guest back."""

    machine: str
    of_packets: str
    of_disks: str


CLOUDS = {
    "Amazon EC2": Cloud(
        "amazon",
        "NetworkIn and NetworkOut of CloudWatch beside the instance type's bandwidth",
        "EBSIOBalance%, VolumeQueueLength and VolumeThroughputPercentage of CloudWatch",
    ),
    "Google Cloud": Cloud(
        "google",
        "the VM's egress in Cloud Monitoring beside its machine type's maximum",
        "throttled operations and bytes of the disk in Cloud Monitoring",
    ),
    # On premises Hyper-V calls its machines so, too.
    "Azure or Hyper-V": Cloud(
        "microsoft corporation",
        "Network Out of Azure Monitor beside the VM size's bandwidth",
        "VM and disk IOPS and bandwidth consumed percentage of Azure Monitor",
    ),
    "Alibaba Cloud": Cloud(
        "alibaba", "the instance's bandwidth in CloudMonitor", "the disk's IOPS in CloudMonitor"
    ),
}
#: The models: volumes of the block store, and the instance's own disks.
BLOCK_STORE, LOCAL = "Amazon Elastic Block Store", "Amazon EC2 NVMe Instance Storage"


@rule(
    "NET15",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="Amazon EC2 User Guide, Monitor network performance for ENA settings on your EC2 instance; Linux "
    "drivers/net/ethernet/amazon/ena; Virtual I/O Device 1.4, Device Statistics",
    refute="On an instance of twice the size, throughput and p99 are equivalent.",
)
def cloud_holds_packets_back(evidence: Evidence) -> Iterator[Match]:
    """The cloud holds packets back, because the instance has reached a limit of its own.

    The link has room, no queue of the host overflows, and the load of the CPUs is no reason: the card of the
    hypervisor queues or drops what exceeds the instance's allowance. TCP sees lost packets, and slows down.
    """
    names = {name for metric in ALLOWANCES for name in evidence.window.labels("allowance", metric)}
    cards = [nic for nic in evidence.rows("network_interfaces") if nic.get("name") not in names]
    if counting := [str(nic["name"]) for nic in cards if nic.get("driver") == "ena"]:
        raise NotEnough(f"the allowances of {', '.join(counting)} were not sampled (ethtool -S)")
    silent = [
        f"{nic['name']} ({nic['driver']})" for nic in cards if nic.get("physical") and nic.get("driver")
    ]
    if not names:
        if (cloud := cloud_of(evidence)) and silent:
            raise NotEnough(
                f"whether {cloud} holds packets of {', '.join(silent)} back is unknown: the card does not count "
                f"it; {CLOUDS[cloud].of_packets} tells"
            )
        return
    for name in sorted(names):
        held = _held_back(evidence, name)
        if not held:
            continue
        packets = sum(evidence.window.rate("network", f"{way}_packets", name) or 0.0 for way in ("rx", "tx"))
        worst = max(held, key=lambda metric: held[metric])
        what, kind = ALLOWANCES[worst]
        available = evidence.window.last("allowance", "conntrack_allowance_available", name)
        is_felt = not packets or sum(held.values()) >= MUCH_HELD * packets
        yield Match(
            name,
            f"the cloud holds back or drops {held[worst]:,.0f} packets/s of {name}: the instance has reached the "
            f"limit of {what}.",
            (
                *(
                    number(f"{metric}/s", evidence.window.rate("allowance", metric, name) or 0.0, ",.1f")
                    for metric in held
                ),
                number("packets/s", packets, ",.0f"),
                *(() if available is None else (number("connections left", available, ",.0f"),)),
            ),
            (Remedy(steps=(STEPS[kind],)),),
            Severity.LIMIT if is_felt or kind == "connections" else None,
        )


def _held_back(evidence: Evidence, name: str) -> dict[str, float]:
    """Packets per second that each limit of an interface held back; at least so many where bytes are counted."""
    rates = {metric: evidence.window.rate("allowance", metric, name) or 0.0 for metric in ALLOWANCES}
    rates["ratelimit_bytes"] /= PACKET_BYTES
    if rates["ratelimit_packets"]:
        rates["ratelimit_bytes"] = 0.0
    return {metric: rate for metric, rate in rates.items() if rate >= HELD_BACK_S}


def cloud_of(evidence: Evidence) -> str:
    """The cloud that the host is a guest of, by the names that it gives its machines; empty if none is known."""
    machine = evidence.raw.get("virtualization") or {}
    said = f"{machine.get('dmi_vendor') or ''} {machine.get('dmi_product') or ''}".lower()
    return next((name for name, cloud in CLOUDS.items() if cloud.machine in said), "")


def _block_store(evidence: Evidence) -> list[Mapping[str, Any]]:
    return [
        row
        for row in evidence.rows("block_devices")
        if any(each in str(row.get("model") or "") for each in (BLOCK_STORE, LOCAL))
    ]


@rule(
    "BLK20",
    severity=Severity.COST,
    confidence=Confidence.HIGH,
    source="Amazon EBS User Guide, Amazon EBS detailed performance statistics; NVMe log page 0xD0",
    refute="With twice the volume's provisioned limit (or on an instance of twice the size), time per request and "
    "p99 are equivalent.",
)
def volume_at_its_limit(evidence: Evidence) -> Iterator[Match]:
    """A volume of the cloud is held back: it, or the instance, has reached what was bought.

    The device looks slow, and nothing on the host says that it is made so. Small instances and small volumes reach
    more for a while, on credits, and then fall to their baseline.
    """
    volumes = _block_store(evidence)
    if not volumes:
        if (cloud := cloud_of(evidence)) and (own := sorted(evidence.own_devices or ())):
            raise NotEnough(
                f"whether {cloud} holds {', '.join(own)} back is unknown: the disk does not count it; "
                f"{CLOUDS[cloud].of_disks} tells"
            )
        return
    if "ebs" not in evidence.window.samplers():
        why = evidence.window.errors.get("ebs", "the sampler ebs did not run, or not as root")
        raise NotEnough(f"how long {volumes[0]['name']} was held back is unknown: {why}")
    measured = {name for metric in VOLUME_LIMITS for name in evidence.window.labels("ebs", metric)}
    if not any(str(volume["name"]) in measured for volume in volumes):
        raise NotEnough(f"how long {volumes[0]['name']} was held back is unknown: it does not tell")
    for volume in volumes:
        name = str(volume["name"])
        held = {metric: (evidence.window.rate("ebs", metric, name) or 0.0) / 1e6 for metric in VOLUME_LIMITS}
        worst = max(held, key=lambda metric: held[metric])
        if held[worst] < HELD:
            continue
        whose, what = VOLUME_LIMITS[worst]
        is_local = LOCAL in str(volume["model"])
        what = what.replace("to all its volumes", "of its own disks") if is_local else what
        device = evidence.devices.get(name)
        # Of the instance's limit all volumes have a part.
        is_apart = whose == "volume" and evidence.own_devices is not None and name not in evidence.own_devices
        did = (
            f" It does {device.operations:,.0f} operations/s and {device.bytes_s / 1e6:,.1f} MB/s."
            if device is not None
            else ""
        )
        yield Match(
            name,
            f"{name} was held back {share(min(held[worst], 1.0))} of the time: the {whose} has reached its limit "
            f"of {what}.{did}" + (" The server's data and logs are not on it." if is_apart else ""),
            (
                *(
                    number(f"held back by the {owner}'s {limit}", share(min(held[metric], 1.0)))
                    for metric, (owner, limit) in VOLUME_LIMITS.items()
                ),
                *(() if device is None else (number("operations/s", device.operations, ",.0f"),)),
            ),
            (Remedy(steps=_more_of(whose, what, is_local=is_local)),),
            Severity.ADVICE if is_apart else Severity.LIMIT if held[worst] >= HELD_LONG else None,
        )


def _more_of(whose: str, what: str, *, is_local: bool) -> tuple[str, ...]:
    if is_local:
        return (
            "Choose an instance type with more or larger disks of its own, or spread the data over all that this "
            "one has.",
        )
    if whose == "instance":
        return (
            "Choose an instance type with more bandwidth to its volumes: more than the volumes may do together. "
            "A larger volume changes nothing here.",
        )
    bought = "IOPS" if what.startswith("operations") else "throughput"
    return (
        f"Raise the volume's provisioned {bought} (gp3, io2: while it is in use), up to what the instance may do.",
        "Or ask less of it: a larger buffer pool, better indexes, a larger redo log.",
    )
