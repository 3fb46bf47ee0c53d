"""The forms of what owns a server's option files, in which settings are printed."""

from __future__ import annotations

from enum import StrEnum

from headrace.base.model import Vendor


class Form(StrEnum):
    """How settings are written."""

    COMPOSE = "compose"
    KUBERNETES = "kubernetes"
    PERCONA_XTRADB_OPERATOR = "percona-xtradb-operator"
    PERCONA_SERVER_OPERATOR = "percona-server-operator"
    MARIADB_OPERATOR = "mariadb-operator"
    MYSQL_OPERATOR = "mysql-operator"
    ANSIBLE = "ansible"
    NIXOS = "nixos"

    @property
    def vendors(self) -> frozenset[Vendor]:
        """The servers that it runs; empty if any."""
        return _VENDORS.get(self, frozenset())

    @property
    def has_host(self) -> bool:
        """Whether it describes the host as well."""
        return self in (Form.ANSIBLE, Form.NIXOS)


_VENDORS = {
    Form.PERCONA_XTRADB_OPERATOR: frozenset({Vendor.PERCONA}),
    Form.PERCONA_SERVER_OPERATOR: frozenset({Vendor.PERCONA}),
    Form.MARIADB_OPERATOR: frozenset({Vendor.MARIADB}),
    Form.MYSQL_OPERATOR: frozenset({Vendor.MYSQL}),
}
