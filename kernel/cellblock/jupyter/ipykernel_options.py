"""``read``: reads ipykernel's own options on the kernel's command line.

Jupyter's tools start kernels with such options: nbclient keeps the history off the disk, testbook
sets for how long cells behind an error are aborted, and users set traits of IPython's shell.
``read`` sorts the options by who carries them out:

- the host: history, and the time in which cells behind an error are aborted
- the guest: traits of IPython's shell and its parts (``wire.messages.Launch``)
- cells: options that run code, such as ``--ext`` or ``exec_lines``, become cells that run first.
  They are checked like all cells, so a command line can do no more than a notebook
- nobody: options about parts of ipykernel that do not exist here. A line on stderr names them if
  they may matter

An option that would move the sockets or change the key ends the start: only the connection file
says who may speak to a kernel.

Options are parsed as ipykernel does it, with traitlets' parser and ipykernel's aliases. Importing
these takes as long as a kernel's start. So that is done only for options that need it: a word
``--Class.trait=value`` needs no parser, unless the class is ipykernel's application.
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

#: ``--Class.trait=value``, the only form that traitlets' parser knows beside aliases and flags.
_TRAIT = re.compile(r"--([A-Za-z]\w*)\.(\w+)=(.*)", re.DOTALL)
#: The classes that ipykernel's application consists of. Traits of these are the application's.
_APPLICATION = (
    "Application", "BaseIPythonApplication", "ConnectionFileMixin", "IPKernelApp",
    "InteractiveShellApp",
)  # fmt: skip
_KERNEL = ("IPythonKernel", "Kernel")
_HISTORY = ("HistoryAccessor", "HistoryAccessorBase", "HistoryManager")
_SESSION = "Session"
#: Traits of the application that only decide how ipykernel logs and prints on the terminal, or that
#: repeat what this kernel knows from its start.
_COSMETIC = (
    "interrupt", "log_datefmt", "log_format", "log_level", "logging_config", "no_stderr",
    "no_stdout", "parent_appname", "parent_handle", "quiet", "show_config", "show_config_json",
    "verbose_crash",
)  # fmt: skip
#: Traits of the application that say where the kernel listens.
_CONNECTION = (
    "control_port", "hb_port", "iopub_port", "ip", "shell_port", "stdin_port", "transport",
)  # fmt: skip
#: Traits that say with which key messages are signed.
_KEY = ("key", "keyfile", "signature_scheme")
#: Traits that IPython reads only while it makes a shell, each with the magic that does the same
#: later. A trait that is on or off needs one only for on.
_BY_MAGIC = {
    "logappend": "%logstart {} append",
    "logfile": "%logstart {}",
    "pdb": "%pdb on",
    "xmode": "%xmode {}",
}
#: Traits of the application that run code, in IPython's order, each with the cell that does it.
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
    """An option that ipykernel does not know either, or that can't be carried out here."""


class IPKernelOptions:
    """ipykernel's options on a command line, sorted by who carries them out."""

    __slots__ = (
        "abort_seconds", "cells", "connection", "keeps_history", "searches_folder", "shell",
        "unused",
    )  # fmt: skip

    def __init__(self) -> None:
        #: Seconds after an error in which cells that arrive are aborted; None for the default.
        self.abort_seconds: float | None = None
        #: Cells that run before any other: the option that asks for each, and its source.
        self.cells: list[tuple[str, str]] = []
        #: The values that the connection file must have, by their keys, each with its option.
        self.connection: dict[str, tuple[str, Any]] = {}
        #: Whether history is kept on disk.
        self.keeps_history = True
        #: Whether cells import modules from the folder that they run in.
        self.searches_folder = True
        #: Traits for the guest's shell.
        self.shell: Sections = {}
        #: Options without effect here.
        self.unused: list[str] = []

    def why_not(self, connection: Mapping[str, Any]) -> str:
        """Return why the kernel can't start with this connection file; empty if it can."""
        for name, (option, value) in self.connection.items():
            if str(connection.get(name)) != str(value):
                return (
                    f"{option}: the connection file says where a kernel listens and who may speak "
                    f"to it, and says otherwise. Set {name!r} there, or leave the option out."
                )
        return ""


def read(words: list[str]) -> IPKernelOptions:
    """Return the options in these words of a command line.

    Raises ``OptionsError`` for an option that ipykernel does not know, or that can't be carried
    out here.
    """
    options = IPKernelOptions()
    sections: Sections = {}
    difficult: list[str] = []
    for word in words:
        match = _TRAIT.fullmatch(word)
        if match is None or (match[1] in _APPLICATION and match[2] not in _COSMETIC) or difficult:
            difficult.append(word)
        else:
            _add_value(sections.setdefault(match[1], {}), match[2], match[3])
    if difficult:
        for name, section in _parse_sections(difficult).items():
            sections.setdefault(name, {}).update(section)
    for name, section in sections.items():
        _sort_traits(options, name, section)
    return options


def _add_value(section: dict[str, Any], trait: str, value: str) -> None:
    """Add a trait's value. If the trait is given several times, its values become a list."""
    if trait not in section:
        section[trait] = value
    elif isinstance(section[trait], list):
        section[trait].append(value)
    else:
        section[trait] = [section[trait], value]


