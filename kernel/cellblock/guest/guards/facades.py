"""Modules as user code sees them: their allowed names and nothing else.

A facade is an exact ``ModuleType``, so that the interpreter's own fast paths work on it. Writing
to one changes that session's facade, never the module behind it, which user code never holds.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cellblock.analysis.attributes import attribute_allowed
from cellblock.analysis.names import RESERVED
from cellblock.analysis.rules import RULES
from cellblock.guest.guards.immutable import freeze
from cellblock.guest.guards.trust import namespace_of_module
from cellblock.guest.guards.violations import ImportViolation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cellblock.analysis import Rules
    from cellblock.guest.guards.permits import Permits

_MISSING = object()
#: Classes that write to themselves as they work; nothing but cells uses the second.
_CHANGING = frozenset({"weakref.finalize", "difflib.HtmlDiff"})
#: What is documented and not in the module's ``__all__``.
_UNLISTED = {"hashlib": ("scrypt",), "re": ("DEBUG",), "reprlib": ("aRepr",)}
_exact = str.__str__
_real_import = __import__


class Importer:
    """Answers import statements of user code: facades, and the operator's raw modules.

    ``replacements`` maps (module, name) to what stands in that name's place.
    """

    def __init__(self, permits: Permits, replacements: Mapping[tuple[str, str], object]) -> None:
        self._permits = permits
        self._replacements = replacements
        self._facades: dict[str, ModuleType] = {}

    @property
    def _rules(self) -> Rules:
        return self._permits.rules

    def import_(self, name: str, fromlist: Sequence[str], level: int) -> ModuleType:
        """Return what the import statement binds.

        Raises:
            ImportViolation: the policy refuses the module or one of the names.
            ImportError: the module does not exist.

        """
        if level:
            raise _refusal("relative-import", "." * level + name)
        if self._rules.is_raw(name):
            items = tuple(map(_exact, fromlist))
            imported = _real_import(name, {}, None, items, 0)
            return _listing(imported) if "*" in items else imported
        if not self._rules.allows_module(name):
            raise _refusal("import-not-allowed", name)
        module = self.facade(name)
        if not fromlist:
            return self.facade(name.partition(".")[0])
        for item in fromlist:
            if item == "*":
                _settle_star(module)
            self._check_member(module, name, _exact(item))
        return module

    def import_for_c(self, name: str) -> ModuleType:
        """Load a module that C code needs while a user's frame runs; answer an empty one.

        ``PyImport_Import`` (``datetime.strptime`` loads ``_strptime``) calls the frame's
        ``__import__`` with an empty list where the import statement gives a tuple or None; it drops
        the answer and looks the module up by itself.

        Raises:
            ImportViolation: not of the standard library, nor raw.

        """
        if name.partition(".")[0] not in sys.stdlib_module_names and not self._rules.is_raw(name):
            raise _refusal("import-not-allowed", name)
        importlib.import_module(name)
        return ModuleType(name)

    def _check_member(self, module: ModuleType, name: str, item: str) -> None:
        # The interpreter looks for a missing name among the *real* submodules in sys.modules,
        # so a name that the facade lacks has to be refused here.
        child = f"{name}.{item}"
        if item == "*" or item in vars(module):
            return
        if child in self._rules.modules:
            self.facade(child)
            return
        if attribute_allowed(item) and item.startswith("__") and hasattr(module, item):
            return
        raise _refusal("module-name-not-allowed", child)

    def facade(self, name: str) -> ModuleType:
        """Return the facade of ``name``, made on first use; always the same object."""
        found = self._facades.get(name)
        if found is not None:
            return found
        made = self._make(name)
        self._facades[name] = made
        parent, _, last = name.rpartition(".")
        if parent:
            vars(self.facade(parent))[last] = made
        return made

    def _make(self, name: str) -> ModuleType:
        facade = ModuleType(name)
        if name not in self._rules.modules:
            return facade  # a package that is only the way to an allowed submodule
        real = importlib.import_module(name)
        exposed = [
            n for n in _exposed(real, self._rules.modules[name]) if self._put(facade, n, real)
        ]
        facade.__doc__ = real.__doc__
        vars(facade)["__all__"] = exposed
        for child in self._rules.modules:
            if child.rpartition(".")[0] == name and child in sys.modules:
                vars(facade)[child.rpartition(".")[2]] = self.facade(child)
        return facade

    def _put(self, facade: ModuleType, name: str, real: ModuleType) -> bool:
        value = self._replacements.get((facade.__name__, name), _MISSING)
        if value is _MISSING:
            value = getattr(real, name, _MISSING)
        if value is _MISSING or isinstance(value, ModuleType):
            return False
        if isinstance(value, type) and f"{facade.__name__}.{name}" not in _CHANGING:
            freeze(value)
        vars(facade)[name] = value
        return True


def _exposed(real: ModuleType, names: tuple[str, ...] | None) -> Sequence[str]:
    if names is not None:
        return names
    listed = getattr(real, "__all__", None)
    if listed is None:
        listed = [name for name in namespace_of_module(real) if not name.startswith("_")]
    unlisted = _UNLISTED.get(real.__name__, ())
    return [name for name in (*listed, *unlisted) if attribute_allowed(name)]


def _listing(real: ModuleType) -> ModuleType:
    """Return a module of which ``import *`` binds what it would of ``real``.

    Without an ``__all__`` the interpreter asks for ``__dict__`` in the cell's name, in vain.
    """
    if not isinstance(real, ModuleType) or getattr(real, "__all__", None) is not None:
        return real
    made = ModuleType(real.__name__)
    public = {k: v for k, v in namespace_of_module(real).items() if not k.startswith("_")}
    vars(made).update(public, __all__=list(public))
    return made


def _settle_star(module: ModuleType) -> None:
    """Have ``import *`` bind what the facade holds: user code may write its ``__all__``.

    Raises:
        ImportViolation: it names what the interpreter reads behind the cell's back.

    """
    space = namespace_of_module(module)
    if type(module) is not ModuleType:  # another class answers as it likes
        raise _refusal("module-name-not-allowed", f"{space.get('__name__')}.*")
    if "__all__" not in space:
        return
    # A tuple: binding one name may run a finaliser of the cell's, which would add others.
    space["__all__"] = names = tuple(_exact(name) for name in space["__all__"])
    for name in names:
        if name not in space or name in RESERVED or name == "__import__":
            raise _refusal("module-name-not-allowed", f"{space.get('__name__')}.{name}")


def _refusal(rule: str, subject: str) -> ImportViolation:
    record = RULES[rule]
    return ImportViolation(rule, subject, record.why, record.remedy)


def guarded_import(importer: Importer) -> Callable[..., Any]:
    """Return the ``__import__`` of user code."""

    def __import__(  # noqa: A001, N807 - this is its name
        name: str,
        _globals: object = None,
        _locals: object = None,
        fromlist: Sequence[str] | None = None,
        level: int = 0,
    ) -> ModuleType:
        if type(fromlist) is list:
            return importer.import_for_c(_exact(name))
        return importer.import_(_exact(name), tuple(fromlist or ()), level)

    return __import__
