"""What a template's file may call, decorate with, derive from and bind while it is loaded.

Data, by where a name was imported from: ``definitions`` judges by it. A row belongs here if it
calls nothing of what it is given, and no method of a class that is being made.
"""

from __future__ import annotations

from typing import Final


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: What may be called, and why.
MAKERS: Final = frozenset(
    (
        "builtins.frozenset",  # a constant
        "collections.namedtuple",  # a class
        "dataclasses.dataclass",  # a class
        "dataclasses.field",  # part of a class
        "decimal.Decimal",  # a constant
        "enum.auto",  # part of an enumeration
        "fractions.Fraction",  # a constant
        "functools.lru_cache",  # a function that remembers
        "re.compile",  # a constant
    )
)
#: Of these, what makes a class, and so what a class can be made from.
CLASS_MAKERS: Final = frozenset(("collections.namedtuple",))
#: What may decorate: none of it calls what it is given.
DECORATORS: Final = frozenset(
    (
        "abc.abstractmethod",
        "builtins.classmethod",
        "builtins.property",
        "builtins.staticmethod",
        "contextlib.asynccontextmanager",
        "contextlib.contextmanager",
        "dataclasses.dataclass",
        "enum.unique",
        "functools.cache",
        "functools.cached_property",
        "functools.lru_cache",
        "functools.singledispatch",
        "functools.total_ordering",
        "typing.final",
        "typing.overload",
        "typing.override",
        "typing.runtime_checkable",
    )
)
#: Of these one at most: a class method of a property is called where the class is asked for it.
DESCRIPTORS: Final = frozenset(
    (
        "builtins.classmethod",
        "builtins.property",
        "builtins.staticmethod",
        "functools.cached_property",
    )
)
ENUMS: Final = frozenset(("enum.Enum", "enum.Flag", "enum.IntEnum", "enum.IntFlag", "enum.StrEnum"))
#: What a class may be made from: none of it calls a method of the new class.
BASES: Final = ENUMS.union(
    (
        "abc.ABC",
        "collections.Counter",
        "collections.OrderedDict",
        "collections.UserDict",
        "collections.UserList",
        "collections.UserString",
        "collections.defaultdict",
        "collections.deque",
        "collections.namedtuple",
        "contextlib.AbstractAsyncContextManager",
        "contextlib.AbstractContextManager",
        "contextlib.ContextDecorator",
        "typing.Generic",
        "typing.NamedTuple",
        "typing.Protocol",
        "typing.TypedDict",
    ),
    (
        f"builtins.{name}"
        for name in _names("""
        ArithmeticError AssertionError AttributeError BaseException Exception ExceptionGroup
        ImportError IndexError KeyError LookupError NameError NotImplementedError OSError
        OverflowError PermissionError RuntimeError StopAsyncIteration StopIteration TimeoutError
        TypeError UserWarning ValueError Warning ZeroDivisionError
        bytearray bytes complex dict float frozenset int list object set str tuple
        """)
    ),
    (
        f"collections.abc.{name}"
        for name in _names("""
        AsyncGenerator AsyncIterable AsyncIterator Awaitable Callable Collection Container
        Coroutine Generator Hashable ItemsView Iterable Iterator KeysView Mapping MappingView
        MutableMapping MutableSequence MutableSet Reversible Sequence Set Sized ValuesView
        """)
    ),
)
#: Special names that a class may bind: methods of its instances, and what describes it.
SPECIAL: Final = frozenset(
    [
        "__abs__",
        "__add__",
        "__aenter__",
        "__aexit__",
        "__aiter__",
        "__and__",
        "__anext__",
        "__await__",
        "__bool__",
        "__bytes__",
        "__call__",
        "__ceil__",
        "__complex__",
        "__contains__",
        "__copy__",
        "__deepcopy__",
        "__delattr__",
        "__delete__",
        "__delitem__",
        "__dir__",
        "__divmod__",
        "__doc__",
        "__enter__",
        "__eq__",
        "__exit__",
        "__float__",
        "__floor__",
        "__floordiv__",
        "__format__",
        "__ge__",
        "__get__",
        "__getattr__",
        "__getattribute__",
        "__getitem__",
        "__gt__",
        "__hash__",
        "__iadd__",
        "__iand__",
        "__ifloordiv__",
        "__ilshift__",
        "__imatmul__",
        "__imod__",
        "__imul__",
        "__index__",
        "__init__",
        "__int__",
        "__invert__",
        "__ior__",
        "__ipow__",
        "__irshift__",
        "__isub__",
        "__iter__",
        "__itruediv__",
        "__ixor__",
        "__le__",
        "__len__",
        "__length_hint__",
        "__lshift__",
        "__lt__",
        "__match_args__",
        "__matmul__",
        "__missing__",
        "__mod__",
        "__mul__",
        "__ne__",
        "__neg__",
        "__new__",
        "__next__",
        "__or__",
        "__pos__",
        "__post_init__",
        "__pow__",
        "__radd__",
        "__rand__",
        "__rdivmod__",
        "__reduce__",
        "__reduce_ex__",
        "__repr__",
        "__reversed__",
        "__rfloordiv__",
        "__rlshift__",
        "__rmatmul__",
        "__rmod__",
        "__rmul__",
        "__ror__",
        "__round__",
        "__rpow__",
        "__rrshift__",
        "__rshift__",
        "__rsub__",
        "__rtruediv__",
        "__rxor__",
        "__set__",
        "__setattr__",
        "__setitem__",
        "__sizeof__",
        "__slots__",
        "__str__",
        "__sub__",
        "__truediv__",
        "__trunc__",
        "__xor__",
    ]
)
