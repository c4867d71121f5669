"""Findings: the table of rules, ``Finding`` for each refused place in a cell, and remedies.

Positions are those in the analysed source: lines from 1, columns from 0, in characters. ``ast``
counts UTF-8 bytes, so columns are converted here, and only for findings.

A remedy has two parts, which are never mixed. Its text says what the author of the cell can do:
use another name, or an operation of the host. Its ``allows`` say what the operator can do: they are
lines of a policy file, each of which works by itself. If several lines would help, those that allow
least are given: a cell that names a host gets ``ops.http`` for this host.

An operation is suggested only if it really replaces the refused name or command: no operation
starts a process or opens a socket.
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

    #: Nodes that have a position.
    Positioned = ast.expr | ast.stmt | ast.alias | ast.arg | ast.excepthandler | ast.pattern


def word_set(text: str) -> frozenset[str]:
    """Return the words of a table that is written as text."""
    return frozenset(text.split())


#: What to do instead of a change that would allow more.
ONLY_THE_POLICY: Final = "Only the policy of the kernel can allow more."


# --- the rules: one id each, the same in findings, docs/rules.md, tests and the audit log ---------


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule. ``why`` and ``remedy`` are the texts of findings that have no more precise ones."""

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
        "Have it approved: cellblock approve NOTEBOOK. Until then, run approved cells only.",
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
        "is syntax that this version of cellblock does not know, so nobody has checked it",
        "Write it in older syntax, or update cellblock.",
    ),
    Rule(
        "not-a-template",
        "A cell that is not a template",
        "This policy runs shipped templates only, and this cell names none",
        "Begin the cell with %%template NAME, and give its state as JSON. %template lists them.",
    ),
    Rule(
        "operation-not-allowed",
        "An operation on the machine, refused at run time",
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
        "runs when the template is loaded, not when a cell asks for it",
        "Put it into a function that run(state) calls.",
    ),
    Rule(
        "template-not-found",
        "A template that is not shipped",
        "No template of this name is shipped",
        "%template lists the templates.",
    ),
    Rule(
        "template-state",
        "A state that does not fit the template",
        "The state does not fit the template",
        "%template NAME shows the schema that a state has to fit.",
    ),
)

RULES: Mapping[str, Rule] = MappingProxyType({rule.id: rule for rule in _TABLE})


class Remedy(NamedTuple):
    """The remedy of a finding.

    ``text`` says in sentences what the author of the cell can do. ``rewrite`` is a line or two of a
    cell that do the same by a granted operation. ``allows`` are lines of a policy file that would
    allow it: each is a whole dotted line of TOML.
    """

    text: str = ""
    allows: tuple[str, ...] = ()
    rewrite: str = ""


