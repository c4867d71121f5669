"""The card for a configuration that can't be used: file, key, value, remedy."""

from __future__ import annotations

from typing import Final

from cellblock.render import markup as m
from cellblock.render.bundle import JSON_VERSION, PROBLEM_JSON, Bundle, Failure
from cellblock.render.text import COLUMNS, clip, encodable, wrap

_MAX_VALUE: Final = 200
_LABELS: Final = ("File", "Key", "Value")


def problem(  # noqa: PLR0913, PLR0917  # the parts of a PolicyError, in its order
    title: str, detail: str, file: str = "", key: str = "", value: str = "", remedy: str = ""
) -> Bundle:
    """Return the card for a configuration problem; empty parts are left out."""
    facts = _facts(file, key, value)
    return {
        "text/plain": _plain(title, detail, facts, remedy),
        "text/html": _html(title, detail, facts, remedy),
        PROBLEM_JSON: {
            "version": JSON_VERSION,
            "title": encodable(title),
            "detail": encodable(detail),
            "file": encodable(file),
            "key": encodable(key),
            "value": encodable(value),
            "remedy": encodable(remedy),
        },
    }


def problem_failure(  # noqa: PLR0913, PLR0917  # as problem
    title: str, detail: str, file: str = "", key: str = "", value: str = "", remedy: str = ""
) -> Failure:
    """Return the error that goes with the card ``problem`` makes of the same arguments."""
    report = _plain(title, detail, _facts(file, key, value), remedy)
    return Failure("PolicyProblem", " ".join(wrap(detail, columns=10_000)), report)


def _facts(file: str, key: str, value: str) -> list[tuple[str, str]]:
    values = (file, key, clip(value, _MAX_VALUE))
    return [(label, text) for label, text in zip(_LABELS, values, strict=True) if text]


def _plain(title: str, detail: str, facts: list[tuple[str, str]], remedy: str) -> str:
    lines = wrap(title, columns=COLUMNS)
    if detail:
        lines += wrap(detail, indent="  ", columns=COLUMNS)
    for label, text in facts:
        lines += wrap(text, indent=f"  {label + ':':<7}", hanging=" " * 9, columns=COLUMNS)
    if remedy:
        lines += wrap(f"Instead: {remedy}", indent="  ", columns=COLUMNS)
    return "\n".join(lines)


def _html(title: str, detail: str, facts: list[tuple[str, str]], remedy: str) -> m.Html:
    body = [m.paragraph(detail)] if detail else []
    body += [m.paragraph(m.element("strong", f"{label}: "), m.code(text)) for label, text in facts]
    if remedy:
        body.append(m.paragraph(m.element("strong", "Instead: "), remedy))
    return m.card(title, *body, symbol="!", color=m.RED, label=title)
