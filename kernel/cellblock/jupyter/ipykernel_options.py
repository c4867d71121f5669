"""What ipykernel's own options ask for on this kernel's command line.

Jupyter's tools start a kernel with options of ipykernel's: nbclient keeps its history off the disk,
testbook sets how long cells behind an error are refused, people set traits of IPython's shell.
``read`` sorts them by who can do what they ask for:

- the host: history, and how cells behind an error are refused;
- the guest: traits of IPython's shell, and of what belongs to that (``wire.messages.Launch``);
- cells: what runs code, as ``--ext`` or ``exec_lines``, becomes cells that run first. They are
  checked like any other, so a command line lets in nothing that a notebook could not;
- nobody: what is about parts of ipykernel that are not here, said in one line where it may matter.

What would move the sockets or change the key ends the start: the connection file alone says who may
speak to a kernel.

Options are read as ipykernel reads them, by the parser of traitlets and ipykernel's names. Their
import takes as long as a kernel's start, so it is done for the options alone that need it: a word
``--Class.trait=value`` says all by itself, unless its class is ipykernel's application.
"""

from __future__ import annotations

import contextlib
import io
import re

TYPE_CHECKING = False  # a zygote is started before typing is imported
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    #: Values by trait, by class.
    Sections = dict[str, dict[str, Any]]

#: ``--Class.trait=value``: all that traitlets' parser takes without an alias or a flag.
_TRAIT = re.compile(r"--([A-Za-z]\w*)\.(\w+)=(.*)", re.DOTALL)
#: Classes of ipykernel's application: sections for one are for the application.
_APPLICATION = (
    "Application", "BaseIPythonApplication", "ConnectionFileMixin", "IPKernelApp",
    "InteractiveShellApp",
)  # fmt: skip
_KERNEL = ("IPythonKernel", "Kernel")
_HISTORY = ("HistoryAccessor", "HistoryAccessorBase", "HistoryManager")
_SESSION = "Session"
#: Traits of the application's that only decide how ipykernel logs and prints where it was started,
#: or that say the same as the kernel's start does anyhow.
_COSMETIC = (
    "interrupt", "log_datefmt", "log_format", "log_level", "logging_config", "no_stderr",
    "no_stdout", "parent_appname", "parent_handle", "quiet", "show_config", "show_config_json",
    "verbose_crash",
)  # fmt: skip
#: Traits that say where the kernel listens, and with which key messages are signed.
_CONNECTION = (
    "control_port", "hb_port", "iopub_port", "ip", "shell_port", "stdin_port", "transport",
)  # fmt: skip
_KEY = ("key", "keyfile", "signature_scheme")
#: Traits of the shell that IPython reads only while it makes one: each with the magic that does the
#: same later. Of a trait that is on or off, only on needs one.
_BY_MAGIC = {
    "logappend": "%logstart {} append",
    "logfile": "%logstart {}",
    "pdb": "%pdb on",
    "xmode": "%xmode {}",
}
#: Traits of the application that run code, in the order in which IPython runs it, as cells.
_CODE = {
    "gui": "%gui {}",
    "matplotlib": "%matplotlib {}",
    "pylab": "%pylab {}",
    "extensions": "%load_ext {}",
    "extra_extensions": "%load_ext {}",
    "exec_lines": "{}",
    "exec_files": '%run -i "{}"',
    "file_to_run": '%run -i "{}"',
    "code_to_run": "{}",
    "module_to_run": "%run -m {}",
}
_SHELLS = ("InteractiveShell", "ZMQInteractiveShell")


class OptionsError(ValueError):
    """Options that ipykernel does not take either, or that can't be had here; says why."""


class IPKernelOptions:
    """What is asked for by options of ipykernel's, by who does it."""

    __slots__ = (
        "abort_seconds", "cells", "connection", "keeps_history", "searches_folder", "shell",
        "unused",
    )  # fmt: skip

    def __init__(self) -> None:
        #: Seconds after an error in which cells that arrive are refused; None where not said.
        self.abort_seconds: float | None = None
        #: Cells that run before any other: the option that asks for each, and its source.
        self.cells: list[tuple[str, str]] = []
        #: What the connection file must say, by its key there, and the option that said so.
        self.connection: dict[str, tuple[str, Any]] = {}
        #: Whether history is kept on disk.
        self.keeps_history = True
        #: Whether cells import what lies in the folder that they run in.
        self.searches_folder = True
        #: Traits for the guest's shell.
        self.shell: Sections = {}
        #: Options that nothing here is done about.
        self.unused: list[str] = []

    def why_not(self, connection: Mapping[str, Any]) -> str:
        """Return why the kernel can't start by a connection file; empty where it can."""
        for name, (option, value) in self.connection.items():
            if str(connection.get(name)) != str(value):
                return (
                    f"{option}: the connection file says where a kernel listens and who may speak "
                    f"to it, and says otherwise. Set {name!r} there, or leave the option out."
                )
        return ""


def read(words: list[str]) -> IPKernelOptions:
    """Return what ``words`` of a command line ask for.

    Raises ``OptionsError`` for a word that ipykernel does not know, and for one that can't be had.
    """
    found = IPKernelOptions()
    sections: Sections = {}
    difficult: list[str] = []
    for word in words:
        said = _TRAIT.fullmatch(word)
        if said is None or (said[1] in _APPLICATION and said[2] not in _COSMETIC) or difficult:
            difficult.append(word)
        else:
            _add(sections.setdefault(said[1], {}), said[2], said[3])
    if difficult:
        for name, section in _parsed(difficult).items():
            sections.setdefault(name, {}).update(section)
    for name, section in sections.items():
        _sort(found, name, section)
    return found


