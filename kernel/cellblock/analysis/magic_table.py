"""The magics that a policy may name: IPython 9's line and cell magics, and cellblock's own.

Each magic has one row. It says whether policies allow the magic by default, how the guards read its
argument, and whether the host answers it. No other code has properties of magics, except the code
that runs one. Some of cellblock's magics show a table or a page that the host makes, and need no
code in the guest: the function is in ``host.cell.status``, under the magic's name in ``ANSWERS``.
Cellblock's other magics are methods in ``guest.shell``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Magic:
    """The row of a magic: its properties for the guards and the host.

    The defaults are those of most of IPython's magics.
    """

    allowed: str = ""
    """Why cells may use the magic by default. If empty, cells may use it only if a policy lists
    it."""

    unchecked: bool = False
    """Whether the magic runs code that is not in the cell's source: text from a file, from the
    history or from a debugger's prompt."""

    outside: bool = False
    """Whether the magic works on the user's folders or programs. The guards refuse such calls even
    if a policy of mode safe lists the magic, so no remedy proposes to list it."""

    shell_escape: bool = False
    """Whether the magic is refused for the same reason as ``!command``."""

    code_line: bool = False
    """Whether the argument is code."""

    code_body: bool = False
    """Whether the lines below the magic are code, if it is used as a cell magic."""

    looks_up: bool = False
    """Whether the argument is the dotted name of an object, or a pattern for such names."""

    view: Literal["", "bare", "with_argument"] = ""
    """Whether the host answers the magic: without an argument only (``bare``), or also with one
    (``with_argument``). The argument is no code, so a cell that contains nothing but this magic
    needs no approval."""

    goes_back: bool = False
    """Whether the magic may restore a state from before its cell, so that it needs a snapshot."""

    shown: str = ""
    """The magic's help text, if the host shows a table or a page for it. Empty for other magics."""


_NONE: Final = Magic()

