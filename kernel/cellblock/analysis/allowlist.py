"""The allowlist of record: the modules that cells may import in mode safe, one row per module.

The rows are sorted by module. A submodule has a row of its own. ``docs/allowlist.md`` is made from
the rows.

Two modules are left out on purpose: ``getpass``, because a cell could use its hidden prompt as a
trap for passwords, and ``threading``, because its threads outlive the cell.
"""

from __future__ import annotations

from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Entry(NamedTuple):
    """The row of one allowed module."""

    module: str

    kind: str
    """``pure``, ``ambient: clock``, ``ambient: entropy``, ``ambient: bundled data`` or
    ``restricted``. The results of a pure module depend only on its arguments. An ambient module
    also uses a clock, randomness or data that comes with Python. Cells see only some names of a
    restricted module."""

    names: tuple[str, ...] | None
    """The names that cells see. None: all public names, which are those in the module's ``__all__``
    if it has one."""

    rationale: str
    """Why the module is allowed, or what the row leaves out of it."""


def _names(text: str) -> tuple[str, ...]:
    return tuple(sorted(text.split()))


_ASYNCIO = _names("""
    ALL_COMPLETED BoundedSemaphore Barrier BrokenBarrierError CancelledError Condition Event
    FIRST_COMPLETED FIRST_EXCEPTION Future InvalidStateError LifoQueue Lock PriorityQueue Queue
    QueueEmpty QueueFull QueueShutDown Semaphore Task TaskGroup Timeout TimeoutError all_tasks
    as_completed create_task current_task ensure_future gather get_event_loop get_running_loop
    iscoroutine iscoroutinefunction isfuture run run_coroutine_threadsafe shield sleep timeout
    timeout_at to_thread wait wait_for wrap_future
""")
_CONCURRENT = _names("""
    ALL_COMPLETED BrokenExecutor CancelledError Executor FIRST_COMPLETED FIRST_EXCEPTION Future
    InvalidStateError ThreadPoolExecutor TimeoutError as_completed wait
""")
_CONTEXTLIB = _names("""
    AbstractAsyncContextManager AbstractContextManager AsyncContextDecorator AsyncExitStack
    ContextDecorator ExitStack aclosing asynccontextmanager closing contextmanager nullcontext
    redirect_stderr redirect_stdout suppress
""")
_DISPLAY = _names("""
    Audio Code DisplayHandle GeoJSON HTML Image JSON Latex Markdown Math Pretty ProgressBar SVG
    TextDisplayObject clear_output display display_html display_jpeg display_json
    display_latex display_markdown
    display_png display_pretty display_svg publish_display_data update_display
""")
_ENUM = _names("""
    CONFORM CONTINUOUS EJECT Enum EnumCheck EnumMeta EnumType Flag FlagBoundary IntEnum IntFlag
    KEEP NAMED_FLAGS ReprEnum STRICT StrEnum UNIQUE auto member nonmember property show_flag_values
    unique verify
""")
_FUTURE = _names("""
    absolute_import annotations division generator_stop generators nested_scopes print_function
    unicode_literals with_statement
""")
_GZIP = _names("BadGzipFile GzipFile compress decompress open")
_IO = _names("BytesIO SEEK_CUR SEEK_END SEEK_SET StringIO TextIOWrapper UnsupportedOperation")
_LOGGING = _names("""
    BASIC_FORMAT CRITICAL DEBUG ERROR FATAL Filter Formatter Handler INFO LogRecord Logger
    LoggerAdapter NOTSET NullHandler StreamHandler WARN WARNING addLevelName basicConfig
    captureWarnings critical debug disable error exception fatal getLevelName
    getLevelNamesMapping getLogger info log makeLogRecord warn warning
""")
_OS = _names("""
    PathLike altsep curdir devnull extsep fspath linesep name pardir pathsep sep
""")
_OS_PATH = _names("""
    altsep basename commonpath commonprefix curdir dirname extsep isabs join normcase normpath
    pardir pathsep sep split splitdrive splitext splitroot
""")
_PATHLIB = _names("PurePath PurePosixPath PureWindowsPath")
_SYS = _names("""
    byteorder float_info getrecursionlimit getsizeof hash_info int_info maxsize maxunicode modules
    platform stderr stdout version version_info
""")
_TIME = _names("""
    CLOCK_BOOTTIME CLOCK_MONOTONIC CLOCK_MONOTONIC_RAW CLOCK_PROCESS_CPUTIME_ID CLOCK_REALTIME
    CLOCK_TAI CLOCK_THREAD_CPUTIME_ID altzone asctime clock_getres clock_gettime clock_gettime_ns
    ctime daylight get_clock_info gmtime localtime mktime monotonic monotonic_ns perf_counter
    perf_counter_ns process_time process_time_ns sleep strftime strptime struct_time thread_time
    thread_time_ns time time_ns timezone tzname
""")
_TRACEBACK = _names("""
    format_exc format_exception format_exception_only print_exc print_exception
""")
_TYPES = _names("""
    AsyncGeneratorType BuiltinFunctionType BuiltinMethodType CoroutineType DynamicClassAttribute
    EllipsisType GeneratorType GenericAlias MappingProxyType MethodType ModuleType NoneType
    NotImplementedType SimpleNamespace TracebackType UnionType get_original_bases new_class
    prepare_class resolve_bases
""")
_UUID = _names("""
    MAX NAMESPACE_DNS NAMESPACE_OID NAMESPACE_URL NAMESPACE_X500 NIL RESERVED_FUTURE
    RESERVED_MICROSOFT RESERVED_NCS RFC_4122 SafeUUID UUID uuid3 uuid4 uuid5 uuid8
""")
_ZIPFILE = _names("""
    BadZipFile LargeZipFile ZIP_BZIP2 ZIP_DEFLATED ZIP_LZMA ZIP_STORED ZipFile ZipInfo
""")
_ZONEINFO = _names("""
    InvalidTZPathWarning TZPATH ZoneInfo ZoneInfoNotFoundError available_timezones
""")
_WEAKREF = _names("""
    CallableProxyType ProxyType ProxyTypes ReferenceType WeakKeyDictionary WeakSet
    WeakValueDictionary finalize getweakrefcount getweakrefs proxy ref
""")
_WARNINGS = _names("catch_warnings deprecated filterwarnings resetwarnings simplefilter warn")

