"""What a front end asks of the namespace: completion, inspection, variables and their values.

IPython 9 completes by running whole statements of the code before the cursor: it builds classes,
subscripts types and reads the real builtins. Nobody has judged that code. ``C[exec].<Tab>`` handed
``exec`` to a cell's ``__class_getitem__``, and ``df[print].<Tab>`` ran text in a kernel that runs
approved cells alone. So wherever cells are judged before they run (``Rules.judges_cells``), one
expression of names, attributes, subscripts and literals is looked up instead (``evaluate``), and
neither the text nor a part of it reaches code of a cell's: no property, ``__getattr__``,
``__missing__``, magic or completer that a cell registered. What a cell's classes say of themselves,
asked for without an argument (``__dir__``, ``__repr__``), is code that was judged, and may run.

Variables and their values are told with no code of the user's run. Attributes of a class are looked
up where CPython keeps them, and read only by descriptors that are written in C, or by properties of
an installed library.
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
#: Characters before the cursor that are looked at.
_STRETCH = 1_000


def complete(shell: GuestShell, rules: Rules, request: messages.Complete) -> messages.Completed:
    """Return completions; nothing is imported to find them."""
    rules = shell.rules_now(rules)
    code, cursor = request.code, min(request.cursor, len(request.code))
    line = code[:cursor].rpartition("\n")[2]
    if rules.language and (imported := _IMPORT.match(line)):
        return _offer({*rules.modules, *rules.raw_modules}, imported[1], "module", request)
    if rules.language and (member := _FROM.match(line)):
        return _offer(_members(member[1], rules), member[2], "instance", request)
    left = _start(code, cursor)
    try:
        asked = _completer_of_names(shell, rules) if rules.judges_cells else shell.Completer
        with provisionalcompleter():
            raw = asked.completions(code[left:cursor], cursor - left)
            found = list(rectify_completions(code[left:cursor], raw))[:_MAX_MATCHES]
    except Exception:
        found = []
    if rules.language:
        found = [c for c in found if _is_allowed(c.text, shell, rules)]
    # Without jedi IPython completes ".upper" over the dot; front ends list what they are given.
    dot = int(bool(found) and all(c.text.startswith(".") for c in found))
    start, end = (found[0].start + dot, found[0].end) if found else (cursor - left, cursor - left)
    start, end = start + left, end + left
    types = [{"text": c.text[dot:], "type": c.type, "signature": c.signature} for c in found]
    return messages.Completed(
        id=request.id,
        matches=[encodable(c.text[dot:]) for c in found],
        start=start,
        end=end,
        types=[plain({"start": start, "end": end, **described}) for described in types],
    )


def _start(code: str, cursor: int) -> int:
    """Return where the text before ``cursor`` begins that is looked at: at a line, or a word.

    IPython's time for it grows with the square of its length.
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
    """Whether the language layer would let ``text`` stand in a cell."""
    if text.startswith("%"):
        return text.lstrip("%") in rules.magics
    name = text.rpartition(".")[2]
    if not name.isidentifier():
        return True
    if "." in text:
        return attribute_allowed(name)
    own = name in shell.user_ns or not hasattr(builtins, name)
    return own or not analyse_expression(name, rules)


def _members(module: str, rules: Rules) -> Iterable[str]:
    """Return what may be imported from ``module``, as far as that is known without importing."""
    named = rules.modules.get(module)
    if named is not None:
        return named
    if module not in rules.modules and module.partition(".")[0] not in rules.raw_modules:
        return ()
    loaded = sys.modules.get(module)
    return [n for n in vars(loaded) if not n.startswith("_")] if loaded else ()


def _offer(
    names: Iterable[str], prefix: str, kind: str, request: messages.Complete
) -> messages.Completed:
    matches = sorted(n for n in names if n.startswith(prefix))[:_MAX_MATCHES]
    start, end = request.cursor - len(prefix), request.cursor
    types = [
        {"start": start, "end": end, "text": n, "type": kind, "signature": ""} for n in matches
    ]
    return messages.Completed(id=request.id, matches=matches, start=start, end=end, types=types)


