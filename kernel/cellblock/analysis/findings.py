"""What the analysis says about a cell: rules, one ``Finding`` per refused place, and remedies.

Positions are those of the source analysed: lines from 1, columns from 0 and in characters.
``ast`` counts UTF-8 bytes, so columns are translated here, once, and only for findings.

A remedy says what would do the job of what is refused: an operation of the host's, and how to write
it. Only what an operation really replaces has one: nothing starts a process or opens a socket.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cellblock.analysis.allowlist import SCIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    #: Nodes that know where they stand.
    Positioned = ast.expr | ast.stmt | ast.alias | ast.arg | ast.excepthandler | ast.pattern


def word_set(text: str) -> frozenset[str]:
    """Return the words of a table that is written as text."""
    return frozenset(text.split())


# --- the rules: one id each, the same in findings, docs/rules.md, tests and the audit log ---------


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: ``why`` and ``remedy`` serve where a finding has nothing more precise to say."""

    id: str
    title: str
    why: str
    remedy: str


_TABLE = (
    Rule(
        "argument-not-allowed",
        "A magic's argument is not allowed",
        "this argument makes the magic run text that cannot be checked, or write a file",
        "Give the magic plain text without {braces} and $names, and no file options.",
    ),
    Rule(
        "attribute-not-allowed",
        "An attribute that leads to interpreter internals",
        "leads from an ordinary object into the interpreter's own objects",
        "Use the public interface of the object.",
    ),
    Rule(
        "builtin-not-allowed",
        "A builtin that this policy refuses",
        "reaches beyond the cell's own values",
        "Work on values that the cell was given, or ask the host for an operation.",
    ),
    Rule(
        "cell-not-approved",
        "A cell that nobody approved",
        "This text is not among the cells that were approved",
        "Have it approved: cellblock approve NOTEBOOK. Until then run a cell that is.",
    ),
    Rule(
        "import-not-allowed",
        "A module that is not on the allowlist",
        "is not on this policy's list of allowed modules",
        "Use an allowed module, or put it in add.allowed_modules of your policy file.",
    ),
    Rule(
        "magic-not-allowed",
        "A magic that is not on the allowlist",
        "is not on this policy's list of allowed magics",
        "Write it in Python, or put it in add.magics of your policy file.",
    ),
    Rule(
        "module-name-not-allowed",
        "A name of an allowed module that this policy holds back",
        "is not among the names that this policy allows from the module",
        "Use an allowed name, or put the module in add.allowed_modules of your policy file.",
    ),
    Rule(
        "name-not-allowed",
        "A name that belongs to the interpreter",
        "belongs to the interpreter, not to the cell",
        "Choose another name.",
    ),
    Rule(
        "narrowing-not-kept",
        "A narrowing that can't be put in force",
        "can't be put in force here",
        "Narrow something else, or change the policy file.",
    ),
    Rule(
        "node-not-allowed",
        "Syntax that cellblock does not know",
        "is syntax that this version of cellblock does not know, so nobody has judged it",
        "Write it in older syntax, or update cellblock.",
    ),
    Rule(
        "not-a-template",
        "A cell that is no template",
        "This policy runs shipped templates only, and this cell names none",
        "Begin the cell with %%template NAME, and give its state as JSON. %template lists them.",
    ),
    Rule(
        "operation-not-allowed",
        "An operation on the machine, met at run time",
        "is refused by this policy",
        "Work on the cell's own values, or ask the host for an operation.",
    ),
    Rule(
        "policy-only-narrows",
        "A change that would allow more",
        "would allow more than the policy does",
        "Only the operator can allow more, in the policy of the kernel.",
    ),
    Rule(
        "relative-import",
        "A relative import",
        "a notebook cell is not inside a package, so a relative import can only reach files",
        "Import an allowed module by its full name.",
    ),
    Rule(
        "shell-escape",
        "A shell command",
        "starts a process on the machine",
        "Do it in Python, or ask the host for an operation.",
    ),
    Rule(
        "shell-object",
        "The shell object itself",
        "is the running shell: whoever holds it can run unchecked text",
        "Use a magic (%name) where one is allowed; display() and input() are plain functions here.",
    ),
    Rule(
        "source-too-complex",
        "Source that cannot be checked",
        "is nested too deeply to be checked, and what is not checked does not run",
        "Break the expression up into several statements.",
    ),
    Rule(
        "template-definitions",
        "A template that does more than define",
        "runs when the template is loaded, not when it is asked for",
        "Put it into a function that run(state) calls.",
    ),
    Rule(
        "template-not-found",
        "A template that is not shipped",
        "No template of this name is shipped",
        "%template lists those that are.",
    ),
    Rule(
        "template-state",
        "A state that the template does not take",
        "This is not a state that the template takes",
        "%template NAME shows the schema that a state has to fit.",
    ),
)

