"""Queries about the namespace: completion, inspection, variables and their values.

``server`` calls ``complete``, ``inspect``, ``list_variables`` and ``get_variable``.

To complete code, IPython 9 runs whole statements before the cursor: it builds classes, subscripts
types and reads the real builtins. That code was not judged: ``C[exec].<Tab>`` would pass ``exec``
to a cell's ``__class_getitem__``, and ``df[print].<Tab>`` would run text in a kernel that runs only
approved cells. So if cells are judged before they run (``Rules.judges_cells``), ``evaluate`` only
looks up one expression of names, attributes, subscripts and literals. No part of the typed text is
passed to code of a cell: to no property, ``__getattr__``, ``__missing__``, magic or completer that
a cell registered. Methods of a cell's classes that get no such argument (``__dir__``, ``__repr__``)
are code that was judged, and may run.

Listing variables and reading their values runs no code of the user at all. Attributes are looked up
where CPython keeps them, and read only by descriptors written in C or by properties of an installed
library.

Order: completion, inspection, the look-up (``evaluate`` and below), variables.
"""

from __future__ import annotations

import ast
import builtins
import functools
import re
import sys
import sysconfig
import tokenize
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    ModuleType,
    SimpleNamespace,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any, Final

from IPython.core import completer, oinspect
from IPython.core.completer import provisionalcompleter, rectify_completions
from IPython.utils import generics
from IPython.utils.dir2 import dir2
from IPython.utils.tokenutil import token_at_cursor

from cellblock.analysis import analyse_expression, attribute_allowed
from cellblock.analysis.findings import word_set
from cellblock.analysis.magic_table import of_name
from cellblock.analysis.magics import code_candidates
from cellblock.analysis.names import is_free
from cellblock.guest.guards.access import HEAP, namespace_of_module
from cellblock.guest.output import encodable, plain
from cellblock.wire import arrays, messages

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cellblock.analysis import Rules
    from cellblock.guest.shell import GuestShell


_IMPORT = re.compile(r"^\s*(?:import|from)\s+(?:[\w.]+\s*,\s*)*([\w.]*)$")
_FROM = re.compile(r"^\s*from\s+([\w.]+)\s+import\s+(?:[\w.]+\s*,\s*)*(\w*)$")
_WORD = re.compile(r"[^\W\d]\w*")
_GAP = re.compile(r"[\s,;(\[{=]")
_MAX_MATCHES = 1_000
#: Most characters before the cursor that are looked at.
_STRETCH = 1_000


def complete(shell: GuestShell, rules: Rules, request: messages.Complete) -> messages.Completed:
    """Return the completions at the cursor. Imports nothing to find them."""
    rules = shell.rules_now(rules)
    code, cursor = request.code, min(request.cursor, len(request.code))
    line = code[:cursor].rpartition("\n")[2]
    if rules.language and (imported := _IMPORT.match(line)):
        return _offer({*rules.modules, *rules.raw_modules}, imported[1], "module", request)
    if rules.language and (member := _FROM.match(line)):
        return _offer(_members(member[1], rules), member[2], "instance", request)
    code_start = _start(code, cursor)
    try:
        source = _completer_of_names(shell, rules) if rules.judges_cells else shell.Completer
        with provisionalcompleter():
            raw = source.completions(code[code_start:cursor], cursor - code_start)
            items = list(rectify_completions(code[code_start:cursor], raw))[:_MAX_MATCHES]
    except Exception:
        items = []
    if rules.language:
        items = [c for c in items if _is_allowed(c.text, shell, rules)]
    # Without jedi IPython completes ".upper", dot included. Front ends would list it with the dot.
    dot = int(bool(items) and all(c.text.startswith(".") for c in items))
    start, end = (
        (items[0].start + dot, items[0].end)
        if items
        else (cursor - code_start, cursor - code_start)
    )
    start, end = start + code_start, end + code_start
    types = [{"text": c.text[dot:], "type": c.type, "signature": c.signature} for c in items]
    return messages.Completed(
        id=request.id,
        matches=[encodable(c.text[dot:]) for c in items],
        start=start,
        end=end,
        types=[plain({"start": start, "end": end, **described}) for described in types],
    )


