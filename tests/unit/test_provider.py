"""Managed servers are recognised by what they show, and changed by the provider's own means only."""

from __future__ import annotations

import pytest

from headrace.base.errors import Refused
from headrace.base.model import Facts
from headrace.host.facts import HostFacts
from headrace.hunt.rules import all_rules, judge
from headrace.knobs.catalogue import find
from headrace.knobs.change import changes
from headrace.knobs.provider import managed_by
from tests.rules.hosts import unwell

OWN = {
    "basedir": "/usr/",
    "version": "10.11.6-MariaDB-log",
    "version_comment": "Debian 12",
    "datadir": "/var/lib/mysql/",
}


@pytest.mark.parametrize(
    ("variables", "asked", "name"),
    [
        ({"basedir": "/rdsdbbin/mysql-8.0.35.R4/"}, "", "Amazon RDS"),
        ({"basedir": "/rdsdbbin/mariadb-10.11.6.R2/"}, "10.0.0.3:3306", "Amazon RDS"),
        ({}, "shop.abc123.eu-west-1.rds.amazonaws.com:3306", "Amazon RDS"),
        (
            {"basedir": "/rdsdbbin/oscar-8.0.mysql_aurora.3.04.0/", "aurora_version": "3.04.0"},
            "",
            "Amazon Aurora",
        ),
        ({}, "shop.cluster-abc123.eu-west-1.rds.amazonaws.com", "Amazon Aurora"),
        ({"version": "8.0.31-google", "version_comment": "(Google)"}, "", "Google Cloud SQL"),
        ({"cloudsql_iam_authentication": "OFF"}, "", "Google Cloud SQL"),
        ({"aad_auth_only": "OFF"}, "", "Azure Database for MySQL"),
        ({"azure_server_name": "shop"}, "", "Azure Database for MySQL"),
        ({}, "shop.mysql.database.azure.com", "Azure Database for MySQL"),
        (
            {"version": "9.1.0-cloud", "version_comment": "MySQL Enterprise - Cloud"},
            "",
            "MySQL HeatWave Service",
        ),
        ({"version": "8.0.34-Vitess"}, "", "Vitess"),
        ({}, "aws.connect.psdb.cloud:3306", "Vitess"),
        ({}, "dbpgf1.sysp0000.db1.skysql.com:3306", "SkySQL"),
    ],
)
def test_a_provider_is_recognised(variables: dict[str, str], asked: str, name: str) -> None:
    found = managed_by({**OWN, **variables}, asked)
    assert found is not None
    assert found.provider.name == name
    assert found.sign


@pytest.mark.parametrize(
    ("variables", "asked"),
    [
        ({}, ""),
        ({}, "db1.example.com:3306"),
        ({}, "rds.amazonaws.com.example.org"),
        ({"basedir": "/srv/rdsdbbin/"}, ""),
        ({"version_comment": "built for googlers"}, ""),
        ({"innodb_cloud": "1", "datadir": "/azure/mysql/"}, "[::1]:3306"),
    ],
)
def test_a_server_of_ones_own_is_not_managed(variables: dict[str, str], asked: str) -> None:
    assert managed_by({**OWN, **variables}, asked) is None


def test_apply_is_refused_with_the_way_that_works_there() -> None:
    facts = unwell(vendor="mysql", variables={"basedir": "/rdsdbbin/mysql-8.0.35.R4/"}).facts
    with pytest.raises(Refused, match="Amazon RDS manages this server") as refused:
        changes(find("server.max_connections"), "", 500, facts)
    assert "modify-db-parameter-group" in str(refused.value.hint)
    assert "ParameterName=max_connections,ParameterValue=500" in str(refused.value.hint)
    # Of the host from which it is asked, what is its own can be changed.
    assert changes(find("host.vm.swappiness"), "", 1, facts)


def test_what_does_not_apply_is_said() -> None:
    settings = {"vendor": "mysql", "version": "8.0.28", "variables": {"aurora_version": "3.04.0"}}
    facts = HostFacts(Facts("0" * 16, {"server_settings": settings}))
    with pytest.raises(Refused) as refused:
        changes(find("server.innodb_io_capacity"), "", 2000, facts)
    assert "does not apply to Amazon Aurora" in str(refused.value.hint)


def test_fixes_of_findings_name_the_way() -> None:
    evidence = unwell(
        variables={
            "basedir": "/rdsdbbin/mariadb-10.11.6.R2/",
            "query_cache_type": "ON",
            "query_cache_size": "67108864",
        }
    )
    found = next(f for f in judge(evidence, all_rules()).findings if f.rule.code == "SESS04")
    way = found.hit.remedies[0].way
    assert "modify-db-parameter-group" in way
    assert "ParameterName=query_cache_type,ParameterValue=OFF" in way
    assert "likewise query_cache_size=0" in way
