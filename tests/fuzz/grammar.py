"""The attack grammar: where a program starts, how it hops on, how it spells names, where it ends.

A program takes a start object, walks over attributes, items and calls, each by one of many
accessors and each name spelt in one of many ways, and shows whatever it holds to the canary. Most
steps lead nowhere: a walk goes on from where it stood.
"""

from __future__ import annotations

from hypothesis import strategies as st

#: Expressions that give a program something to start from.
STARTS = (
    "(lambda: 1)", "fn", "Cls", "Cls()", "Cls().m", "gen()", "agen()", "coro()", "tb", "error",
    "heapq.merge", "heapq.merge([1])", "json", "json.loads", "collections.OrderedDict",
    "contextlib.contextmanager(gen)()", "contextlib.ExitStack()", "functools.partial(fn)",
    "functools.lru_cache(fn)", "functools.singledispatch(fn)", "functools.cached_property(fn)",
    "operator.attrgetter('x')", "operator.itemgetter(0)", "operator.methodcaller('x')",
    "asyncio.get_running_loop()", "asyncio.Lock()", "asyncio.Future", "asyncio.sleep",
    "typing.ForwardRef('x')", "typing.NewType('N', int)", "typing.get_type_hints",
    "typing.Annotated[fn, 1]", "typing.TypeVar('T')", "enum.Enum", "enum.EnumType", "Colour",
    "Colour.RED", "Data", "Data()", "dataclasses.fields(Data)[0]", "dataclasses.dataclass",
    "types.SimpleNamespace()", "types.MethodType(fn, 1)", "types.coroutine", "types.new_class",
    "string.Formatter()", "string.Template('')", "io.StringIO()", "re.compile('')", "random.random",
    "random.seed", "logging.getLogger()", "logging.Handler", "pathlib.PurePosixPath('a')",
    "weakref.ref(Cls)", "weakref.finalize", "weakref.WeakValueDictionary()", "copy.copy",
    "contextvars.copy_context()", "concurrent.futures.ThreadPoolExecutor", "len", "print", "type",
    "object", "getattr", "super(Cls, Cls())", "property(fn)", "classmethod(fn)", "memoryview(b'')",
    "IPython.display.HTML", "display", "decimal.getcontext()", "zoneinfo.ZoneInfo", "uuid.UUID",
    "traceback.format_exc", "warnings.warn", "statistics.mean", "Out", "In", "input", "abc.ABC",
)  # fmt: skip

#: Names that lead out at once, tried more often than the rest.
OUTWARD = (
    "__globals__", "__builtins__", "__self__", "__closure__", "__code__", "gi_frame", "cr_frame",
    "ag_frame", "tb_frame", "f_globals", "f_builtins", "f_back", "f_code", "_convert_",
)  # fmt: skip

#: Names that lead out, and some that lead on to them.
NAMES = (
    "__globals__", "__builtins__", "__code__", "__closure__", "__self__", "__func__", "__wrapped__",
    "__class__", "__base__", "__bases__", "__mro__", "__subclasses__", "__dict__", "__module__",
    "__init__", "__call__", "__get__", "__getattribute__", "__getattr__", "__reduce__",
    "__reduce_ex__", "__getstate__", "__defaults__", "__kwdefaults__", "__objclass__", "__spec__",
    "__loader__", "__import__", "__traceback__", "__context__", "__callback__", "__origin__",
    "__init_subclass__", "__new__", "__enter__", "__exit__", "__subclasshook__", "__annotations__",
    "gi_frame", "gi_code", "cr_frame", "cr_await", "ag_frame", "tb_frame", "tb_next", "f_back",
    "f_globals", "f_builtins", "f_locals", "f_code", "fget", "func", "gen", "obj", "args", "stack",
    "cell_contents", "_convert_", "_thread_id", "_ready", "_selector", "_ssock", "_threads",
    "_work_queue", "_context", "_module", "_os", "_sys", "sys", "os", "io", "modules", "builtins",
    "manager", "registry", "dispatch", "parser", "_flavour", "_stream", "_callbacks", "_coro",
    "get_coro", "get_stack", "get_loop", "format", "encoder", "handlers", "root", "_registry", "run",
)  # fmt: skip

