"""What a cell asks to see of ours: the tables of ``%policy`` and the like, pages of ``%output``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakKeyDictionary

from cellblock.errors import AdmissionError
from cellblock.host.cells import paging
from cellblock.host.output.encoding import json_size
from cellblock.policy.narrowing import changed
from cellblock.render.policy_table import policy_table
from cellblock.render.templates import templates
from cellblock.render.tools import tools
from cellblock.render.usage import Row, Totals, usage
from cellblock.wire import messages as wire

if TYPE_CHECKING:
    from cellblock.host.cells.views import Views
    from cellblock.host.kept import Kept
    from cellblock.host.quota import Quota
    from cellblock.render.budgets import Spent
    from cellblock.render.bundle import Bundle

#: Bytes that a table is counted as, before it is made.
TABLE_BYTES: Final = 32 << 10
View = wire.ShowPolicy | wire.ShowUsage | wire.ShowTools | wire.ShowTemplates | wire.ShowOutput


class _Made(NamedTuple):
    """The table of a policy, and what it was made of."""

    of: tuple[object, ...]
    table: Bundle


#: Each takes ten milliseconds, and one read from a guest may ask for hundreds.
_made: Final[WeakKeyDictionary[Views, _Made]] = WeakKeyDictionary()


def answer(asked: View, views: Views, kept: Kept, quota: Quota) -> Bundle | None:
    """Return the table or page that a cell asks for; None where its quota has no room for one."""
    if not isinstance(asked, wire.ShowOutput):
        return _table(asked, views) if quota.admits(TABLE_BYTES) else None
    if quota.spent(0):
        return None
    page = paging.answer(kept, asked.argument)
    return page if quota.admits(json_size(page)) else None


def _table(asked: View, views: Views) -> Bundle:
    match asked:
        case wire.ShowUsage(line=line):
            return _usage(views, line)
        case wire.ShowTools():
            return tools(views.tools_in_force, _spent(views))
        case wire.ShowTemplates(name=name):
            return _templates(views, name)
    return _policy(views)


def _policy(views: Views) -> Bundle:
    if views.in_force is None:
        return {"text/plain": "No policy is in force."}
    of = (views.in_force, views.operators, views.enforcement, views.gaps, views.backend)
    known = _made.get(views)
    if known is None or any(was is not now for was, now in zip(known.of, of, strict=True)):
        shown = views.in_force.as_dict() | {"backend": views.backend}
        worth = tuple(views.enforcement.values())
        known = _made[views] = _Made(of, policy_table(shown, worth, views.gaps, _before(views)))
    return dict(known.table)


def _before(views: Views) -> dict[str, object]:
    """Return what the operator's policy has in fields that are narrower now."""
    if views.in_force is None or views.operators is None:
        return {}
    names = changed(views.operators, views.in_force)
    return {name: getattr(views.operators, name) for name in names}


def _usage(views: Views, line: str) -> Bundle:
    account = views.account
    rows = [Row(e.number, e.line, **e.usage.as_dict()) for e in account]
    totals = Totals(
        account.cells,
        account.wall_seconds,
        account.cpu_seconds,
        account.output_bytes,
        account.read_bytes,
    )
    return usage(rows, totals, line, _spent(views))


def _spent(views: Views) -> dict[str, Spent]:
    return {name: ask() for name, ask in views.budgets.items()}


def _templates(views: Views, name: str) -> Bundle:
    """Return all that there are, or the one that is named."""
    try:
        return templates(dict(views.templates_in_force), name)
    except AdmissionError as error:
        return views.unadmitted(error)[0]
