"""Who may touch interpreter internals: a few named functions of the library, and nobody else.

The asker is the innermost Python frame. User frames carry the guarded builtins, so they are told
apart by what they can't forge. Library frames are not trusted as such: many call what they are
given (``ExitStack.callback``, ``run_in_executor``, a generic alias), so a function is trusted
only if it reads the attribute itself. Files are compared, not module names, since text that
the library executes runs under borrowed names.
"""

from __future__ import annotations

import builtins
import importlib.util
import sys
from functools import lru_cache
from opcode import opname
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Says = Callable[[int, tuple[str, ...]], bool]

#: Files whose functions examine objects for the interpreter's own sake: tracebacks and help.
#: The last two are called with users' objects.
_FILES = (
    "IPython.core.debugger",
    "IPython.core.oinspect",
    "IPython.core.tbtools",
    "IPython.core.ultratb",
    "cellblock.guest.tracebacks",
    "inspect",
    "traceback",
)
_PACKAGES = ("asttokens", "executing", "pure_eval", "stack_data")
#: Single functions: module, qualified name.
_FUNCTIONS = (
    ("abc", "ABCMeta.__instancecheck__"),
    ("abc", "ABCMeta.__subclasscheck__"),
    ("abc", "update_abstractmethods"),
    ("asyncio.coroutines", "_format_coroutine"),
    ("asyncio.coroutines", "_format_coroutine.<locals>.get_name"),
    ("asyncio.format_helpers", "_get_function_source"),
    ("dataclasses", "_add_slots"),
    ("dataclasses", "_get_slots"),
    ("dataclasses", "_process_class"),
    ("dataclasses", "_update_func_cell_for__class__"),
    ("types", "coroutine"),
    ("typing", "ForwardRef.__init__"),
    ("typing", "ForwardRef._evaluate"),
    ("typing", "get_type_hints"),
    ("typing", "overload"),
    ("warnings", "_warn_unawaited_coroutine"),
)

#: These files act for user code, so their own frames are nobody's friends.
_OWN = __file__.rpartition("/")[0] + "/"

#: Fetched before the guards close: from then on this package is told no more than user code.
REAL_BUILTINS = vars(builtins)
namespace_of_module: Callable[[ModuleType], dict[str, Any]]
namespace_of_module = ModuleType.__dict__["__dict__"].__get__  # type: ignore[index]

_getframe = sys._getframe  # noqa: SLF001 - the question is about frames
_code_of = FrameType.__dict__["f_code"].__get__
_builtins_of = FrameType.__dict__["f_builtins"].__get__
_lasti_of = FrameType.__dict__["f_lasti"].__get__
_locals_of = FrameType.__dict__["f_locals"].__get__
_bytes_of = CodeType.__dict__["co_code"].__get__
_ATTRIBUTE = frozenset({"LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR"})
_CALLS = ("CALL", "PRECALL", "CACHE")


def _reads_itself(frame: FrameType, name: str, obj: object, *, chained: bool) -> bool:
    """Whether the frame's own instruction reads ``name`` of one of its own variables.

    Not what it runs for user code: an iterator that it drains, a ``__str__`` that it calls, a
    property that it meets. ``chained``: it may read ``a.b.name`` too.
    """
    code, variables = _code_of(frame), _locals_of(frame)
    if name == "__subclasses__" and code.co_qualname == "ABCMeta.__subclasscheck__":
        return variables.get("cls") is obj  # C code asks on its behalf
    instruction = opname[_bytes_of(code)[_lasti_of(frame)]]
    if instruction in _ATTRIBUTE:
        if chained:
            return name in code.co_names
        said = name in code.co_names
    else:
        said = instruction.startswith(_CALLS) and name in code.co_consts
    return said and any(value is obj for value in variables.values())


def _origin(module: str) -> str:
    loaded = sys.modules.get(module)
    code = getattr(loaded, "__file__", None)
    if code is None:
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, ValueError):
            return ""
        code = spec.origin if spec else None
    return code or ""