def _start(code: str, cursor: int) -> int:
    """Return where to begin looking at the text before ``cursor``: at a line or a word.

    Bounded, because IPython's time grows with the square of the text's length.
    """
    earliest = cursor - _STRETCH
    if earliest <= 0:
        return 0
    line = code.find("\n", earliest - 1, cursor) + 1
    if line:
        return line
    gap = _GAP.search(code, earliest, cursor)
    return gap.end() if gap else earliest


def _is_allowed(text: str, shell: GuestShell, rules: Rules) -> bool:
    """Return whether the language layer would accept the completion ``text`` in a cell."""
    if text.startswith("%"):
        return text.lstrip("%") in rules.magics
    name = text.rpartition(".")[2]
    if not name.isidentifier():
        return True
    if "." in text:
        return attribute_allowed(name)
    is_cell_name = name in shell.user_ns or not hasattr(builtins, name)
    return is_cell_name or not analyse_expression(name, rules)


def _members(module: str, rules: Rules) -> Iterable[str]:
    """Return the names that cells may import from a module, as far as known without importing."""
    allowed = rules.modules.get(module)
    if allowed is not None:
        return allowed
    if module not in rules.modules and module.partition(".")[0] not in rules.raw_modules:
        return ()
    loaded = sys.modules.get(module)
    return [n for n in vars(loaded) if not n.startswith("_")] if loaded else ()


def _offer(
    names: Iterable[str], prefix: str, kind: str, request: messages.Complete
) -> messages.Completed:
    """Return the completions of ``prefix`` among ``names``."""
    matches = sorted(n for n in names if n.startswith(prefix))[:_MAX_MATCHES]
    start = request.cursor - len(prefix)
    end = request.cursor
    types = [
        {"start": start, "end": end, "text": n, "type": kind, "signature": ""} for n in matches
    ]
    return messages.Completed(id=request.id, matches=matches, start=start, end=end, types=types)


def inspect(shell: GuestShell, rules: Rules, request: messages.Inspect) -> messages.Inspected:
    """Return a description of the object at the cursor, an empty bundle if there is none."""
    rules = shell.rules_now(rules)
    left = _start(request.code, min(request.cursor, len(request.code)))
    right = request.cursor + _STRETCH
    name = token_at_cursor(request.code[left:right], request.cursor - left)
    bundle: dict[str, Any] = {}
    if not rules.language or all(map(is_free, _WORD.findall(name))):
        try:
            # IPython looks names up in dictionaries. If a key is an object of a cell's class, its
            # ``__eq__`` would get the name.
            magics = shell.magics_manager.lsmagic().values()
            has_other_keys = any(len(_names(d)) < len(d) for d in (shell.user_ns, *magics))
            if rules.judges_cells and (has_other_keys or not name.lstrip("%").isidentifier()):
                bundle = _describe(shell, name, rules, request.detail)
            else:
                bundle = shell.object_inspect_mime(name, detail_level=request.detail)
            bundle.pop("text/html", None)
        except Exception:
            bundle = {}
    return messages.Inspected(id=request.id, data=plain(bundle))


def _describe(shell: GuestShell, name: str, rules: Rules, detail: int) -> dict[str, Any]:
    """Return IPython's description of an object, which is only looked up.

    IPython itself would ask a cell's ``__getattr__`` or ``__getitem__`` for the object. If ``name``
    ends at a property, the property itself is described. Raises as ``evaluate`` does.
    """
    owner, _, last = name.rpartition(".")
    value: Any = None
    if owner and last.isidentifier():
        value = _class_item(type(evaluate(owner, shell.user_ns, rules)), last)
    if type(value) is not property:
        value = evaluate(name, shell.user_ns, rules)
    about = oinspect.OInfo(
        ismagic=False, isalias=False, found=True, namespace="Interactive", parent=None, obj=value
    )
    inspector: Any = shell.inspector
    described: dict[str, Any] = inspector._get_info(value, name, info=about, detail_level=detail)  # noqa: SLF001
    return described


