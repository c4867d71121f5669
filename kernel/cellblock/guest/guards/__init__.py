"""HOSTILE side: the run-time half of the language layer, for names that cells compute.

It is not a boundary; the OS layer is. It explains, refuses early, and makes the well-known escapes
fail. ``docs/language.md`` describes it on one page. It has one rule:

    Names and values are judged, never callers. No cell gets a function that reads any attribute by
    its name, a real module, a frame, a code object, or a builtin that runs text. When the library
    reads or runs something on a cell's behalf, the same rules apply.

``setup`` calls ``install`` once, in the zygote. ``access`` judges attributes, and keeps the
library's classes from being changed. ``facades`` judges imports. ``stdlib`` changes the library
(``guest.replacements`` has parts of that). ``guest.rewriting`` puts calls of ``access`` and
``facades`` where Python has no function to replace. If a cell gets around all of this,
``guest.audit_hook`` refuses operations by kind.
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

#: Builtins that user code gets unchanged, beside exceptions. Others, except guarded ones, are a
#: NameError there.
_ALLOWED = """
    Ellipsis False None NotImplemented True __build_class__ __debug__ abs aiter all anext any
    ascii bin bool bytearray bytes callable chr classmethod complex dict dir divmod enumerate
    filter float format frozenset hash hex id int isinstance issubclass iter len list map max
    memoryview min next object oct ord pow print property range repr reversed round set slice
    sorted staticmethod str sum super tuple type zip
""".split()


def install(current: RulesInForce, extra: Mapping[str, object]) -> dict[str, object]:
    """Harden this process for good and return the ``__builtins__`` of user code.

    Call once, in the zygote, after IPython is imported and before any user code exists. All code
    that the process compiles from then on must go through ``rewriting.rewrite``. ``extra``
    (display, input, tools) is added to the builtins; its ``getpass`` is for the module of that
    name. Without a language layer nothing is hardened, and the real builtins are returned with
    ``extra``.
    """
    rules = current.rules
    additions = {name: value for name, value in extra.items() if name != "getpass"}
    if not rules.language:
        pydoc.pager = pydoc.plainpager  # other pagers need a terminal
        vars(builtins).update(additions, help=_Helper())
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
        **additions,
    }
    if rules.raw_modules:
        # C code of packages looks ``open`` up here (numpy.fromfile). A cell that gets hold of it
        # gains nothing that packages don't offer: with raw packages the layer only explains.
        guarded["open"] = open
    stdlib.harden(current, guarded)
    return guarded
