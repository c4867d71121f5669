"""No function that cells reach reads names, or runs text, of a cell's choosing unserved.

Nor what cells may not read themselves, of an object of their choosing, to hand it on.
"""

import ast
import importlib
import re
from fnmatch import fnmatchcase
from pathlib import Path

from cellblock.analysis.allowlist import ALLOWLIST
from cellblock.analysis.names import COMMON, is_free

PAGE = Path(__file__).parents[4] / "docs" / "language.md"
BY_NAME = {"getattr", "setattr", "delattr", "hasattr"}
TEXT = {"eval", "exec", "compile", "__import__", "import_module", "vars", "globals"}
ACCESSORS = {"attrgetter", "methodcaller"}
SLOTS = {"__getattribute__", "__getattr__", "__setattr__", "__delattr__"}

#: Functions that read what cells may not (``x.__dict__``, ``f.f_globals``), and hand none of it on.
READ_AND_KEPT = """
_py_warnings _is_internal_frame _next_external_frame _warn_unawaited_coroutine warn
_py_warnings _warn_unawaited_coroutine.extract deprecated.__call__
_weakrefset WeakSet.__reduce__
annotationlib _Stringifier.__convert_to_ast _Stringifier.__get_ast _Stringifier.__getitem__
annotationlib _Stringifier.__make_new _Stringifier.__repr__ _StringifierDict.transmogrify
annotationlib _build_closure call_annotate_function
collections OrderedDict.__sizeof__ UserDict.__copy__ UserList.__copy__
collections.abc _check_methods _get_framelocalsproxy
copy _deepcopy_method
datetime datetime.__reduce__ time.__reduce__ tzinfo.__reduce__
functools _compose_mro _unwrap_partialmethod partial.__reduce__
heapq merge
ipaddress IPv4Interface IPv6Interface
logging Handler.handleError Logger.findCaller Logger.makeRecord _is_internal_frame currentframe
logging makeLogRecord
pathlib._abc PathBase._glob_selector PurePathBase.full_match PurePathBase.match
random Random.__init_subclass__
string Template.__init_subclass__ Template._compile_pattern
traceback StackSummary._extract_from_extended_frame_gen _print_exception_bltin clear_frames
traceback _walk_tb_with_full_positions extract_stack walk_stack walk_tb
traceback walk_stack.walk_stack_generator
types _GeneratorWrapper.gi_code _GeneratorWrapper.gi_frame _GeneratorWrapper.gi_yieldfrom
types _cell_factory coroutine coroutine.wrapped get_original_bases
typing Generic.__init_subclass__ Protocol.__init_subclass__ Protocol.__init_subclass__._proto_hook
typing _CallableType.__getitem__ _TypedDictMeta.__new__ _UnionGenericAlias.__reduce__ overload
typing _UnpackGenericAlias.__getitem__ _caller _generic_init_subclass _get_protocol_attrs
typing _no_init_or_replace_init _proto_hook get_protocol_members evaluate_forward_ref
typing _TypedDictMeta.__new__.__annotate__ _eval_type _make_forward_ref
warnings _is_internal_frame _next_external_frame _warn_unawaited_coroutine warn
warnings _warn_unawaited_coroutine.extract deprecated.__call__
weakref WeakMethod.__new__
"""


def modules():
    """Return the allowed modules, and those that the classes which they show are from."""
    found = {}
    for entry in ALLOWLIST:
        try:
            module = found[entry.module] = importlib.import_module(entry.module)
        except ImportError:  # not in this Python
            continue
        public = [name for name in vars(module) if not name.startswith("_")]
        for shown in entry.names or getattr(module, "__all__", public):
            value = getattr(module, shown, None)
            for kind in getattr(value, "__mro__", (value,)):
                name = getattr(kind, "__module__", None)
                if isinstance(kind, type) and isinstance(name, str) and name != "builtins":
                    found.setdefault(name, importlib.import_module(name))
    return found


def reads(source, is_one):
    """Yield the function around every node that is one of what is looked for."""

    def walk(node, within):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            within = (*within, node.name)
        if within and is_one(node):
            yield ".".join(within)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, within)

    yield from walk(ast.parse(source), ())


def reads_refused(node):
    """Return whether a node reads an attribute that cells may not read of all objects."""
    loaded = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    return loaded and not is_free(node.attr) and node.attr not in COMMON


def reads_names(call):
    """Return whether a node is a call that reads a computed name, or runs text."""
    if not isinstance(call, ast.Call):
        return False
    function = call.func
    if isinstance(function, ast.Name):
        computed = len(call.args) > 1 and not isinstance(call.args[1], ast.Constant)
        return function.id in TEXT | ACCESSORS or (function.id in BY_NAME and computed)
    if not isinstance(function, ast.Attribute):
        return False
    if function.attr in {"format", "format_map"}:
        return not isinstance(function.value, ast.Constant)
    return function.attr in SLOTS | ACCESSORS | {"import_module"}


def table():
    """Return the page's rows as (module, pattern)."""
    rows = re.findall(r"^\| `([\w.]+)` \| (`.+?`) \| .+ \|$", PAGE.read_text(), re.MULTILINE)
    return [(module, pattern) for module, cell in rows for pattern in re.findall(r"`(.+?)`", cell)]


def found_in_library(is_one):
    """Yield (module, function) of what is found in the allowed modules' sources."""
    for name, module in modules().items():
        path = getattr(module, "__file__", None) or ""
        if path.endswith(".py") and not name.startswith("IPython"):
            yield from ((name, function) for function in reads(Path(path).read_text(), is_one))


def rows_for(name, function):
    return {row for row in table() if row[0] == name and fnmatchcase(function, row[1])}


def test_what_the_library_reads_on_a_cells_behalf_is_on_the_page():
    found = {one: rows_for(*one) for one in found_in_library(reads_names)}
    assert [one for one, rows in found.items() if not rows] == []
    assert len(set().union(*found.values())) > 25


def test_what_the_library_reads_that_cells_may_not_is_on_the_page_or_goes_no_further():
    kept = {(m, f) for m, *fs in map(str.split, READ_AND_KEPT.strip().splitlines()) for f in fs}
    found = set(found_in_library(reads_refused)) - kept
    assert [one for one in sorted(found) if not rows_for(*one)] == []
