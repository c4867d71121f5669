"""Modules as user code sees them: their allowed names and nothing else.

A facade is an exact ``ModuleType``, so that the interpreter's own fast paths work on it. Writing
to one changes that session's facade, never the module behind it, which user code never holds.
"""

from __future__ import annotations

import contextlib
import importlib
import reprlib
import sys
import warnings
from collections.abc import Mapping
from functools import reduce
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cellblock.analysis.findings import RULES, in_a_line
from cellblock.analysis.imports import why_member_refused
from cellblock.analysis.names import attribute_allowed
from cellblock.guest import output
from cellblock.guest.guards.access import (
    check_name,
    freeze_loaded,
    guarded_getattr,
    namespace_of_module,
    text_of,
    with_name,
)
from cellblock.guest.replacements import keep_in_memory
from cellblock.guest.violations import AttributeViolation, ImportViolation, PolicyViolation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cellblock.analysis.findings import Rules
    from cellblock.guest.runner import RulesInForce

_MISSING = object()
#: What is documented and not in the module's ``__all__``.
_UNLISTED = {"hashlib": ("scrypt",), "re": ("DEBUG",)}
#: Where what an old path named is now.
_MOVED = dict.fromkeys(
    ("IPython.core.display", "IPython.core.display_functions"), "IPython.display"
)
_real_import = __import__


class Importer:
    """Answers import statements of user code: facades, and the operator's raw modules."""

    def __init__(self, current: RulesInForce, getpass: object = None) -> None:
        self._current = current
        #: (module, name) to what stands in that name's place.
        self._replaced: dict[tuple[str, str], object] = {
            ("getpass", "getpass"): getpass or _MISSING,
            ("operator", "attrgetter"): _attrgetter,
            ("operator", "methodcaller"): _methodcaller,
            ("reprlib", "repr"): reprlib.Repr().repr,
            ("sys", "modules"): _ModuleNames(),
            ("sys", "stderr"): output.stream_in_force("stderr"),
            ("sys", "stdout"): output.stream_in_force("stdout"),
            ("warnings", "catch_warnings"): _catch_warnings,
        }
        self._facades: dict[str, ModuleType] = {}

    def import_(
        self,
        name: str,
        _globals: object = None,
        _locals: object = None,
        fromlist: Sequence[str] | None = None,
        level: int = 0,
    ) -> ModuleType:
        """Serve as ``__import__`` of user code: for ``import a.b`` and ``from a import *``."""
        name = text_of(name)
        if type(fromlist) is list:
            return self._import_for_c(name)
        if level:
            raise _refusal("relative-import", "." * level + name)
        if self._is_raw(name):
            return _real_import(name, {}, None, ("*",) if fromlist else ())
        if fromlist:  # a star binds what the policy allows, whatever the cell did to its facade
            return self._make(name)
        self.facade(name)
        return self.facade(name.partition(".")[0])

    def _is_raw(self, name: str) -> bool:
        """Return whether cells get the module itself. Raises ImportViolation if they get none."""
        raw = self._current.rules.is_raw(name)
        if not (raw or self._current.rules.allows_module(name)):
            raise _refusal("import-not-allowed", name)
        return raw

    def _import_for_c(self, name: str) -> ModuleType:
        """Load a module that C code needs while a user's frame runs; answer an empty one.

        ``PyImport_Import`` (``datetime.strptime`` loads ``_strptime``) gives an empty list where
        the import statement gives a tuple or None; it drops the answer and looks the module up.
        """
        if name.partition(".")[0] not in sys.stdlib_module_names:
            self._is_raw(name)
        importlib.import_module(name)
        return ModuleType(name)

    def take(self, name: str, items: tuple[str, ...]) -> tuple[Any, ...]:
        """Return what ``from name import items`` binds, or ``import name.item as x``.

        Raises ImportViolation where the policy refuses the module or one of the names.
        """
        if self._is_raw(name):
            space: dict[str, Any] = {}
            exec(compile(f"from {name} import {', '.join(items)}", __file__, "exec"), space)
            return tuple(space[item] for item in items)
        facade = self.facade(name)
        return tuple(self._shown(facade, name, item) for item in items)

    def _shown(self, module: ModuleType, name: str, item: str) -> Any:
        """Return one name of a facade, as a dot would, or the facade of a submodule."""
        found = guarded_getattr(module, item, _MISSING)
        if found is not _MISSING:
            return found
        if self._current.rules.allows_module(f"{name}.{item}"):
            return self.facade(f"{name}.{item}")
        raise _held_back(ImportViolation, name, item, self._current.rules)

    def facade(self, name: str) -> ModuleType:
        """Return the one facade of ``name``, which that of its package shows."""
        found = self._facades.get(name)
        if found is None:
            self._facades[name] = found = self._make(name)
            parent, _, last = name.rpartition(".")
            if parent:
                namespace_of_module(self.facade(parent))[last] = found
        return found

    def _make(self, name: str) -> ModuleType:
        facade, modules = _new_facade(name), self._current.rules.modules
        before, real = len(sys.modules), importlib.import_module(_MOVED.get(name, name))
        if not self._current.rules.raw_modules:
            keep_in_memory(real)
        if len(sys.modules) > before:
            freeze_loaded()
        shown = namespace_of_module(facade)
        names = modules.get(name, ())  # a package that is only the way to an allowed submodule
        for each in _public(real) if names is None else names:
            value = self._replaced.get((name, each), getattr(real, each, _MISSING))
            if value is not _MISSING and not isinstance(value, ModuleType):
                shown[each] = value
        shown["__all__"] = [each for each in shown if not each.startswith("__")]
        facade.__doc__ = real.__doc__
        for child in modules:
            if child.rpartition(".")[0] == name and child in sys.modules:
                shown[child.rpartition(".")[2]] = self.facade(child)
        if held_back := _all_names(real).difference(shown):
            # Only then: a module that has it is slower to read, hits included.
            shown["__getattr__"] = _explaining(name, frozenset(held_back), self._current.rules)
        return facade


