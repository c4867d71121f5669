"""What would do the job of what is refused: operations of the host's, and how to write it.

Data, and the little that makes sentences of it. Only what an operation really replaces is here:
nothing starts a process or opens a socket.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from cellblock.analysis.allowlist import SCIENCE
from cellblock.analysis.findings import word_set

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.analysis.findings import Rules


#: Characters of a path, an address or a name that a rewrite repeats.
_MAX_REPEATED = 60
_WRITES = frozenset("wax+")
#: What names a package, with extras and versions; a file does not.
_PACKAGE = re.compile(
    r"([a-z][a-z0-9._-]*+)(?<!\.whl|\.zip|\.txt)(?<!\.gz)(?:\[[^]]*\])?(?:[=<>!~].*)?",
    re.IGNORECASE | re.ASCII,
)
#: Words that a shell, or IPython, makes nothing else of.
_PATH = re.compile(r"(?![-#]|.*://)[^]*?[{}$`~!'\"\\<>|;&()]+")
_URL = re.compile(r"https?://[^]*[{}$`'\"\\<>|;&()]+")


class Replacement(NamedTuple):
    """Operations, as cells call them, and two lines of a cell that use all of these.

    ``imports`` is what those lines import and the policy may not allow, of ``package``;
    ``otherwise`` is what does less of the job, with fewer operations.
    """

    operations: tuple[str, ...]
    rewrite: str
    imports: str = ""
    package: str = ""
    otherwise: tuple[Replacement, ...] = ()

    def remedy(
        self, rules: Rules, *, first: str = "", more: str = "", asked: str = ""
    ) -> tuple[str, str]:
        """Return the sentence that says so, and a rewrite where all that it uses is granted.

        ``first`` is what could be done under this policy, and ``asked`` where it is asked for: both
        are fragments. ``more`` is a line that would have the policy allow what was refused.
        """
        ways = (self, *self.otherwise)
        granted = next((way for way in ways if rules.operations.issuperset(way.operations)), None)
        if granted is not None:
            choices, lines = [f"ask the host, {' and '.join(granted.operations)}", asked], [more]
        else:
            choices, lines = [first, asked], [_grant(ways[-1]), more]
        text = sentence(*choices, put(rules, *lines))
        return text, _shown(granted, rules) if granted else ""


#: The line of a policy file that grants an operation; places, and what may be installed, are
#: examples.
GRANTS: Mapping[str, str] = MappingProxyType(
    {
        "llm": 'llm = { base_url = "https://api.openai.com/v1", models = ["gpt-4.1-mini"] }',
        "ops.http": 'ops.http.hosts = ["api.example.org"]',
        "ops.install": 'ops.install = { index = "https://pypi.org/simple", allow = ["PACKAGE"] }',
        "ops.list_dir": 'ops.list_dir.roots = ["{project}"]',
        "ops.read_file": 'ops.read_file.roots = ["{project}"]',
        "ops.write_file": 'ops.write_file.roots = ["{project}/work?"]',
    }
)


def _grant(way: Replacement) -> str:
    lines = [GRANTS[name].replace("PACKAGE", way.package) for name in way.operations]
    return f"{' and '.join(lines)} (then call {' and '.join(way.operations)})"


def put(rules: Rules, *lines: str) -> str:
    """Return the fragment that says which of ``lines`` to put in the policy; empty for none."""
    said = " or ".join(filter(None, lines))
    return f"put {said} in {rules.file}" if said else ""


def sentence(*choices: str) -> str:
    """Return what can be done, of fragments that may be empty."""
    text = ", or ".join(filter(None, choices))
    return f"{text[0].upper()}{text[1:]}."


_SCIENCE: Final = 'add.allowed_modules = ["@science"]'
#: How the policy of those who have none of their own is called: they can choose another kernel.
PRESET: Final = 'a policy file with extends = "safe"'


def allowing(module: str, rules: Rules) -> str:
    """Return the line of a policy file that allows a module, if there is one that does.

    Packages come whole; what is not installed can't be allowed, unless cells may install it.
    """
    top = module.partition(".")[0]
    if top in SCIENCE:
        return _SCIENCE
    can_install = top.isidentifier() and "ops.install" in rules.operations
    is_there = top in sys.stdlib_module_names or can_install or is_installed(top)
    return f'add.allowed_modules = ["{top}"]' if is_there else ""


@lru_cache(maxsize=256)
def is_installed(top: str) -> bool:
    """Whether there is a top-level module of this name; nothing is imported to find out."""
    try:
        return top.isidentifier() and importlib.util.find_spec(top) is not None
    except (ImportError, ValueError, OSError):
        return False


def _shown(way: Replacement, rules: Rules) -> str:
    return way.rewrite if not way.imports or rules.allows_module(way.imports) else ""


_READ_FILE: Final = ("ops.read_file",)


def _read(path: str = '"data/a.csv"') -> Replacement:
    return Replacement(_READ_FILE, f"text = ops.read_file({path})\nlines = text.splitlines()")


def _read_bytes(path: str) -> Replacement:
    return Replacement(
        _READ_FILE, f"import io\nfile = io.BytesIO(ops.read_file({path}, binary=True))"
    )


def _write(path: str = '"out.txt"') -> Replacement:
    return Replacement(("ops.write_file",), f'text = "…"\nops.write_file({path}, text)')


def _append(path: str = '"log.txt"', *, binary: bool = False) -> Replacement:
    name, more, way = ("data", 'b"..."', ", binary=True") if binary else ("text", '"…"', "")
    lines = f"{name} = ops.read_file({path}{way}) + {more}\nops.write_file({path}, {name})"
    return Replacement(("ops.read_file", "ops.write_file"), lines)


def _list(path: str = '"data"') -> Replacement:
    lines = f'for entry in ops.list_dir({path}):\n    print(entry["name"])'
    return Replacement(("ops.list_dir",), lines)


def _http(url: str = '"https://api.example.org/items"') -> Replacement:
    return Replacement(("ops.http",), f"response = ops.http({url})\nitems = response.json()")


def _install(name: str) -> Replacement:
    module = name.replace("-", "_").lower()
    lines = f'ops.install("{name}")\nimport {module}'
    return Replacement(("ops.install",), lines, imports=module, package=name)


#: To choose one of these is to look at what there is first.
_BOTH = Replacement(
    ("ops.list_dir", "ops.read_file"),
    'names = [entry["name"] for entry in ops.list_dir("data")]\ntext = ops.read_file("data/a.csv")',
    otherwise=(_list(), _read()),
)
#: Nothing is shown that would replace what these keep.
_UPDATE = Replacement(("ops.read_file", "ops.write_file"), "")
_CREATE = Replacement(("ops.write_file",), "")
_LLM = Replacement(("llm",), 'answer = llm("…")\nprint(answer)')

#: By module, or by a name of one.
MODULES: Mapping[str, Replacement] = MappingProxyType(
    {
        "glob": _list(),
        "shutil": _BOTH,
    }
    | dict.fromkeys(word_set("os.fwalk os.listdir os.scandir os.walk"), _list())
    | dict.fromkeys(
        word_set("""
            aiohttp http.client httpx requests urllib.request urllib3
        """),
        _http(),
    )
    | dict.fromkeys(
        word_set("""
            anthropic cohere google.genai google.generativeai groq langchain_anthropic
            langchain_openai litellm mistralai ollama openai
        """),
        _LLM,
    )
    | dict.fromkeys(
        word_set("""
            codecs fileinput io.open linecache os.fdopen os.open pathlib.Path pathlib.PosixPath
        """),
        _read(),
    )
)
#: By the first word of a command, or the name of a magic.
_COMMANDS: Mapping[str, Callable[..., Replacement]] = MappingProxyType(
    {
        "cat": _read,
        "curl": _http,
        "dir": _list,
        "head": _read,
        "less": _read,
        "ll": _list,
        "load": _read,
        "ls": _list,
        "more": _read,
        "pycat": _read,
        "save": _write,
        "tail": _read,
        "wget": _http,
        "writefile": _write,
    }
)
#: What of pandas reads a table, by the ending of its file's name.
_READERS: Mapping[str, str] = MappingProxyType(
    {
        "csv": "read_csv",
        "feather": "read_feather",
        "json": "read_json",
        "parquet": "read_parquet",
        "txt": "read_csv",
        "xls": "read_excel",
        "xlsx": "read_excel",
    }
)
_INSTALLERS = frozenset({"conda", "mamba", "micromamba", "pip", "pip3", "uv"})
#: Options of installers that change nothing of what is installed.
_MANNERS = frozenset({"--quiet", "--upgrade", "--user", "-U", "-q"})
#: Options with which a magic writes at the end of a file.
_APPENDS = frozenset({"--append", "-a"})


def for_open(call: ast.Call | None) -> Replacement:
    """Return what replaces a call of ``open``; one that is only named reads."""
    path, mode = _arguments(call)
    if "a" in mode:
        return _append(path or '"log.txt"', binary="b" in mode)
    if "+" in mode:
        return _UPDATE
    if "x" in mode:
        return _CREATE
    if "w" in mode:
        return _write(path or '"out.txt"')
    return _read_bytes(path or '"data/a.png"') if "b" in mode else _read(path or '"data/a.csv"')


def by_package(call: ast.Call | None, rules: Rules) -> str:
    """Return how pandas does what a call of ``open`` would, where cells have it and files."""
    path, mode = _arguments(call)
    if "pandas" not in rules.raw_modules:
        return ""
    if _WRITES.intersection(mode):
        folder = _quoted(f"{rules.writes}/out.csv")
        return f"write it with pandas, as df.to_csv({folder})" if rules.writes and folder else ""
    return read_by_pandas(rules, path)


def read_by_pandas(rules: Rules, path: str = "") -> str:
    """Return how pandas reads a table, where cells have it and files; ``path`` is quoted."""
    if "pandas" not in rules.raw_modules or not rules.reads:
        return ""
    ending = path.strip("\"'").rpartition(".")[2]
    reader = _READERS.get(ending, "read_csv") if path else "read_csv"
    known = not path or ending in _READERS
    shown = path if path and known else '"data/a.csv"'
    return f"read tables with pandas, as pd.{reader}({shown})"


def _arguments(call: ast.Call | None) -> tuple[str, str]:
    """Return path and mode as far as the source says them."""
    if call is None:
        return "", ""
    given: dict[str | None, ast.expr] = dict(zip(("file", "mode"), call.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in call.keywords}
    path, mode = (_text(given.get(name)) for name in ("file", "mode"))
    return _quoted(path) if path else "", mode


def _text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _quoted(text: str) -> str:
    if len(text) > _MAX_REPEATED or not text.isprintable():
        return ""
    plain = not set(text) & set('"\\')
    return f'"{text}"' if plain else repr(text)


def for_command(line: str) -> Replacement | None:
    """Return what replaces a shell command, or a magic of the same words, if anything does.

    It repeats the name of a file, an address or a package that stands there alone.
    """
    program, *given = line.split() or [""]
    program = program.lstrip("%")
    if program in _INSTALLERS and "install" in given:
        asked = [word for word in given[given.index("install") + 1 :] if word not in _MANNERS]
        package = _PACKAGE.fullmatch(asked[0].strip("'\"")) if len(asked) == 1 else None
        return _install(package[1]) if package and len(package[1]) <= _MAX_REPEATED else None
    make = _COMMANDS.get(program)
    if make is None:
        return None
    named = [word for word in given if word not in _APPENDS]
    if make is _write and len(named) < len(given):
        make = _append
    fits = len(named) == 1 and (_URL if make is _http else _PATH).fullmatch(named[0])
    shown = _quoted(named[0]) if fits else ""
    return make(shown) if shown else make()
