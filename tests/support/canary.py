"""``canary``: tells whether an object is one that user code must never get hold of.

``run_guarded.py`` gives programs this function, so that an attack can show its success.
"""

import builtins
import importlib
import io
import operator
import os
import socket
import subprocess
import sys
import types
from types import ModuleType


def canary(thing):
    """Print ESCAPED if user code must not have ``thing``; return whether that is so."""
    kind = type(thing)
    bad = (
        (issubclass(kind, ModuleType) and REAL(thing).get("__spec__") is not None)
        or thing in FORBIDDEN
        or kind in FORBIDDEN_KINDS
        or (
            kind in FUNCTIONS
            and thing.__module__ in FORBIDDEN_MODULES
            and thing.__name__ not in PURE
        )
        or (kind is dict and thing.get("__builtins__") in (builtins, REAL(builtins)))
    )
    if bad:
        print("ESCAPED", kind.__name__, getattr(thing, "__name__", "")[:60])
    return bad


class Identity(list):
    def __contains__(self, thing):
        return any(thing is one for one in self)


REAL = ModuleType.__dict__["__dict__"].__get__
FORBIDDEN = Identity(
    [
        builtins.open,
        builtins.eval,
        builtins.exec,
        builtins.compile,
        builtins.__import__,
        builtins.globals,
        os.environ,
        os.environ._data,
        sys.modules,
        io.FileIO,
        io.open_code,
        socket.socket,
        subprocess.Popen,
        operator.attrgetter,
        operator.methodcaller,
        REAL(builtins),
        types.CodeType,
        sys._getframe,
        importlib.import_module,
    ]
)
FUNCTIONS = {types.FunctionType, types.BuiltinFunctionType}
PURE = {
    "_path_normpath", "_path_splitroot_ex", "commonprefix", "fspath", "getrecursionlimit",
    "getsizeof", "intern",
}  # fmt: skip
FORBIDDEN_MODULES = {
    "posix", "os", "subprocess", "_posixsubprocess", "socket", "_socket", "shutil", "gc",
    "_ctypes", "ctypes", "marshal", "_imp", "signal", "importlib", "importlib._bootstrap",
    "importlib._bootstrap_external", "glob", "linecache", "tokenize", "inspect", "genericpath",
    "sys", "faulthandler", "mmap", "fcntl", "resource", "select", "selectors", "pickle", "runpy",
    "code",
}  # fmt: skip
FORBIDDEN_KINDS = {types.FrameType, types.CodeType, io.FileIO, socket.socket, subprocess.Popen}
