"""Checks of names: bare names, and names of attributes, whether literal or computed.

Bare names of some builtins and of the interpreter's own objects are refused. About attributes one
function decides, ``attribute_allowed``: for the source check, the guarded ``getattr`` family, the
format mini-language and the completer, so that a computed name reaches no more than a literal one.

Names without double underscores are allowed unless a table below refuses them: modules are
facades without private names, so ``self._x`` stays free. Double-underscore names are refused
unless they are data-model methods or harmless descriptions of the cell's own objects. A few names
are decided for each object when they are read (``guest.guards.access``).
"""

from __future__ import annotations

import ast
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cellblock.analysis.findings import by_package, for_open, word_set
from cellblock.analysis.scopes import own_reads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.analysis.findings import Positioned, Remedy, Report


_INPUT = "take the data as an input of the cell"
_ALONE = "Put it into a cell of its own, or use the front end's controls."
_RENAME = " If it is a name of your own, choose another."

#: Builtins that are refused if a read of the name may find them (``scopes``), why, and the remedy.
REFUSED_BUILTINS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "__import__": ("loads any module by a computed name", "Write an import statement."),
        "breakpoint": ("starts a debugger, which runs unchecked text", "Use print()."),
        "compile": (
            "turns text that nobody has checked into code",
            "Write the code in the cell; ast.literal_eval reads data, re.compile makes patterns.",
        ),
        "copyright": ("starts a pager", "Nothing here needs it." + _RENAME),
        "credits": ("starts a pager", "Nothing here needs it." + _RENAME),
        "eval": (
            "runs text that nobody has checked",
            "Write the code in the cell; ast.literal_eval and json.loads read data.",
        ),
        "exec": (
            "runs text that nobody has checked",
            "Write the code in the cell, or pass functions instead of text.",
        ),
        "exit": ("ends the session", _ALONE + _RENAME),
        "globals": (
            "hands out the namespace that holds the guarded builtins",
            "Name the variables, or keep them in a dict of your own." + _RENAME,
        ),
        "license": ("starts a pager", "Nothing here needs it." + _RENAME),
        "locals": (
            "hands out the namespace that holds the guarded builtins",
            "Name the variables, or keep them in a dict of your own." + _RENAME,
        ),
        "open": ("opens files", f"{_INPUT.capitalize()}.{_RENAME}"),
        "quit": ("ends the session", _ALONE + _RENAME),
    }
)
#: Those of them that a cell may bind.
BINDABLE_BUILTINS = frozenset(REFUSED_BUILTINS) - {"__import__"}

#: Names that a cell may neither read nor bind.
RESERVED: Mapping[str, str] = MappingProxyType(
    {
        "__build_class__": "is how the interpreter makes classes",
        "__builtin__": "holds every builtin, the refused ones too",
        "__builtins__": "holds every builtin, the refused ones too",
        "__cached__": "belongs to the import system",
        "__loader__": "belongs to the import system, which reads files and loads any module",
        "__path__": "belongs to the import system",
        "__spec__": "belongs to the import system, which reads files and loads any module",
    }
)

#: The remedies for reading some of these.
_OF_RESERVED: Mapping[str, str] = MappingProxyType(
    {
        "__build_class__": "Write a class statement.",
        "__builtin__": "Call the builtin by its name, as in len(x).",
        "__builtins__": "Call the builtin by its name, as in len(x).",
    }
)

SHELL_OBJECT = "get_ipython"


def check_name(node: ast.Name, report: Report) -> None:
    """Judge a bare name where it is read, bound or deleted."""
    name = node.id
    if type(node.ctx) is not ast.Load:
        check_binding(name, node, report)
    elif name in REFUSED_BUILTINS:
        report.pending.append((name, node))
    elif name in RESERVED:
        remedy = _OF_RESERVED.get(name, "Leave it out: cells are no files that were imported.")
        report.add("name-not-allowed", node, name, why=RESERVED[name], remedy=remedy)
    elif name == SHELL_OBJECT:
        report.add("shell-object", node, name)


def _for_open(node: ast.Name, report: Report) -> Remedy:
    """Return the remedy for a use of ``open``, by the arguments of its call."""
    call = report.openings.get(id(node))
    by_pandas = by_package(call, report.rules)
    instead = for_open(call, report.rules)
    first = "" if by_pandas or "ops.write_file" in instead.operations else _INPUT
    remedy = instead.remedy(report.rules, first=first, asked=by_pandas)
    return remedy._replace(text=remedy.text + _RENAME)


def check_binding(name: str | None, node: Positioned, report: Report) -> None:
    """Judge the binding of a name, and note that the cell binds it otherwise than by an import."""
    if name is not None:
        report.bound.add(name)
        refuse_reserved(name, node, report)


