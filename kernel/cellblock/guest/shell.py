"""IPython's shell, without its terminal, its files and its history database."""

from __future__ import annotations
import __future__ as futures

import ast
import builtins
import contextlib
import fnmatch
import os
import re
import shlex
import sys
import tempfile
import weakref
import zlib
from functools import partial
from importlib import import_module
from textwrap import fill
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol

from IPython.core import (
    application,
    completerlib,
    interactiveshell,
    magics,
    oinspect,
    page,
    payloadpage,
)
from IPython.core.autocall import ZMQExitAutocall
from IPython.core.compilerop import CachingCompiler
from IPython.core.error import InputRejected, StdinNotImplementedError, UsageError
from IPython.core.events import EventManager
from IPython.core.getipython import get_ipython
from IPython.core.history import HistoryManager
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_magic, magics_class, no_var_expand
from IPython.core.payload import PayloadManager
from IPython.utils import process
from IPython.utils.text import LSString, SList
from traitlets import Any as AnyTrait
from traitlets import Instance, Type, default
from traitlets.config import Config

from cellblock.analysis import analyse
from cellblock.analysis.magic_table import MAGICS, SHOWN_BY_HOST
from cellblock.analysis.magics import (
    CONFIG,
    INSTEAD_OF_UNAPPROVED,
    UNAPPROVED,
    does_nothing,
    is_unapproved,
    steps_of_undo,
    without_comment,
)
from cellblock.analysis.names import BINDABLE_BUILTINS
from cellblock.guest import shell_escapes, tracebacks
from cellblock.guest.guards.access import text_of
from cellblock.guest.kernel import GuestApp, add_modules
from cellblock.guest.library_patches import NO_PROMPT
from cellblock.guest.output import (
    Formatter,
    OutStream,
    Publisher,
    ResultHook,
    current_cell,
    current_subshell,
    encodable,
    is_formatting,
    set_parent,
)
from cellblock.guest.pip import answer_pip
from cellblock.guest.rewriting import rewrite, separable, whole
from cellblock.guest.violations import violation_of
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextvars import Token
    from types import TracebackType

    from IPython.core.interactiveshell import ExecutionResult

    from cellblock.analysis import Rules
    from cellblock.guest.output import Outlet


#: What IPython names as text, and would import when the shell is made, for which the host waits.
EARLY: Final = (application, completerlib, magics, oinspect)


#: Bytes; ``_murmur2`` of that many takes under a millisecond.
_LONG_CELL: Final = 1 << 12
_SEED: Final = 0xC70F6907


def _murmur2(source: bytes) -> int:
    """Return MurmurHash2 with ipykernel's seed (``ipykernel.compiler.get_file_name``)."""
    factor, size = 0x5BD1E995, len(source)
    digest, whole = _SEED ^ size, size - size % 4
    for at in range(0, whole, 4):
        mixed = int.from_bytes(source[at : at + 4], "little") * factor & 0xFFFFFFFF
        mixed ^= mixed >> 24
        digest = (digest * factor ^ mixed * factor) & 0xFFFFFFFF
    if rest := source[whole:]:
        digest = (digest ^ int.from_bytes(rest, "little")) * factor & 0xFFFFFFFF
    digest = (digest ^ digest >> 13) * factor & 0xFFFFFFFF
    return digest ^ digest >> 15


class CellCompiler(CachingCompiler):
    """Parses what cells say as the guards have it: all that is run on their behalf comes here."""

    rewritten: ClassVar[bool] = False

    def get_code_name(self, raw_code: str, transformed_code: str, number: int) -> str:
        """Name a cell's file as ipykernel does; nothing is written there.

        A long cell's by another hash: ipykernel's takes seconds for the longest.
        """
        del transformed_code, number
        if name := os.environ.get("IPYKERNEL_CELL_NAME"):  # ipykernel's, which test suites set
            return name
        source = raw_code.encode("utf-8", "surrogatepass")
        digest = zlib.crc32(source) if len(source) > _LONG_CELL else _murmur2(source)
        return os.path.join(tempfile.gettempdir(), f"ipykernel_{os.getpid()}", f"{digest}.py")

    def ast_parse(self, source: str, filename: str = "<unknown>", symbol: str = "exec") -> Any:
        """Parse and rewrite ``source``. Raises AttributeViolation besides."""
        tree = super().ast_parse(source, filename, symbol)
        # Of the class, which no cell can change: an instance's own would come first.
        if not CellCompiler.rewritten:
            return tree
        return separable(rewrite(tree, text=bool(self.flags & futures.annotations.compiler_flag)))

    def __call__(self, source: Any, filename: str, symbol: str, **options: Any) -> Any:
        """Compile a tree, or source that is parsed here."""
        if CellCompiler.rewritten:
            if isinstance(source, str):
                source = self.ast_parse(source, filename, symbol)
            source = whole(source)
        return super().__call__(source, filename, symbol, **options)