def inspect(shell: GuestShell, rules: Rules, request: messages.Inspect) -> messages.Inspected:
    """Return what is known of the object at the cursor, an empty bundle for nothing."""
    rules = shell.rules_now(rules)
    left = _start(request.code, min(request.cursor, len(request.code)))
    right = request.cursor + _STRETCH
    name = token_at_cursor(request.code[left:right], request.cursor - left)
    bundle: dict[str, Any] = {}
    if not rules.language or all(map(is_free, _WORD.findall(name))):
        try:
            # IPython looks a name up by its hash: a key of a cell's class would be asked about it.
            magics = shell.magics_manager.lsmagic().values()
            is_asked = any(len(_names(named)) < len(named) for named in (shell.user_ns, *magics))
            if rules.judges_cells and (is_asked or not name.lstrip("%").isidentifier()):
                bundle = _describe(shell, name, rules, request.detail)
            else:
                bundle = shell.object_inspect_mime(name, detail_level=request.detail)
            bundle.pop("text/html", None)
        except Exception:
            bundle = {}
    return messages.Inspected(id=request.id, data=plain(bundle))


def _describe(shell: GuestShell, name: str, rules: Rules, detail: int) -> dict[str, Any]:
    """Return what IPython says of an object behind a dot or a subscript, which is only looked up.

    IPython itself would ask a cell's ``__getattr__`` or ``__getitem__`` for it. Of a property it
    describes the property. Raises as ``evaluate`` does.
    """
    owner, _, last = name.rpartition(".")
    found: Any = None
    if owner and last.isidentifier():
        found = _class_item(type(evaluate(owner, shell.user_ns, rules)), last)
    if type(found) is not property:
        found = evaluate(name, shell.user_ns, rules)
    about = oinspect.OInfo(
        ismagic=False, isalias=False, found=True, namespace="Interactive", parent=None, obj=found
    )
    inspector: Any = shell.inspector
    described: dict[str, Any] = inspector._get_info(found, name, info=about, detail_level=detail)  # noqa: SLF001
    return described


class LookUpRefused(Exception):
    """Code is more than a look-up, or a look-up that would run something."""