def _add(section: dict[str, Any], trait: str, value: str) -> None:
    """Note a value; of one trait given several times, all of them, for a trait that is a list."""
    if trait not in section:
        section[trait] = value
    elif isinstance(section[trait], list):
        section[trait].append(value)
    else:
        section[trait] = [section[trait], value]


def _parsed(words: list[str]) -> Sections:
    """Return what the parser of traitlets makes of ``words``, by ipykernel's aliases and flags.

    The application's traits have their own types; others are text, as they were given.
    """
    from ipykernel.kernelapp import IPKernelApp, kernel_aliases, kernel_flags  # noqa: PLC0415 - slow
    from traitlets import TraitError  # noqa: PLC0415 - slow
    from traitlets.config import Configurable  # noqa: PLC0415 - slow
    from traitlets.config.loader import (  # noqa: PLC0415 - slow
        ArgumentError,
        DeferredConfig,
        KVArgParseConfigLoader,
    )

    classes = [one for one in IPKernelApp.mro() if issubclass(one, Configurable)]
    options: Any = {"aliases": dict(kernel_aliases), "flags": dict(kernel_flags)}
    loader: Any = KVArgParseConfigLoader(list(words), classes=classes, **options)
    said = io.StringIO()  # it says how it is used, which is not how this kernel is
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            config: dict[str, Any] = dict(loader.load_config())
    except (SystemExit, ArgumentError, TraitError) as error:
        why = str(error) if not isinstance(error, SystemExit) else ""
        raise OptionsError(why or _unknown(words, (*kernel_aliases, *kernel_flags))) from None
    if loader.extra_args:
        raise OptionsError(f"unknown argument {loader.extra_args[0]!r}")
    sections: Sections = {"IPKernelApp": {}}
    traits: Any = IPKernelApp.class_traits()
    for name, section in config.items():
        if not isinstance(section, dict):
            raise OptionsError(f"unknown argument {f'--{name}'!r}")
        # A class's own section counts for more than that of a class which it is made of.
        place = "IPKernelApp" if name in _APPLICATION else name
        for trait, value in section.items():
            if place == "IPKernelApp" and trait in traits and isinstance(value, DeferredConfig):
                value = value.get_value(traits[trait])  # noqa: PLW2901
            if name in {"IPKernelApp", place} or trait not in sections["IPKernelApp"]:
                sections.setdefault(place, {})[trait] = value
    return sections


def _unknown(words: list[str], known: tuple[str, ...]) -> str:
    """Return which of ``words`` the parser did not take."""
    for word in words:
        name = word.partition("=")[0].lstrip("-")
        if word.startswith("-") and name not in known and "." not in name:
            return f"unknown argument {word.partition('=')[0]!r}"
    return f"arguments that need a value, or take none: {' '.join(words)}"


def _sort(found: IPKernelOptions, name: str, section: dict[str, Any]) -> None:
    """Put the traits of one class where they belong."""
    if name in _APPLICATION:
        _sort_application(found, section)
        return
    for trait, value in section.items():
        option = f"--{name}.{trait}"
        if name in _KERNEL and trait == "stop_on_error_timeout":
            found.abort_seconds = _seconds(option, value)
        elif name in _HISTORY and trait in {"enabled", "hist_file"}:
            # Whichever file is named: a guest writes none, and the host writes where it does.
            if trait == "hist_file" or str(value).lower() in {"false", "0"}:
                found.keeps_history = False
        elif name == _SESSION and trait in _KEY:
            raise OptionsError(
                f"{option}: the connection file alone says with which key messages are signed. "
                "Put the key there: Jupyter's own tools do."
            )
        elif name in _SHELLS and trait in _BY_MAGIC:
            if str(value).lower() not in {"false", "0", ""}:
                found.cells.append((f"{option}={value}", _BY_MAGIC[trait].format(value)))
        elif name in {*_KERNEL, *_HISTORY, _SESSION, "ProfileDir"}:
            found.unused.append(option)
        else:
            found.shell.setdefault(name, {})[trait] = value


def _seconds(option: str, value: Any) -> float:
    try:
        return float(value)
    except ValueError:
        raise OptionsError(f"{option}: {value!r} is not a number of seconds") from None


def _sort_application(found: IPKernelOptions, section: dict[str, Any]) -> None:
    """Put the traits of ipykernel's application where they belong."""
    rest = dict(section)
    # Code runs in IPython's order: charts, extensions, lines, files, then what was given by itself.
    only_names = rest.pop("pylab_import_all", None) is False
    for trait, source in _CODE.items():
        value = rest.pop(trait, None)
        for one in [value] if isinstance(value, str) else value or ():
            # "auto" is the flag without a value.
            text = source.format("" if one == "auto" else one).rstrip()
            if trait == "pylab" and only_names:
                text += " --no-import-all"
            found.cells.append((f"--InteractiveShellApp.{trait}={one}", text))
    if rest.pop("ignore_cwd", False):
        found.searches_folder = False
    for trait in _CONNECTION:
        if trait in rest:
            found.connection[trait] = f"--IPKernelApp.{trait}", rest.pop(trait)
    found.unused += [f"--IPKernelApp.{trait}" for trait in rest if trait not in _COSMETIC]
