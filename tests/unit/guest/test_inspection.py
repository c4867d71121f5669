"""What completion and inspection look up, and what of it would reach code of a cell's."""

import ast
import builtins
import collections
import functools
import inspect
import types
import typing
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from IPython.core import completer
from IPython.core.magic_arguments import argument, magic_arguments
from IPython.utils import generics
from IPython.utils.strdispatch import StrDispatch
from pandas.core import accessor

from cellblock.analysis import Rules
from cellblock.analysis.findings import word_set
from cellblock.guest import inspection
from cellblock.guest.inspection import LookUpRefused, evaluate
from cellblock.wire import messages
from unit.analysis.rules_for_tests import SAFE

RULES = Rules(False, {}, frozenset(), frozenset(), admission=True)

heard = []


def note(*said):
    heard.append(said)
    return 1


class Missing(dict):
    def __missing__(self, key):
        return note(key)


class User(collections.UserDict):
    def __missing__(self, key):
        return note(key)


class Layered(collections.ChainMap):
    def __missing__(self, key):
        return note(key)


class Rows(collections.UserList):
    def __init__(self, data=()):
        note(data)
        super().__init__(data)


class Text(collections.UserString):
    def __init__(self, seq=""):
        note(seq)
        super().__init__(seq)


class Key(str):
    """A text that is asked whether it is equal to what is typed."""

    __slots__ = ()

    def __eq__(self, other):
        return bool(note(other))

    def __hash__(self):
        return hash("zz")


class Labels(pd.Series):
    @property
    def _constructor(self):
        note()
        return Labels


class Table(pd.DataFrame):
    @property
    def _constructor_sliced(self):
        note()
        return Labels


class Slot:
    __slots__ = ("zz",)

    def __getattr__(self, name):
        return note(name)


class Point(typing.NamedTuple):
    x: int


class Owner:
    zz_of_class = "of the class"

    def method(self):
        return note()

    @functools.cached_property
    def zz(self):
        return note()


class Meta(type):
    def __getattr__(cls, name):
        return note(name)

    @property
    def zz(cls):
        return note()


class OfMeta(metaclass=Meta):
    known = (1,)


class Super(super):
    def __init__(self, *args):
        note(*args)


class HasSuper(Owner):
    pass


HasSuper.zz = Super(Owner)


def registered(_owner):
    return note()


@pytest.fixture(autouse=True)
def accessors(monkeypatch):
    """Have an accessor of a cell's at tables and columns."""
    for kind in (pd.DataFrame, pd.Series):
        monkeypatch.setattr(kind, "registered", accessor.Accessor("x", registered), raising=False)


def names():
    owner, keyed = Owner(), Owner()
    owner.kept = {"a": (1, "two")}
    vars(keyed)[Key("zz")] = 1
    frame = pd.DataFrame({"a": ["x"], "b": [1]})
    return {
        "__builtins__": vars(builtins),
        Key("zz"): 1,
        "missing": Missing({"a": [3]}),
        "user": User(a=1),
        "chain": collections.ChainMap({"a": 1}, Missing()),
        "layered": Layered({}),
        "counted": collections.defaultdict(note, a="known"),
        "mapped": types.MappingProxyType(Missing()),
        "rows": Rows([1]),
        "text": Text("abc"),
        "listed": [["inner"]],
        "keyed": {Key("zz"): 1},
        "pairs": {("a", Key("zz")): 1, ("a", "b"): "pair"},
        "of_keys": keyed,
        "class_of_keys": type("OfKeys", (), {Key("zz"): 1}),
        "owner": owner,
        "point": Point(4),
        "slot": Slot(),
        "meta": OfMeta,
        "sub": HasSuper(),
        "labels": Labels([1, 2], index=["x", "zz"]),
        "table": Table({"zz": [1]}),
        "frame": frame,
        "odd": pd.DataFrame([[1, 2]], columns=pd.Index([Key("zz"), "b"], dtype=object)),
        "array": np.array([[1, 2]]),
        "module": types,
    }


@pytest.mark.parametrize(
    "code",
    [
        *("missing['zz']", "user['zz']", "chain['zz']", "layered['zz']", "counted['zz']"),
        *("mapped['zz']", "rows[:]", "rows[0]", "text[:]", "keyed['zz']", "pairs['a', 'zz']"),
        *("of_keys.zz", "class_of_keys.zz", "zz", "owner.zz", "owner.other", "slot.zz"),
        *("meta.zz", "meta.other", "sub.zz", "labels['zz']", "labels.zz", "labels.iloc[:]"),
        *("table['zz']", "table.zz", "table.loc['zz']", "table.iloc[:]", "odd['zz']", "odd.zz"),
        *(
            "frame.plot",
            "frame.registered",
            "frame['a'].registered",
            "list[int]",
            "owner.method()",
            "module.zz",
        ),
    ],
)
def test_what_could_reach_code_of_a_cell_is_not_looked_up(code):
    space = names()
    heard.clear()
    with pytest.raises((LookUpRefused, NameError)):
        evaluate(code, space, RULES)
    assert heard == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("missing['a'][0]", 3),
        ("counted['a']", "known"),
        ("listed[0][0]", "inner"),
        ("listed[0][:]", ["inner"]),
        ("pairs['a', 'b']", "pair"),
        ("owner.kept['a'][1]", "two"),
        ("owner.zz_of_class", "of the class"),
        ("owner.method.__func__", Owner.method),
        ("meta.known[0]", 1),
        ("frame['a'].dtype", pd.Series(["x"]).dtype),
        ("frame.b.dtype", np.dtype("int64")),
        ("frame.shape", (1, 2)),
        ("odd.b.name", "b"),
        ("array[0, 1]", 2),
        ("module.ModuleType", types.ModuleType),
        ("point.x", 4),
        ("len", len),
    ],
)
def test_what_is_kept_is_looked_up(code, expected):
    assert evaluate(code, names(), RULES) == expected