class LookUpRefused(Exception):
    """The code is more than a look-up, or looking it up would run something."""


#: What completion looks at in place of a literal such as ``[…]`` or a comprehension. The value is
#: not known, but an empty object of its type has the same attributes.
_EMPTY: Final[dict[type[ast.expr], type]] = {
    ast.Dict: dict,
    ast.DictComp: dict,
    ast.JoinedStr: str,
    ast.List: list,
    ast.ListComp: list,
    ast.Set: set,
    ast.SetComp: set,
}


class _Completer(completer.IPCompleter):
    """IPython's completer, which has the names of variables, magics and aliases, but no objects.

    Objects come from ``evaluate``, and of what they say about themselves only literals are used.
    """

    def _extract_code(self, line: str) -> str:
        """Return the code in the line of a magic that times or profiles code.

        Found by the rules that judge such code. IPython would let the magic parse its argument, and
        a cell may have written the magic.
        """
        name, _, argument = line.lstrip().partition(" ")
        if argument and name.startswith("%") and of_name(name.lstrip("%")).code_line:
            *_, line = code_candidates(argument)
        return line

    @staticmethod
    def _get_keys(obj: Any) -> list[Any]:
        return _literals(completer.IPCompleter._get_keys(obj))  # noqa: SLF001 - its own base

    def _default_arguments(self, obj: Any) -> list[Any]:
        return _literals(super()._default_arguments(obj))


@functools.cache
def _completer() -> Any:
    return _Completer(namespace={}, global_namespace={}, use_jedi=False)


#: Traits of IPython's completer that cells may set (``%config``) and that matter here. Set in this
#: order, since the first also sets the second.
_SETTINGS: Final = ("greedy", "auto_close_dict_keys", "dict_keys_only", "omit__names")


def _completer_of_names(shell: GuestShell, rules: Rules) -> Any:
    """Return a completer that passes nothing that is typed to code of a cell.

    Also makes IPython's own functions use ``evaluate``, in the whole process; doing this again
    changes nothing. The shell's completer is not used: cells may have registered matchers and
    completers there, or turned on jedi, which evaluates code by itself.
    """
    # Imported here, as IPython does with the first completion: it would slow down every start.
    from IPython.core import guarded_eval  # noqa: PLC0415 - as said

    def evaluate_at_cursor(code: str, context: Any) -> Any:
        if not context.in_subscript:
            return evaluate(code, shell.user_ns, rules)
        # IPython asks for the keys before the cursor's in a subscript: ``table.loc[:, "na``.
        subscript = ast.parse(f"_[{code}]", mode="eval").body if code else None
        return _key(subscript.slice) if isinstance(subscript, ast.Subscript) else ()

    # Some versions of IPython have a name of their own for it in the completer's module.
    modules: tuple[Any, ...] = (guarded_eval, completer)
    for module in modules:
        if hasattr(module, "guarded_eval"):
            module.guarded_eval = evaluate_at_cursor
    # IPython 9.0 calls ``eval`` itself for the function whose arguments it completes.
    vars(completer)["eval"] = lambda code, *_: evaluate(code, shell.user_ns, rules)
    # Only literals: the typed text is compared with each name and key, by the ``__eq__`` of these.
    vars(completer)["dir2"] = lambda obj: _literals(dir2(obj))
    vars(completer)["generics"] = SimpleNamespace(
        complete_object=lambda obj, words: _literals(generics.complete_object(obj, words))
    )
    result = _completer()
    for setting in _SETTINGS:
        setattr(result, setting, getattr(shell.Completer, setting))
    result.namespace = result.global_namespace = dict.fromkeys(_names(shell.user_ns))
    result.shell = _shell_of_names(shell, result.namespace)
    # Under the language layer without raw packages, no function that cells have takes a path.
    takes_paths = not rules.language or rules.raw_modules
    result.disable_matchers = [] if takes_paths else ["IPCompleter.file_matcher"]
    return result