EXCERPT_LIMIT = 200
SUBJECT_LIMIT = 100
#: The most findings of a cell. More would say nothing new, and let a cell flood its own denial.
FINDINGS_LIMIT = 100
#: Python's line ends.
LINE_END = re.compile(r"\r\n|\r|\n")
_WORD = re.compile(r"\w*")


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A place in a cell that the policy refuses.

    ``excerpt`` is the source line with a blank for each tab, so that a caret at ``column`` is in
    the right place. Of a line longer than 200 characters it is a part; ``cut`` is how many
    characters are missing on its left. ``why`` is a fragment of a sentence about the subject.
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
    """The report of one source, to which the checks add findings.

    ``shift`` is added to each line number.
    """

    source: str
    rules: Rules
    shift: int = 0
    #: Analyses code in a magic. The analyser, which imports this module, passes it.
    nested: Callable[[str, Rules, int], Sequence[Finding]] = lambda _s, _r, _n: ()
    findings: list[Finding] = field(default_factory=list)
    #: Names that the source binds otherwise than by importing a module.
    bound: set[str] = field(default_factory=set)
    #: The names that ``import`` binds to facades, and the modules of those.
    imported: dict[str, str] = field(default_factory=dict)
    #: Uses of ``name.attribute``, and reads of refused builtins, which are judged after the walk.
    uses: list[tuple[str, ast.Attribute]] = field(default_factory=list)
    pending: list[tuple[str, ast.Name]] = field(default_factory=list)
    #: Commands and magics that are refused after the walk if the source always reaches them, with
    #: the arguments of ``add``.
    commands: list[tuple[str, Positioned, str, str, str | Remedy]] = field(default_factory=list)
    #: Calls of ``open``, by the id of the node of the name.
    openings: dict[int, ast.Call] = field(default_factory=dict)
    _lines: list[str] = field(default_factory=list)
    _urls: tuple[str, ...] | None = None

    @property
    def urls(self) -> tuple[str, ...]:
        """The first addresses that the source names. It is searched once."""
        if self._urls is None:
            self._urls = named_urls(self.source)
        return self._urls

    def add(
        self, rule: str, node: Positioned, subject: str, *, why: str = "", remedy: str | Remedy = ""
    ) -> None:
        """Add a finding: ``subject``, at ``node``, breaks ``rule``. Texts default to the rule's."""
        if len(self.findings) < FINDINGS_LIMIT:  # span() takes time by the length of the line
            self.add_at(rule, self.span(node), subject, why=why, remedy=remedy)

    def add_last_word(
        self, rule: str, node: Positioned, subject: str, *, why: str = "", remedy: str | Remedy = ""
    ) -> None:
        """Add a finding as ``add`` does, at the last identifier of ``node`` (an attribute's)."""
        if len(self.findings) >= FINDINGS_LIMIT:
            return
        end_line = node.end_lineno or node.lineno
        end = self._characters(end_line, node.end_col_offset or 0)
        # The word is matched backwards from its end. A search for its start would try at each
        # letter of a long word.
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
        """Add a finding at a span: line, column and end column."""
        if len(self.findings) >= FINDINGS_LIMIT:
            return
        line, start, end = span
        text = self.line(line).replace("\t", " ")
        cut = start - 40 if start > EXCERPT_LIMIT - 60 and len(text) > EXCERPT_LIMIT else 0
        record = RULES[rule]
        parts = Remedy(remedy) if isinstance(remedy, str) else remedy
        self.findings.append(
            Finding(
                rule=rule,
                line=line + self.shift,
                column=start,
                end_column=max(end, start + 1),
                excerpt=text[cut : cut + EXCERPT_LIMIT],
                subject=subject[:SUBJECT_LIMIT],
                why=why or record.why,
                # Lines that allow it are a remedy, too; the rule's general text would add nothing.
                remedy=parts.text or ("" if parts.allows else record.remedy),
                cut=cut,
                rewrite=parts.rewrite,
                allows=parts.allows,
            )
        )

    def span(self, node: Positioned) -> tuple[int, int, int]:
        """Return the line, column and end column of ``node``, on its first line only."""
        start = self._characters(node.lineno, node.col_offset)
        if node.end_lineno == node.lineno and node.end_col_offset is not None:
            return node.lineno, start, self._characters(node.lineno, node.end_col_offset)
        return node.lineno, start, len(self.line(node.lineno))

    def line(self, number: int) -> str:
        """Return a line by its number in Python's count, for which form feeds end no line."""
        if not self._lines:
            self._lines = LINE_END.split(self.source)
        return self._lines[number - 1] if 0 < number <= len(self._lines) else ""

    def _characters(self, line: int, offset: int) -> int:
        text = self.line(line)
        if text.isascii():
            return offset
        raw = text.encode("utf-8", "surrogatepass")[:offset]
        return len(raw.decode("utf-8", "ignore"))


# --- the part of a policy that the language layer needs, which is sent to the guest ---------------


