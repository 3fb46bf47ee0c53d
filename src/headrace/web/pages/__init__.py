"""The pages. Each has an address that can be shared, and all their numbers are tables.

A file of this directory declares pages with their tables, and is found by being here.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules

from starlette.routing import Route

from headrace.web.page import Table, action_route, page_route
from headrace.web.site import Site

_FILES = [import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__)]
PAGES = [page for each in _FILES for page in each.PAGES]
ACTIONS = [action for each in _FILES for action in getattr(each, "ACTIONS", ())]
#: By name, in the order of the menu.
TABLES: Mapping[str, Table] = {table.name: table for each in _FILES for table in getattr(each, "TABLES", ())}
#: (address, title) of the menu.
NAVIGATION = [
    (page.path, page.menu.title)
    for page in sorted((page for page in PAGES if page.menu), key=lambda page: page.menu.place)
]


def routes(site: Site) -> list[Route]:
    return [
        *(page_route(site, page) for page in PAGES),
        *(action_route(site, action) for action in ACTIONS),
    ]
