"""HOSTILE side, run-time half of the language layer: what a computed name may reach.

Invariant: user code, whose frames carry the guarded builtins, never holds a real module, frame,
code object or refused builtin, whatever expression it uses to ask.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any, cast

from cellblock.guest.guards import (
    access,
    audit,
    dispatch,
    facades,
    formats,
    immutable,
    libraries,
    loops,
    namespace,
    roots,
    trust,
    unheard,
)
from cellblock.guest.guards.permits import Permits
from cellblock.guest.guards.replacements import replacements
from cellblock.guest.guards.violations import (
    AttributeViolation,
    ImportViolation,
    NameViolation,
    OperationViolation,
    PolicyViolation,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.analysis import Rules

__all__ = [
    "AttributeViolation",
    "ImportViolation",
    "NameViolation",
    "OperationViolation",
    "Permits",
    "PolicyViolation",
    "arming",
    "install",
]


def install(
    rules: Rules, extra: Mapping[str, object], permits: Permits | None = None
) -> dict[str, object]:
    """Harden this process and return the ``__builtins__`` of user code.

    Call once, in the zygote, after IPython is imported and before any user code exists; the
    process is given to this policy for good. ``extra`` (display, input, tools, ``getpass``) is
    added to the builtins; ``getpass`` answers the module of that name. ``permits`` may allow more
    imports than ``rules`` later, and nothing else. Without a language layer nothing is hardened and
    the real builtins come back, with ``extra``.
    """
    if not rules.language:
        return {**vars(builtins), **{n: v for n, v in extra.items() if n != "getpass"}}
    importer = facades.Importer(permits or Permits(rules), replacements(extra))
    import_ = facades.guarded_import(importer)
    guarded = namespace.build(import_, extra)
    if rules.raw_modules:
        guarded["open"] = access.open_for_packages(cast("Callable[..., Any]", guarded["open"]))
    libraries.harden(rules, guarded, audit.roots())
    formats.close()
    unheard.harden()
    dispatch.harden()
    is_trusted, is_library = trust.judges()
    if rules.raw_modules:
        is_trusted = is_library  # packages let in raw examine code and frames as they please
    else:
        loops.harden()
    # Packages that the operator lets in raw examine functions as they please.
    roots.close(is_library if rules.raw_modules else is_trusted, is_library)
    return guarded


def arming(
    rules: Rules,
    *,
    files: bool = False,
    network: bool = False,
    processes: bool = False,
) -> Callable[[Callable[[str], None]], None]:
    """Return what has the process refuse operations that are False here, once called.

    For the zygote, when all modules of this package are imported: what it touches, guests share.
    What it returns is for the guest, after the OS locks and before the first user byte; there is
    no way back. What is True is left to the OS layer. Packages that the operator lets in raw need
    files and native code, so with those only network and processes are refused. It is called with
    ``report``, which gets the name of an operation that only code which got around the guards can
    try: it is to end the process.
    """
    if not rules.language:
        return lambda _report: None
    immutable.freeze_package("cellblock.guest")
    raw = bool(rules.raw_modules)
    return audit.arming(files=files or raw, network=network, processes=processes, native=raw)
