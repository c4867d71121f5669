"""What the analysis says about a cell: rules, one ``Finding`` per refused place, and remedies.

Positions are those of the source analysed: lines from 1, columns from 0 and in characters.
``ast`` counts UTF-8 bytes, so columns are translated here, once, and only for findings.

A remedy has two parts, which are never mixed. Its text says what the author of the cell can do:
another name, an operation of the host's. Its ``allows`` are what the operator can do: lines of a
policy file, each of which stands by itself. Where several lines would help they are those that
allow least, so that a cell that names a host gets ``ops.http`` for this host.

An operation is named only where it really replaces what is refused: nothing starts a process or
opens a socket.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import posixpath
import re
import shlex
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


#: What to do instead of a change that would allow more.
ONLY_THE_POLICY: Final = "Only the policy of the kernel can allow more."


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
        "Use an allowed module.",
    ),
    Rule(
        "magic-not-allowed",
        "A magic that is not on the allowlist",
        "is not on this policy's list of allowed magics",
        "Write it in Python.",
    ),
    Rule(
        "module-name-not-allowed",
        "A name of an allowed module that this policy holds back",
        "is not among the names that this policy allows from the module",
        "Use an allowed name.",
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
        ONLY_THE_POLICY,
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


class Remedy(NamedTuple):
    """What to do about a finding.

    ``text`` is what the author of the cell can do, in sentences, ``rewrite`` a line or two of a
    cell that do the same with an operation that is granted. ``allows`` are lines of a policy file
    with which it would be allowed: each is a whole dotted line of TOML.
    """

    text: str = ""
    allows: tuple[str, ...] = ()
    rewrite: str = ""


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
    ``remedy``, ``allows`` and ``rewrite`` are the parts of a ``Remedy``.
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
    allows: tuple[str, ...] = ()


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
    commands: list[tuple[str, Positioned, str, str, str | Remedy]] = field(default_factory=list)
    #: Calls of ``open`` that the walk has met, by the id of the name in each.
    openings: dict[int, ast.Call] = field(default_factory=dict)
    _lines: list[str] = field(default_factory=list)
    _urls: tuple[str, ...] | None = None

    @property
    def urls(self) -> tuple[str, ...]:
        """The first addresses that the source names; searched for once."""
        if self._urls is None:
            self._urls = named_urls(self.source)
        return self._urls

    def add(
        self, rule: str, node: Positioned, subject: str, *, why: str = "", remedy: str | Remedy = ""
    ) -> None:
        """Record that ``subject``, at ``node``, breaks ``rule``; texts default to the rule's."""
        if len(self.findings) < FINDINGS_LIMIT:  # to count characters takes a long line's length
            self.add_at(rule, self.span(node), subject, why=why, remedy=remedy)

    def add_last_word(
        self, rule: str, node: Positioned, subject: str, *, why: str = "", remedy: str | Remedy = ""
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
        remedy: str | Remedy = "",
    ) -> None:
        """Record a finding at (line, column, end column)."""
        if len(self.findings) >= FINDINGS_LIMIT:
            return
        line, start, end = span
        text = self.line(line).replace("\t", " ")
        cut = start - 40 if start > EXCERPT_LIMIT - 60 and len(text) > EXCERPT_LIMIT else 0
        record = RULES[rule]
        said = Remedy(remedy) if isinstance(remedy, str) else remedy
        self.findings.append(
            Finding(
                rule=rule,
                line=line + self.shift,
                column=start,
                end_column=max(end, start + 1),
                excerpt=text[cut : cut + EXCERPT_LIMIT],
                subject=subject[:SUBJECT_LIMIT],
                why=why or record.why,
                # A line that allows it is something to do: the rule's own words would add nothing.
                remedy=said.text or ("" if said.allows else record.remedy),
                cut=cut,
                rewrite=said.rewrite,
                allows=said.allows,
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
    folder where they can write some that stay, if there is one, ``write_root`` one that
    ``ops.write_file`` writes to: for remedies, too. So are ``file``, the policy's file as it was
    named, empty where nobody knows that, and ``extends``, the preset where there is no file yet.
    ``admission`` says that a cell runs only if its text was approved or names a template, whatever
    the language layer says of it. ``own`` are names of refused builtins that earlier cells of the
    session bound: a policy has none.
    """

    language: bool
    modules: Mapping[str, tuple[str, ...] | None]
    raw_modules: frozenset[str]
    magics: frozenset[str]
    operations: frozenset[str] = frozenset()
    approvals: bool = False
    reads: bool = False
    writes: str = ""
    write_root: str = ""
    file: str = ""
    extends: str = ""
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


# --- the lines that would allow it ----------------------------------------------------------------

#: What a policy file is called that is yet to be made, and one of which nobody knows the name.
NEW_FILE: Final = "cells.toml"
ANY_FILE: Final = "FILE"
#: The host of a line that is to be replaced by the reader's own.
EXAMPLE_HOST: Final = "api.example.org"
_SCIENCE: Final = 'add.allowed_modules = ["@science"]'
#: Addresses that are repeated.
_MOST_NAMED: Final = 5
#: An address as a text of a cell has it: up to what a program puts in, or to the text's end.
_NAMED_URL: Final = re.compile(r"""\bhttps?://[^\s"'`<>\\{}|^()\[\],;]{1,500}""", re.IGNORECASE)
_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
#: A name that ends in letters, or an IPv4 address.
_HOST: Final = rf"(?:(?:{_LABEL}\.){{0,9}}[a-z][a-z0-9-]{{0,61}}|\d{{1,3}}(?:\.\d{{1,3}}){{3}})"
_HOST_OF_URL: Final = re.compile(
    rf"(https?)://({_HOST})(?::(\d{{1,5}}))?(?=[/?#]|\Z)", re.IGNORECASE | re.ASCII
)
#: A host and its port, as calls take them: ``("example.org", 25)``.
_HOST_AND_PORT: Final = re.compile(
    rf"""\(\s{{0,8}}["']({_HOST})["']\s{{0,8}},\s{{0,8}}(\d{{1,5}})\b""", re.IGNORECASE | re.ASCII
)
_PORTS: Final = MappingProxyType({"http": "80", "https": "443"})
#: Hosts that an operation asks only where the policy says that they may be private.
_PRIVATE: Final = re.compile(
    r"(?:http://)?(?:localhost|127\.\d+\.\d+\.\d+|10\.\d+\.\d+\.\d+|192\.168\.\d+\.\d+)(?::\d+)?"
)


def add_command(lines: Iterable[str], file: str, extends: str = "") -> str:
    """Return the command that adds lines to a policy file, made first where there is none.

    ``extends`` is the preset that a new file extends: empty for a file that is there.
    """
    name = file or (NEW_FILE if extends else ANY_FILE)
    preset = ["--extends", extends] if extends not in ("", "safe") else []
    return shlex.join(["cellblock", "policy", "add", name, *preset, *lines])


def in_a_line(remedy: str, allows: Sequence[str], rules: Rules) -> str:
    """Return a remedy for those who see one line, such as an exception's message."""
    if not allows:
        return remedy
    return f"{remedy} To allow it: {add_command(allows, rules.file, rules.extends)}".lstrip()


def named_urls(source: str) -> tuple[str, ...]:
    """Return the first addresses that a source names, one for each host."""
    found: dict[str, str] = {}
    for url in _NAMED_URL.findall(source):
        for host in _hosts_of(url):
            found.setdefault(host, url)
        if len(found) == _MOST_NAMED:
            break
    return tuple(found.values())


def _hosts_of(*urls: str) -> tuple[str, ...]:
    """Return hosts as ``ops.http.hosts`` has them."""
    found = []
    for url in urls:
        if match := _HOST_OF_URL.match(url):
            scheme, host = match[1].lower(), match[2].lower()
            port = match[3] or _PORTS[scheme]
            at = f":{port}" if port != _PORTS[scheme] else ""
            if _is_reached(host, port):
                found.append(f"{'http://' * (scheme == 'http')}{host}{at}")
    return tuple(dict.fromkeys(found))


def _is_reached(host: str, port: str) -> bool:
    """Whether there can be such a host and port."""
    numbers = host.split(".") if host[-1].isdigit() else ()
    return 0 < int(port) < 1 << 16 and all(one.isdigit() and int(one) < 1 << 8 for one in numbers)


def allow_addresses(source: str) -> str:
    """Return the line that lets cells connect to what a source names, or to an example."""
    pairs = [(host.lower(), port) for host, port in _HOST_AND_PORT.findall(source)]
    found = [pair for pair in pairs if pair[0].count(".") or pair[0] == "localhost"]
    if not found:
        urls = filter(None, map(_HOST_OF_URL.match, named_urls(source)))
        found = [(url[2].lower(), url[3] or _PORTS[url[1].lower()]) for url in urls]
    named = dict.fromkeys(f"{host}:{port}" for host, port in found if _is_reached(host, port))
    first = list(named)[:_MOST_NAMED] or [f"{EXAMPLE_HOST}:443"]
    return list_line("network_access", first)


#: What a card offers to write into a policy. A cell may have chosen the name: quotes and the like
#: could end the text that it stands in, in TOML or in a shell.
_ENTRY: Final = re.compile(r"[\w@%+=:,.*?/~{}()&# -]{1,1000}")


def list_line(field: str, values: Iterable[str]) -> str:
    """Return a line of a policy file that sets a list; none where it would not be read as one."""
    entries = list(values)
    if not all(map(_ENTRY.fullmatch, entries)):
        return ""
    return f"{field} = {json.dumps(entries, ensure_ascii=False)}"


def allowing(module: str, rules: Rules) -> tuple[str, ...]:
    """Return the line of a policy file that allows a module, if there is one that does.

    Packages come whole; what is not installed can't be allowed, unless cells may install it.
    """
    top = module.partition(".")[0]
    if top in SCIENCE:
        return (_SCIENCE,)
    can_install = top.isidentifier() and "ops.install" in rules.operations
    is_there = top in sys.stdlib_module_names or can_install or is_installed(top)
    return (list_line("add.allowed_modules", [top]),) if is_there else ()


@lru_cache(maxsize=256)
def is_installed(top: str) -> bool:
    """Whether there is a top-level module of this name; nothing is imported to find out."""
    try:
        return top.isidentifier() and importlib.util.find_spec(top) is not None
    except (ImportError, ValueError, OSError):
        return False


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
#: A call of an operation, with texts among its arguments.
_CALL = re.compile(r"""\b(?:ops\.\w+|llm)\((?:"[^"\n]*"|'[^'\n]*'|[^()"'\n])*\)""")
#: What has a meaning in the paths of a policy.
_SPECIAL: Final = frozenset("*?[]{}")
#: Where what is written goes, of a cell that names no folder in the project.
_WORK = "work"


class Replacement(NamedTuple):
    """Operations, as cells call them, and two lines of a cell that use all of these.

    ``grants`` are the lines of a policy file that grant them. ``imports`` is what the two lines
    import and the policy may not allow. ``otherwise`` is what does less of the job, with fewer
    operations. ``is_part`` says that the operations do a part of the job only, and that a cell as
    it stands takes the module itself. ``folder`` has to be there before the host writes to it.
    """

    operations: tuple[str, ...]
    rewrite: str
    grants: tuple[str, ...]
    imports: str = ""
    otherwise: tuple[Replacement, ...] = ()
    is_part: bool = False
    folder: str = ""

    def remedy(
        self,
        rules: Rules,
        *,
        first: str = "",
        more: tuple[str, ...] = (),
        asked: str = "",
    ) -> Remedy:
        """Return what does the job: at once where that is granted, else once it is.

        ``first`` is what could be done under this policy, and ``asked`` where it is asked for: both
        are fragments. ``more`` are lines that would have the policy allow what was refused.
        """
        ways = (self, *self.otherwise)
        granted = next((way for way in ways if rules.operations.issuperset(way.operations)), None)
        if granted is not None:
            text = sentence(f"ask the host, {' and '.join(granted.operations)}", asked)
            lines = more if self.is_part else ()
            return Remedy(text, lines, _shown(granted, rules))
        if self.is_part and more:
            return Remedy(sentence(first, asked) if first or asked else "", more)
        text = sentence(first, asked, f"{self._call()} once it is allowed{self._folder()}")
        return Remedy(text, tuple(filter(None, self.grants)))

    def _call(self) -> str:
        calls = list(dict.fromkeys(_CALL.findall(self.rewrite))) or self.operations
        return f"call {' and '.join(calls)}"

    def _folder(self) -> str:
        return f" and the folder {self.folder} is there" if self.folder else ""


def sentence(*choices: str) -> str:
    """Return what can be done, of fragments that may be empty."""
    text = ", or ".join(filter(None, choices))
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _shown(way: Replacement, rules: Rules) -> str:
    return way.rewrite if not way.imports or rules.allows_module(way.imports) else ""


def _shown_text(text: str) -> str:
    """Return a text that a remedy may repeat: empty for one that is long, or draws nothing."""
    return text if len(text) <= _MAX_REPEATED and text.isprintable() else ""


def _quoted(text: str) -> str:
    plain = not set(text) & set('"\\')
    return f'"{text}"' if plain else repr(text)


_READ_FILE: Final = ("ops.read_file",)
_NO_URL: Final = f"https://{EXAMPLE_HOST}/items"


def _roots(operation: str, path: str) -> str:
    """Return the line with which an operation may use a path: the project, or the path itself.

    A path that is not in the project may be missing, as on another machine.
    """
    is_elsewhere = path.startswith("/") and not _SPECIAL.intersection(path)
    root = f"{path}?" if is_elsewhere else "{project}"
    return list_line(f"ops.{operation}.roots", [root])


def _read(path: str = "", _rules: Rules = NO_RULES) -> Replacement:
    lines = f"text = ops.read_file({_quoted(path or 'data/a.csv')})\nlines = text.splitlines()"
    return Replacement(_READ_FILE, lines, (_roots("read_file", path),))


def _read_bytes(path: str = "") -> Replacement:
    name = _quoted(path or "data/a.png")
    lines = f"import io\nfile = io.BytesIO(ops.read_file({name}, binary=True))"
    return Replacement(_READ_FILE, lines, (_roots("read_file", path),))


def _written(path: str, rules: Rules) -> tuple[str, str, str]:
    """Return the path that ``ops.write_file`` is given, the line that grants it, and its folder.

    The folder is the one that the cell names, as the whole project would be more than it needs.
    """
    folder = posixpath.dirname(posixpath.normpath(path))
    if folder.startswith(("..", "~")) or _SPECIAL.intersection(folder):
        folder, path = "", posixpath.basename(path)
    if rules.write_root:
        last = posixpath.basename(rules.write_root)
        inside = path.startswith((f"{rules.write_root}/", f"{last}/"))
        return (path if inside else f"{rules.write_root}/{path}"), "", ""
    if "ops.write_file" in rules.operations:
        return path, "", ""
    if not folder:
        folder, path = _WORK, f"{_WORK}/{path}"
    root = folder if folder.startswith("/") else f"{{project}}/{folder}"
    return path, list_line("ops.write_file.roots", [root]), folder


def _write(path: str = "", rules: Rules = NO_RULES) -> Replacement:
    path, grant, folder = _written(path or "out.txt", rules)
    lines = f'text = "…"\nops.write_file({_quoted(path)}, text)'
    return Replacement(("ops.write_file",), lines, (grant,), folder=folder)


def _append(path: str = "", rules: Rules = NO_RULES, *, binary: bool = False) -> Replacement:
    path, grant, folder = _written(path or "log.txt", rules)
    name, more, way = ("data", 'b"..."', ", binary=True") if binary else ("text", '"…"', "")
    shown = _quoted(path)
    lines = f"{name} = ops.read_file({shown}{way}) + {more}\nops.write_file({shown}, {name})"
    both = ("ops.read_file", "ops.write_file")
    return Replacement(both, lines, (_roots("read_file", path), grant), folder=folder)


def _list(path: str = "", _rules: Rules = NO_RULES) -> Replacement:
    lines = f'for entry in ops.list_dir({_quoted(path or "data")}):\n    print(entry["name"])'
    return Replacement(("ops.list_dir",), lines, (_roots("list_dir", path),))


def _http(url: str = "", _rules: Rules = NO_RULES, *others: str) -> Replacement:
    shown, hosts = _shown_text(url) or _NO_URL, _hosts_of(url, *others)
    grants = [list_line("ops.http.hosts", hosts or [EXAMPLE_HOST])]
    if any(map(_PRIVATE.fullmatch, hosts)):
        grants.append("ops.http.allow_private = true")
    lines = f"response = ops.http({_quoted(shown)})\nitems = response.json()"
    return Replacement(("ops.http",), lines, tuple(grants))


def for_module(module: str, report: Report) -> Replacement | None:
    """Return what replaces a module, with the addresses that the cell names."""
    found = REPLACED_MODULES.get(module) or REPLACED_MODULES.get(module.partition(".")[0])
    if found is None or found.operations != ("ops.http",) or not report.urls:
        return found
    first, *others = report.urls
    return _http(first, report.rules, *others)


def _install(name: str, rules: Rules) -> Replacement:
    module = name.replace("-", "_").lower()
    lines = f'ops.install("{name}")\nimport {module}'
    grants = [
        'ops.install.index = "https://pypi.org/simple"',
        list_line("ops.install.allow", [name]),
    ]
    if not rules.allows_module(module):  # installed, it is there and can't be imported
        grants.append(list_line("add.allowed_modules", [module]))
    return Replacement(("ops.install",), lines, tuple(grants), imports=module)


#: To choose one of these is to look at what there is first.
_BOTH = Replacement(
    ("ops.list_dir", "ops.read_file"),
    'names = [entry["name"] for entry in ops.list_dir("data")]\ntext = ops.read_file("data/a.csv")',
    (_roots("list_dir", ""), _roots("read_file", "")),
    otherwise=(_list(), _read()),
    is_part=True,
)
_LLM = Replacement(
    ("llm",),
    'answer = llm("…")\nprint(answer)',
    ('llm.base_url = "https://api.openai.com/v1"', 'llm.models = ["gpt-4.1-mini"]'),
)

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
_COMMANDS: Mapping[str, Callable[[str, Rules], Replacement]] = MappingProxyType(
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


def for_open(call: ast.Call | None, rules: Rules) -> Replacement:
    """Return what replaces a call of ``open``; one that is only named reads."""
    path, mode = _arguments(call)
    if "a" in mode:
        return _append(path, rules, binary="b" in mode)
    if "+" in mode or "x" in mode:
        # Nothing is shown that would replace what these keep.
        made = _append(path, rules) if "+" in mode else _write(path, rules)
        return made._replace(rewrite="")
    if "w" in mode:
        return _write(path, rules)
    return _read_bytes(path) if "b" in mode else _read(path)


def by_package(call: ast.Call | None, rules: Rules) -> str:
    """Return how pandas does what a call of ``open`` would, where cells have it and files."""
    path, mode = _arguments(call)
    if "pandas" not in rules.raw_modules:
        return ""
    if _WRITES.intersection(mode):
        folder = _shown_text(f"{rules.writes}/out.csv")
        shown = _quoted(folder) if rules.writes and folder else ""
        return f"write it with pandas, as df.to_csv({shown})" if shown else ""
    return read_by_pandas(rules, path)


def read_by_pandas(rules: Rules, path: str = "") -> str:
    """Return how pandas reads a table, where cells have it and files."""
    if "pandas" not in rules.raw_modules or not rules.reads:
        return ""
    ending = path.rpartition(".")[2]
    reader = _READERS.get(ending, "read_csv") if path else "read_csv"
    shown = path if ending in _READERS else "data/a.csv"
    return f"read tables with pandas, as pd.{reader}({_quoted(shown)})"


def _arguments(call: ast.Call | None) -> tuple[str, str]:
    """Return path and mode as far as the source says them."""
    if call is None:
        return "", ""
    given: dict[str | None, ast.expr] = dict(zip(("file", "mode"), call.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in call.keywords}
    path, mode = (_text(given.get(name)) for name in ("file", "mode"))
    return _shown_text(path), mode


def _text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def for_command(line: str, rules: Rules) -> Replacement | None:
    """Return what replaces a shell command, or a magic of the same words, if anything does.

    It repeats the name of a file, an address or a package that stands there alone.
    """
    program, *given = line.split() or [""]
    program = program.lstrip("%")
    if program in _INSTALLERS and "install" in given:
        asked = [word for word in given[given.index("install") + 1 :] if word not in _MANNERS]
        package = _PACKAGE.fullmatch(asked[0].strip("'\"")) if len(asked) == 1 else None
        fits = package is not None and len(package[1]) <= _MAX_REPEATED
        return _install(package[1], rules) if package is not None and fits else None
    make = _COMMANDS.get(program)
    if make is None:
        return None
    named = [word for word in given if word not in _APPENDS]
    if make is _write and len(named) < len(given):
        make = _append
    fits = len(named) == 1 and (_URL if make is _http else _PATH).fullmatch(named[0]) is not None
    return make(_shown_text(named[0]) if fits else "", rules)