def _parse_sections(words: list[str]) -> Sections:
    """Parse ``words`` with traitlets' parser and ipykernel's aliases and flags.

    Values of the application's traits have their types; others are text, as they were given.
    """
    from ipykernel.kernelapp import IPKernelApp, kernel_aliases, kernel_flags  # noqa: PLC0415 - slow
    from traitlets import TraitError  # noqa: PLC0415 - slow
    from traitlets.config import Configurable  # noqa: PLC0415 - slow
    from traitlets.config.loader import (  # noqa: PLC0415 - slow
        ArgumentError,
        DeferredConfig,
        KVArgParseConfigLoader,
    )

    classes = [cls for cls in IPKernelApp.mro() if issubclass(cls, Configurable)]
    options: Any = {"aliases": dict(kernel_aliases), "flags": dict(kernel_flags)}
    loader: Any = KVArgParseConfigLoader(list(words), classes=classes, **options)
    usage = io.StringIO()  # dropped, since this kernel's usage is another
    try:
        with contextlib.redirect_stderr(usage), contextlib.redirect_stdout(usage):
            config: dict[str, Any] = dict(loader.load_config())
    except (SystemExit, ArgumentError, TraitError) as error:
        problem = str(error) if not isinstance(error, SystemExit) else ""
        raise OptionsError(
            problem or _refused_word(words, (*kernel_aliases, *kernel_flags))
        ) from None
    if loader.extra_args:
        raise OptionsError(f"unknown argument {loader.extra_args[0]!r}")
    sections: Sections = {"IPKernelApp": {}}
    traits: Any = IPKernelApp.class_traits()
    for name, section in config.items():
        if not isinstance(section, dict):
            raise OptionsError(f"unknown argument {f'--{name}'!r}")
        # All sections of the application's classes become one. A value for IPKernelApp itself wins
        # over a value for one of its base classes.
        section_name = "IPKernelApp" if name in _APPLICATION else name
        for trait, value in section.items():
            if (
                section_name == "IPKernelApp"
                and trait in traits
                and isinstance(value, DeferredConfig)
            ):
                value = value.get_value(traits[trait])  # noqa: PLW2901
            if name in {"IPKernelApp", section_name} or trait not in sections["IPKernelApp"]:
                sections.setdefault(section_name, {})[trait] = value
    return sections


def _refused_word(words: list[str], names: tuple[str, ...]) -> str:
    """Return which of ``words`` the parser refused, as a text for the error."""
    for word in words:
        name = word.partition("=")[0].lstrip("-")
        if word.startswith("-") and name not in names and "." not in name:
            return f"unknown argument {word.partition('=')[0]!r}"
    return f"arguments that need a value, or take none: {' '.join(words)}"


def _sort_traits(options: IPKernelOptions, name: str, section: dict[str, Any]) -> None:
    """Sort the traits of one class into the options."""
    if name in _APPLICATION:
        _sort_application(options, section)
        return
    for trait, value in section.items():
        option = f"--{name}.{trait}"
        if name in _KERNEL and trait == "stop_on_error_timeout":
            options.abort_seconds = _seconds(option, value)
        elif name in _HISTORY and trait in {"enabled", "hist_file"}:
            # ``hist_file`` turns the history off, because a file of the user's choice can't be
            # written: the guest writes no history, and the host writes only to its own file.
            if trait == "hist_file" or str(value).lower() in {"false", "0"}:
                options.keeps_history = False
        elif name == _SESSION and trait in _KEY:
            raise OptionsError(
                f"{option}: the connection file alone says with which key messages are signed. "
                "Put the key there: Jupyter's own tools do."
            )
        elif name in _SHELLS and trait in _BY_MAGIC:
            if str(value).lower() not in {"false", "0", ""}:
                options.cells.append((f"{option}={value}", _BY_MAGIC[trait].format(value)))
        elif name in {*_KERNEL, *_HISTORY, _SESSION, "ProfileDir"}:
            options.unused.append(option)
        else:
            options.shell.setdefault(name, {})[trait] = value


def _seconds(option: str, value: Any) -> float:
    """Return an option's value as seconds. Raises ``OptionsError``."""
    try:
        return float(value)
    except ValueError:
        raise OptionsError(f"{option}: {value!r} is not a number of seconds") from None


def _sort_application(options: IPKernelOptions, section: dict[str, Any]) -> None:
    """Sort the traits of ipykernel's application into the options."""
    rest = dict(section)
    # ``_CODE`` has IPython's order: charts, extensions, lines, files, then a file, code or module
    # given on its own.
    only_names = rest.pop("pylab_import_all", None) is False
    for trait, source in _CODE.items():
        value = rest.pop(trait, None)
        for entry in [value] if isinstance(value, str) else value or ():
            # "auto" stands for a flag without a value, such as ``--matplotlib``.
            text = source.format("" if entry == "auto" else entry).rstrip()
            if trait == "pylab" and only_names:
                text += " --no-import-all"
            options.cells.append((f"--InteractiveShellApp.{trait}={entry}", text))
    if rest.pop("ignore_cwd", False):
        options.searches_folder = False
    for trait in _CONNECTION:
        if trait in rest:
            options.connection[trait] = f"--IPKernelApp.{trait}", rest.pop(trait)
    options.unused += [f"--IPKernelApp.{trait}" for trait in rest if trait not in _COSMETIC]