class Payloads(PayloadManager):
    """Pages to be shown, by the subshell of their cell."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._lists: dict[int, list[Any]] = {}

    @property
    def _payload(self) -> list[Any]:
        return self._lists.setdefault(current_subshell.get(), [])

    @_payload.setter
    def _payload(self, payload: list[Any]) -> None:
        self._lists[current_subshell.get()] = payload


class CellHistory(HistoryManager):
    """``In``, with each cell under its number: the host counts those that never ran, too."""

    def store_inputs(self, line_num: int, source: str, source_raw: str | None = None) -> None:
        """Put a cell under its number; cells that never ran are blank."""
        later = []
        for inputs in (self.input_hist_parsed, self.input_hist_raw):
            later.append(inputs[line_num + 1 :])
            del inputs[line_num:]
            inputs.extend([""] * (line_num - len(inputs)))
        super().store_inputs(line_num, source, source_raw)
        self.input_hist_parsed.extend(later[0])
        self.input_hist_raw.extend(later[1])

    def get_tail(
        self,
        n: int | None = 10,
        raw: bool = True,  # noqa: FBT002 - IPython's signature
        output: bool = False,  # noqa: FBT002
        include_latest: bool = False,  # noqa: FBT002
    ) -> Iterable[tuple[int, int, Any]]:
        """Return the last cells of this session; IPython's asks a database, which the host has."""
        end = None if include_latest else -1
        cells = list(self._get_range_session(1, end, raw, output))
        return cells[-(10 if n is None else n) :]

    def search(
        self,
        pattern: str = "*",
        raw: bool = True,  # noqa: FBT002 - IPython's signature
        search_raw: bool = True,  # noqa: FBT002
        output: bool = False,  # noqa: FBT002
        n: int | None = None,
        unique: bool = False,  # noqa: FBT002
    ) -> Iterable[tuple[int, int, Any]]:
        """Return cells of this session that a pattern fits, each text once if ``unique``."""
        texts = self.input_hist_raw if search_raw else self.input_hist_parsed
        found = [
            cell
            for cell in self._get_range_session(1, None, raw, output)
            if fnmatch.fnmatchcase(texts[cell[1]], pattern)
        ]
        if unique:
            latest = {texts[cell[1]]: cell[1] for cell in found}
            found = [cell for cell in found if latest[texts[cell[1]]] == cell[1]]
        return found if n is None else found[max(0, len(found) - n) :]


class Events(EventManager):
    """IPython's events, in which an interrupt ends the cell: theirs would report it, and go on."""

    def trigger(self, event: str, *args: Any, **kwargs: Any) -> None:
        """Call what is registered for ``event``, each by itself; show what raises."""
        for callback in tuple(self.callbacks[event]):
            try:
                callback(*args, **kwargs)
            except Exception:
                given = f"with arguments args {args},kwargs {kwargs}"
                sys.stdout.write(f"Error in callback {callback} (for {event}), {given}:\n")
                self.shell.showtraceback()


class SessionStore(dict[str, Any]):
    """What ``%store``, ``%cd`` and ``%bookmark`` keep: IPython's is a folder of the zygote's."""

    def keys(self, pattern: str = "*") -> Any:
        """Return the keys that fit a pattern, as IPython's does."""
        return fnmatch.filter(self, pattern)


