"""Cards about comms: a widget that was not shown, a comm that was not opened, what was left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cellblock.render import markup as m
from cellblock.render.bundle import JSON_VERSION, Bundle, count
from cellblock.render.text import COLUMNS, clip, encodable, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

COMM_JSON: Final = "application/vnd.cellblock.comm+json"
_LONGEST: Final = 100
_RIGHTS: Final = "it would run in the page, with all that you may do there."


def widget(module: str, model: str, *, policy_name: str, known: bool) -> Bundle:
    """Return the card for a widget whose model is not let in.

    ``known`` says that its module is let in and only the model is not known.
    """
    module, model = clip(module or "(none)", _LONGEST), clip(model or "(none)", _LONGEST)
    title = f"cellblock did not show a widget of {module}"
    if known:
        why = f"{model} is none of the widgets of {module} that cellblock knows how to clean."
        remedy = "use one of ipywidgets' own, or show the value itself."
    else:
        why = f"{model} brings a script of its own: {_RIGHTS}"
        remedy = (
            f'use one of ipywidgets\' own, or a picture; or let the operator add "{module}" to '
            "widget_modules in the policy."
        )
    return _card(title, why, remedy, policy_name, {"module": module, "model": model})


def comm(target: str, *, policy_name: str) -> Bundle:
    """Return the card for a comm whose target is not let in."""
    target = clip(target or "(none)", _LONGEST)
    title = f"cellblock did not open a comm to {target}"
    why = f"An extension of the front end listens there: what it is told to do, {_RIGHTS}"
    remedy = f'let the operator add "{target}" to comm_targets in the policy.'
    return _card(title, why, remedy, policy_name, {"target": target})


def left_out(parts: Sequence[tuple[str, str, str]], *, policy_name: str) -> Bundle:
    """Return the card for parts of widgets that were left out: model, key, why."""
    title = f"cellblock left out {count(len(parts), 'part')} of the widgets above"
    rows = [(clip(f"{model}.{key}", 60), clip(why, _LONGEST)) for model, key, why in parts]
    lines = wrap(title, columns=COLUMNS)
    for name, why in rows:
        lines += wrap(f"{name}: {why}", indent="  ", hanging="    ", columns=COLUMNS)
    body = [m.paragraph(m.code(name), " ", why, tight=True) for name, why in rows]
    side = m.chips(("policy", clip(policy_name, 40)))
    return {
        "text/plain": "\n".join(lines),
        "text/html": m.card(title, *body, symbol="◐", color=m.AMBER, label=title, side=side),
        COMM_JSON: {
            "version": JSON_VERSION,
            "outcome": "cleaned",
            "parts": [{"part": encodable(name), "why": encodable(why)} for name, why in rows],
        },
    }


def _card(title: str, why: str, remedy: str, policy_name: str, facts: dict[str, str]) -> Bundle:
    lines = [
        *wrap(title, columns=COLUMNS),
        *wrap(why, indent="  ", columns=COLUMNS),
        *wrap(f"Instead: {remedy}", indent="  ", columns=COLUMNS),
    ]
    body = [m.paragraph(why), m.paragraph(m.element("strong", "Instead: "), remedy)]
    side = m.chips(("policy", clip(policy_name, 40)))
    return {
        "text/plain": "\n".join(lines),
        "text/html": m.card(title, *body, symbol="⊘", color=m.AMBER, label=title, side=side),
        COMM_JSON: {
            "version": JSON_VERSION,
            "outcome": "refused",
            **{key: encodable(value) for key, value in facts.items()},
        },
    }
