"""Cases of the rules about limits that a cloud keeps."""

from __future__ import annotations

from functools import partial
from typing import Any

from headrace.hunt.rules.rule import Severity
from tests.rules.case import Case
from tests.rules.hosts import unwell

NIC, DISK = "enp1s0f0np0", "nvme1n1"
ENA = {f"network_interfaces.{NIC}.driver": "ena"}
EBS = {f"block_devices.{DISK}.model": "Amazon Elastic Block Store"}
LOCAL = {f"block_devices.{DISK}.model": "Amazon EC2 NVMe Instance Storage"}
LIMITS = ("volume_iops_us", "volume_bytes_us", "instance_iops_us", "instance_bytes_us")


def allowances(**held: float) -> dict[str, float]:
    return {f"allowance.{metric}.{NIC}": rate for metric, rate in held.items()}


def held(**us: float) -> dict[str, float]:
    return {f"ebs.{metric}.{DISK}": us.get(metric, 0.0) for metric in LIMITS}


def on_ena(**rates: float) -> Any:
    return unwell(facts=ENA, rates=allowances(**rates))


#: The root volume, with another program's log on it.
ROOT = {"block_devices.nvme0n1.model": "Amazon Elastic Block Store"}

CASES = [
    Case(
        "BLK20",
        "a volume without the server's files",
        lambda: unwell(
            facts=ROOT, rates={f"ebs.{metric}.nvme0n1": 9e5 * (metric == LIMITS[0]) for metric in LIMITS}
        ),
        ("nvme0n1",),
        ("held back 90% of the time", "The server's data and logs are not on it."),
        severity=Severity.ADVICE,
    ),
    Case(
        "NET15",
        "bandwidth out",
        lambda: on_ena(bw_out_allowance_exceeded=900.0, pps_allowance_exceeded=0.0),
        (NIC,),
        ("drops 900 packets/s of enp1s0f0np0: the instance has reached the limit of its bandwidth out",),
        steps=("Send less",),
        severity=Severity.LIMIT,
    ),
    Case(
        "NET15",
        "a few of many packets",
        lambda: on_ena(pps_allowance_exceeded=2.0),
        (NIC,),
        ("its packets per second",),
        steps=("fewer, larger packets",),
        severity=Severity.COST,
    ),
    Case(
        "NET15",
        "connections that cannot be tracked",
        lambda: unwell(
            facts=ENA,
            rates=allowances(conntrack_allowance_exceeded=3.0),
            gauges={f"allowance.conntrack_allowance_available.{NIC}": 0.0},
        ),
        (NIC,),
        ("its tracked connections",),
        steps=("Security groups track each connection",),
        severity=Severity.LIMIT,
    ),
    Case(
        "NET15",
        "names that nobody caches",
        lambda: on_ena(linklocal_allowance_exceeded=40.0),
        (NIC,),
        ("local services (DNS, time, metadata)",),
        steps=("skip_name_resolve",),
    ),
    Case(
        "NET15",
        "a virtual card with a rate",
        lambda: unwell(rates=allowances(ratelimit_packets=500.0)),
        (NIC,),
        ("the rate of its virtual card",),
    ),
    Case(
        "NET15",
        "a virtual card that counts what it drops in bytes",
        lambda: unwell(rates=allowances(ratelimit_bytes=750_000.0)),
        (NIC,),
        ("holds back or drops 500 packets/s", "the rate of its virtual card"),
        severity=Severity.LIMIT,
    ),
    Case("NET15", "a few bytes of many", lambda: unwell(rates=allowances(ratelimit_bytes=900.0))),
    Case("NET15", "within its limits", lambda: on_ena(bw_in_allowance_exceeded=0.0)),
    Case("NET15", "no cloud", unwell),
    # None of these cards counts what its cloud holds back.
    *(
        Case(
            rule,
            f"{vendor}, {driver}",
            partial(
                unwell,
                facts={
                    "virtualization.dmi_vendor": vendor,
                    "virtualization.dmi_product": product,
                    f"network_interfaces.{NIC}.driver": driver,
                },
            ),
            missing=f"whether {cloud} holds .* back is unknown",
        )
        for rule in ("NET15", "BLK20")
        for vendor, product, driver, cloud in (
            ("Google", "Google Compute Engine", "gve", "Google Cloud"),
            ("Google", "Google Compute Engine", "virtio_net", "Google Cloud"),
            ("Microsoft Corporation", "Virtual Machine", "hv_netvsc", "Azure or Hyper-V"),
            ("Microsoft Corporation", "Virtual Machine", "mana", "Azure or Hyper-V"),
            ("Microsoft Corporation", "Virtual Machine", "mlx5_core", "Azure or Hyper-V"),
            ("Amazon EC2", "m5.large", "vif", "Amazon EC2"),
            ("Alibaba Cloud", "Alibaba Cloud ECS", "virtio_net", "Alibaba Cloud"),
        )
    ),
    Case(
        "NET15",
        "one of two cards was sampled",
        lambda: unwell(facts=ENA, rates={"allowance.pps_allowance_exceeded.ens9": 0.0}),
        missing=f"the allowances of {NIC} were not sampled",
    ),
    Case(
        "NET15", "not sampled", lambda: unwell(facts=ENA), missing=f"the allowances of {NIC} were not sampled"
    ),
    Case(
        "BLK20",
        "the volume's operations",
        lambda: unwell(facts=EBS, rates=held(volume_iops_us=620_000.0)),
        (DISK,),
        ("nvme1n1 was held back 62% of the time: the volume has reached its limit of operations per second",),
        steps=("provisioned IOPS", "buffer pool"),
        severity=Severity.LIMIT,
    ),
    Case(
        "BLK20",
        "the instance's throughput",
        lambda: unwell(facts=EBS, rates=held(volume_iops_us=10_000.0, instance_bytes_us=120_000.0)),
        (DISK,),
        ("12% of the time: the instance has reached its limit of throughput to all its volumes",),
        steps=("an instance type",),
        severity=Severity.COST,
    ),
    Case(
        "BLK20",
        "a disk of the instance itself",
        lambda: unwell(facts=LOCAL, rates=held(instance_iops_us=400_000.0)),
        (DISK,),
        ("40% of the time: the instance has reached its limit of operations per second of its own disks",),
        steps=("more or larger disks of its own",),
        severity=Severity.LIMIT,
    ),
    Case(
        "BLK20",
        "a disk of an older instance",
        lambda: unwell(facts=LOCAL, rates={"ebs.volume_iops_us.nvme9n1": 0.0}),
        missing="how long nvme1n1 was held back is unknown: it does not tell",
    ),
    Case("BLK20", "a burst", lambda: unwell(facts=EBS, rates=held(volume_bytes_us=9_000.0))),
    Case("BLK20", "no such volume", unwell),
    Case("BLK20", "not root", lambda: unwell(facts=EBS), missing="how long nvme1n1 was held back is unknown"),
]