def _file_names(module: str) -> tuple[str, ...]:
    """Return what ``co_filename`` says for ``module``, frozen or from its file."""
    return tuple(name for name in (f"<frozen {module}>", _origin(module)) if name)


def _package_prefixes() -> tuple[str, ...]:
    origins = (_origin(name) for name in _PACKAGES)
    return tuple(str(Path(origin).parent) + "/" for origin in origins if origin)


def from_files(*modules: str) -> Callable[[int], bool]:
    """Return a judge that admits functions of these modules, by the files they are from."""
    real = REAL_BUILTINS
    getframe, code_of, builtins_of = _getframe, _code_of, _builtins_of
    files = frozenset(name for module in modules for name in _file_names(module))

    def is_from(depth: int) -> bool:
        try:
            frame = getframe(depth + 1)
        except ValueError:
            return False
        return builtins_of(frame) is real and code_of(frame).co_filename in files

    return is_from


def module_body() -> Callable[[int], bool]:
    """Return a judge that admits the body of a library module, which runs when it is imported."""
    real = REAL_BUILTINS
    getframe, code_of, builtins_of = _getframe, _code_of, _builtins_of

    def is_body(depth: int) -> bool:
        try:
            frame = getframe(depth + 1)
        except ValueError:
            return False
        return builtins_of(frame) is real and code_of(frame).co_name == "<module>"

    return is_body


@lru_cache(maxsize=1)
def judges() -> tuple[Callable[[int], bool], Callable[[int], bool]]:
    """Return (is_trusted, is_library), both asked with the depth of the frame to judge.

    ``is_library``: not a user's frame. Everything they use is held in closures, out of reach.
    """
    real = REAL_BUILTINS
    getframe, code_of, builtins_of = _getframe, _code_of, _builtins_of
    files = frozenset(name for module in _FILES for name in _file_names(module))
    functions = frozenset((f, q) for m, q in _FUNCTIONS for f in _file_names(m))
    prefixes = _package_prefixes()
    own, reads = _OWN, _reads_itself
    chaining = frozenset(name for module in _FILES[:-2] for name in _file_names(module))

    def is_library(depth: int, _name: str = "", _obj: object = None) -> bool:
        try:
            frame = getframe(depth + 1)
        except ValueError:  # called by no Python code at all
            return False
        return builtins_of(frame) is real and not code_of(frame).co_filename.startswith(own)

    def is_trusted(depth: int, name: str = "", obj: object = None) -> bool:
        try:
            frame = getframe(depth + 1)
        except ValueError:
            return False
        if builtins_of(frame) is not real:
            return False
        code = code_of(frame)
        file = code.co_filename
        chained = file in chaining or file.startswith(prefixes)
        if not (chained or file in files or (file, code.co_qualname) in functions):
            return False
        return not name or reads(frame, name, obj, chained=chained)

    return is_trusted, is_library


@lru_cache(maxsize=1)
def operators() -> tuple[Callable[[int], bool], Callable[[int], bool], Says]:
    """Return judges of whoever operates on the machine.

    ``is_own``: the kernel's own guest code. ``is_real``: anybody but user code. ``says``: whose
    text has one of these names, so that it is not running what it was handed.
    """
    real = REAL_BUILTINS
    getframe, code_of, builtins_of = _getframe, _code_of, _builtins_of
    package = _OWN.removesuffix("guest/guards/")
    acting, freezing = _OWN, _OWN + "immutable.py"

    def is_own(depth: int) -> bool:
        try:
            frame = getframe(depth + 1)
        except ValueError:
            return False
        name = code_of(frame).co_filename
        own = name.startswith(package) and (not name.startswith(acting) or name == freezing)
        return own and builtins_of(frame) is real

    def is_real(depth: int) -> bool:
        try:
            return builtins_of(getframe(depth + 1)) is real
        except ValueError:  # called by no Python code at all
            return False

    def says(depth: int, names: tuple[str, ...]) -> bool:
        return not frozenset(names).isdisjoint(code_of(getframe(depth + 1)).co_names)

    return is_own, is_real, says