#: Displays complete as an empty one of their kind does.
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
    """IPython's completer, which holds names instead of objects.

    Whatever its methods do with a variable, a magic or an alias, they have only its name. What is
    behind a name comes from ``evaluate``, and what that object says of itself is kept to literals.
    """

    def _extract_code(self, line: str) -> str:
        """Return the code in a line that times or profiles it, by the rules that judge such code.

        IPython has the magic parse its argument, which a cell may have written.
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


#: What cells may set of IPython's completer (``%config``), and has an effect here. The first sets
#: the second.
_SETTINGS: Final = ("greedy", "auto_close_dict_keys", "dict_keys_only", "omit__names")


def _completer_of_names(shell: GuestShell, rules: Rules) -> Any:
    """Return the completer that hands nothing typed to code of a cell's.

    IPython's own functions use ``evaluate`` from now on, process-wide; doing it again changes
    nothing. The shell's completer is not asked: cells may have registered matchers and completers
    there, or have turned on jedi, which evaluates by itself.
    """
    # IPython imports it with the first completion: it would make every start slower.
    from IPython.core import guarded_eval  # noqa: PLC0415 - as said

    def evaluate_at_cursor(code: str, context: Any) -> Any:
        if not context.in_subscript:
            return evaluate(code, shell.user_ns, rules)
        # The keys before the cursor's in a subscript, as in ``table.loc[:, "na``.
        subscript = ast.parse(f"_[{code}]", mode="eval").body if code else None
        return _key(subscript.slice) if isinstance(subscript, ast.Subscript) else ()

    modules: tuple[Any, ...] = (guarded_eval, completer)  # in some versions each has its own name
    for module in modules:
        if hasattr(module, "guarded_eval"):
            module.guarded_eval = evaluate_at_cursor
    # IPython 9.0 looks up the function whose arguments it completes by the builtin itself.
    vars(completer)["eval"] = lambda code, *_: evaluate(code, shell.user_ns, rules)
    # What is typed is compared with each name and key, and a class of a cell's may say how.
    vars(completer)["dir2"] = lambda found: _literals(dir2(found))
    vars(completer)["generics"] = SimpleNamespace(
        complete_object=lambda found, words: _literals(generics.complete_object(found, words))
    )
    found = _completer()
    for setting in _SETTINGS:
        setattr(found, setting, getattr(shell.Completer, setting))
    found.namespace = found.global_namespace = dict.fromkeys(_names(shell.user_ns))
    found.shell = _shell_of_names(shell, found.namespace)
    # Under the language layer without packages, nothing that a cell may say takes a path.
    takes_paths = not rules.language or rules.raw_modules
    found.disable_matchers = [] if takes_paths else ["IPCompleter.file_matcher"]
    return found


def _shell_of_names(shell: GuestShell, names: dict[str, Any]) -> SimpleNamespace:
    """Return what the completer asks of the shell: the names of magics, aliases and variables.

    What ``%config`` sets it asks for its traits: these are objects of installed libraries.
    """
    manager: Any = shell.magics_manager
    aliases: Any = shell.alias_manager
    magics = {kind: dict.fromkeys(_names(known)) for kind, known in manager.lsmagic().items()}
    return SimpleNamespace(
        magics_manager=SimpleNamespace(
            lsmagic=lambda: magics,
            load_all_lazy_magics=getattr(manager, "load_all_lazy_magics", None),
        ),
        alias_manager=SimpleNamespace(
            aliases=[(name, None) for name, _ in aliases.aliases if type(name) is str]
        ),
        user_ns=names,
        configurables=[one for one in shell.configurables if _is_librarys(type(one))],
    )


def _names(space: dict[Any, Any]) -> list[str]:
    return [name for name in list(space) if type(name) is str]


def evaluate(code: str, names: dict[str, Any], rules: Rules) -> Any:
    """Return the value of ``code``, one expression, without running any of it.

    Raises:
        SyntaxError: not Python; IPython then tries what is left without its first characters.
        LookUpRefused: more than a look-up, or something that a cell may not say.
        NameError: no such name.

    """
    body = ast.parse(code).body
    if len(body) != 1 or not isinstance(body[0], ast.Expr) or analyse_expression(code, rules):
        raise LookUpRefused("not a look-up")
    return _value(body[0].value, names, rules)


def _builtins(names: dict[str, Any]) -> dict[str, Any]:
    found: Any = names["__builtins__"]
    return found if isinstance(found, dict) else vars(found)


def _value(node: ast.expr, names: dict[str, Any], rules: Rules) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name(id=name):
            for space in (names, _builtins(names)):
                if (found := _item_of(space, name)) is not _MISSING:
                    return found
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


# --- look-ups in which nothing that is typed reaches code of a cell's -----------------------------

_MISSING: Final = object()


def _is_literal(value: Any) -> bool:
    """Return whether comparing ``value`` runs no code: it is of a builtin type, and so its parts.

    A subclass of ``str`` has an ``__eq__`` of its own, which would be handed the other text.
    """
    if type(value) is tuple:
        return all(map(_is_literal, value))
    return type(value) in _LITERALS


def _literals(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if _is_literal(value)]


def _item_of(space: Any, key: Any) -> Any:
    """Return what a dictionary holds under ``key``, ``_MISSING`` for nothing.

    Looking ``key`` up by its hash would ask keys of a cell's class whether they are equal to it.
    """
    kind = type(key)
    for own, value in list(space.items() if type(space) is MappingProxyType else dict.items(space)):
        if type(own) is kind and _is_literal(own) and own == key:
            return value
    return _MISSING


def _element(owner: Any, key: Any) -> Any:
    """Return ``owner[key]`` of a builtin container, an array or a table's column.

    Everything else could hand the key to code of a cell's: ``UserDict`` asks its ``__missing__``,
    a proxy what it stands for, ``Series`` the equality of its labels.

    Raises:
        LookUpRefused: it is nothing of these, or there is no such element.

    """
    kind = type(owner)
    if _is_table(kind, "DataFrame") and type(key) is str:
        return _column(owner, key)
    if _is_array(kind) and _is_position(key):
        return owner[key]
    read = _attribute(kind, "__getitem__")
    if read is dict.__getitem__:
        found = _item_of(owner, key)
    elif any(read is one.__getitem__ for one in _SEQUENCES) and _is_position(key):
        found = read(owner, key)
    else:
        found = _MISSING
    if found is _MISSING:
        raise LookUpRefused("it would run __getitem__")
    return found


def _is_position(key: Any) -> bool:
    if type(key) is tuple:
        return all(map(_is_position, key))
    return type(key) in {int, slice}


def _stored(owner: Any, name: str) -> Any:
    """Return ``owner.name`` where it is kept: by the object, or by its class.

    No ``__getattr__`` and no descriptor is asked that may run code of a cell's; so no property,
    and no accessor that a cell registered with a library.

    Raises:
        LookUpRefused: it is not kept as it is.

    """
    kind = type(owner)
    if issubclass(kind, ModuleType):  # its __getattr__ would import what it is asked for (PEP 562)
        found = _item_of(namespace_of_module(owner), name)
        if found is _MISSING:
            raise LookUpRefused("the module does not have it")
        return found
    of_class, own = _class_item(kind, name), _MISSING
    if of_class is _MISSING or _attribute(type(of_class), "__set__") is None:
        own = _class_item(owner, name) if issubclass(kind, type) else _own_item(owner, name)
    if own is not _MISSING:
        return _bound(own, None, owner) if issubclass(kind, type) else own
    if of_class is not _MISSING:
        return _bound(of_class, owner, kind)
    if _is_table(kind, "DataFrame"):
        return _column(owner, name)
    raise LookUpRefused("it would run __getattr__")


def _class_item(kind: type, name: str) -> Any:
    for one in _MRO.__get__(kind):
        found = _item_of(_DICT.__get__(one), name)
        if found is not _MISSING:
            return found
    return _MISSING


def _own_item(owner: Any, name: str) -> Any:
    """Return what is in an object's own dictionary under ``name``."""
    slot = _attribute(type(owner), "__dict__")
    if not isinstance(slot, _IN_C):  # it has none, or the cell says what it is
        return _MISSING
    space = slot.__get__(owner)
    return _item_of(space, name) if isinstance(space, dict) else _MISSING