MAGICS: Final = {
    "HTML": Magic(),
    "SVG": Magic(),
    "alias": Magic(),
    "alias_magic": Magic(unchecked=True),
    "autoawait": Magic(),
    "autocall": Magic(),
    "automagic": Magic(),
    "bash": Magic(shell_escape=True),
    "bookmark": Magic(),
    "branch": Magic("goes on from a named state", view="with_argument", goes_back=True),
    "capture": Magic("keeps output in a variable", code_body=True),
    "cat": Magic(outside=True),
    "cd": Magic(outside=True),
    "changes": Magic(
        "changes that cells made to the project, if its folders are staged",
        shown=(
            "Show what cells wrote to the project or to a PATH. %changes keep PATH keeps it, "
            "%changes drop PATH drops it."
        ),
    ),
    "checkpoint": Magic("keeps a state under a name", view="with_argument", goes_back=True),
    "code_wrap": Magic(),
    "colors": Magic(),
    "conda": Magic(outside=True),
    "config": Magic("settings for charts, and for which expressions are shown"),
    "cp": Magic(outside=True),
    "debug": Magic(unchecked=True),
    "dhist": Magic(outside=True),
    "dirs": Magic(),
    "doctest_mode": Magic(),
    "ed": Magic(unchecked=True),
    "edit": Magic(unchecked=True),
    "env": Magic(),
    "file": Magic(outside=True),
    "gui": Magic(),
    "hist": Magic(),
    "history": Magic(),
    "html": Magic("output, sanitised like any other"),
    "javascript": Magic(),
    "js": Magic(),
    "killbgscripts": Magic(),
    "latex": Magic("display"),
    "ldir": Magic(outside=True),
    "lf": Magic(outside=True),
    "lk": Magic(outside=True),
    "ll": Magic(outside=True),
    "load": Magic(outside=True),
    "load_ext": Magic(unchecked=True),
    "loadpy": Magic(outside=True),
    "logoff": Magic(),
    "logon": Magic(),
    "logstart": Magic(outside=True),
    "logstate": Magic(),
    "logstop": Magic(),
    "ls": Magic(outside=True),
    "lsmagic": Magic("lists names"),
    "lx": Magic(outside=True),
    "macro": Magic(unchecked=True),
    "magic": Magic(),
    "mamba": Magic(outside=True),
    "markdown": Magic("output, sanitised like any other"),
    "matplotlib": Magic(),
    "micromamba": Magic(outside=True),
    "mkdir": Magic(outside=True),
    "mv": Magic(outside=True),
    "notebook": Magic(outside=True),
    "output": Magic(
        "the text that the host kept of earlier cells",
        view="with_argument",
        shown=(
            "Page through the output that the host kept of a cell: %output 7, "
            "%output 7 stderr last."
        ),
    ),
    "page": Magic(),
    "pastebin": Magic(outside=True),
    "pdb": Magic(unchecked=True),
    "pdef": Magic("signature", looks_up=True),
    "pdoc": Magic("docstring", looks_up=True),
    "perl": Magic(),
    "pfile": Magic(),
    "pinfo": Magic("help, also written name?", looks_up=True),
    "pinfo2": Magic("source, also written name??", looks_up=True),
    "pip": Magic(outside=True),
    "policy": Magic(
        "the policy, and what enforces it",
        view="bare",
        goes_back=True,
        shown=(
            "Show the policy in force; %policy narrow timeout=10, in a cell of its own, narrows it."
        ),
    ),
    "popd": Magic(outside=True),
    "ports": Magic(
        "addresses of servers that cells started",
        view="bare",
        shown="Show the address of each port that the policy opens, and the ports that cells use.",
    ),
    "pprint": Magic("display"),
    "precision": Magic("display"),
    "prun": Magic("profiles code", code_line=True, code_body=True),
    "psearch": Magic("a search for names, also written *name*?", looks_up=True),
    "psource": Magic("source", looks_up=True),
    "pushd": Magic(outside=True),
    "pwd": Magic(),
    "pycat": Magic(outside=True),
    "pylab": Magic(),
    "pypy": Magic(),
    "python": Magic(),
    "python2": Magic(),
    "python3": Magic(),
    "quickref": Magic("IPython's reference card"),
    "recall": Magic(unchecked=True),
    "rehashx": Magic(outside=True),
    "reload_ext": Magic(unchecked=True),
    "rep": Magic(unchecked=True),
    "rerun": Magic(unchecked=True),
    "reset": Magic(),
    "reset_selective": Magic(),
    "restore": Magic("goes back to a checkpoint", view="with_argument", goes_back=True),
    "rm": Magic(outside=True),
    "rmdir": Magic(outside=True),
    "ruby": Magic(),
    "run": Magic(unchecked=True),
    "save": Magic(outside=True),
    "sc": Magic(shell_escape=True),
    "script": Magic(shell_escape=True),
    "set_env": Magic(),
    "sh": Magic(shell_escape=True),
    "svg": Magic("output, sanitised like any other"),
    "sx": Magic(shell_escape=True),
    "system": Magic(shell_escape=True),
    "tb": Magic(),
    "template": Magic(
        "runs a template",
        view="with_argument",
        shown="List the templates. %template NAME shows one, and %%template NAME runs it.",
    ),
    "time": Magic("times code", code_line=True, code_body=True),
    "timeit": Magic("times code", code_line=True, code_body=True),
    "tools": Magic(
        "the host functions that cells may call",
        view="bare",
        shown="List the host tools that cells may call, with their signatures.",
    ),
    "unalias": Magic(),
    "undo": Magic("goes back to before the last cell", view="with_argument", goes_back=True),
    "unload_ext": Magic(),
    "usage": Magic(
        "the resources that each cell used",
        view="with_argument",
        shown="Show the resources that cells used: all cells, ``top``, or one cell by its number.",
    ),
    "uv": Magic(outside=True),
    "who": Magic("variables"),
    "who_ls": Magic("variables"),
    "whos": Magic("variables"),
    "writefile": Magic(outside=True),
    "xdel": Magic(),
    "xmode": Magic("the format of tracebacks"),
}

#: The magics that cells may use by default: display, inspection, timing, and magics of the host.
#: None of them touches files or processes. Code in a magic is checked like a cell.
ALLOWED_MAGICS: Final = tuple(name for name, magic in MAGICS.items() if magic.allowed)

#: Magics for which the host shows a table or a page.
SHOWN_BY_HOST: Final = tuple(name for name, magic in MAGICS.items() if magic.shown)


def of_name(name: str) -> Magic:
    """Return the row of a magic. If a policy may not name it, the row has only defaults."""
    return MAGICS.get(name, _NONE)