def test_columns_loc_and_generators_of_libraries_complete():
    space = names() | {"rng": np.random.default_rng()}
    assert callable(evaluate("frame['a'].str.upper", space, RULES))
    assert callable(evaluate("rng.normal", space, RULES))
    assert list(evaluate("frame.columns", space, RULES)) == ["a", "b"]
    assert type(evaluate("frame.loc", space, RULES)).__name__ == "_LocIndexer"


def test_wherever_cells_are_judged_so_is_what_is_looked_up():
    unchecked = replace(SAFE, language=False)
    assert SAFE.judges_cells
    assert replace(unchecked, admission=True).judges_cells
    assert not unchecked.judges_cells


def test_what_a_cell_may_not_say_is_not_looked_up():
    with pytest.raises(LookUpRefused):
        evaluate("open", {"__builtins__": {"open": open}}, SAFE)


class Began(str):
    """A text that is asked whether it begins with what is typed."""

    __slots__ = ()

    def startswith(self, *typed):
        return bool(note(typed))

    def __getitem__(self, part):
        return Key("zz")


@magic_arguments()
@argument("-n", type=note)
def top(line):
    """Be a magic of a cell's, which has what follows -n read by a function of a cell's."""


class Timer:
    """Whose magic takes the name of one of IPython's."""

    def parse_options(self, *typed, **_options):
        return {}, note(typed)

    def timeit(self, line):
        """Time something."""


class Offered:
    """What a cell says may be completed of it."""


generics.complete_object.register(Offered)(lambda _owner, _words: [Began("zz")])


def shell_of(magics=None, aliases=(), **names):
    """Return a shell to the completer, whose own completer a cell has changed."""
    own = completer.IPCompleter(namespace={}, use_jedi=True)
    own.custom_matchers = [note]
    own.custom_completers = StrDispatch()
    own.custom_completers.add_s("heard", note)
    own.shell = types.SimpleNamespace(
        Completer=own,
        magics_manager=types.SimpleNamespace(lsmagic=lambda: {"line": magics or {}, "cell": {}}),
        alias_manager=types.SimpleNamespace(aliases=aliases),
        user_ns={"__builtins__": vars(builtins), **names},
        configurables=[],
        rules_now=lambda rules: rules,
    )
    return own.shell


def completed(shell, code, rules=RULES):
    heard.clear()
    request = messages.Complete(id=1, code=code, cursor=len(code))
    return inspection.complete(shell, rules, request).matches


def test_no_completer_of_a_cells_and_no_jedi_is_asked():
    shell = shell_of()
    assert completed(shell, "heard zz") == []
    assert heard == []
    assert not inspection._completer_of_names(shell, SAFE).use_jedi


def test_files_are_completed_where_cells_may_read_them(tmp_path, monkeypatch):
    (tmp_path / "zz_file").touch()
    monkeypatch.chdir(tmp_path)
    assert completed(shell_of(), "'zz_") == ["zz_file"]
    assert completed(shell_of(), "'zz_", SAFE) == []


@pytest.mark.parametrize(
    "code",
    [
        *("%top -n zz\ntable.sha", "table\n%top -n zz\ntable.sha", "%top -n zz table.sha"),
        *("top -n zz\ntable.sha", "%timeit -n zz\ntable.sha", "%timeit -n zz table.sha"),
        *("%zz", "zz", "zz table", "offered.z", "offered['z", "%config zz", "%config Z"),
    ],
)
def test_nothing_typed_is_handed_to_magics_aliases_and_words_of_cells(code):
    magics = {"top": top, "timeit": Timer().timeit, Key("zz"): top, Began("zz"): top}
    names = {"table": np.array([1]), "offered": Offered(), Key("zz"): 1, Began("z"): 1}
    shell = shell_of(magics, [(Began("zz"), "ls"), (Key("zz"), "ls"), ("zz", "ls")])
    shell.user_ns |= names
    completed(shell, code)
    assert heard == []