def _shell_of_names(shell: GuestShell, names: dict[str, Any]) -> SimpleNamespace:
    """Return a stand-in for the shell that has only the names of magics, aliases and variables.

    To complete ``%config``, it also has those configurable objects whose class is a library's.
    """
    manager: Any = shell.magics_manager
    aliases: Any = shell.alias_manager
    magics = {
        kind: dict.fromkeys(_names(magics_of_kind))
        for kind, magics_of_kind in manager.lsmagic().items()
    }
    return SimpleNamespace(
        magics_manager=SimpleNamespace(
            lsmagic=lambda: magics,
            load_all_lazy_magics=getattr(manager, "load_all_lazy_magics", None),
        ),
        alias_manager=SimpleNamespace(
            aliases=[(name, None) for name, _ in aliases.aliases if type(name) is str]
        ),
        user_ns=names,
        configurables=[
            configurable for configurable in shell.configurables if _is_librarys(type(configurable))
        ],
    )


def _names(space: dict[Any, Any]) -> list[str]:
    return [name for name in list(space) if type(name) is str]


def evaluate(code: str, names: dict[str, Any], rules: Rules) -> Any:
    """Look up the value of one expression, without running any code.

    Raises:
        SyntaxError: not Python; IPython then tries the text without its first characters.
        LookUpRefused: the code is more than a look-up, or a cell may not say it.
        NameError: there is no such name.

    """
    body = ast.parse(code).body
    if len(body) != 1 or not isinstance(body[0], ast.Expr) or analyse_expression(code, rules):
        raise LookUpRefused("not a look-up")
    return _value(body[0].value, names, rules)


def _builtins(names: dict[str, Any]) -> dict[str, Any]:
    value: Any = names["__builtins__"]
    return value if isinstance(value, dict) else vars(value)


def _value(node: ast.expr, names: dict[str, Any], rules: Rules) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name(id=name):
            for space in (names, _builtins(names)):
                if (value := _item_of(space, name)) is not _MISSING:
                    return value
            raise NameError(name)
        case ast.Attribute(value=inner, attr=name):
            if rules.language and not is_free(name):
                raise LookUpRefused("the object decides who reads it")
            return _stored(_value(inner, names, rules), name)
        case ast.Subscript(value=inner, slice=index):
            return _element(_value(inner, names, rules), _key(index))
        case _ if type(node) in _EMPTY:
            return _EMPTY[type(node)]()
    raise LookUpRefused("not a look-up")


# --- look-ups that pass nothing that is typed to code of a cell -----------------------------------

_MISSING: Final = object()


def _is_literal(value: Any) -> bool:
    """Return whether comparing ``value`` runs no code of a cell.

    It does not if the value and all its parts are of builtin types. A subclass of ``str`` may have
    an ``__eq__`` of its own, which would get the typed text.
    """
    if type(value) is tuple:
        return all(map(_is_literal, value))
    return type(value) in _LITERALS


def _literals(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if _is_literal(value)]


def _item_of(space: Any, key: Any) -> Any:
    """Return a dictionary's value for ``key``, or ``_MISSING``.

    Compares the keys of builtin types, one by one. An ordinary look-up by hash could call the
    ``__eq__`` of a key whose class is a cell's.
    """
    kind = type(key)
    for stored_key, value in list(
        space.items() if type(space) is MappingProxyType else dict.items(space)
    ):
        if type(stored_key) is kind and _is_literal(stored_key) and stored_key == key:
            return value
    return _MISSING


def _element(owner: Any, key: Any) -> Any:
    """Return ``owner[key]`` of a builtin container, an array or a table's column.

    Other objects could pass the key to code of a cell: ``UserDict`` to its ``__missing__``, a proxy
    to its object, ``Series`` to the ``__eq__`` of its labels.

    Raises:
        LookUpRefused: ``owner`` is another object, or a dictionary without the key.

    """
    kind = type(owner)
    if _is_table(kind, "DataFrame") and type(key) is str:
        return _column(owner, key)
    if _is_array(kind) and _is_position(key):
        return owner[key]
    getter = _attribute(kind, "__getitem__")
    if getter is dict.__getitem__:
        element = _item_of(owner, key)
    elif any(getter is sequence.__getitem__ for sequence in _SEQUENCES) and _is_position(key):
        element = getter(owner, key)
    else:
        element = _MISSING
    if element is _MISSING:
        raise LookUpRefused("it would run __getitem__")
    return element