def _new_facade(name: str) -> ModuleType:
    """Return an empty module without the names of the import system, which no cell may read."""
    made = ModuleType(name)
    shown = namespace_of_module(made)
    for each in [each for each in shown if not attribute_allowed(each)]:
        del shown[each]
    return made


def _refusal(rule: str, subject: str) -> ImportViolation:
    return ImportViolation(rule, subject, RULES[rule].why, RULES[rule].remedy)


def _held_back(
    kind: type[AttributeViolation | ImportViolation], module: str, name: str, rules: Rules
) -> PolicyViolation:
    """Return the violation that says why a facade lacks a name that the module has."""
    why, remedy = why_member_refused(module, name, rules)
    said = in_a_line(remedy.text, remedy.allows, rules)
    return kind("module-name-not-allowed", f"{module}.{name}", why, said)


def _explaining(module: str, held_back: frozenset[str], rules: Rules) -> Callable[[str], Any]:
    """Return a facade's ``__getattr__`` (PEP 562): it answers nothing, and says why.

    ``held_back`` are names, and no values: there is nothing behind it for a cell to reach.
    """

    def refuse(name: str) -> Any:
        if name in held_back:
            raise _held_back(AttributeViolation, module, name, rules)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return with_name(refuse, "__getattr__")


def _all_names(real: ModuleType) -> set[str]:
    """Return what cells may ask of a module by a dot, there or promised."""
    space = namespace_of_module(real)
    names = {*space, *space.get("__all__", ())}
    return {each for each in names if attribute_allowed(each) and not each.startswith("__")}


def _public(real: ModuleType) -> list[str]:
    space = namespace_of_module(real)
    listed = space.get("__all__", [name for name in space if not name.startswith("_")])
    return list(filter(attribute_allowed, (*listed, *_UNLISTED.get(real.__name__, ()))))


# --- names of allowed modules that user code gets in a guarded form ---------------------------


class _ModuleNames(Mapping[str, Any]):
    """``sys.modules`` as cells see it: which modules are loaded, and no module."""

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        return name in tuple(sys.modules)

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(sys.modules))

    def __len__(self) -> int:
        return len(sys.modules)

    def __getitem__(self, name: object) -> Any:
        if name not in self:
            raise KeyError(name)
        raise ImportViolation(
            "module-name-not-allowed",
            "sys.modules[...]",
            "would hand out the module itself",
            "Write an import statement.",
        )


def _attrgetter(attr: str, /, *attrs: str) -> Callable[[Any], Any]:
    """Do as ``operator.attrgetter`` does, for allowed names."""
    paths = [[check_name(name) for name in text_of(text).split(".")] for text in (attr, *attrs)]

    def get(obj: Any) -> Any:
        found = tuple(reduce(guarded_getattr, path, obj) for path in paths)
        return found if attrs else found[0]

    return get


def _methodcaller(name: str, /, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    """Do as ``operator.methodcaller`` does, for allowed names."""
    name = check_name(name)
    return lambda obj: guarded_getattr(obj, name)(*args, **kwargs)


@contextlib.contextmanager
def _catch_warnings(*, record: bool = False, **filters: Any) -> Iterator[Any]:
    """Do as ``warnings.catch_warnings`` does; that one's instances hold the module itself."""
    filters.pop("module", None)
    with warnings.catch_warnings(record=record, **filters) as log:
        yield log


for _function in (_attrgetter, _methodcaller, _catch_warnings):
    with_name(_function, _function.__name__[1:])