ALLOWLIST: tuple[Entry, ...] = (
    Entry("IPython.core.display", "restricted", _DISPLAY, "the former place of IPython.display"),
    Entry("IPython.core.display_functions", "restricted", _DISPLAY, "the same, since IPython 7.23"),
    Entry("IPython.display", "restricted", _DISPLAY, "shows data; reads no file and no URL"),
    Entry("__future__", "restricted", _FUTURE, "feature flags, except one that changes parsing"),
    Entry("abc", "pure", None, "abstract base classes"),
    Entry("array", "pure", None, "typed arrays"),
    Entry("ast", "restricted", ("literal_eval",), "reads literals; other functions make code"),
    Entry("asyncio", "restricted", _ASYNCIO, "tasks, queues, locks; no sockets, no processes"),
    Entry("base64", "pure", None, "encoding"),
    Entry("binascii", "pure", None, "encoding"),
    Entry("bisect", "pure", None, "sorted lists"),
    Entry("calendar", "ambient: clock", None, "calendars"),
    Entry("cmath", "pure", None, "complex mathematics"),
    Entry("collections", "pure", None, "containers"),
    Entry("collections.abc", "pure", None, "container interfaces"),
    Entry("colorsys", "pure", None, "colour systems"),
    Entry("concurrent.futures", "restricted", _CONCURRENT, "thread pools; no processes"),
    Entry("contextlib", "restricted", _CONTEXTLIB, "context managers, except chdir"),
    Entry("contextvars", "pure", None, "context variables"),
    Entry("copy", "pure", None, "copies"),
    Entry("csv", "pure", None, "reads and writes tables as text; opens no file itself"),
    Entry("dataclasses", "pure", None, "data classes"),
    Entry("datetime", "ambient: clock", None, "dates and times"),
    Entry("decimal", "pure", None, "decimal arithmetic"),
    Entry("difflib", "pure", None, "differences between sequences"),
    Entry("enum", "restricted", _ENUM, "enumerations, without functions that write into modules"),
    Entry("fractions", "pure", None, "rational numbers"),
    Entry("functools", "pure", None, "higher-order functions"),
    Entry("graphlib", "pure", None, "topological order"),
    Entry("gzip", "restricted", _GZIP, "in memory"),
    Entry("hashlib", "pure", None, "digests"),
    Entry("heapq", "pure", None, "priority queues"),
    Entry("hmac", "pure", None, "keyed digests"),
    Entry("html", "pure", ("escape", "unescape"), "escapes text"),
    Entry("io", "restricted", _IO, "streams in memory; no files"),
    Entry("ipaddress", "pure", None, "address arithmetic; no network"),
    Entry("itertools", "pure", None, "iterators"),
    Entry("json", "pure", None, "JSON"),
    Entry("json.decoder", "pure", ("JSONDecodeError", "JSONDecoder"), "JSON"),
    Entry("json.encoder", "pure", ("JSONEncoder",), "JSON"),
    Entry("keyword", "pure", None, "Python's keywords"),
    Entry("logging", "restricted", _LOGGING, "logs to streams; no files, no sockets"),
    Entry("math", "pure", None, "mathematics"),
    Entry("numbers", "pure", None, "number classes"),
    Entry("operator", "pure", None, "operators as functions"),
    Entry("os", "restricted", _OS, "constants; no files, processes or environment"),
    Entry("os.path", "restricted", _OS_PATH, "path arithmetic; looks at no file"),
    Entry("pathlib", "restricted", _PATHLIB, "path arithmetic; no files"),
    Entry("pprint", "pure", None, "pretty printing"),
    Entry("queue", "pure", None, "queues between threads of a pool"),
    Entry("random", "ambient: entropy", None, "pseudo-random numbers"),
    Entry("re", "pure", None, "regular expressions"),
    Entry("reprlib", "pure", None, "short representations"),
    Entry("secrets", "ambient: entropy", None, "randomness"),
    Entry("statistics", "pure", None, "statistics"),
    Entry("string", "pure", None, "string constants and templates"),
    Entry("struct", "pure", None, "binary records"),
    Entry("sys", "restricted", _SYS, "facts about Python, its streams, names of modules"),
    Entry("textwrap", "pure", None, "text layout"),
    Entry("time", "ambient: clock", _TIME, "clock; can't set it, and takes no thread's address"),
    Entry("timeit", "restricted", ("default_timer",), "clock; other functions run text as code"),
    Entry("traceback", "restricted", _TRACEBACK, "formats errors; no frames"),
    Entry("types", "restricted", _TYPES, "types that can't make code"),
    Entry("typing", "pure", None, "type hints"),
    Entry("unicodedata", "ambient: bundled data", None, "character database"),
    Entry("urllib.parse", "pure", None, "splits and joins URLs; no network"),
    Entry("uuid", "restricted", _UUID, "identifiers, except uuid1, which reveals the network card"),
    Entry("warnings", "restricted", _WARNINGS, "warnings, except functions that quote files"),
    Entry("weakref", "restricted", _WEAKREF, "weak references; nothing that takes methods apart"),
    Entry("xml.etree.ElementTree", "pure", None, "trees in memory; no files, no entities"),
    Entry("zipfile", "restricted", _ZIPFILE, "archives in memory; no files"),
    Entry("zlib", "pure", None, "compression in memory"),
    Entry(
        "zoneinfo",
        "ambient: bundled data",
        _ZONEINFO,
        "time zones, except functions that change the search path",
    ),
)
#: The modules of record, with the allowed names of each. None: all public names.
MODULES: Mapping[str, tuple[str, ...] | None] = MappingProxyType(
    {entry.module: entry.names for entry in ALLOWLIST}
)