RULES: Mapping[str, Rule] = MappingProxyType({rule.id: rule for rule in _TABLE})


#: A sentence, or one with a rewrite.
Remedy = str | tuple[str, str]
EXCERPT_LIMIT = 200
SUBJECT_LIMIT = 100
#: More findings than this say nothing new, and would let a cell flood its own denial.
FINDINGS_LIMIT = 100
#: What ends a line for Python.
LINE_END = re.compile(r"\r\n|\r|\n")
_WORD = re.compile(r"\w*")


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One place in a cell that the policy refuses.

    ``excerpt`` is the source line with each tab as one blank, so that a caret put at ``column``
    stands right; of a line longer than 200 characters it is a part, and ``cut`` says how many
    characters are missing on its left. ``why`` is a sentence fragment about the subject,
    ``rewrite`` a line or two of a cell that do the same with an operation of the host's.
    """

    line: int
    column: int
    end_column: int
    rule: str
    subject: str
    excerpt: str
    why: str
    remedy: str
    cut: int = 0
    rewrite: str = ""


@dataclass(slots=True)
class Report:
    """Collects the findings of one source; ``shift`` is added to every line number."""

    source: str
    rules: Rules
    shift: int = 0
    #: Analyses code that a magic carries; ``analyse`` gives it, since it imports this.
    nested: Callable[[str, Rules, int], Sequence[Finding]] = lambda _s, _r, _n: ()
    findings: list[Finding] = field(default_factory=list)
    #: Names that the source binds otherwise than by importing a module.
    bound: set[str] = field(default_factory=set)
    #: Names bound to facades by ``import``, and what they stand for.
    imported: dict[str, str] = field(default_factory=dict)
    #: ``name.attribute`` as written, and soft builtins as read; settled after the walk.
    uses: list[tuple[str, ast.Attribute]] = field(default_factory=list)
    pending: list[tuple[str, ast.Name]] = field(default_factory=list)
    #: Commands and magics to be refused where the source comes to them: as ``add`` takes them.
    commands: list[tuple[str, Positioned, str, str, Remedy]] = field(default_factory=list)
    #: Calls of ``open`` that the walk has met, by the id of the name in each.
    openings: dict[int, ast.Call] = field(default_factory=dict)
    _lines: list[str] = field(default_factory=list)

    def add(
        self, rule: str, node: Positioned, subject: str, *, why: str = "", remedy: Remedy = ""
    ) -> None:
        """Record that ``subject``, at ``node``, breaks ``rule``; texts default to the rule's."""
        if len(self.findings) < FINDINGS_LIMIT:  # to count characters takes a long line's length
            self.add_at(rule, self.span(node), subject, why=why, remedy=remedy)

    def add_last_word(
        self, rule: str, node: Positioned, subject: str, *, why: str = "", remedy: Remedy = ""
    ) -> None:
        """Like ``add``, for the identifier that ends ``node`` (an attribute's name)."""
        if len(self.findings) >= FINDINGS_LIMIT:
            return
        end_line = node.end_lineno or node.lineno
        end = self._characters(end_line, node.end_col_offset or 0)
        # From its end: a search for the beginning would try at each letter of a longer word.
        word = _WORD.match(self.line(end_line)[:end][::-1])
        start = end - max(1, word.end() if word else 0)
        self.add_at(rule, (end_line, start, end), subject, why=why, remedy=remedy)

    def add_at(
        self,
        rule: str,
        span: tuple[int, int, int],
        subject: str,
        *,
        why: str = "",
        remedy: Remedy = "",
    ) -> None:
        """Record a finding at (line, column, end column)."""
        if len(self.findings) >= FINDINGS_LIMIT:
            return
        line, start, end = span
        text = self.line(line).replace("\t", " ")
        cut = start - 40 if start > EXCERPT_LIMIT - 60 and len(text) > EXCERPT_LIMIT else 0
        record = RULES[rule]
        said, rewrite = (remedy, "") if isinstance(remedy, str) else remedy
        self.findings.append(
            Finding(
                rule=rule,
                line=line + self.shift,
                column=start,
                end_column=max(end, start + 1),
                excerpt=text[cut : cut + EXCERPT_LIMIT],
                subject=subject[:SUBJECT_LIMIT],
                why=why or record.why,
                remedy=said or record.remedy,
                cut=cut,
                rewrite=rewrite,
            )
        )

    def span(self, node: Positioned) -> tuple[int, int, int]:
        """Line, column and end column of ``node``, on its first line only."""
        start = self._characters(node.lineno, node.col_offset)
        if node.end_lineno == node.lineno and node.end_col_offset is not None:
            return node.lineno, start, self._characters(node.lineno, node.end_col_offset)
        return node.lineno, start, len(self.line(node.lineno))

    def line(self, number: int) -> str:
        """Line ``number`` as Python counts lines: form feeds and U+2028 end none."""
        if not self._lines:
            self._lines = LINE_END.split(self.source)
        return self._lines[number - 1] if 0 < number <= len(self._lines) else ""

    def _characters(self, line: int, offset: int) -> int:
        text = self.line(line)
        if text.isascii():
            return offset
        raw = text.encode("utf-8", "surrogatepass")[:offset]
        return len(raw.decode("utf-8", "ignore"))


