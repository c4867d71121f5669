"""Facades: modules as user code sees them, with their allowed names and nothing else.

``Importer.import_`` is the ``__import__`` of user code, and rewritten import statements call
``Importer.take``. A facade is an exact ``ModuleType``, so that the interpreter's fast paths work on
it. Writing to a facade changes only that facade, never the real module, which user code never gets.
Raw modules, which the operator allows, are given out themselves.
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
#: By module: names that are documented but missing in its ``__all__``.
_UNLISTED = {"hashlib": ("scrypt",), "re": ("DEBUG",)}
#: From a former path of a module to its present one.
_MOVED = dict.fromkeys(
    ("IPython.core.display", "IPython.core.display_functions"), "IPython.display"
)
_real_import = __import__


class Importer:
    """Answers the import statements of user code, with facades and raw modules.

    ``getpass`` replaces the function of that module.
    """

    def __init__(self, current: RulesInForce, getpass: object = None) -> None:
        self._current = current
        #: By module and name: the guarded replacement.
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
        """Serve as ``__import__`` of user code: for ``import a.b`` and ``from a import *``.

        Other forms are rewritten to calls of ``take``. Raises ImportViolation.
        """
        name = text_of(name)
        if type(fromlist) is list:
            return self._import_for_c(name)
        if level:
            raise _refusal("relative-import", "." * level + name)
        if self._is_raw(name):
            return _real_import(name, {}, None, ("*",) if fromlist else ())
        if fromlist:  # a star import gets a new facade, without the cell's changes to its own
            return self._make(name)
        self.facade(name)
        return self.facade(name.partition(".")[0])

    def _is_raw(self, name: str) -> bool:
        """Return whether cells get the module itself, not a facade.

        Raises ImportViolation if they get neither.
        """
        raw = self._current.rules.is_raw(name)
        if not (raw or self._current.rules.allows_module(name)):
            raise _refusal("import-not-allowed", name)
        return raw

    def _import_for_c(self, name: str) -> ModuleType:
        """Import a module that C code needs while a user's frame runs; return an empty module.

        Recognised by ``fromlist``: ``PyImport_Import`` passes an empty list (``datetime.strptime``
        imports ``_strptime``), import statements pass a tuple or None. It ignores the returned
        module and looks the module up.
        """
        if name.partition(".")[0] not in sys.stdlib_module_names:
            self._is_raw(name)
        importlib.import_module(name)
        return ModuleType(name)

    def take(self, name: str, items: tuple[str, ...]) -> tuple[Any, ...]:
        """Return the values that ``from name import items`` or ``import name.item as x`` binds.

        Raises ImportViolation if the policy refuses the module or one of the names.
        """
        if self._is_raw(name):
            space: dict[str, Any] = {}
            exec(compile(f"from {name} import {', '.join(items)}", __file__, "exec"), space)
            return tuple(space[item] for item in items)
        facade = self.facade(name)
        return tuple(self._shown(facade, name, item) for item in items)

    def _shown(self, module: ModuleType, name: str, item: str) -> Any:
        """Return an attribute of a facade, or the facade of its submodule ``item``."""
        value = guarded_getattr(module, item, _MISSING)
        if value is not _MISSING:
            return value
        if self._current.rules.allows_module(f"{name}.{item}"):
            return self.facade(f"{name}.{item}")
        raise _held_back(ImportViolation, name, item, self._current.rules)

    def facade(self, name: str) -> ModuleType:
        """Return the facade of a module, the same each time. Its package's facade has it, too."""
        facade = self._facades.get(name)
        if facade is None:
            self._facades[name] = facade = self._make(name)
            parent, _, last = name.rpartition(".")
            if parent:
                namespace_of_module(self.facade(parent))[last] = facade
        return facade

    def _make(self, name: str) -> ModuleType:
        """Import a module and make a facade of it."""
        facade = _new_facade(name)
        modules = self._current.rules.modules
        before = len(sys.modules)
        real = importlib.import_module(_MOVED.get(name, name))
        if not self._current.rules.raw_modules:
            keep_in_memory(real)
        if len(sys.modules) > before:
            freeze_loaded()
        namespace = namespace_of_module(facade)
        names = modules.get(name, ())  # none: a package of which only a submodule is allowed
        for member in _public(real) if names is None else names:
            value = self._replaced.get((name, member), getattr(real, member, _MISSING))
            if value is not _MISSING and not isinstance(value, ModuleType):
                namespace[member] = value
        namespace["__all__"] = [member for member in namespace if not member.startswith("__")]
        facade.__doc__ = real.__doc__
        for child in modules:
            if child.rpartition(".")[0] == name and child in sys.modules:
                namespace[child.rpartition(".")[2]] = self.facade(child)
        if held_back := _all_names(real).difference(namespace):
            # Only then, because reading any attribute of a module that has it is slower.
            namespace["__getattr__"] = _explaining(name, frozenset(held_back), self._current.rules)
        return facade