@pytest.mark.parametrize(("name", "asked"), [("plain", True), (Key("zz"), False)])
def test_inspection_looks_a_name_up_by_its_hash_only_among_exact_texts(name, asked):
    shell = shell_of({name: top})
    shell.object_inspect_mime = lambda typed, **_: note(typed) and {}
    heard.clear()
    inspection.inspect(shell, RULES, messages.Inspect(id=1, code="zz", cursor=2, detail=0))
    assert heard == ([("zz",)] if asked else [])


@pytest.mark.skipif(
    not hasattr(completer.IPCompleter, "_extract_code"),
    reason="this version of IPython completes no code in a magic's line",
)
def test_what_a_magic_times_is_completed():
    shell = shell_of({"timeit": Timer().timeit, "time": top}, text="text")
    for line in ("%timeit text.uppe", "%timeit -n 5 text.uppe", "%time text.uppe"):
        assert completed(shell, line) == ["upper"]
    assert completed(shell, "%tim") == ["%time", "%timeit"]


#: What gets an object, evaluates, or leaves the completer; and what of IPython's completer was read
#: that does. ``getattr`` is not of these: no function of it is handed a name.
REACHES = word_set(
    """
    __import__ _default_arguments _evaluate_expr _get_keys complete_object custom_completers dir2
    eval exec get_ipython get_real_method guarded_eval import_item import_module parse_argstring
    parse_options shell signature
    """
)
READ = {
    "__init__": "custom_completers shell signature",
    "__repr__": "signature",
    "_attr_matches": "_evaluate_expr complete_object dir2",
    "_auto_import": "import_item",
    "_completions": "signature",
    "_default_arguments": "signature",
    "_evaluate_expr": "guarded_eval",
    "_get_keys": "get_real_method",
    "_is_completing_in_cli_context": "shell",
    "_make_signature": "signature",
    "dict_key_matches": "_evaluate_expr _get_keys guarded_eval",
    "dispatch_custom_completer": "custom_completers",
    "global_matches": "guarded_eval",
    "magic_config_matches": "shell",
    "magic_matcher": "shell",
    "python_func_kw_matches": "_default_arguments eval guarded_eval",
    "rectify_completions": "signature",
}
#: What these ask of the shell, of which the completer gets names alone.
OF_SHELL = {"alias_manager", "configurables", "magics_manager", "user_ns"}


def test_all_of_ipythons_completer_that_reaches_objects_was_read():
    """Read what fails here: does anything typed reach code of a cell's by it? Then list it."""
    tree = ast.parse(inspect.getsource(completer))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    new, asked = {}, set()
    for function in functions:
        if function.name == "_extract_code":
            continue  # ours is in its place
        said = list(ast.walk(function))
        attributes = [node for node in said if isinstance(node, ast.Attribute)]
        names = {node.attr for node in attributes}
        names |= {node.id for node in said if isinstance(node, ast.Name)}
        known = READ.get(function.name, "").split()
        if more := names & REACHES - set(known):
            new[function.name] = more
        asked |= {node.attr for node in attributes if ast.unparse(node.value) == "self.shell"}
    assert new == {}
    assert asked <= OF_SHELL


def test_a_size_is_told_of_what_holds_all_that_it_is():
    frame = pd.DataFrame({"n": range(100), "text": ["a" * 50] * 100})
    whole = (1, "a", b"", np.zeros((3, 4)), pd.Series([1, 2]), pd.Index([1]))
    assert all(inspection._variable("x", one).size > 0 for one in whole)
    assert 6_000 < inspection._variable("x", frame).size < 10_000
    parts = ([1], {"a": 1}, (1,), types, len, object(), pd.DataFrame, types.SimpleNamespace())
    assert [inspection._variable("x", one).size for one in parts] == [0] * len(parts)


def test_no_shape_or_size_is_asked_of_a_class_that_a_cell_made():
    """Of pandas' own tables it is; a subclass, and labels of one, have it computed by a cell."""

    class Labels(pd.Index):
        def __len__(self):
            return note("len")

    class Table(pd.DataFrame):
        index = property(lambda _: note("index"))

    class Column(pd.Series):
        _values = property(lambda _: note("values"))

    rows = pd.Index([1, 2])
    labels = Labels._simple_new(rows._values, name=None)
    labelled = pd.DataFrame({"a": [1, 2]}, index=rows)
    vars(labelled)["_mgr"].axes[1] = labels
    assert type(labelled.index) is Labels
    table, column = Table({"a": [1]}), Column([1, 2])
    heard.clear()
    told = [inspection._variable("x", one) for one in (labels, labelled, table, column)]
    assert [one.shape for one in told] == [""] * 4
    assert heard == []

    own = (rows, pd.DataFrame({"a": [1, 2]}), pd.Series([1]), pd.Series(["a"], dtype="category"))
    told = [inspection._variable("x", one) for one in own]
    assert [one.shape for one in told] == ["2", "2 by 1", "1", "1"]
    assert inspection._variable("x", object.__new__(pd.DataFrame)).shape == ""