@dataclass(frozen=True, slots=True)
class Rules:
    """The language layer's part of a policy.

    What cells may use: ``modules`` maps each allowed module to the names that a cell may take from
    it, None for all public ones; cells get a facade of it. ``raw_modules`` are top-level packages
    that cells get as they are, with their submodules, by the operator's choice. ``approvals``: the
    user may approve some further imports (``approvable``). ``admission``: a cell only runs if its
    text was approved or names a template, whatever its findings. ``own`` are the names of refused
    builtins that earlier cells of the session bound; a policy has none.

    For remedies: ``operations`` are the host's operations that are granted, by the names that cells
    call (``ops.http``, ``llm``). ``reads``: packages can read files. ``writes`` is a folder where
    packages can write files that stay, ``write_root`` one that ``ops.write_file`` writes to, each
    empty without one. ``file`` is the policy's file as it was named, empty if unknown; ``extends``
    is the preset if there is no file yet.
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
        """Whether a cell's text is judged before it runs, by the language layer or by admission.

        If it is, no other text of a front end may be evaluated either, such as an expression to
        complete or inspect.
        """
        return self.language or self.admission

    def to_builtins(self) -> dict[str, Any]:
        """Return plain data for the wire; ``from_builtins`` reads it back."""
        values = {rule_field.name: getattr(self, rule_field.name) for rule_field in fields(self)}
        plain = {key: sorted(v) if isinstance(v, frozenset) else v for key, v in values.items()}
        return plain | {
            "modules": {k: None if n is None else list(n) for k, n in self.modules.items()}
        }

    @classmethod
    def from_builtins(cls, data: Mapping[str, Any]) -> Rules:
        """Return rules from the data of ``to_builtins``. Raises KeyError for a missing field."""
        sets = ("raw_modules", "magics", "operations", "own")
        values = {rule_field.name: data[rule_field.name] for rule_field in fields(cls)}
        values |= {key: frozenset(values[key]) for key in sets}
        modules = {key: None if n is None else tuple(n) for key, n in values["modules"].items()}
        return cls(**values | {"modules": modules})

    def granting(self, modules: Iterable[str], packages: Iterable[str]) -> Rules:
        """Return rules that also allow these imports.

        ``modules`` are allowed by their public names, unless they are allowed already; ``packages``
        as they are.
        """
        return replace(
            self,
            modules={**dict.fromkeys(modules), **self.modules},
            raw_modules=self.raw_modules.union(packages),
        )

    def with_own(self, names: Iterable[str]) -> Rules:
        """Return rules for a session in which these names are the cells' own."""
        own_names = frozenset(names)
        return self if own_names == self.own else replace(self, own=own_names)

    def is_raw(self, module: str) -> bool:
        """Return whether ``module`` belongs to a package that cells get as it is."""
        return module.partition(".")[0] in self.raw_modules

    def allows_module(self, module: str) -> bool:
        """Return whether ``import module`` is allowed: the module itself, or a submodule of it."""
        if module in self.modules or self.is_raw(module):
            return True
        prefix = module + "."
        return any(name.startswith(prefix) for name in self.modules)


#: For reports whose findings do not depend on a policy.
NO_RULES = Rules(language=False, modules={}, raw_modules=frozenset(), magics=frozenset())


# --- lines of a policy file that would allow a refused name ---------------------------------------

#: The names in a command of a policy file that is yet to be made, and of one that isn't known.
NEW_FILE: Final = "cells.toml"
ANY_FILE: Final = "FILE"
#: A host that the reader must replace by another.
EXAMPLE_HOST: Final = "api.example.org"
_SCIENCE: Final = 'add.allowed_modules = ["@science"]'
#: The most addresses of a cell that are repeated.
_MOST_NAMED: Final = 5
#: An address in a text of a cell, up to a placeholder or the end of the text.
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
#: Hosts for which ``ops.http`` needs ``allow_private``.
_PRIVATE: Final = re.compile(
    r"(?:http://)?(?:localhost|127\.\d+\.\d+\.\d+|10\.\d+\.\d+\.\d+|192\.168\.\d+\.\d+)(?::\d+)?"
)


def add_command(lines: Iterable[str], file: str, extends: str = "") -> str:
    """Return the command that adds lines to a policy file, which it makes if there is none.

    ``extends`` is the preset that a new file extends; empty for an existing file.
    """
    name = file or (NEW_FILE if extends else ANY_FILE)
    preset = ["--extends", extends] if extends not in ("", "safe") else []
    return shlex.join(["cellblock", "policy", "add", name, *preset, *lines])


def in_a_line(remedy: str, allows: Sequence[str], rules: Rules) -> str:
    """Return a remedy and its lines in one line, for the message of an exception."""
    if not allows:
        return remedy
    return f"{remedy} To allow it: {add_command(allows, rules.file, rules.extends)}".lstrip()