#: Of ``ipykernel.zmqshell.KernelMagics``.
_KERNEL_MAGICS: Final = (
    "autosave", "clear", "edit", "less", "man", "more", "subshell",
)  # fmt: skip
#: Of the same class. Both read the connection file, which holds the kernel's key.
_CONNECTION_MAGICS: Final = ("connect_info", "qtconsole")
#: Arguments of ``%gui`` and ``%matplotlib`` that open no windows.
_WINDOWLESS: Final = frozenset(
    {None, "asyncio", "inline", "ipympl", "nbagg", "notebook", "webagg", "widget"}
)


def _kernel_magic(shell: GuestShell, name: str, line: str) -> Any:
    """Register ipykernel's own magics, and run one."""
    magics: Any = import_module("ipykernel.zmqshell").KernelMagics
    shell.register_magics(magics)
    shell.register_connection_magics()  # ipykernel's class has taken their names
    return shell.find_line_magic(name)(line)


def _connection_magic(name: str, _line: str) -> None:
    """Say who can connect to the kernel: its user, and no cell."""
    sys.stderr.write(
        f"%{name} does nothing here: cells can't read the kernel's connection file. To connect to "
        "the kernel, run jupyter console --existing in a terminal.\n"
    )


class _Shown(NamedTuple):
    """An error, and the message by which the front end was told of it."""

    raised: BaseException
    error: messages.Error


#: The frame that a cell's code is run from.
_RUN_CODE: Final = InteractiveShell.run_code.__code__