def _bound(found: Any, owner: Any, kind: type) -> Any:
    """Return what a class's attribute is to its instance ``owner``, or to the class for None."""
    binds = _attribute(type(found), "__get__")
    if binds is None:
        return found
    in_c = type(binds) is WrapperDescriptorType and binds.__objclass__ is type(found)
    plain = type(found) in _BINDING or (in_c and _NAME.__get__(type(found)) in _CYTHON)
    # Until Python 3.13 a class method asks what it wraps.
    plain = plain or (type(found) is classmethod and type(found.__func__) is FunctionType)
    if not (plain or (_is_table(kind, "DataFrame", "Series") and _is_of_table(found))):
        raise LookUpRefused("it would run a property")
    try:
        return binds(found, owner, kind)
    except AttributeError:  # of a slot that is not set
        raise LookUpRefused("it has no value") from None


def _is_of_table(found: Any) -> bool:
    """Return whether a descriptor is pandas' own: a property, an axis, ``.str`` and its like."""
    kind = type(found)
    if kind is property:
        return _is_installed(found.fget)
    if any(kind is _named("pandas.core.accessor", name) for name in _ACCESSORS):
        made = _own_item(found, "_accessor")  # cells register others
        return any(made is _named(module, name) for module, name in _OWN_ACCESSORS)
    return kind is _named("pandas._libs.properties", "AxisProperty")


def _is_table(kind: type, *names: str) -> bool:
    """Return whether ``kind`` is a class of pandas itself: one of a cell's makes others of it."""
    return any(kind is _named("pandas", name) for name in names)


def _is_array(kind: type) -> bool:
    # No class statement makes a static type.
    return kind is _named("numpy", "ndarray") and not kind.__flags__ & HEAP


def _named(module: str, name: str) -> Any:
    """Return what a module has by a name, if it is loaded."""
    loaded = sys.modules.get(module)
    return namespace_of_module(loaded).get(name) if type(loaded) is ModuleType else None


def _column(table: Any, name: str) -> Any:
    """Return a column of a table by its place: its label could ask the others' for equality."""
    for place, label in enumerate(table.columns):
        if type(label) is str and label == name:
            return table.iloc[:, place]
    raise LookUpRefused("no such column")


def _is_installed(function: Any) -> bool:
    """Return whether a function is one of an installed library."""
    return type(function) is FunctionType and function.__code__.co_filename.startswith(_INSTALLED)


def _key(node: ast.expr) -> Any:
    match node:
        case ast.Tuple(elts=parts):
            return tuple(map(_key, parts))
        case ast.Slice(lower=None, upper=None, step=None):
            return slice(None)
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise LookUpRefused("a key that is no literal") from None