def named_urls(source: str) -> tuple[str, ...]:
    """Return the first addresses that a source names, one for each host."""
    urls: dict[str, str] = {}
    for url in _NAMED_URL.findall(source):
        for host in _hosts_of(url):
            urls.setdefault(host, url)
        if len(urls) == _MOST_NAMED:
            break
    return tuple(urls.values())


def _hosts_of(*urls: str) -> tuple[str, ...]:
    """Return the hosts of URLs as entries of ``ops.http.hosts``."""
    hosts = []
    for url in urls:
        if match := _HOST_OF_URL.match(url):
            scheme, host = match[1].lower(), match[2].lower()
            port = match[3] or _PORTS[scheme]
            port_suffix = f":{port}" if port != _PORTS[scheme] else ""
            if _is_reached(host, port):
                hosts.append(f"{'http://' * (scheme == 'http')}{host}{port_suffix}")
    return tuple(dict.fromkeys(hosts))


def _is_reached(host: str, port: str) -> bool:
    """Return whether a host and port are possible."""
    numbers = host.split(".") if host[-1].isdigit() else ()
    return 0 < int(port) < 1 << 16 and all(
        number.isdigit() and int(number) < 1 << 8 for number in numbers
    )


def allow_addresses(source: str) -> str:
    """Return the line that lets cells connect to the hosts in a source, or to an example."""
    pairs = [(host.lower(), port) for host, port in _HOST_AND_PORT.findall(source)]
    addresses = [pair for pair in pairs if pair[0].count(".") or pair[0] == "localhost"]
    if not addresses:
        urls = filter(None, map(_HOST_OF_URL.match, named_urls(source)))
        addresses = [(url[2].lower(), url[3] or _PORTS[url[1].lower()]) for url in urls]
    named = dict.fromkeys(f"{host}:{port}" for host, port in addresses if _is_reached(host, port))
    first = list(named)[:_MOST_NAMED] or [f"{EXAMPLE_HOST}:443"]
    return list_line("network_access", first)


#: Entries that a card may suggest for a policy. A cell may have chosen the text: quotes and the
#: like could end the string that it is in, in TOML or in a shell.
_ENTRY: Final = re.compile(r"[\w@%+=:,.*?/~{}()&# -]{1,1000}")


def list_line(field: str, values: Iterable[str]) -> str:
    """Return a line of a policy file that sets a list; empty if an entry may not be suggested."""
    entries = list(values)
    if not all(map(_ENTRY.fullmatch, entries)):
        return ""
    return f"{field} = {json.dumps(entries, ensure_ascii=False)}"


def allowing(module: str, rules: Rules) -> tuple[str, ...]:
    """Return the line of a policy file that allows a module, if there is one.

    Packages are allowed as a whole. A package that is not installed can't be allowed, unless cells
    may install it.
    """
    top = module.partition(".")[0]
    if top in SCIENCE:
        return (_SCIENCE,)
    can_install = top.isidentifier() and "ops.install" in rules.operations
    is_there = top in sys.stdlib_module_names or can_install or is_installed(top)
    return (list_line("add.allowed_modules", [top]),) if is_there else ()


@lru_cache(maxsize=256)
def is_installed(top: str) -> bool:
    """Return whether a top-level module of this name is installed; nothing is imported."""
    try:
        return top.isidentifier() and importlib.util.find_spec(top) is not None
    except (ImportError, ValueError, OSError):
        return False


# --- remedies: operations that replace a refused module, call or command --------------------------