class GuestShell(InteractiveShell):
    """One user's namespace and everything IPython does with it.

    Built in the zygote; each guest sets its way out. It is what ``ipykernel.zmqshell`` has as
    ``ZMQInteractiveShell`` (``guest.kernel``): libraries know a notebook by its shell.
    """

    rules: ClassVar[Any] = None
    #: What libraries know a kernel by; a guest sets it.
    kernel = AnyTrait()
    exiter = Instance(ZMQExitAutocall)
    compiler_class = Type(CellCompiler)
    display_pub_class = Type(Publisher)
    displayhook_class = Type(ResultHook)
    #: All that user code finds as its builtins.
    names: Any
    #: What shows the host's views, by the names of their magics.
    views: Mapping[str, Callable[[str], None]]
    #: What cells call of the host's, by name; without those that a variable has hidden.
    tools: dict[str, Any]
    #: Memory for what comes after a cell that has taken all of it; a guest sets it.
    refill: Callable[[], None] = staticmethod(lambda: None)
    #: Takes each error that is shown, for what it says of a program; a guest sets it.
    on_error: Callable[[BaseException], None] = staticmethod(lambda _error: None)

    @default("exiter")
    def _default_exiter(self) -> ZMQExitAutocall:
        return ZMQExitAutocall(self)

    def init_events(self) -> None:
        """Let interrupts through."""
        super().init_events()
        events: Any = self.events
        events.__class__ = Events

    def init_history(self) -> None:
        """Keep ``In`` and ``Out``; the database belongs to the host."""
        history: Any = CellHistory(shell=self, parent=self)
        history.enabled = False
        self.history_manager = history
        self.configurables.append(history)

    def init_payload(self) -> None:
        """Keep cells that run at the same time apart."""
        # By subshell: the error that was shown last, and why a result could not be shown.
        self._shown_errors: dict[int, _Shown] = {}
        self._result_errors: dict[int, messages.Error] = {}
        self._failed_calls: dict[int, tuple[BaseException, messages.FailedCall, list[str]]] = {}
        super().init_payload()
        manager: Any = Payloads(parent=self)
        self.configurables[-1] = self.payload_manager = manager

    def init_hooks(self) -> None:
        """Send pages (``name?``) as payloads."""
        super().init_hooks()
        self.set_hook("show_in_pager", page.as_hook(payloadpage.page), 99)

    def init_traceback_handlers(self, custom_exceptions: Any) -> None:
        """Have tracebacks say where an error was raised."""
        super().init_traceback_handlers(custom_exceptions)
        shown: Any = self.InteractiveTB
        shown.get_records = tracebacks.with_lines_of_errors(shown.get_records)

    def init_display_formatter(self) -> None:
        """Have errors of formatters told from the cell's own."""
        formatter: Any = Formatter(parent=self)
        self.display_formatter = formatter
        self.configurables.append(formatter)

    def init_magics(self) -> None:
        """Register ipykernel's magics beside IPython's; the first that runs imports its module."""
        super().init_magics()
        for name in _KERNEL_MAGICS:
            run: Any = partial(_kernel_magic, self, name)
            run.__doc__ = f"Run ipykernel's %{name}; once it has run, %{name}? shows its own text."
            self.register_magic_function(run, "line", name)
        self.register_connection_magics()

    def register_connection_magics(self) -> None:
        """Register what stands in for ipykernel's magics that read the connection file."""
        for name in _CONNECTION_MAGICS:
            run: Any = partial(_connection_magic, name)
            run.__doc__ = _connection_magic.__doc__
            self.register_magic_function(run, "line", name)

    def init_virtualenv(self) -> None:
        """Leave sys.path as the host gave it."""

    def init_pdb(self) -> None:
        """Have no debugger: there is no terminal to drive it from."""
        # The answer to whether one is to be called, which IPython asks for every error of a repr.
        self._call_pdb = False

    def get_parent(self) -> dict[str, Any]:
        """Return a stand-in for the message that is being answered."""
        parent: dict[str, Any] = self.kernel.get_parent()
        return parent

    parent_header = property(get_parent)

    def set_parent(self, parent: dict[str, Any]) -> None:
        """Have what the calling thread or task shows belong to the cell of ``parent``."""
        set_parent(parent)

    def set_thread_parent(self, parent: dict[str, Any]) -> Token[int]:
        """Do the same; return what ``reset_thread_parent`` takes."""
        return set_parent(parent)

    reset_thread_parent = staticmethod(current_cell.reset)

    # --- running cells: IPython's own methods, with what a guest has to see to besides ----------

    def transform_admitted(self, source: str, raw: str) -> str:
        """Return the Python that a cell is run as: ``source``, or what transformers make of it.

        Under the language layer it is the text that was judged, whatever a library has registered.
        """
        return source if type(self).rules.language else self.transform_cell(raw)

    def transform_ast(self, node: Any) -> Any:
        """Have transformers change the cell's tree; under the language layer there are none."""
        if type(self).rules.language and self.ast_transformers:
            self.ast_transformers.clear()
            raise InputRejected(
                "ast_transformers would change this cell after the policy's check, so they have "
                "been removed. Run the cell again, without what registers them."
            )
        return super().transform_ast(node)

    def should_run_async(self, raw_cell: str, **prepared: Any) -> bool:
        """Return whether a cell awaits at its top level: never, without one of the two words."""
        source = prepared.get("transformed_cell") or raw_cell
        words = "await" in source or "async" in source
        return words and super().should_run_async(raw_cell, **prepared)

    async def run_code(self, code_obj: Any, result: Any = None, *, async_: bool = False) -> bool:
        """Run a statement with the builtins that are its, and leave memory for what follows."""
        # What a function finds as its builtins is decided when it is made.
        self.user_ns["__builtins__"] = self.names
        try:
            return bool(await super().run_code(code_obj, result, async_=async_))
        finally:
            self._refill()

    def _refill(self) -> None:
        if not current_subshell.get():
            self.refill()

    # --- errors --------------------------------------------------------------------------------

    def showtraceback(
        self,
        exc_tuple: Any = None,
        filename: str | None = None,
        tb_offset: int | None = None,
        exception_only: bool = False,  # noqa: FBT002 - IPython's signature
        running_compiled_code: bool = False,  # noqa: FBT002
    ) -> None:
        """Show an error as IPython does, without the kernel's frames.

        Exception groups, which IPython prints, and MemoryError, for which there may be no room, are
        shown as Python has them.
        """
        self._refill()
        last = getattr(sys, "last_value", None)
        try:
            kind, error, _ = self._get_exc_info(exc_tuple)
        except ValueError:
            super().showtraceback()
            return
        self.on_error(error)
        is_again = error is last  # as by %tb
        call = tracebacks.failed_call(error)
        if call is not None:
            self._failed_calls[current_subshell.get()] = error, call, []
        tracebacks.trim(error)
        found = error.__traceback__
        if found is not None and found.tb_frame.f_code is _RUN_CODE:
            found = found.tb_next
        if not exception_only and tracebacks.is_pythons(error):
            self._showtraceback(kind, error, tracebacks.by_python(error, found))
            return
        tracebacks.prepare(self, error)
        if call is not None and not (exception_only or is_again):
            self._failed_calls[current_subshell.get()] = error, call, self._fold(error, found)
        super().showtraceback(
            (kind, error, found),
            filename,
            0 if tb_offset is None else tb_offset,
            exception_only,
            running_compiled_code,
        )

    def _fold(self, error: BaseException, tb: TracebackType | None) -> list[str]:
        """Return the lines of a traceback without frames of libraries; none where it has no such.

        An error that has lines of its own keeps them.
        """
        shown: Any = self.InteractiveTB
        if shown.mode == "Minimal" or hasattr(error, "_render_traceback_"):
            return []
        with contextlib.suppress(Exception), tracebacks.folded(error, tb) as (own, left_out):
            if left_out:
                lines = shown.structured_traceback(type(error), error, own, tb_offset=0)
                frames = (
                    "1 frame of a library" if left_out == 1 else f"{left_out:,} frames of libraries"
                )
                # Cells of mode safe have no %tb.
                whole = "" if type(self).rules.language else ": %tb shows all"
                line = f"    [... {frames}{whole}]\n"
                return tracebacks.with_left_out(lines, type(error).__name__, line)
        return []

    def debugger(self, force: bool = False) -> None:  # noqa: FBT002 - IPython's signature
        """Debug, where somebody can answer it, and what they type needs no approval."""
        if type(self).rules.admission:
            sys.stderr.write(f"{NO_PROMPT}\n")
            return
        try:
            super().debugger(force)
        except StdinNotImplementedError:
            if not self.call_pdb:  # %pdb's comes with an error, which would be the next to debug
                raise

    def _showtraceback(self, etype: Any, evalue: BaseException, stb: list[str]) -> None:
        """Send an error to the front end, and keep it for the reply."""
        hook: Any = self.displayhook
        subshell = current_subshell.get()
        failed, call, folded = self._failed_calls.pop(subshell, (None, None, []))
        name = encodable(etype.__name__)
        try:
            lines = [encodable(str(line)) for line in stb]
        except Exception:  # what an error's own ``_render_traceback_`` returned
            lines = [f"{name}: <the traceback could not be formatted>"]
        error = messages.Error(
            ename=name,
            evalue=encodable(tracebacks.describe(evalue)),
            traceback=lines,
            failed_call=call if failed is evalue else None,
            folded=[encodable(line) for line in folded] if failed is evalue else [],
            of_display=is_formatting.get(),
        )
        hook.out.send(error)  # ``display_pub`` is another one while a cell captures output
        self._shown_errors[subshell] = _Shown(evalue, error)
        if hook.is_formatting:
            self._result_errors.setdefault(subshell, error)

    def _format_exception_for_storage(self, exception: BaseException, *_: Any, **__: Any) -> Any:
        """Return what was shown of an error, for ``%history`` and others."""
        error = self.error_of(exception)
        return {"ename": error.ename, "evalue": error.evalue, "traceback": error.traceback}

    def forget_errors(self) -> None:
        """Begin a cell: nothing of it has failed yet."""
        self._shown_errors.pop(current_subshell.get(), None)
        self._result_errors.pop(current_subshell.get(), None)

    def error_of(self, raised: BaseException) -> messages.Error:
        """Return what was shown of an error, or what it says where nothing was."""
        shown = self._shown_errors.get(current_subshell.get())
        if shown is not None and shown.raised is raised:
            return shown.error
        name, text = encodable(type(raised).__name__), encodable(tracebacks.describe(raised))
        return messages.Error(ename=name, evalue=text, traceback=[], is_shown=True)

    def error_of_result(self, result: ExecutionResult) -> messages.Error | None:
        """Return how a cell failed, None where it did not."""
        raised = result.error_before_exec
        if raised is None:
            raised = result.error_in_exec
        return None if raised is None else self.error_of(raised)

    def display_error(self) -> messages.Error | None:
        """Return why the running cell's result could not be shown: the cell has failed then."""
        return self._result_errors.get(current_subshell.get())

    def init_completer(self) -> None:
        """Complete without evaluating, importing or jedi."""
        super().init_completer()
        self.Completer.use_jedi = False
        # Attributes are looked up without running properties.
        self.Completer.evaluation = "limited"
        # completerlib imports the module being completed and lists folders for %cd and %run.
        self.strdispatchers["complete_command"] = type(self.strdispatchers["complete_command"])()

    def enable_gui(self, gui: str | None = None) -> None:
        """Run no loop of a toolkit for ``%gui`` and ``%matplotlib``: cells have no display."""
        if gui not in _WINDOWLESS:
            sys.stderr.write(
                f"No windows of {gui} open here: cells have no display. Figures are shown in the "
                "notebook with %matplotlib inline.\n"
            )

    def set_next_input(self, s: str, *_: Any, **__: Any) -> None:
        """Show it, as for ``%load``: a cell does not write the reader's next cell."""
        sys.stdout.write(s if s.endswith("\n") else f"{s}\n")

    def getoutput(self, cmd: str, split: bool = True, depth: int = 0) -> Any:  # noqa: FBT002 - IPython's
        """Return the output of ``!!cmd``; of pip, what ``!cmd`` says."""
        said = answer_pip(self.var_expand(cmd, depth=depth + 1))
        if said is None:
            return super().getoutput(cmd, split=split, depth=depth + 1)
        return SList(said.text.splitlines()) if split else LSString(said.text)

    def ask_exit(self) -> None:
        """Say who ends a session: the host, asked by a cell that says nothing else."""
        sys.stderr.write("To end the session, put exit into a cell of its own.\n")

    def run_line_magic(
        self, magic_name: str, line: str, _stack_depth: int = 1, **extra: Any
    ) -> Any:
        """Run an allowed line magic; pass over another that does nothing, and refuse the rest."""
        if not self._allows_magic(magic_name) and does_nothing(magic_name, line):
            return None
        self._admit_magic(magic_name)
        return super().run_line_magic(magic_name, line, _stack_depth + 1, **extra)

    def run_cell_magic(self, magic_name: str, line: str, cell: str) -> Any:
        """Run an allowed cell magic; refuse any other."""
        self._admit_magic(magic_name)
        return super().run_cell_magic(magic_name, line, cell)

    def transform_cell(self, raw_cell: str) -> str:
        """Transform code that a magic carries, and judge what comes of it once more."""
        source: str = super().transform_cell(raw_cell)
        if type(self).rules is not None and (findings := analyse(source, self.rules_now())):
            raise violation_of(findings[0], self.rules_now())
        return source

    def rules_now(self, rules: Rules | None = None) -> Rules:
        """Return ``rules``, or the policy's, with the names that cells have bound by now."""
        found: Rules = type(self).rules if rules is None else rules
        if not found.language:
            return found
        return found.with_own(name for name in BINDABLE_BUILTINS if name in self.user_ns)

    def _allows_magic(self, name: str) -> bool:
        rules = type(self).rules
        if rules is None:
            return True
        if rules.admission and is_unapproved(name):
            return False
        return not rules.language or name in rules.magics

    def _admit_magic(self, name: str) -> None:
        if self._allows_magic(name):
            return
        if type(self).rules.admission and is_unapproved(name):
            raise UsageError(f"%{name} {UNAPPROVED} (magic-not-allowed). {INSTEAD_OF_UNAPPROVED}")
        raise UsageError(f"%{name} is not allowed by this policy (magic-not-allowed)")