def _is_position(key: Any) -> bool:
    if type(key) is tuple:
        return all(map(_is_position, key))
    return type(key) in {int, slice}


def _stored(owner: Any, name: str) -> Any:
    """Return the attribute ``owner.name`` from where it is stored: the object or its class.

    Calls no ``__getattr__``, and no descriptor that may run code of a cell. So it calls no
    property, and no accessor that a cell registered with a library.

    Raises:
        LookUpRefused: the attribute is not stored there.

    """
    kind = type(owner)
    if issubclass(kind, ModuleType):  # a module's own __getattr__ (PEP 562) could import
        value = _item_of(namespace_of_module(owner), name)
        if value is _MISSING:
            raise LookUpRefused("the module does not have it")
        return value
    of_class = _class_item(kind, name)
    stored = _MISSING
    if of_class is _MISSING or _attribute(type(of_class), "__set__") is None:
        stored = _class_item(owner, name) if issubclass(kind, type) else _own_item(owner, name)
    if stored is not _MISSING:
        return _bound(stored, None, owner) if issubclass(kind, type) else stored
    if of_class is not _MISSING:
        return _bound(of_class, owner, kind)
    if _is_table(kind, "DataFrame"):
        return _column(owner, name)
    raise LookUpRefused("it would run __getattr__")


def _class_item(kind: type, name: str) -> Any:
    """Return what a class or one of its bases stores by a name, or ``_MISSING``."""
    for base in _MRO.__get__(kind):
        value = _item_of(_DICT.__get__(base), name)
        if value is not _MISSING:
            return value
    return _MISSING


def _own_item(owner: Any, name: str) -> Any:
    """Return what an object's own dictionary has for ``name``, or ``_MISSING``."""
    slot = _attribute(type(owner), "__dict__")
    if not isinstance(slot, _IN_C):  # there is no dictionary, or a cell has defined ``__dict__``
        return _MISSING
    space = slot.__get__(owner)
    return _item_of(space, name) if isinstance(space, dict) else _MISSING


def _bound(attribute: Any, owner: Any, kind: type) -> Any:
    """Return a class's attribute bound to the instance ``owner``, or to the class if that is None.

    Raises LookUpRefused if binding it would run code of a cell.
    """
    binds = _attribute(type(attribute), "__get__")
    if binds is None:
        return attribute
    in_c = type(binds) is WrapperDescriptorType and binds.__objclass__ is type(attribute)
    plain = type(attribute) in _BINDING or (in_c and _NAME.__get__(type(attribute)) in _CYTHON)
    # Before Python 3.13 a class method calls the ``__get__`` of what it wraps.
    plain = plain or (type(attribute) is classmethod and type(attribute.__func__) is FunctionType)
    if not (plain or (_is_table(kind, "DataFrame", "Series") and _is_of_table(attribute))):
        raise LookUpRefused("it would run a property")
    try:
        return binds(attribute, owner, kind)
    except AttributeError:  # a slot that is not set
        raise LookUpRefused("it has no value") from None


def _is_of_table(descriptor: Any) -> bool:
    """Return whether a descriptor is pandas' own: a property, an axis, or like ``.str``."""
    kind = type(descriptor)
    if kind is property:
        return _is_installed(descriptor.fget)
    if any(kind is _named("pandas.core.accessor", name) for name in _ACCESSORS):
        accessor = _own_item(descriptor, "_accessor")  # cells may register other accessors
        return any(accessor is _named(module, name) for module, name in _OWN_ACCESSORS)
    return kind is _named("pandas._libs.properties", "AxisProperty")


def _is_table(kind: type, *names: str) -> bool:
    """Return whether ``kind`` is pandas' own class of that name, and not a cell's subclass."""
    return any(kind is _named("pandas", name) for name in names)