#: The most characters of a path, an address or a name that a rewrite repeats.
_MAX_REPEATED = 60
_WRITES = frozenset("wax+")
#: The name of a package, with extras and versions, and not that of a file.
_PACKAGE = re.compile(
    r"([a-z][a-z0-9._-]*+)(?<!\.whl|\.zip|\.txt)(?<!\.gz)(?:\[[^]]*\])?(?:[=<>!~].*)?",
    re.IGNORECASE | re.ASCII,
)
#: Words that neither a shell nor IPython expands.
_PATH = re.compile(r"(?![-#]|.*://)[^]*?[{}$`~!'\"\\<>|;&()]+")
_URL = re.compile(r"https?://[^]*[{}$`'\"\\<>|;&()]+")
#: A call of an operation, with texts among its arguments.
_CALL = re.compile(r"""\b(?:ops\.\w+|llm)\((?:"[^"\n]*"|'[^'\n]*'|[^()"'\n])*\)""")
#: Characters that have a meaning in the paths of a policy.
_SPECIAL: Final = frozenset("*?[]{}")
#: The folder for files that a cell writes, if it names no folder in the project.
_WORK = "work"


class Replacement(NamedTuple):
    """Operations that replace something refused, and two lines of a cell that use them.

    ``operations`` are the names that cells call. ``grants`` are the lines of a policy file that
    grant them. ``imports`` is a module that the two lines import, which the policy may not allow.
    ``otherwise`` are replacements that do less with fewer operations. ``is_part``: the operations
    replace a part of the module only, so a cell that isn't rewritten needs the module itself.
    ``folder`` must exist before the host writes to it.
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
        """Return a remedy by a granted operation, or else by operations that could be granted.

        ``first`` is a fragment about what can be done under this policy, ``asked`` one about
        approval. ``more`` are lines with which the policy would allow what was refused.
        """
        ways = (self, *self.otherwise)
        granted = next((way for way in ways if rules.operations.issuperset(way.operations)), None)
        if granted is not None:
            text = sentence(f"ask the host, {' and '.join(granted.operations)}", asked)
            lines = more if self.is_part else ()
            return Remedy(text, lines, _allowed_rewrite(granted, rules))
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
    """Return a sentence of alternatives, which are fragments and may be empty."""
    text = ", or ".join(filter(None, choices))
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _allowed_rewrite(option: Replacement, rules: Rules) -> str:
    return option.rewrite if not option.imports or rules.allows_module(option.imports) else ""


def _shown_text(text: str) -> str:
    """Return a text that a remedy may repeat; empty if it is long or has invisible characters."""
    return text if len(text) <= _MAX_REPEATED and text.isprintable() else ""


def _quoted(text: str) -> str:
    plain = not set(text) & set('"\\')
    return f'"{text}"' if plain else repr(text)


_READ_FILE: Final = ("ops.read_file",)
_NO_URL: Final = f"https://{EXAMPLE_HOST}/items"


def _roots(operation: str, path: str) -> str:
    """Return the line that lets an operation use a path: it grants the project, or the path.

    A path outside of the project is made optional, since it may be missing on another machine.
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
    """Return the path for ``ops.write_file``, the line that grants it, and its folder.

    The line grants the folder that the cell names, since the whole project would be more than the
    cell needs.
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
    name, content, flag = ("data", 'b"..."', ", binary=True") if binary else ("text", '"…"', "")
    quoted = _quoted(path)
    lines = f"{name} = ops.read_file({quoted}{flag}) + {content}\nops.write_file({quoted}, {name})"
    operations = ("ops.read_file", "ops.write_file")
    return Replacement(operations, lines, (_roots("read_file", path), grant), folder=folder)


def _list(path: str = "", _rules: Rules = NO_RULES) -> Replacement:
    lines = f'for entry in ops.list_dir({_quoted(path or "data")}):\n    print(entry["name"])'
    return Replacement(("ops.list_dir",), lines, (_roots("list_dir", path),))


def _http(url: str = "", _rules: Rules = NO_RULES, *more_urls: str) -> Replacement:
    address, hosts = _shown_text(url) or _NO_URL, _hosts_of(url, *more_urls)
    grants = [list_line("ops.http.hosts", hosts or [EXAMPLE_HOST])]
    if any(map(_PRIVATE.fullmatch, hosts)):
        grants.append("ops.http.allow_private = true")
    lines = f"response = ops.http({_quoted(address)})\nitems = response.json()"
    return Replacement(("ops.http",), lines, tuple(grants))


def for_module(module: str, report: Report) -> Replacement | None:
    """Return the replacement of a module, with the addresses that the cell names."""
    usual = REPLACED_MODULES.get(module) or REPLACED_MODULES.get(module.partition(".")[0])
    if usual is None or usual.operations != ("ops.http",) or not report.urls:
        return usual
    first, *more_urls = report.urls
    return _http(first, report.rules, *more_urls)


def _install(name: str, rules: Rules) -> Replacement:
    module = name.replace("-", "_").lower()
    lines = f'ops.install("{name}")\nimport {module}'
    grants = [
        'ops.install.index = "https://pypi.org/simple"',
        list_line("ops.install.allow", [name]),
    ]
    if not rules.allows_module(module):  # otherwise it could be installed, but not imported
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
#: The functions of pandas that read a table, by the ending of its file's name.
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
#: Options of installers that do not change what is installed.
_MANNERS = frozenset({"--quiet", "--upgrade", "--user", "-U", "-q"})
#: Options by which a magic appends to a file.
_APPENDS = frozenset({"--append", "-a"})


def for_open(call: ast.Call | None, rules: Rules) -> Replacement:
    """Return the replacement of a call of ``open``; of a read if the name isn't called."""
    path, mode = _arguments(call)
    if "a" in mode:
        return _append(path, rules, binary="b" in mode)
    if "+" in mode or "x" in mode:
        # No rewrite is shown, since it would overwrite a file that these modes keep.
        replacement = _append(path, rules) if "+" in mode else _write(path, rules)
        return replacement._replace(rewrite="")
    if "w" in mode:
        return _write(path, rules)
    return _read_bytes(path) if "b" in mode else _read(path)