GuestShell.__name__ = GuestShell.__qualname__ = "ZMQInteractiveShell"
GuestShell.__module__ = "ipykernel.zmqshell"


def run_escape(command: str) -> int:
    """Run ``!command``, for which IPython calls this; of pip, say where it would fail."""
    said = answer_pip(command)
    if said is None:
        return shell_escapes.run(command)
    (sys.stdout if said.success else sys.stderr).write(said.text)
    return int(not said.success)


def build(rules: Rules, names: Mapping[str, Any]) -> GuestShell:
    """Return the shell, with ``names`` as all that user code finds as its builtins."""
    config = Config()
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.colors = "neutral"
    config.InteractiveShell.automagic = not rules.language
    config.InteractiveShell.logstart = False
    config.IPKernelApp = Config()  # tqdm and others look for it
    for module in (interactiveshell, process):
        vars(module)["system"] = run_escape
    GuestShell.rules = rules
    CellCompiler.rewritten = rules.language
    shell = GuestShell.instance(config=config)
    if not rules.language or rules.raw_modules:
        # Elsewhere cells have no packages that could look for them.
        add_modules(GuestShell, OutStream)
        GuestApp.instance(config=config).shell = shell
    if rules.language:
        # Cells find each other's finalizers there, and would the one of the history, which has the
        # shell: there is no database to close.
        vars(weakref.finalize)["_registry"].clear()
        # Not registered: of what holds registered ones, ``config`` is a trait.
        manager: Any = shell.magics_manager
        manager.magics["line"]["config"] = _configure
    # For good: a cell that runs cells (%run, %%capture) enters them again, and does not undo them.
    shell.builtin_trap.__enter__()
    shell.display_trap.__enter__()
    if rules.language:
        shell.names = dict(names)
    else:
        vars(builtins).update(names)
        shell.names = builtins
        extensions: Any = shell.extension_manager
        extensions.load_extension("storemagic")  # as IPython's applications do
    shell.user_ns["__builtins__"] = shell.names
    shell.db = SessionStore()
    hide(shell, "__builtins__")
    return shell


