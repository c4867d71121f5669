"""The magics that a policy may name, a row each: IPython 9's line and cell magics, and our own.

A row is all that is said of a magic outside the code that runs it: whether policies allow it by
default, how the guards read its argument, and whether the host answers it. A magic that the host
shows needs no code in the guest: the table or page that it shows is made by the function under its
name in ``host.cell.status`` (``ANSWERS``). Our other magics are methods in ``guest.shell``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Magic:
    """What the guards and the host know of a magic; by default nothing, as most are IPython's."""

    allowed: str = ""
    """Why cells may use it unless a policy says otherwise; empty if they may not."""

    unchecked: bool = False
    """It runs what no cell says: text from files, from the history, from a debugger's prompt."""

    outside: bool = False
    """It works on the user's folders and programs. The guards refuse what it calls, so no policy of
    mode safe is told to list it."""

    shell_escape: bool = False
    """It is refused as ``!command`` is."""

    code_line: bool = False
    """Its argument is code."""

    code_body: bool = False
    """The lines below it, as a cell magic, are code."""

    looks_up: bool = False
    """Its argument is the dotted name of an object, or a pattern of such names."""

    view: Literal["", "bare", "with_argument"] = ""
    """The host answers it, and it carries no code: a cell of nothing else needs no approval."""

    goes_back: bool = False
    """It may need a state from before its cell, so a snapshot."""

    shown: str = ""
    """Its help, if the host shows a table or a page in its place; empty for any other magic."""


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
    "branch": Magic("goes on from a state under a name", view="with_argument", goes_back=True),
    "capture": Magic("keeps output in a variable", code_body=True),
    "cat": Magic(outside=True),
    "cd": Magic(outside=True),
    "changes": Magic(
        "what cells wrote to the project, where that is staged",
        shown=(
            "Show what cells wrote to the project, all or of a PATH; %changes keep PATH, or drop."
        ),
    ),
    "checkpoint": Magic("keeps a state under a name", view="with_argument", goes_back=True),
    "code_wrap": Magic(),
    "colors": Magic(),
    "conda": Magic(outside=True),
    "config": Magic("how charts are drawn, which expressions are shown"),
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
    "html": Magic("sanitised like any output"),
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
    "markdown": Magic("sanitised like any output"),
    "matplotlib": Magic(),
    "micromamba": Magic(outside=True),
    "mkdir": Magic(outside=True),
    "mv": Magic(outside=True),
    "notebook": Magic(outside=True),
    "output": Magic(
        "what the host kept of earlier cells",
        view="with_argument",
        shown=(
            "Page through what the host kept of a cell's output: %output 7, %output 7 stderr last."
        ),
    ),
    "page": Magic(),
    "pastebin": Magic(outside=True),
    "pdb": Magic(unchecked=True),
    "pdef": Magic("signature", looks_up=True),
    "pdoc": Magic("docstring", looks_up=True),
    "perl": Magic(),
    "pfile": Magic(),
    "pinfo": Magic("what name? becomes", looks_up=True),
    "pinfo2": Magic("what name?? becomes", looks_up=True),
    "pip": Magic(outside=True),
    "policy": Magic(
        "this policy and what enforces it",
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
        shown="Show at which address each port of the policy is opened, and where cells listen.",
    ),
    "pprint": Magic("display"),
    "precision": Magic("display"),
    "prun": Magic("profiles code", code_line=True, code_body=True),
    "psearch": Magic("what *name*? becomes", looks_up=True),
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
    "restore": Magic("back to a checkpoint", view="with_argument", goes_back=True),
    "rm": Magic(outside=True),
    "rmdir": Magic(outside=True),
    "ruby": Magic(),
    "run": Magic(unchecked=True),
    "save": Magic(outside=True),
    "sc": Magic(shell_escape=True),
    "script": Magic(shell_escape=True),
    "set_env": Magic(),
    "sh": Magic(shell_escape=True),
    "svg": Magic("sanitised like any output"),
    "sx": Magic(shell_escape=True),
    "system": Magic(shell_escape=True),
    "tb": Magic(),
    "template": Magic(
        "runs a shipped template",
        view="with_argument",
        shown="List the shipped templates; %template NAME shows one. %%template NAME runs it.",
    ),
    "time": Magic("times code", code_line=True, code_body=True),
    "timeit": Magic("times code", code_line=True, code_body=True),
    "tools": Magic(
        "the policy's functions",
        view="bare",
        shown="List the host tools that cells may call, with their signatures.",
    ),
    "unalias": Magic(),
    "undo": Magic("back to the state before the last cell", view="with_argument", goes_back=True),
    "unload_ext": Magic(),
    "usage": Magic(
        "what each cell took",
        view="with_argument",
        shown="Show what each cell of the session took: all, ``top`` or one by its number.",
    ),
    "uv": Magic(outside=True),
    "who": Magic("variables"),
    "who_ls": Magic("variables"),
    "whos": Magic("variables"),
    "writefile": Magic(outside=True),
    "xdel": Magic(),
    "xmode": Magic("how tracebacks look"),
}

#: Magics that cells may use unless a policy says otherwise: display, inspection, timing, and what
#: the host does. None touches files or processes; code that they carry is checked as a cell is.
ALLOWED_MAGICS: Final = tuple(name for name, magic in MAGICS.items() if magic.allowed)

#: Magics in whose place the host shows something.
SHOWN_BY_HOST: Final = tuple(name for name, magic in MAGICS.items() if magic.shown)


def of_name(name: str) -> Magic:
    """Return the row of a magic; one without properties if a policy may not name it."""
    return MAGICS.get(name, _NONE)