def refuse_reserved(name: str, node: Positioned, report: Report) -> None:
    """Refuse the binding of a name that the interpreter itself reads."""
    if name in RESERVED or name == "__import__":
        why = RESERVED.get(name, "is how the interpreter loads modules")
        report.add("name-not-allowed", node, name, why=why)


def binds(field: str) -> Callable[[Any, Report], None]:
    """Return a check for nodes that bind the name in one of their fields."""
    return lambda node, report: check_binding(getattr(node, field), node, report)


def check_scope(node: ast.Global | ast.Nonlocal, report: Report) -> None:
    """Judge ``global a, b`` and ``nonlocal a, b``."""
    for name in node.names:
        # A declaration binds nothing, so reads of the name may still find the builtin.
        refuse_reserved(name, node, report)


def settle_pending(tree: ast.AST, report: Report) -> None:
    """Refuse the reads of builtins in the table above, but not of names that the cell binds.

    A read that passes and finds the builtin after all gets the guarded one at run time.
    """
    if not report.pending:
        return
    own_nodes = own_reads(tree, BINDABLE_BUILTINS, report.rules.own)
    for name, node in report.pending:
        if id(node) not in own_nodes:
            why, usual = REFUSED_BUILTINS[name]
            remedy = _for_open(node, report) if name == "open" else usual
            report.add("builtin-not-allowed", node, name, why=why, remedy=remedy)


# --- attributes -----------------------------------------------------------------------------------

#: Names that are allowed or not by the object: a cell's own is fine, the interpreter's is not.
SETTLED = word_set("""
    __closure__ __defaults__ __delattr__ __dict__ __func__ __getattr__ __getattribute__
    __kwdefaults__ __self__ __setattr__ format format_map obj parser
""")
#: Those of them that are common names of ordinary attributes.
COMMON = word_set("format format_map obj parser")
#: Those of them that only functions have.
OF_FUNCTIONS = word_set("__closure__ __defaults__ __func__ __kwdefaults__ __self__")

#: Descriptions of an object.
_DESCRIPTIONS = word_set("""
    __abstractmethods__ __all__ __annotations__ __args__ __author__ __base__ __bases__ __bound__
    __cause__ __class__ __constraints__ __context__ __contravariant__ __covariant__
    __dataclass_fields__ __dataclass_params__ __default__ __deprecated__
    __doc__ __final__ __infer_variance__ __isabstractmethod__
    __match_args__ __members__ __metadata__ __module__ __mro__ __name__ __notes__ __objclass__
    __optional_keys__ __orig_bases__ __orig_class__ __origin__ __override__ __parameters__
    __qualname__ __readonly_keys__ __mutable_keys__ __required_keys__ __signature__
    __slots__ __static_attributes__ __firstlineno__ __supertype__ __suppress_context__
    __text_signature__ __total__ __traceback__ __type_params__ __unpacked__ __value__
    __version__ __weakref__ __wrapped__
""")

#: The data model (docs.python.org/3/reference/datamodel.html) without methods that give access to
#: code, to attributes by computed names, or to constructors by name: those are in ``_REFUSED``.
_METHODS = word_set("""
    __abs__ __add__ __aenter__ __aexit__ __aiter__ __and__ __anext__ __await__ __bool__
    __buffer__ __bytes__ __call__ __ceil__ __class_getitem__ __complex__ __contains__ __copy__
    __deepcopy__ __del__ __delete__ __delitem__ __dir__ __divmod__ __enter__ __eq__
    __exit__ __float__ __floor__ __floordiv__ __format__ __fspath__ __ge__ __get__
    __getitem__ __getnewargs__ __getnewargs_ex__ __gt__ __hash__ __iadd__ __iand__
    __ifloordiv__ __ilshift__ __imatmul__ __imod__ __imul__ __index__ __init__
    __init_subclass__ __instancecheck__ __int__ __invert__ __ior__ __ipow__ __irshift__ __isub__
    __iter__ __itruediv__ __ixor__ __le__ __len__ __length_hint__ __lshift__ __lt__ __matmul__
    __missing__ __mod__ __mro_entries__ __mul__ __ne__ __neg__ __new__ __next__ __or__ __pos__
    __post_init__ __pow__ __prepare__ __radd__ __rand__ __rdivmod__ __release_buffer__
    __replace__ __repr__ __reversed__ __rfloordiv__ __rlshift__ __rmatmul__ __rmod__ __rmul__
    __ror__ __round__ __rpow__ __rrshift__ __rshift__ __rsub__ __rtruediv__ __rxor__ __set__
    __set_name__ __setitem__ __setstate__ __sizeof__ __str__ __sub__
    __subclasscheck__ __subclasshook__ __truediv__ __trunc__ __xor__
    __array__ __array_function__ __array_interface__ __array_priority__ __array_ufunc__
    __array_wrap__ __dataframe__ __dlpack__ __dlpack_device__
""")