def _new_facade(name: str) -> ModuleType:
    """Return an empty module without the names of the import system, which no cell may read."""
    facade = ModuleType(name)
    namespace = namespace_of_module(facade)
    for member in [member for member in namespace if not attribute_allowed(member)]:
        del namespace[member]
    return facade


def _refusal(rule: str, subject: str) -> ImportViolation:
    return ImportViolation(rule, subject, RULES[rule].why, RULES[rule].remedy)


def _held_back(
    kind: type[AttributeViolation | ImportViolation], module: str, name: str, rules: Rules
) -> PolicyViolation:
    """Return the violation that says why a facade lacks a name that the module has."""
    why, remedy = why_member_refused(module, name, rules)
    remedy_text = in_a_line(remedy.text, remedy.allows, rules)
    return kind("module-name-not-allowed", f"{module}.{name}", why, remedy_text)


def _explaining(module: str, held_back: frozenset[str], rules: Rules) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a facade (PEP 562), which says why a name is missing.

    It gets names only, no values, so that a cell can reach nothing through it.
    """

    def refuse(name: str) -> Any:
        if name in held_back:
            raise _held_back(AttributeViolation, module, name, rules)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return with_name(refuse, "__getattr__")


def _all_names(real: ModuleType) -> set[str]:
    """Return the names that a module has, or lists in ``__all__``, and that are not refused."""
    space = namespace_of_module(real)
    names = {*space, *space.get("__all__", ())}
    return {member for member in names if attribute_allowed(member) and not member.startswith("__")}


def _public(real: ModuleType) -> list[str]:
    """Return the public names of a module that are not refused."""
    space = namespace_of_module(real)
    listed = space.get("__all__", [name for name in space if not name.startswith("_")])
    return list(filter(attribute_allowed, (*listed, *_UNLISTED.get(real.__name__, ()))))


# --- names of allowed modules that user code gets in a guarded form ---------------------------


class _ModuleNames(Mapping[str, Any]):
    """``sys.modules`` as cells see it: the names of loaded modules, and no module."""

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
        values = tuple(reduce(guarded_getattr, path, obj) for path in paths)
        return values if attrs else values[0]

    return get


def _methodcaller(name: str, /, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    """Do as ``operator.methodcaller`` does, for allowed names."""
    name = check_name(name)
    return lambda obj: guarded_getattr(obj, name)(*args, **kwargs)


@contextlib.contextmanager
def _catch_warnings(*, record: bool = False, **filters: Any) -> Iterator[Any]:
    """Do as ``warnings.catch_warnings`` does.

    An instance of that class would give cells the real module. The argument ``module`` is ignored.
    """
    filters.pop("module", None)
    with warnings.catch_warnings(record=record, **filters) as log:
        yield log


for _function in (_attrgetter, _methodcaller, _catch_warnings):
    with_name(_function, _function.__name__[1:])
