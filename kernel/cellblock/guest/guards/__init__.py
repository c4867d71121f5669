"""HOSTILE side, run-time half of the language layer: what a cell reaches by a computed name.

It is no boundary: that is the operating system's. It explains, refuses early, and makes the
well-known escapes fail. ``docs/language.md`` is one page about all of it. The rule is one:

    Names and values, never callers. No cell holds a function that reads any attribute by its name,
    a real module, a frame, a code object, or a builtin that runs text. What the library reads or
    runs on a cell's behalf is served by the same rules.

``access`` judges attributes and keeps the library's classes as they are, ``facades`` judges
imports, and ``stdlib`` serves what the library does (``guest.replacements`` has parts of it).
``guest.rewriting`` puts calls of the first two where Python has no function to replace;
``guest.audit_hook`` refuses operations by their kind, should a cell get around all of this.
"""

from __future__ import annotations

import builtins
import pydoc
from _sitebuiltins import _Helper
from typing import TYPE_CHECKING

from cellblock.analysis.names import REFUSED_BUILTINS
from cellblock.guest import rewriting
from cellblock.guest.guards import access, facades, stdlib
from cellblock.guest.replacements import show_help

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cellblock.guest.runner import RulesInForce

#: Builtins that user code gets as they are, beside exceptions. What is missing
#: here is a NameError there.
_ALLOWED = """
    Ellipsis False None NotImplemented True __build_class__ __debug__ abs aiter all anext any
    ascii bin bool bytearray bytes callable chr classmethod complex dict dir divmod enumerate
    filter float format frozenset hash hex id int isinstance issubclass iter len list map max
    memoryview min next object oct ord pow print property range repr reversed round set slice
    sorted staticmethod str sum super tuple type zip
""".split()


def install(current: RulesInForce, extra: Mapping[str, object]) -> dict[str, object]:
    """Harden this process for good and return the ``__builtins__`` of user code.

    Call once, in the zygote, after IPython is imported and before any user code exists; what the
    process compiles from then on has to go through ``rewriting.rewrite``. ``extra`` (display,
    input, tools) is added to the builtins; its ``getpass`` answers the module of that name.
    Without a language layer nothing is hardened, and the real builtins come back with ``extra``.
    """
    rules = current.rules
    more = {name: value for name, value in extra.items() if name != "getpass"}
    if not rules.language:
        pydoc.pager = pydoc.plainpager  # the terminal that it would ask for is not there
        vars(builtins).update(more, help=_Helper())
        return vars(builtins)
    importer = facades.Importer(current, extra.get("getpass"))
    guarded: dict[str, object] = {name: vars(builtins)[name] for name in _ALLOWED}
    kinds = {name: value for name, value in vars(builtins).items() if isinstance(value, type)}
    guarded |= {name: kind for name, kind in kinds.items() if issubclass(kind, BaseException)}
    for name, (why, remedy) in REFUSED_BUILTINS.items():
        guarded[name] = access.refused_builtin(name, why, remedy)
    guarded |= {
        "__import__": importer.import_,
        "__name__": "builtins",
        "delattr": access.guarded_delattr,
        "getattr": access.guarded_getattr,
        "hasattr": access.guarded_hasattr,
        "help": show_help,
        "setattr": access.guarded_setattr,
        "input": builtins.input,
        "vars": access.guarded_vars,
        **rewriting.CALLED,
        rewriting.TAKE: importer.take,
        **more,
    }
    if rules.raw_modules:
        # C code of packages takes it from here (numpy.fromfile). A cell whose source check passed
        # the name finds no more than in any package: there the layer only explains.
        guarded["open"] = open
    stdlib.harden(current, guarded)
    return guarded