ALLOWED_DUNDERS = _DESCRIPTIONS | _METHODS | {name for name in SETTLED if name[0] == "_"}

_FRAMES = "leads to a running frame, and from there to the globals of whoever called"
_CODE = "hands out or replaces compiled code, which nobody can check"
_LOADER = "belongs to the import system, which reads files and loads any module"
_FILES = "is the module that a path works on files with"
_REBUILDING = "hands out what the interpreter would make a copy of"
_SHELL = "belongs to the shell or the event loop, not to the cell"

#: Refused names and the reasons that are shown. Dunders in no table are refused as well.
_REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "__builtins__": "holds every builtin, the refused ones too",
        "__globals__": "is the global namespace of the module that made the function",
        "__import__": "loads any module",
        "__subclasses__": "lists every class in the process, the dangerous ones too",
        "_convert_": "builds an enumeration out of any module's globals",
    }
    | dict.fromkeys(
        word_set("""
            __cached__ __file__ __loader__ __package__ __path__ __spec__
        """),
        _LOADER,
    )
    | dict.fromkeys(
        word_set("""
            __code__ __forward_code__ ag_code co_code co_consts cr_code f_code func_code
            gi_code
        """),
        _CODE,
    )
    | dict.fromkeys(word_set("__getstate__ __reduce__ __reduce_ex__"), _REBUILDING)
    | dict.fromkeys(
        word_set("""
            _current_frames _getframe _getframemodulename ag_await ag_frame cr_await
            cr_frame cr_origin f_back f_builtins f_globals f_locals f_trace func_globals
            get_stack gi_frame gi_yieldfrom tb_frame
        """),
        _FRAMES,
    )
    | dict.fromkeys(word_set("_flavour _globber pathmod"), _FILES)
    | dict.fromkeys(
        word_set("""
            _add_reader _add_writer _csock _make_self_pipe _remove_reader _remove_writer
            _selector _ssock add_reader add_signal_handler add_writer remove_reader
            remove_signal_handler remove_writer
        """),
        _SHELL,
    )
)

_REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "__code__": "Use __name__, __doc__ or __annotations__, which describe a function.",
        "__file__": "A cell has no file; give names as text.",
        "__getstate__": "Use vars(obj); a class may define __getstate__, for copy.copy.",
        "__globals__": "Pass what the function needs as an argument.",
        "__import__": "Write an import statement.",
        "__reduce__": "Use copy.copy, or define __copy__ and __getstate__.",
        "__reduce_ex__": "Use copy.copy, or define __copy__ and __getstate__.",
        "__subclasses__": "Keep a registry: define __init_subclass__ in the base class.",
        "tb_frame": "Use the exception's text, its __notes__ or __traceback__.tb_lineno.",
    }
)


def attribute_allowed(name: str) -> bool:
    """Whether code may use the attribute ``name``, of its own objects at least."""
    if name[:2] == "__" and name[-2:] == "__":
        return name in ALLOWED_DUNDERS
    return name not in _REFUSED


def is_free(name: str) -> bool:
    """Whether code may read the attribute ``name`` of any object."""
    return attribute_allowed(name) and name not in SETTLED


def why_refused(name: str) -> str:
    """Return why ``name`` is refused; empty where there is nothing beyond the rule's own text."""
    return _REFUSED.get(name, "")


def remedy_for(name: str) -> str:
    """Return what to use instead of ``name``; empty where there is nothing beyond the rule's."""
    return _REMEDIES.get(name, "")


def check_attribute(node: ast.Attribute, report: Report) -> None:
    """Refuse ``x.name`` for every name that ``attribute_allowed`` refuses."""
    name = node.attr
    if not attribute_allowed(name):
        why, remedy = why_refused(name), remedy_for(name)
        report.add_last_word("attribute-not-allowed", node, name, why=why, remedy=remedy)
    value = node.value
    if type(value) is ast.Name:
        report.uses.append((value.id, node))


def check_class_pattern(node: ast.MatchClass, report: Report) -> None:
    """Refuse ``case C(name=x)`` for all but free names and common ones: it reads like a dot."""
    for name in node.kwd_attrs:
        if not (is_free(name) or name in COMMON):
            why, remedy = why_refused(name), remedy_for(name)
            report.add("attribute-not-allowed", node, name, why=why, remedy=remedy)