def by_package(call: ast.Call | None, rules: Rules) -> str:
    """Return how pandas replaces a call of ``open``; empty if cells have no pandas or files."""
    path, mode = _arguments(call)
    if "pandas" not in rules.raw_modules:
        return ""
    if _WRITES.intersection(mode):
        folder = _shown_text(f"{rules.writes}/out.csv")
        quoted_path = _quoted(folder) if rules.writes and folder else ""
        return f"write it with pandas, as df.to_csv({quoted_path})" if quoted_path else ""
    return read_by_pandas(rules, path)


def read_by_pandas(rules: Rules, path: str = "") -> str:
    """Return how to read a table by pandas; empty if cells have no pandas or can't read files."""
    if "pandas" not in rules.raw_modules or not rules.reads:
        return ""
    ending = path.rpartition(".")[2]
    reader = _READERS.get(ending, "read_csv") if path else "read_csv"
    example = path if ending in _READERS else "data/a.csv"
    return f"read tables with pandas, as pd.{reader}({_quoted(example)})"


def _arguments(call: ast.Call | None) -> tuple[str, str]:
    """Return the path and mode of a call of ``open``, empty if they are not literals."""
    if call is None:
        return "", ""
    arguments: dict[str | None, ast.expr] = dict(zip(("file", "mode"), call.args, strict=False))
    arguments |= {keyword.arg: keyword.value for keyword in call.keywords}
    path, mode = (_text(arguments.get(name)) for name in ("file", "mode"))
    return _shown_text(path), mode


def _text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def for_command(line: str, rules: Rules) -> Replacement | None:
    """Return the replacement of a shell command, or of a magic of the same words, or None.

    It repeats a file, address or package if that is the command's only argument.
    """
    program, *arguments = line.split() or [""]
    program = program.lstrip("%")
    if program in _INSTALLERS and "install" in arguments:
        packages = [
            word for word in arguments[arguments.index("install") + 1 :] if word not in _MANNERS
        ]
        package = _PACKAGE.fullmatch(packages[0].strip("'\"")) if len(packages) == 1 else None
        fits = package is not None and len(package[1]) <= _MAX_REPEATED
        return _install(package[1], rules) if package is not None and fits else None
    make = _COMMANDS.get(program)
    if make is None:
        return None
    named = [word for word in arguments if word not in _APPENDS]
    if make is _write and len(named) < len(arguments):
        make = _append
    fits = len(named) == 1 and (_URL if make is _http else _PATH).fullmatch(named[0]) is not None
    return make(_shown_text(named[0]) if fits else "", rules)