def _is_array(kind: type) -> bool:
    # Numpy's is a static type. A class statement always makes a heap type.
    return kind is _named("numpy", "ndarray") and not kind.__flags__ & HEAP


def _named(module: str, name: str) -> Any:
    """Return a module's attribute, or None if the module is not loaded."""
    loaded = sys.modules.get(module)
    return namespace_of_module(loaded).get(name) if type(loaded) is ModuleType else None


def _column(table: Any, name: str) -> Any:
    """Return a column of a table, read by position: labels of a cell's class may be compared."""
    for position, label in enumerate(table.columns):
        if type(label) is str and label == name:
            return table.iloc[:, position]
    raise LookUpRefused("no such column")


def _is_installed(function: Any) -> bool:
    """Return whether a function is one of an installed library."""
    return type(function) is FunctionType and function.__code__.co_filename.startswith(_INSTALLED)


def _key(node: ast.expr) -> Any:
    """Return a subscript's key, which must be made of literals and ``:``. Raises LookUpRefused."""
    match node:
        case ast.Tuple(elts=parts):
            return tuple(map(_key, parts))
        case ast.Slice(lower=None, upper=None, step=None):
            return slice(None)
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise LookUpRefused("a key that is not a literal") from None


#: Most variables that are listed, and most characters of a name, a type and a shape.
_MOST: Final = 1_000
_LONGEST: Final = 200
_LIBRARIES: Final = tuple(
    f"{folder}/" for folder in {sysconfig.get_path(name) for name in ("purelib", "platlib")}
)
_INSTALLED: Final = (*_LIBRARIES, f"{sysconfig.get_path('stdlib')}/")
_NAME, _MRO, _DICT, _FLAGS = (
    type.__dict__[name] for name in ("__name__", "__mro__", "__dict__", "__flags__")
)
_IN_C: Final = (GetSetDescriptorType, MemberDescriptorType)
#: Types of the ``__sizeof__`` of builtin types, none of which runs code of an element.
_SIZED: Final = (MethodDescriptorType, WrapperDescriptorType)
#: Types of descriptors that bind a function, or read what the interpreter stores.
_BINDING: Final = frozenset(
    {
        *_IN_C,
        *_SIZED,
        BuiltinFunctionType,
        ClassMethodDescriptorType,
        FunctionType,
        staticmethod,
        type(functools.lru_cache(str)),
        type(tokenize.TokenInfo.type),  # a named tuple's field
    }
)
#: Names of Cython's types for functions. Each module has a type of its own.
_CYTHON: Final = word_set("cython_function_or_method fused_cython_function")
#: Names of pandas' class of accessors, which 3.0 changed; then pandas' own accessors.
_ACCESSORS: Final = ("Accessor", "CachedAccessor")
_OWN_ACCESSORS: Final = (
    ("pandas.core.arrays.categorical", "CategoricalAccessor"),
    ("pandas.core.indexes.accessors", "CombinedDatetimelikeProperties"),
    ("pandas.core.strings.accessor", "StringMethods"),
)
_LITERALS: Final = frozenset({bool, bytes, complex, float, int, str, type(None), type(...)})
#: Types whose elements are read by position, in C.
_SEQUENCES: Final = (bytearray, bytes, list, range, str, tuple)
#: Types whose objects refer to no others, so that their size is all that they take.
_WHOLE: Final = frozenset({bool, bytearray, bytes, complex, float, int, str})
_CONTAINERS: Final = frozenset({str, bytes, bytearray, list, tuple, dict, set, frozenset, range})


def list_variables(shell: GuestShell, number: int) -> messages.Variables:
    """Return the user's variables, sorted by name, in answer to request ``number``."""
    hidden: dict[str, Any] = shell.user_ns_hidden
    variables = {
        name: value
        for name, value in list(shell.user_ns.items())
        if type(name) is str
        and not name.startswith("_")
        and not (name in hidden and hidden[name] is value)
    }
    names = sorted(variables)
    listed = tuple(_variable(name, variables[name]) for name in names[:_MOST])
    return messages.Variables(id=number, variables=listed, more=len(names) - len(listed))