# --- what of a policy the language layer needs, in a form that crosses the wire -------------------


@dataclass(frozen=True, slots=True)
class Rules:
    """The language layer's part of a policy.

    ``modules`` maps an allowed module to the names a cell may take from it, None for all public
    ones; cells get a facade of it. ``raw_modules`` are top-level packages that cells get as they
    are, submodules included: the operator's choice. ``operations`` are those of the host's that
    are granted, as cells call them (``ops.http``, ``llm``): remedies show how they are used.
    ``approvals`` says that a user who can be asked may approve of some imports beyond these:
    ``approvable`` knows which. ``reads`` says that packages can read files, ``writes`` names a
    folder where they can write some that stay, if there is one: for remedies, too, as is ``file``,
    where whoever wants more writes that down. ``admission`` says that a cell runs only if its text
    was approved or names a template, whatever the language layer says of it. ``own`` are names of
    refused builtins that earlier cells of the session bound: a policy has none.
    """

    language: bool
    modules: Mapping[str, tuple[str, ...] | None]
    raw_modules: frozenset[str]
    magics: frozenset[str]
    operations: frozenset[str] = frozenset()
    approvals: bool = False
    reads: bool = False
    writes: str = ""
    file: str = "your policy file"
    admission: bool = False
    own: frozenset[str] = frozenset()

    @property
    def judges_cells(self) -> bool:
        """Whether a cell's text is judged before it runs: checked, or admitted.

        Then nothing else that a front end sends may be evaluated either, completion and
        inspection included.
        """
        return self.language or self.admission

    def to_builtins(self) -> dict[str, Any]:
        """Return plain data for the wire; ``from_builtins`` reads it back."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        plain = {key: sorted(v) if isinstance(v, frozenset) else v for key, v in values.items()}
        return plain | {
            "modules": {k: None if n is None else list(n) for k, n in self.modules.items()}
        }

    @classmethod
    def from_builtins(cls, data: Mapping[str, Any]) -> Rules:
        """Build rules from what ``to_builtins`` gave. Raises KeyError for a missing field."""
        sets = ("raw_modules", "magics", "operations", "own")
        values = {one.name: data[one.name] for one in fields(cls)}
        values |= {key: frozenset(values[key]) for key in sets}
        modules = {key: None if n is None else tuple(n) for key, n in values["modules"].items()}
        return cls(**values | {"modules": modules})

    def granting(self, modules: Iterable[str], packages: Iterable[str]) -> Rules:
        """Return rules under which these may be imported, too.

        ``modules`` by their public names, where they have none yet; ``packages`` as they are.
        """
        return replace(
            self,
            modules={**dict.fromkeys(modules), **self.modules},
            raw_modules=self.raw_modules.union(packages),
        )

    def with_own(self, names: Iterable[str]) -> Rules:
        """Return rules for a session in which these names are the cells' own."""
        own = frozenset(names)
        return self if own == self.own else replace(self, own=own)

    def is_raw(self, module: str) -> bool:
        """Whether ``module`` belongs to a package that cells get as it is."""
        return module.partition(".")[0] in self.raw_modules

    def allows_module(self, module: str) -> bool:
        """Whether ``import module`` may run; a package counts if a submodule of it is allowed."""
        if module in self.modules or self.is_raw(module):
            return True
        prefix = module + "."
        return any(name.startswith(prefix) for name in self.modules)


#: For findings that no rule of a policy's is asked about.
NO_RULES = Rules(language=False, modules={}, raw_modules=frozenset(), magics=frozenset())


# --- remedies: what would do the job of what is refused -------------------------------------------

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
REPLACED_MODULES: Mapping[str, Replacement] = MappingProxyType(
    {
        "glob": _list(),
        "shutil": _BOTH,
    }
    | dict.fromkeys(
        word_set("""
            os.fwalk os.listdir os.path.exists os.path.getmtime os.path.getsize os.path.isdir
            os.path.isfile os.scandir os.stat os.walk
        """),
        _list(),
    )
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