#: How a name is put together so that no literal shows it. ``{n}`` is the name's repr.
SPELLINGS = (
    "{n}", "{h} + {t}", "''.join([{h}, {t}])", "{r}[::-1]", "bytes.fromhex({x}).decode()",
    "'%s%s' % ({h}, {t})", "'{{}}{{}}'.format({h}, {t})", 'f"{{{h}}}{{{t}}}"', "str({n})",
    "Name({n})", "json.loads(json.dumps({n}))", "re.sub('-', '_', {d})", "Colour.__members__ and {n}",
    "chr({o}) + {s}", "next(iter([{n}]))", "collections.UserString({n}).data", "{n}.casefold()",
)  # fmt: skip

#: How an attribute is read. ``{o}`` is the object, ``{n}`` an expression for the name.
ACCESSORS = (
    "getattr({o}, {n})", "operator.attrgetter({n})({o})", "pattern({o}, {n})",
    "object.__getattribute__({o}, {n})", "type.__getattribute__({o}, {n})",
    "functools.reduce(getattr, [{n}], {o})", "functools.partial(getattr, {o})({n})",
    "list(map(getattr, [{o}], [{n}]))[0]", "list(itertools.starmap(getattr, [({o}, {n})]))[0]",
    "operator.methodcaller('__getattribute__', {n})({o})", "{o}.__dict__[{n}]",
    "pattern({o}, '__getattri' + 'bute__')({n})", "pattern({o}, '__dict__')[{n}]",
    "string.Formatter().get_field('0.' + {n}, ({o},), {{}})[0]", "held({o}, {n})",
    "type({o}).__dict__[{n}].__get__({o}, type({o}))", "weakly({o}, {n})", "aliased({o}, {n})",
    "pool(getattr, {o}, {n})", "pool(object.__getattribute__, {o}, {n})", "copied({o}, {n})",
    "pool(operator.attrgetter({n}), {o})", "generic({o}, {n})", "bound({o}, {n})", "stacked({o}, {n})",
)  # fmt: skip

#: Other ways on from an object.
HOPS = (
    "{o}()", "{o}({o})", "type({o})", "{o}[0]", "{o}[-1]", "next(iter({o}))", "list({o}.values())[0]",
    "{o}.__class__", "{o}.__dict__", "super(type({o}), {o})", "copy.copy({o})", "{o}.__reduce_ex__(4)[0]",
    "{o}.__wrapped__", "failing({o})", "{o}.__closure__[0].cell_contents", "hints({o})", "made({o})",
    "{o} | {{}}", "compared({o})", "iter({o})", "dir({o}) and {o}", "entered({o})", "{o}.__mro__[-1]",
)  # fmt: skip

#: What reads an attribute but shows it as text only.
TEXTS = (
    "('{{0.' + {n} + '}}').format({o})", "('{{x.' + {n} + '}}').format_map({{'x': {o}}})",
    "string.Formatter().vformat('{{x.' + {n} + '}}', (), {{'x': {o}}})",
    "pool(('{{0.' + {n} + '}}').format, {o})", "('{{0:{{1.' + {n} + '}}}}').format('', {o})",
)  # fmt: skip


def spelt(name: str, spelling: str) -> str:
    """Return an expression for ``name``, spelt as ``spelling`` says."""
    half = len(name) // 2
    return spelling.format(
        n=repr(name),
        h=repr(name[:half]),
        t=repr(name[half:]),
        r=repr(name[::-1]),
        x=repr(name.encode().hex()),
        d=repr(name.replace("_", "-")),
        o=ord(name[0]),
        s=repr(name[1:]),
    )


_names = st.builds(
    spelt, st.sampled_from(OUTWARD) | st.sampled_from(NAMES), st.sampled_from(SPELLINGS)
)
_read = st.builds(
    lambda a, n: a.replace("{n}", n.replace("{", "{{").replace("}", "}}")),
    st.sampled_from(ACCESSORS),
    _names,
)
_step = _read | _read | st.sampled_from(HOPS)


def _walk(start: str, steps: list[str], text: str | None) -> str:
    """Return the program: one step at a time, and one that fails leaves the walk where it was."""
    lines = [f"v = {start}", "see(v)"]
    shown = [f"v = {step.format(o='v')}; see(v)" for step in steps]
    if text is not None:
        shown.append(f"told({text.format(o='v')})")
    for step in shown:
        lines += ["try:", f"    {step}", "except Exception: pass"]
    return "\n".join(lines)


_text = st.builds(lambda t, n: t.replace("{n}", n.replace("{", "{{").replace("}", "}}")),
                  st.sampled_from(TEXTS), _names)  # fmt: skip

programs = st.builds(
    _walk,
    st.sampled_from(STARTS),
    st.lists(_step, min_size=1, max_size=6),
    st.none() | _text,
)