def get_variable(shell: GuestShell, request: messages.GetVariable) -> messages.VariableValue:
    """Return the value of a variable: data, an array or a table, none of a subclass."""
    try:
        value = arrays.encode(shell.user_ns[request.name])
    except KeyError:
        why = "there is no such variable"
    except Exception as exc:  # a library may raise anything
        why = f"{_NAME.__get__(type(exc))}: {exc}"
    else:
        return messages.VariableValue(id=request.id, value=value)
    return messages.VariableValue(id=request.id, why=encodable(why[:_LONGEST]))


def _variable(name: str, value: Any) -> messages.Variable:
    kind = type(value)
    return messages.Variable(
        name=encodable(name[:_LONGEST]),
        type=encodable(_NAME.__get__(kind)[:_LONGEST]),
        shape=_shape(kind, value),
        size=_size(kind, value),
    )


def _shape(kind: type, value: Any) -> str:
    """Return the length of a container, the shape of an array or table, else ""."""
    if kind in _CONTAINERS:
        return str(len(value))
    shape = _read(kind, value, "shape")
    if isinstance(shape, tuple) and all(type(length) is int for length in shape):
        return " by ".join(map(str, shape))[:_LONGEST]
    return ""


def _size(kind: type, value: Any) -> int:
    """Return the bytes of an array, table, text or number; 0 for other objects.

    For those Python knows the size of the object alone, without what it refers to: 56 bytes for a
    figure.
    """
    if kind in _WHOLE:
        return sys.getsizeof(value)
    size = _table_bytes(value) if _is_table(kind, "DataFrame") else _read(kind, value, "nbytes")
    return size if type(size) is int and 0 <= size < 2**53 else 0


def _table_bytes(value: Any) -> int:
    """Return the bytes of a DataFrame's columns; 0 if a cell made the class of one."""
    try:
        manager = vars(value)["_mgr"]
        arrays = manager.arrays if _is_librarys(type(manager)) else ()
        is_known = all(_is_librarys(type(array)) for array in arrays)
        return sum(int(array.nbytes) for array in arrays) if is_known else 0
    except Exception:  # a library may raise anything about an object that is not complete
        return 0


def _attribute(kind: type, name: str) -> Any:
    """Return what a class or one of its bases stores by a name, or None."""
    for base in _MRO.__get__(kind):
        namespace = _DICT.__get__(base)
        if name in namespace:
            return namespace[name]
    return None


def _read(kind: type, value: Any, name: str) -> Any:
    """Return an attribute if reading it runs no code of the user, else None."""
    descriptor = _attribute(kind, name)
    if isinstance(descriptor, _IN_C):
        return descriptor.__get__(value, kind)
    getter = descriptor.fget if type(descriptor) is property else None
    if not (type(getter) is FunctionType and getter.__code__.co_filename.startswith(_LIBRARIES)):
        return None
    # A library's property reads other attributes, which a subclass may redefine; a table's asks its
    # axes.
    try:
        if _is_librarys(kind) and all(_is_librarys(type(item)) for item in _parts(kind, value)):
            return getter(value)
    except Exception:  # a library may raise anything about an object that is not complete
        return None
    return None


def _is_librarys(kind: type) -> bool:
    """Return whether a class is a library's, and not made by a cell.

    A static type is a library's, because a class statement always makes a heap type. A heap type
    is a library's if its module is an installed library that has this very class by its name.
    """
    if not _FLAGS.__get__(kind) & HEAP:
        return True
    module = _DICT.__get__(kind).get("__module__")
    if type(module) is not str:
        return False
    file = _named(module, "__file__")
    of_library = type(file) is str and file.startswith(_LIBRARIES)
    return of_library and _named(module, _NAME.__get__(kind)) is kind


def _parts(kind: type, value: Any) -> list[Any]:
    """Return the objects that pandas' tables and columns ask for their shape and size."""
    if not _is_table(kind, "DataFrame", "Series"):
        return []
    data = [value._values] if _is_table(kind, "Series") else []  # noqa: SLF001 - nbytes asks it
    return [*value.axes, *data]
