"""Completion and inspection, in the guest: both run users' ``__getattr__`` and ``__dir__``."""

from __future__ import annotations

import builtins
import re
import sys
from typing import TYPE_CHECKING, Any

from IPython.core.completer import provisionalcompleter, rectify_completions
from IPython.utils.tokenutil import token_at_cursor

from cellblock.analysis import analyse_expression, attribute_allowed
from cellblock.analysis.attributes import is_free
from cellblock.guest.output import encodable, plain
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cellblock.analysis import Rules
    from cellblock.guest.shell import GuestShell

_IMPORT = re.compile(r"^\s*(?:import|from)\s+(?:[\w.]+\s*,\s*)*([\w.]*)$")
_FROM = re.compile(r"^\s*from\s+([\w.]+)\s+import\s+(?:[\w.]+\s*,\s*)*(\w*)$")
_WORD = re.compile(r"[^\W\d]\w*")
_GAP = re.compile(r"[\s,;(\[{=]")
_MAX_MATCHES = 1_000
#: Characters before the cursor that are looked at.
_STRETCH = 1_000


def complete(shell: GuestShell, rules: Rules, request: messages.Complete) -> messages.Completed:
    """Return completions; nothing is imported to find them."""
    code, cursor = request.code, min(request.cursor, len(request.code))
    line = code[:cursor].rpartition("\n")[2]
    imported = _IMPORT.match(line) if rules.language else None
    if imported:
        return _offer({*rules.modules, *rules.raw_modules}, imported[1], "module", request)
    member = _FROM.match(line) if rules.language else None
    if member:
        return _offer(_members(member[1], rules), member[2], "instance", request)
    left = _start(code, cursor)
    try:
        found = _completions(shell, rules, code[left:cursor], cursor - left)
    except Exception:
        found = []
    if rules.language:
        found = [c for c in found if _speakable(c.text, shell, rules)]
    # Without jedi IPython completes ".upper" over the dot; front ends list what they are given.
    dot = int(bool(found) and all(c.text.startswith(".") for c in found))
    start, end = (found[0].start + dot, found[0].end) if found else (cursor - left, cursor - left)
    start, end = start + left, end + left
    return messages.Completed(
        id=request.id,
        matches=[encodable(c.text[dot:]) for c in found],
        start=start,
        end=end,
        types=[_typed(c, c.text[dot:], start, end) for c in found],
    )


def _start(code: str, cursor: int) -> int:
    """Return where the text before ``cursor`` begins that is looked at: at a line, or a word.

    IPython's time for it grows with the square of its length.
    """
    earliest = cursor - _STRETCH
    if earliest <= 0:
        return 0
    line = code.find("\n", earliest - 1, cursor) + 1
    if line:
        return line
    gap = _GAP.search(code, earliest, cursor)
    return gap.end() if gap else earliest


def _typed(found: Any, text: str, start: int, end: int) -> dict[str, Any]:
    described = {"text": text, "type": found.type, "signature": found.signature}
    return plain({"start": start, "end": end, **described})


def _completions(shell: GuestShell, rules: Rules, code: str, cursor: int) -> list[Any]:
    if rules.language:
        from cellblock.guest import lookup  # noqa: PLC0415 - with IPython's evaluator: not at start

        lookup.narrow(shell, rules)
    with provisionalcompleter():
        raw = shell.Completer.completions(code, cursor)
        return list(rectify_completions(code, raw))[:_MAX_MATCHES]


def _speakable(text: str, shell: GuestShell, rules: Rules) -> bool:
    """Say whether the language layer would let ``text`` stand in a cell."""
    if text.startswith("%"):
        return text.lstrip("%") in rules.magics
    name = text.rpartition(".")[2]
    if not name.isidentifier():
        return True
    if "." in text:
        return attribute_allowed(name)
    own = name in shell.user_ns or not hasattr(builtins, name)
    return own or not analyse_expression(name, rules)


def _members(module: str, rules: Rules) -> Iterable[str]:
    """Return what may be imported from ``module``, as far as that is known without importing."""
    if module in rules.modules:
        named = rules.modules[module]
    elif module.partition(".")[0] in rules.raw_modules:
        named = None
    else:
        return ()
    if named is not None:
        return named
    loaded = sys.modules.get(module)
    return [n for n in vars(loaded) if not n.startswith("_")] if loaded else ()


def _offer(
    names: Iterable[str],
    prefix: str,
    kind: str,
    request: messages.Complete,
) -> messages.Completed:
    matches = sorted(n for n in names if n.startswith(prefix))[:_MAX_MATCHES]
    start, end = request.cursor - len(prefix), request.cursor
    types = [
        {"start": start, "end": end, "text": n, "type": kind, "signature": ""} for n in matches
    ]
    return messages.Completed(id=request.id, matches=matches, start=start, end=end, types=types)


def inspect(shell: GuestShell, rules: Rules, request: messages.Inspect) -> messages.Inspected:
    """Return what is known of the object at the cursor, an empty bundle for nothing."""
    left = _start(request.code, min(request.cursor, len(request.code)))
    right = request.cursor + _STRETCH
    name = token_at_cursor(request.code[left:right], request.cursor - left)
    if rules.language and not all(map(is_free, _WORD.findall(name))):
        return messages.Inspected(id=request.id, data={})
    try:
        bundle = shell.object_inspect_mime(name, detail_level=request.detail)
        bundle.pop("text/html", None)
    except KeyError:
        bundle = {}
    except Exception:
        bundle = {}
    return messages.Inspected(id=request.id, data=plain(bundle))