#: Variables that are listed, and characters of a name, a type and a shape.
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
#: ``__sizeof__`` of builtin types, of which none runs code of an element's.
_SIZED: Final = (MethodDescriptorType, WrapperDescriptorType)
#: Descriptors that bind a function, or read what the interpreter keeps.
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
#: Names of types that Cython makes for functions, a type in each module.
_CYTHON: Final = word_set("cython_function_or_method fused_cython_function")
#: pandas' class of registered accessors, of which 3.0 changed the name, and those of its own.
_ACCESSORS: Final = ("Accessor", "CachedAccessor")
_OWN_ACCESSORS: Final = (
    ("pandas.core.arrays.categorical", "CategoricalAccessor"),
    ("pandas.core.indexes.accessors", "CombinedDatetimelikeProperties"),
    ("pandas.core.strings.accessor", "StringMethods"),
)
_LITERALS: Final = frozenset({bool, bytes, complex, float, int, str, type(None), type(...)})
#: Whose elements are found by their place, in C.
_SEQUENCES: Final = (bytearray, bytes, list, range, str, tuple)
#: Types of which an object holds all that it is.
_WHOLE: Final = frozenset({bool, bytearray, bytes, complex, float, int, str})
_CONTAINERS: Final = frozenset({str, bytes, bytearray, list, tuple, dict, set, frozenset, range})


def list_variables(shell: GuestShell, number: int) -> messages.Variables:
    """Return the user's variables by name, as an answer to the request ``number``."""
    hidden: dict[str, Any] = shell.user_ns_hidden
    found = {
        name: value
        for name, value in list(shell.user_ns.items())
        if type(name) is str
        and not name.startswith("_")
        and not (name in hidden and hidden[name] is value)
    }
    names = sorted(found)
    listed = tuple(_variable(name, found[name]) for name in names[:_MOST])
    return messages.Variables(id=number, variables=listed, more=len(names) - len(listed))


def get_variable(shell: GuestShell, request: messages.GetVariable) -> messages.VariableValue:
    """Return the value of a variable: data, an array or a table, by exact types."""
    try:
        value = arrays.encode(shell.user_ns[request.name])
    except KeyError:
        why = "there is no such variable"
    except Exception as exc:  # whatever a library says of a table
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
    """Return the length of a container, the shape of an array or table; else nothing."""
    if kind in _CONTAINERS:
        return str(len(value))
    shape = _read(kind, value, "shape")
    if isinstance(shape, tuple) and all(type(one) is int for one in shape):
        return " by ".join(map(str, shape))[:_LONGEST]
    return ""


def _size(kind: type, value: Any) -> int:
    """Return the bytes of an array, table, text or number; 0 of what is not known.

    Of anything else Python knows the object itself alone: 56 bytes, of a figure.
    """
    if kind in _WHOLE:
        return sys.getsizeof(value)
    size = _table_bytes(value) if _is_table(kind, "DataFrame") else _read(kind, value, "nbytes")
    return size if type(size) is int and 0 <= size < 2**53 else 0


def _table_bytes(value: Any) -> int:
    """Return the bytes of a DataFrame's columns; 0 where a cell made the class of one."""
    try:
        held = vars(value)["_mgr"]
        arrays = held.arrays if _is_librarys(type(held)) else ()
        whole = all(_is_librarys(type(one)) for one in arrays)
        return sum(int(one.nbytes) for one in arrays) if whole else 0
    except Exception:  # whatever a library says of an object that is not whole
        return 0


def _attribute(kind: type, name: str) -> Any:
    """Return what a class has by that name, its own or inherited, itself."""
    for one in _MRO.__get__(kind):
        own = _DICT.__get__(one)
        if name in own:
            return own[name]
    return None


def _read(kind: type, value: Any, name: str) -> Any:
    """Return an attribute if reading it runs no code of the user's, else None."""
    found = _attribute(kind, name)
    if isinstance(found, _IN_C):
        return found.__get__(value, kind)
    getter = found.fget if type(found) is property else None
    if not (type(getter) is FunctionType and getter.__code__.co_filename.startswith(_LIBRARIES)):
        return None
    # The property asks others, which a subclass may define anew, and a table's are its labels'.
    try:
        if _is_librarys(kind) and all(_is_librarys(type(part)) for part in _parts(kind, value)):
            return getter(value)
    except Exception:  # whatever a library says of an object that is not whole
        return None
    return None


def _is_librarys(kind: type) -> bool:
    """Return whether no cell made a class: it is what an installed library has by its name.

    No class statement makes a static type.
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
    """Return what pandas' tables and columns ask for their shape and size."""
    if not _is_table(kind, "DataFrame", "Series"):
        return []
    held = [value._values] if _is_table(kind, "Series") else []  # noqa: SLF001 - nbytes asks it
    return [*value.axes, *held]