@no_var_expand
def _configure(line: str) -> None:
    """Set %config InlineBackend.figure_format(s) or InteractiveShell.ast_node_interactivity."""
    said = CONFIG.fullmatch(line)
    if said is None:  # judged already
        raise UsageError("%config sets two traits here")
    kind, trait, value = (part for part in said.groups() if part)
    found = ast.literal_eval(value)
    changed = Config({kind: {trait: set(found) if isinstance(found, list | tuple) else found}})
    shell: Any = get_ipython()
    for one in shell.configurables:  # the shell's is that of what is made later, too
        one.update_config(changed)


def hide(shell: GuestShell, *names: str) -> None:
    """Keep ``names`` out of ``%who``."""
    for name in names:
        shell.user_ns_hidden[name] = shell.user_ns.get(name)


def strip_globals(shell: GuestShell, names: tuple[str, ...]) -> None:
    """Remove IPython's own names from the namespace in mode safe; builtins stand in for them."""
    for name in names:
        shell.user_ns.pop(name, None)


# What ``get_ipython()`` answers to cells under the language layer: magics, not the shell.
#
# The source check lets only its magic-call shapes pass, and a cell that gets at the function by
# a name that the check did not see finds no more than that: whatever it calls is judged here
# again.


def get_ipython_for(rules: Rules) -> Callable[[], Any]:
    """Return the ``get_ipython`` of user code: the real one where there is no language layer."""
    if not rules.language:
        return get_ipython

    def admit(method: str, *arguments: str) -> Any:
        spelt = ", ".join(map(repr, arguments))
        shell: Any = get_ipython()
        if findings := analyse(f"get_ipython().{method}({spelt})", shell.rules_now(rules)):
            raise violation_of(findings[0], rules)
        return shell

    class Magics:
        """Runs magics that the policy allows."""

        __slots__ = ()

        def run_line_magic(self, name: str, line: str) -> Any:
            """Run ``%name line``."""
            name, line = map(text_of, (name, line))
            return admit("run_line_magic", name, line).run_line_magic(name, line, 2)

        def run_cell_magic(self, name: str, line: str, cell: str) -> Any:
            """Run ``%%name line`` over ``cell``."""
            name, line, cell = map(text_of, (name, line, cell))
            return admit("run_cell_magic", name, line, cell).run_cell_magic(name, line, cell)

        def system(self, command: str) -> None:
            """Refuse ``!command``, which the source check leaves to whoever comes to it."""
            admit("system", text_of(command))

        def getoutput(self, command: str) -> None:
            """Refuse ``name = !command``."""
            admit("getoutput", text_of(command))

    answer = Magics()
    return lambda: answer