#: The group ``@science`` of ``allowed_modules``: packages that read data, compute and draw. They
#: are too large to check line by line. The OS layer stops whatever else they can do.
SCIENCE: Mapping[str, str] = MappingProxyType(
    {
        "PIL": "images",
        "altair": "charts",
        "anywidget": "controls",
        "bokeh": "charts",
        "bqplot": "charts",
        "branca": "used by folium",
        "comm": "messages of controls",
        "cycler": "used by matplotlib",
        "dateutil": "dates, used by pandas",
        "dspy": "language-model programs",
        "empiricaldist": "distributions, with pandas",
        "folium": "maps; their tiles need a network",
        "getpass": "asks the user, through the front end",
        "ipywidgets": "controls",
        "joblib": "used by sklearn",
        "matplotlib": "charts",
        "matplotlib_inline": "used by matplotlib",
        "mpl_toolkits": "charts, with matplotlib",
        "narwhals": "tables of different packages",
        "networkx": "graphs",
        "numexpr": "arrays, used by pandas",
        "numpy": "arrays",
        "openpyxl": "spreadsheets, used by pandas",
        "packaging": "version numbers",
        "pandas": "tables",
        "patsy": "formulas, used by statsmodels",
        "plotly": "charts",
        "polars": "tables",
        "pyarrow": "tables and their files",
        "pydantic": "validation",
        "pydantic_core": "used by pydantic",
        "pylab": "matplotlib and numpy under one name",
        "pytz": "time zones, used by pandas",
        "scipy": "numerical methods",
        "seaborn": "charts",
        "six": "used by dateutil",
        "skimage": "images, with scipy",
        "sklearn": "machine learning",
        "statsmodels": "statistics",
        "sympy": "algebra",
        "threadpoolctl": "used by sklearn",
        "tqdm": "progress bars",
        "traitlets": "used by ipywidgets",
        "typing_extensions": "type hints",
        "tzdata": "time zones, used by pandas",
        "vega_datasets": "example tables for altair; some need a network",
        "xarray": "labelled arrays",
    }
)
#: The groups of packages that ``allowed_modules`` may name, and the packages of each.
GROUPS: Mapping[str, Mapping[str, str]] = MappingProxyType({"@science": SCIENCE})


def expand_groups(names: Iterable[str]) -> list[str]:
    """Return ``names`` with each known group replaced by its packages. No name comes twice."""
    expanded = chain.from_iterable(GROUPS.get(name, (name,)) for name in names)
    return list(dict.fromkeys(expanded))
