"""Managed servers: how they are recognised, and how their settings are changed there.

On these no account may write files, and SET GLOBAL or SET PERSIST is refused or undone by the provider's own
configuration: a setting is one of a parameter group, a flag or a server parameter.

Sources: how other agents recognise them (basedir of RDS, aurora_version, aad_auth_only); banners of Cloud SQL
(8.0.31-google), HeatWave (MySQL Enterprise - Cloud) and Vitess; the providers' manuals for the ways, and for what
does not apply (Amazon Aurora User Guide, Aurora MySQL configuration parameters: Inapplicable MySQL parameters).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

#: Settings of files, devices and pages that Aurora's own storage replaces.
_NOT_IN_AURORA = frozenset(
    {
        "innodb_adaptive_flushing", "innodb_adaptive_flushing_lwm", "innodb_checksum_algorithm",
        "innodb_doublewrite", "innodb_flush_method", "innodb_flush_neighbors", "innodb_io_capacity",
        "innodb_io_capacity_max", "innodb_log_buffer_size", "innodb_log_file_size", "innodb_log_files_in_group",
        "innodb_max_dirty_pages_pct", "innodb_use_native_aio", "innodb_write_io_threads",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Provider:
    """``place``: where its settings are. ``way`` and ``check``: commands that change one, and that say whether it
    can be changed, with ``NAME`` and ``VALUE``; empty where there is none. ``fixed``: variables that do not apply
    there."""

    name: str
    place: str
    way: str
    check: str = ""
    note: str = ""
    fixed: frozenset[str] = frozenset()

    def how(self, variable: str, value: str = "VALUE") -> str:
        """How a variable is changed there, in a sentence."""
        if variable in self.fixed:
            return f"{variable} does not apply to {self.name}: its storage replaces what this sets"
        if not self.way:
            return f"{self.name} has {self.place}"
        found = f"change it in {self.place}: {_filled(self.way, variable, value)}"
        if self.check:
            found += (
                f"; whether it may be changed, and when it counts: {_filled(self.check, variable, value)}"
            )
        return f"{found}{f' ({self.note})' if self.note else ''}"

    def how_all(self, settings: Mapping[str, str]) -> str:
        """How these variables are changed there, in a sentence; that of the first that does not apply there."""
        first = min(self.fixed & settings.keys(), default=next(iter(settings)))
        others = [f"{name}={value}" for name, value in settings.items() if name != first]
        likewise = f"; likewise {', '.join(others)}" if others and first not in self.fixed else ""
        return f"{self.how(first, settings[first])}{likewise}"


def _filled(text: str, variable: str, value: str) -> str:
    return text.replace("NAME", variable).replace("VALUE", value)


RDS = Provider(
    "Amazon RDS",
    "the DB instance's parameter group",
    "aws rds modify-db-parameter-group --db-parameter-group-name GROUP --parameters "
    "ParameterName=NAME,ParameterValue=VALUE,ApplyMethod=immediate",
    "aws rds describe-db-parameters --db-parameter-group-name GROUP --query "
    "\"Parameters[?ParameterName=='NAME'].[IsModifiable,ApplyType,AllowedValues]\"",
    "a static parameter takes ApplyMethod=pending-reboot; a default group cannot be changed: make one of your own",
)
AURORA = Provider(
    "Amazon Aurora",
    "the DB cluster's parameter group, or for what each instance has of its own in the instance's",
    "aws rds modify-db-cluster-parameter-group --db-cluster-parameter-group-name GROUP --parameters "
    "ParameterName=NAME,ParameterValue=VALUE,ApplyMethod=immediate (or modify-db-parameter-group)",
    "aws rds describe-db-cluster-parameters --db-cluster-parameter-group-name GROUP --query "
    "\"Parameters[?ParameterName=='NAME'].[IsModifiable,ApplyType,AllowedValues]\" (or describe-db-parameters)",
    "a static parameter takes ApplyMethod=pending-reboot",
    _NOT_IN_AURORA,
)
CLOUD_SQL = Provider(
    "Google Cloud SQL",
    "the instance's database flags",
    "gcloud sql instances patch INSTANCE --database-flags=NAME=VALUE",
    "gcloud sql flags list --filter=name=NAME",
    "name all flags that are set: others return to their defaults; some flags restart the instance",
)
AZURE = Provider(
    "Azure Database for MySQL",
    "the server parameters",
    "az mysql flexible-server parameter set --resource-group GROUP --server-name SERVER --name NAME --value VALUE",
    "az mysql flexible-server parameter show --resource-group GROUP --server-name SERVER --name NAME",
    "a static parameter needs a restart",
)
SKYSQL = Provider(
    "SkySQL", "the Configuration Manager of its portal", "set NAME=VALUE and apply it to the service"
)
HEATWAVE = Provider(
    "MySQL HeatWave Service",
    "the DB system's configuration",
    'oci mysql configuration create --shape-name SHAPE --variables \'{"NAME": "VALUE"}\', then '
    "oci mysql db-system update --configuration-id ID",
    "",
    "a configuration is copied and replaced, not changed",
)
VITESS = Provider(
    "Vitess",
    "no settings for clients: who runs its tablets, at PlanetScale the support, changes them (EXTRA_MY_CNF)",
    "",
)

#: Each with what shows it, the surest first: variables, version with its comment, the name that was connected to.
_SIGNS: tuple[tuple[Provider, Callable[[Mapping[str, str], str, str], str]], ...] = (
    (AURORA, lambda v, text, name: _named(v, "aurora_version")),
    (AURORA, lambda v, text, name: "its name" if ".cluster-" in name and _ends(name, AMAZON) else ""),
    (RDS, lambda v, text, name: "basedir" if v.get("basedir", "").startswith("/rdsdbbin") else ""),
    (RDS, lambda v, text, name: "its name" if _ends(name, AMAZON) else ""),
    (
        CLOUD_SQL,
        lambda v, text, name: (
            _named(v, "cloudsql_") or ("version" if "-google" in text or "(google)" in text else "")
        ),
    ),
    (AZURE, lambda v, text, name: _named(v, "azure_") or _named(v, "aad_auth_")),
    (AZURE, lambda v, text, name: "its name" if _ends(name, ".mysql.database.azure.com") else ""),
    (HEATWAVE, lambda v, text, name: "version" if "mysql enterprise - cloud" in text else ""),
    (VITESS, lambda v, text, name: "version" if "vitess" in text or "planetscale" in text else ""),
    (VITESS, lambda v, text, name: "its name" if _ends(name, ".psdb.cloud") else ""),
    (SKYSQL, lambda v, text, name: "its name" if _ends(name, ".skysql.net", ".skysql.com") else ""),
)
AMAZON = ".rds.amazonaws.com"


def _ends(name: str, *suffixes: str) -> bool:
    return name.endswith(suffixes)


def _named(variables: Mapping[str, str], prefix: str) -> str:
    return next((name for name in sorted(variables) if name.startswith(prefix)), "")


@dataclass(frozen=True)
class Managed:
    """The provider of a server, and the variable or name that shows it."""

    provider: Provider
    sign: str


def managed_by(variables: Mapping[str, str], asked: str = "") -> Managed | None:
    """Who manages a server with these variables, reached by this name; None if nothing shows that anybody does."""
    text = f"{variables.get('version', '')} {variables.get('version_comment', '')}".lower()
    name = asked.lower().rpartition(":")[0] or asked.lower()
    for provider, shows in _SIGNS:
        if sign := shows(variables, text, name.rstrip(".")):
            return Managed(provider, sign)
    return None