#: Characters of a magic's argument that are passed on.
_LONGEST_ARGUMENT: Final = 100


class MagicsServer(Protocol):
    """What magics need of the server of a guest's requests."""

    out: Outlet

    @property
    def runs_cell(self) -> bool:
        """Whether a cell of the main shell is under way, and no handler."""


@magics_class
class HostMagics(Magics):
    """Line magics that ask the host for what it knows, or does. ``server`` is set in the guest.

    A method is the magic of its name, and its docstring is the magic's help. Magics in whose place
    the host shows something have no method: ``_show`` serves each row of the table that says so.
    """

    server: MagicsServer

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._shell = shell
        shell.register_magics(self)
        shown = {name: self._shown_magic(name) for name in SHOWN_BY_HOST}
        for name, magic in shown.items():
            shell.register_magic_function(magic, "line", name)
        shell.views = MappingProxyType({**self.magics["line"], **shown})
        if GuestShell.rules.language:
            shell.register_magic_function(self._list_magics, "line", "lsmagic")

    def _list_magics(self, _line: str) -> None:
        """List the magics that cells may use."""
        allowed = GuestShell.rules.magics
        for kind, mark in (("line", "%"), ("cell", "%%")):
            known = sorted(self._shell.magics_manager.magics[kind])
            names = [mark + name for name in known if name in allowed]
            sys.stdout.write(f"Available {kind} magics:\n{fill('  '.join(names), 78)}\n")

    @line_magic
    def undo(self, line: str) -> None:
        """Step back to the state before the last cell that ran; ``%undo 3`` over three cells."""
        steps = steps_of_undo(line)
        if not steps:
            raise UsageError(f"%undo takes a number of cells, not {without_comment(line)!r}")
        if not self.server.runs_cell:
            raise UsageError("%undo steps back from a cell of the notebook, and from nothing else")
        self.server.out.send(messages.Undo(steps=steps))

    @line_magic
    def checkpoint(self, line: str) -> None:
        """Have the host keep the state under a name when the cell has ended."""
        self._keep_state(line, restores=False)

    @line_magic
    def restore(self, line: str) -> None:
        """Have the host go back to the state of a checkpoint when the cell has ended."""
        self._keep_state(line, restores=True)

    def _keep_state(self, line: str, *, restores: bool) -> None:
        name, magic = without_comment(line), "%restore" if restores else "%checkpoint"
        if not re.fullmatch(messages.CHECKPOINT_NAME, name):
            raise UsageError(f"{magic} takes a name of letters, digits, '_', '.' and '-'")
        if not self.server.runs_cell:
            raise UsageError(f"{magic} works in a cell of the notebook, and in nothing else")
        self.server.out.send(messages.Checkpoint(name=name, restores=restores))

    @line_magic
    def branch(self, line: str) -> None:
        """Have the host list branches, go to one or drop it when the cell has ended."""
        given = without_comment(line).split()
        drops = given[:1] == ["-d"]
        names = given[drops:]
        known = all(re.fullmatch(messages.CHECKPOINT_NAME, name) for name in names)
        if not known or len(names) > 2 - drops or (drops and not names):
            raise UsageError("use %branch, %branch NAME, %branch NAME CHECKPOINT, %branch -d NAME")
        if not self.server.runs_cell:
            raise UsageError("%branch works in a cell of the notebook, and in nothing else")
        name, start = (*names, None, None)[:2]
        self.server.out.send(messages.Branch(name=name, start=start, drops=drops))

    @line_magic
    def pip(self, line: str) -> None:
        """Run pip, but for ``%pip install``: packages are the host's to install."""
        self._shell.system(f"{shlex.quote(sys.executable)} -m pip {line}")

    def _shown_magic(self, name: str) -> Callable[[str], None]:
        """Return the magic of a row that the host shows something for."""

        def magic(line: str) -> None:
            self._show(name, line)

        magic.__doc__ = MAGICS[name].shown
        return magic

    def _show(self, name: str, line: str) -> None:
        """Have the host show its table, or a page, here."""
        if name == "policy" and without_comment(line):
            # The host settles a narrowing before a cell comes here.
            raise UsageError("%policy takes nothing; put %policy narrow into a cell of its own")
        if name == "changes" and line.split(maxsplit=1)[:1] in (["keep"], ["drop"]):
            # The host does those before a cell comes here: they are the user's to say.
            raise UsageError(f"%changes {line.split(maxsplit=1)[0]} stands in a cell of its own")
        argument = encodable(line.strip()[:_LONGEST_ARGUMENT])
        self.server.out.send(messages.Show(what=name, argument=argument))
