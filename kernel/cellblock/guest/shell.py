"""IPython's shell, without its terminal, its files and its history database.

``build`` makes the one ``GuestShell`` in the zygote. ``runner`` runs cells through it. In order:

- parts that replace IPython's: ``CellCompiler``, ``Payloads``, ``CellHistory``, ``Events``,
  ``SessionStore``;
- ``GuestShell``: running cells, showing errors, completion, magics;
- ``build``;
- ``get_ipython_for``: what ``get_ipython()`` returns to cells under the language layer;
- ``HostMagics``: magics such as ``%undo`` that ask the host.
"""

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


#: Modules that IPython names as text, and would import only when the shell is made. They are
#: imported earlier, because the host waits while the shell is made.
EARLY: Final = (application, completerlib, magics, oinspect)


#: Bytes of the longest cell that is named by ``_murmur2``, which takes under a millisecond for it.
_LONG_CELL: Final = 1 << 12
_SEED: Final = 0xC70F6907


def _murmur2(source: bytes) -> int:
    """Return MurmurHash2 with ipykernel's seed (``ipykernel.compiler.get_file_name``)."""
    factor = 0x5BD1E995
    size = len(source)
    digest = _SEED ^ size
    whole = size - size % 4
    for offset in range(0, whole, 4):
        mixed = int.from_bytes(source[offset : offset + 4], "little") * factor & 0xFFFFFFFF
        mixed ^= mixed >> 24
        digest = (digest * factor ^ mixed * factor) & 0xFFFFFFFF
    if rest := source[whole:]:
        digest = (digest ^ int.from_bytes(rest, "little")) * factor & 0xFFFFFFFF
    digest = (digest ^ digest >> 13) * factor & 0xFFFFFFFF
    return digest ^ digest >> 15


class CellCompiler(CachingCompiler):
    """The compiler of all code that runs on behalf of cells.

    Under the language layer it rewrites the code for the guards.
    """

    #: Whether the language layer is on. Kept in the class, which no cell can change.
    rewritten: ClassVar[bool] = False

    def get_code_name(self, raw_code: str, transformed_code: str, number: int) -> str:
        """Return the file name of a cell, the same as ipykernel's; no such file is written.

        Long cells are named by another hash, since ipykernel's takes seconds for the longest.
        """
        del transformed_code, number
        if name := os.environ.get("IPYKERNEL_CELL_NAME"):  # set by test suites for ipykernel
            return name
        source = raw_code.encode("utf-8", "surrogatepass")
        digest = zlib.crc32(source) if len(source) > _LONG_CELL else _murmur2(source)
        return os.path.join(tempfile.gettempdir(), f"ipykernel_{os.getpid()}", f"{digest}.py")

    def ast_parse(self, source: str, filename: str = "<unknown>", symbol: str = "exec") -> Any:
        """Parse ``source``, and under the language layer rewrite it.

        Raises SyntaxError, AttributeViolation.
        """
        tree = super().ast_parse(source, filename, symbol)
        # Asked of the class, since a cell could give the instance an attribute of that name.
        if not CellCompiler.rewritten:
            return tree
        return separable(rewrite(tree, text=bool(self.flags & futures.annotations.compiler_flag)))

    def __call__(self, source: Any, filename: str, symbol: str, **options: Any) -> Any:
        """Compile a tree, or source, which is then parsed here."""
        if CellCompiler.rewritten:
            if isinstance(source, str):
                source = self.ast_parse(source, filename, symbol)
            source = whole(source)
        return super().__call__(source, filename, symbol, **options)


class Payloads(PayloadManager):
    """The payloads of cells (pages to be shown), kept apart by subshell."""

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
    """``In``, with each cell under its number.

    The host also counts cells that never ran, such as refused ones, so numbers may be missing.
    """

    def store_inputs(self, line_num: int, source: str, source_raw: str | None = None) -> None:
        """Store a cell under its number, with empty texts for the numbers that are missing."""
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
        """Return the last cells of this session. IPython asks a database, which the host has."""
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
        """Return the cells of this session that match a pattern, each text once if ``unique``."""
        texts = self.input_hist_raw if search_raw else self.input_hist_parsed
        matches = [
            cell
            for cell in self._get_range_session(1, None, raw, output)
            if fnmatch.fnmatchcase(texts[cell[1]], pattern)
        ]
        if unique:
            latest = {texts[cell[1]]: cell[1] for cell in matches}
            matches = [cell for cell in matches if latest[texts[cell[1]]] == cell[1]]
        return matches if n is None else matches[max(0, len(matches) - n) :]


class Events(EventManager):
    """IPython's events, but an interrupt in a callback ends the cell.

    IPython would report the interrupt and go on.
    """

    def trigger(self, event: str, *args: Any, **kwargs: Any) -> None:
        """Call the callbacks of ``event``; show the error of one that fails, and go on."""
        for callback in tuple(self.callbacks[event]):
            try:
                callback(*args, **kwargs)
            except Exception:
                arguments = f"with arguments args {args},kwargs {kwargs}"
                sys.stdout.write(f"Error in callback {callback} (for {event}), {arguments}:\n")
                self.shell.showtraceback()


class SessionStore(dict[str, Any]):
    """The store of ``%store``, ``%cd`` and ``%bookmark``, in memory.

    IPython's is a folder, which would be the zygote's.
    """

    def keys(self, pattern: str = "*") -> Any:
        """Return the keys that match a pattern, as IPython's store does."""
        return fnmatch.filter(self, pattern)


#: Magics of ``ipykernel.zmqshell.KernelMagics`` that cells have.
_KERNEL_MAGICS: Final = (
    "autosave", "clear", "edit", "less", "man", "more", "subshell",
)  # fmt: skip
#: Magics of the same class that read the connection file, which holds the kernel's key.
_CONNECTION_MAGICS: Final = ("connect_info", "qtconsole")
#: Toolkits of ``%gui`` and ``%matplotlib`` that open no windows.
_WINDOWLESS: Final = frozenset(
    {None, "asyncio", "inline", "ipympl", "nbagg", "notebook", "webagg", "widget"}
)


def _kernel_magic(shell: GuestShell, name: str, line: str) -> Any:
    """Register ipykernel's own magics in place of the stand-ins, and run one of them."""
    magics: Any = import_module("ipykernel.zmqshell").KernelMagics
    shell.register_magics(magics)
    shell.register_connection_magics()  # again, since ipykernel's class has some of these names
    return shell.find_line_magic(name)(line)


def _connection_magic(name: str, _line: str) -> None:
    """Tell the user how to connect to the kernel, which no cell can."""
    sys.stderr.write(
        f"%{name} does nothing here: cells can't read the kernel's connection file. To connect to "
        "the kernel, run jupyter console --existing in a terminal.\n"
    )


class _ShownError(NamedTuple):
    """An exception, and the message that showed it in the front end."""

    raised: BaseException
    error: messages.Error


#: The code whose frame calls a cell's code.
_RUN_CODE: Final = InteractiveShell.run_code.__code__


class GuestShell(InteractiveShell):
    """The shell: the namespace of a session's cells, and all that IPython does with it.

    Built in the zygote; ``setup`` and ``server`` set some attributes in each guest. Libraries
    recognise a notebook by its shell, so this class is found as ``ZMQInteractiveShell`` in
    ``ipykernel.zmqshell`` (``guest.kernel``).
    """

    #: The policy's rules. Kept in the class, which no cell can change.
    rules: ClassVar[Any] = None
    #: By this, libraries recognise a kernel. Set in each guest.
    kernel = AnyTrait()
    exiter = Instance(ZMQExitAutocall)
    compiler_class = Type(CellCompiler)
    display_pub_class = Type(Publisher)
    displayhook_class = Type(ResultHook)
    #: The builtins of user code.
    names: Any
    #: By the name of a magic: the function that shows the host's view.
    views: Mapping[str, Callable[[str], None]]
    #: By name: the host's functions that cells call, without those that a variable has hidden.
    tools: dict[str, Any]
    #: Sets memory aside for what comes after a cell that has taken all of it. Set in each guest.
    refill: Callable[[], None] = staticmethod(lambda: None)
    #: Called with each error that is shown, which may be about a program. Set in each guest.
    on_error: Callable[[BaseException], None] = staticmethod(lambda _error: None)

    @default("exiter")
    def _default_exiter(self) -> ZMQExitAutocall:
        return ZMQExitAutocall(self)

    def init_events(self) -> None:
        """Use ``Events``, which let interrupts through."""
        super().init_events()
        events: Any = self.events
        events.__class__ = Events

    def init_history(self) -> None:
        """Keep ``In`` and ``Out`` in memory; the history database belongs to the host."""
        history: Any = CellHistory(shell=self, parent=self)
        history.enabled = False
        self.history_manager = history
        self.configurables.append(history)

    def init_payload(self) -> None:
        """Set up payloads and errors by subshell, whose cells run at the same time."""
        # By subshell: the error that was shown last, why a result could not be shown, and the call
        # that an error came from.
        self._shown_errors: dict[int, _ShownError] = {}
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
        """Make tracebacks say in which line an error was raised."""
        super().init_traceback_handlers(custom_exceptions)
        formatter: Any = self.InteractiveTB
        formatter.get_records = tracebacks.with_lines_of_errors(formatter.get_records)

    def init_display_formatter(self) -> None:
        """Use ``Formatter``, which notes that an error comes from formatting, not the cell."""
        formatter: Any = Formatter(parent=self)
        self.display_formatter = formatter
        self.configurables.append(formatter)

    def init_magics(self) -> None:
        """Register stand-ins for ipykernel's magics. The first that runs imports ipykernel's."""
        super().init_magics()
        for name in _KERNEL_MAGICS:
            magic: Any = partial(_kernel_magic, self, name)
            magic.__doc__ = (
                f"Run ipykernel's %{name}; once it has run, %{name}? shows its own text."
            )
            self.register_magic_function(magic, "line", name)
        self.register_connection_magics()

    def register_connection_magics(self) -> None:
        """Register replacements of ipykernel's magics that read the connection file."""
        for name in _CONNECTION_MAGICS:
            magic: Any = partial(_connection_magic, name)
            magic.__doc__ = _connection_magic.__doc__
            self.register_magic_function(magic, "line", name)

    def init_virtualenv(self) -> None:
        """Leave sys.path as the host gave it."""

    def init_pdb(self) -> None:
        """Set up no debugger: there is no terminal to drive it from."""
        # IPython reads this at each error of a repr: whether to call the debugger.
        self._call_pdb = False

    def get_parent(self) -> dict[str, Any]:
        """Return a stand-in for the message that is being answered."""
        parent: dict[str, Any] = self.kernel.get_parent()
        return parent

    parent_header = property(get_parent)

    def set_parent(self, parent: dict[str, Any]) -> None:
        """Make output of the calling thread or task belong to the cell that ``parent`` names."""
        set_parent(parent)

    def set_thread_parent(self, parent: dict[str, Any]) -> Token[int]:
        """Do the same; return a token for ``reset_thread_parent``."""
        return set_parent(parent)

    reset_thread_parent = staticmethod(current_cell.reset)

    # --- running cells: IPython's own methods, with what a guest must do besides -----------------

    def transform_admitted(self, source: str, raw: str) -> str:
        """Return the Python code of a cell.

        Under the language layer that is ``source``, the text that was judged. Otherwise it is
        ``raw`` after all input transformers, including those that libraries have registered.
        """
        return source if type(self).rules.language else self.transform_cell(raw)

    def transform_ast(self, node: Any) -> Any:
        """Apply registered transformers to a cell's tree.

        Under the language layer there must be none. Raises InputRejected if there are.
        """
        if type(self).rules.language and self.ast_transformers:
            self.ast_transformers.clear()
            raise InputRejected(
                "ast_transformers would change this cell after the policy's check, so they have "
                "been removed. Run the cell again, without what registers them."
            )
        return super().transform_ast(node)

    def should_run_async(self, raw_cell: str, **prepared: Any) -> bool:
        """Return whether a cell awaits at its top level.

        Most cells have neither word, and need not be parsed for it.
        """
        source = prepared.get("transformed_cell") or raw_cell
        may_await = "await" in source or "async" in source
        return may_await and super().should_run_async(raw_cell, **prepared)

    async def run_code(self, code_obj: Any, result: Any = None, *, async_: bool = False) -> bool:
        """Run a statement with the cells' builtins; afterwards set memory aside again."""
        # Set each time: a function keeps the builtins that the namespace had when it was defined,
        # so a cell must not be able to replace them for later ones.
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

        Some errors are shown in Python's own format: exception groups, which IPython would print
        instead of showing, and MemoryError, as there may be no memory for IPython's format.
        """
        self._refill()
        last = getattr(sys, "last_value", None)
        try:
            kind, error, _ = self._get_exc_info(exc_tuple)
        except ValueError:
            super().showtraceback()
            return
        self.on_error(error)
        is_again = error is last  # as for %tb
        call = tracebacks.failed_call(error)
        if call is not None:
            self._failed_calls[current_subshell.get()] = error, call, []
        tracebacks.trim(error)
        traceback = error.__traceback__
        if traceback is not None and traceback.tb_frame.f_code is _RUN_CODE:
            traceback = traceback.tb_next
        if not exception_only and tracebacks.is_pythons(error):
            self._showtraceback(kind, error, tracebacks.by_python(error, traceback))
            return
        tracebacks.prepare(self, error)
        if call is not None and not (exception_only or is_again):
            self._failed_calls[current_subshell.get()] = error, call, self._fold(error, traceback)
        super().showtraceback(
            (kind, error, traceback),
            filename,
            0 if tb_offset is None else tb_offset,
            exception_only,
            running_compiled_code,
        )

    def _fold(self, error: BaseException, tb: TracebackType | None) -> list[str]:
        """Return the lines of a traceback without frames of libraries, or none if it has none.

        Also none if the error makes its own lines.
        """
        formatter: Any = self.InteractiveTB
        if formatter.mode == "Minimal" or hasattr(error, "_render_traceback_"):
            return []
        with (
            contextlib.suppress(Exception),
            tracebacks.folded(error, tb) as (own_traceback, left_out),
        ):
            if left_out:
                lines = formatter.structured_traceback(
                    type(error), error, own_traceback, tb_offset=0
                )
                frames = (
                    "1 frame of a library" if left_out == 1 else f"{left_out:,} frames of libraries"
                )
                # Cells of mode safe have no %tb.
                whole = "" if type(self).rules.language else ": %tb shows all"
                line = f"    [... {frames}{whole}]\n"
                return tracebacks.with_left_out(lines, type(error).__name__, line)
        return []

    def debugger(self, force: bool = False) -> None:  # noqa: FBT002 - IPython's signature
        """Start the debugger, unless what a user types there would need approval."""
        if type(self).rules.admission:
            sys.stderr.write(f"{NO_PROMPT}\n")
            return
        try:
            super().debugger(force)
        except StdinNotImplementedError:
            # With %pdb on, the debugger starts at each error, so also at this one.
            if not self.call_pdb:
                raise

    def _showtraceback(self, etype: Any, evalue: BaseException, stb: list[str]) -> None:
        """Send an error to the front end, and keep it for the reply."""
        hook: Any = self.displayhook
        subshell = current_subshell.get()
        failed, call, folded = self._failed_calls.pop(subshell, (None, None, []))
        name = encodable(etype.__name__)
        try:
            lines = [encodable(str(line)) for line in stb]
        except Exception:  # an error's own ``_render_traceback_`` may return anything
            lines = [f"{name}: <the traceback could not be formatted>"]
        error = messages.Error(
            ename=name,
            evalue=encodable(tracebacks.describe(evalue)),
            traceback=lines,
            failed_call=call if failed is evalue else None,
            folded=[encodable(line) for line in folded] if failed is evalue else [],
            of_display=is_formatting.get(),
        )
        hook.out.send(error)  # not through ``display_pub``, which %%capture replaces
        self._shown_errors[subshell] = _ShownError(evalue, error)
        if hook.is_formatting:
            self._result_errors.setdefault(subshell, error)

    def _format_exception_for_storage(self, exception: BaseException, *_: Any, **__: Any) -> Any:
        """Return an error as it was shown, for ``%history`` and others."""
        error = self.error_of(exception)
        return {"ename": error.ename, "evalue": error.evalue, "traceback": error.traceback}

    def forget_errors(self) -> None:
        """Forget the errors of the calling subshell's last cell, when the next one begins."""
        self._shown_errors.pop(current_subshell.get(), None)
        self._result_errors.pop(current_subshell.get(), None)

    def error_of(self, raised: BaseException) -> messages.Error:
        """Return the message that showed an error; if none did, a message without a traceback."""
        shown_error = self._shown_errors.get(current_subshell.get())
        if shown_error is not None and shown_error.raised is raised:
            return shown_error.error
        name = encodable(type(raised).__name__)
        text = encodable(tracebacks.describe(raised))
        return messages.Error(ename=name, evalue=text, traceback=[], is_shown=True)

    def error_of_result(self, result: ExecutionResult) -> messages.Error | None:
        """Return the error that a cell ended with, or None."""
        raised = result.error_before_exec
        if raised is None:
            raised = result.error_in_exec
        return None if raised is None else self.error_of(raised)

    def display_error(self) -> messages.Error | None:
        """Return why the running cell's result could not be shown, or None.

        A cell whose result can't be shown has failed.
        """
        return self._result_errors.get(current_subshell.get())

    def init_completer(self) -> None:
        """Complete without evaluating, importing or jedi."""
        super().init_completer()
        self.Completer.use_jedi = False
        # Attributes are looked up without running properties.
        self.Completer.evaluation = "limited"
        # Remove completerlib's completers: they import the module that is being completed, and list
        # folders for %cd and %run.
        self.strdispatchers["complete_command"] = type(self.strdispatchers["complete_command"])()

    def enable_gui(self, gui: str | None = None) -> None:
        """Explain that toolkits open no windows, as cells have no display; start none.

        IPython calls this for ``%gui`` and ``%matplotlib``.
        """
        if gui not in _WINDOWLESS:
            sys.stderr.write(
                f"No windows of {gui} open here: cells have no display. Figures are shown in the "
                "notebook with %matplotlib inline.\n"
            )

    def set_next_input(self, s: str, *_: Any, **__: Any) -> None:
        """Print a text, such as ``%load``'s, that IPython would put into the user's next cell."""
        sys.stdout.write(s if s.endswith("\n") else f"{s}\n")

    def getoutput(self, cmd: str, split: bool = True, depth: int = 0) -> Any:  # noqa: FBT002 - IPython's
        """Return the output of ``!!cmd``; for ``pip install``, the answer of ``answer_pip``."""
        answer = answer_pip(self.var_expand(cmd, depth=depth + 1))
        if answer is None:
            return super().getoutput(cmd, split=split, depth=depth + 1)
        return SList(answer.text.splitlines()) if split else LSString(answer.text)

    def ask_exit(self) -> None:
        """Tell the user how to end the session, which only the host can do."""
        sys.stderr.write("To end the session, put exit into a cell of its own.\n")

    def run_line_magic(
        self, magic_name: str, line: str, _stack_depth: int = 1, **extra: Any
    ) -> Any:
        """Run an allowed line magic; ignore one that would do nothing, and refuse all others."""
        if not self._allows_magic(magic_name) and does_nothing(magic_name, line):
            return None
        self._admit_magic(magic_name)
        return super().run_line_magic(magic_name, line, _stack_depth + 1, **extra)

    def run_cell_magic(self, magic_name: str, line: str, cell: str) -> Any:
        """Run an allowed cell magic; refuse any other."""
        self._admit_magic(magic_name)
        return super().run_cell_magic(magic_name, line, cell)

    def transform_cell(self, raw_cell: str) -> str:
        """Transform code in a magic's argument, and judge the result once more.

        Raises the violation of the first finding.
        """
        source: str = super().transform_cell(raw_cell)
        if type(self).rules is not None and (findings := analyse(source, self.rules_now())):
            raise violation_of(findings[0], self.rules_now())
        return source

    def rules_now(self, rules: Rules | None = None) -> Rules:
        """Return ``rules``, or the policy's, with the builtin names that cells have rebound."""
        base: Rules = type(self).rules if rules is None else rules
        if not base.language:
            return base
        return base.with_own(name for name in BINDABLE_BUILTINS if name in self.user_ns)

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
    """Run ``!command`` and return its exit status. IPython calls this.

    If the command is a ``pip install`` that would fail here, print the answer of ``answer_pip``.
    """
    answer = answer_pip(command)
    if answer is None:
        return shell_escapes.run(command)
    (sys.stdout if answer.success else sys.stderr).write(answer.text)
    return int(not answer.success)


def build(rules: Rules, names: Mapping[str, Any]) -> GuestShell:
    """Build the shell. ``names`` are the builtins that user code gets."""
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
        # Only raw packages look for ipykernel's modules.
        add_modules(GuestShell, OutStream)
        GuestApp.instance(config=config).shell = shell
    if rules.language:
        # Cells can read the finalizers in this registry. That of the history leads to the shell. It
        # is not needed, as there is no database to close.
        vars(weakref.finalize)["_registry"].clear()
        # Put there directly: ``register_magic_function`` would set an attribute of that name, but
        # ``config`` is a trait of the object.
        manager: Any = shell.magics_manager
        manager.magics["line"]["config"] = _configure
    # Entered for good. A cell that runs code (%run, %%capture) enters them again, and when it
    # leaves them, they stay in force.
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
    match = CONFIG.fullmatch(line)
    if match is None:  # the source check refuses such a line before
        raise UsageError("%config changes only two settings here")
    kind, trait, value = (part for part in match.groups() if part)
    parsed = ast.literal_eval(value)
    changed = Config({kind: {trait: set(parsed) if isinstance(parsed, list | tuple) else parsed}})
    shell: Any = get_ipython()
    for configurable in shell.configurables:  # objects that are made later take the shell's
        configurable.update_config(changed)


def hide(shell: GuestShell, *names: str) -> None:
    """Hide variables from ``%who``."""
    for name in names:
        shell.user_ns_hidden[name] = shell.user_ns.get(name)


def strip_globals(shell: GuestShell, names: tuple[str, ...]) -> None:
    """Remove IPython's own names from the namespace, in mode safe. Cells have builtins instead."""
    for name in names:
        shell.user_ns.pop(name, None)


# What ``get_ipython()`` returns to cells under the language layer: an object that runs magics, not
# the shell.
#
# The source check accepts only the calls that magics are transformed to. A cell may get hold of the
# function by a name that the check does not see. It gains nothing by that, because each call is
# judged here again.


def get_ipython_for(rules: Rules) -> Callable[[], Any]:
    """Return the ``get_ipython`` of user code: the real one if there is no language layer."""
    if not rules.language:
        return get_ipython

    def admit(method: str, *arguments: str) -> Any:
        """Judge the call as the source check would; return the shell. Raises a violation."""
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
            """Refuse ``!command`` when a cell reaches it; the source check may let it pass."""
            admit("system", text_of(command))

        def getoutput(self, command: str) -> None:
            """Refuse ``name = !command``."""
            admit("getoutput", text_of(command))

    answer = Magics()
    return lambda: answer


#: Characters of a magic's argument that are passed on.
_LONGEST_ARGUMENT: Final = 100


class MagicsServer(Protocol):
    """The part of ``server.Server`` that magics need."""

    out: Outlet

    @property
    def runs_cell(self) -> bool:
        """Whether a cell of the main shell runs, and not a comm handler."""


@magics_class
class HostMagics(Magics):
    """Line magics that make the host show or do something. ``server`` is set in the guest.

    Each method is the magic of its name, and its docstring is the magic's help. Magics whose output
    the host shows have no method: ``_show`` serves each row of the table that has a ``shown``.
    """

    server: MagicsServer

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._shell = shell
        shell.register_magics(self)
        shown_magics = {name: self._shown_magic(name) for name in SHOWN_BY_HOST}
        for name, magic in shown_magics.items():
            shell.register_magic_function(magic, "line", name)
        shell.views = MappingProxyType({**self.magics["line"], **shown_magics})
        if GuestShell.rules.language:
            shell.register_magic_function(self._list_magics, "line", "lsmagic")

    def _list_magics(self, _line: str) -> None:
        """List the magics that cells may use."""
        allowed = GuestShell.rules.magics
        for kind, mark in (("line", "%"), ("cell", "%%")):
            magic_names = sorted(self._shell.magics_manager.magics[kind])
            names = [mark + name for name in magic_names if name in allowed]
            sys.stdout.write(f"Available {kind} magics:\n{fill('  '.join(names), 78)}\n")

    @line_magic
    def undo(self, line: str) -> None:
        """Step back to the state before the last cell that ran; ``%undo 3`` over three cells."""
        steps = steps_of_undo(line)
        if not steps:
            raise UsageError(f"%undo takes a number of cells, not {without_comment(line)!r}")
        if not self.server.runs_cell:
            raise UsageError("%undo works only in a cell of the notebook")
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
        name = without_comment(line)
        magic = "%restore" if restores else "%checkpoint"
        if not re.fullmatch(messages.CHECKPOINT_NAME, name):
            raise UsageError(f"{magic} takes a name of letters, digits, '_', '.' and '-'")
        if not self.server.runs_cell:
            raise UsageError(f"{magic} works only in a cell of the notebook")
        self.server.out.send(messages.Checkpoint(name=name, restores=restores))

    @line_magic
    def branch(self, line: str) -> None:
        """Have the host list branches, go to one or drop it when the cell has ended."""
        arguments = without_comment(line).split()
        drops = arguments[:1] == ["-d"]
        names = arguments[drops:]
        are_valid = all(re.fullmatch(messages.CHECKPOINT_NAME, name) for name in names)
        if not are_valid or len(names) > 2 - drops or (drops and not names):
            raise UsageError("use %branch, %branch NAME, %branch NAME CHECKPOINT, %branch -d NAME")
        if not self.server.runs_cell:
            raise UsageError("%branch works only in a cell of the notebook")
        name, start = (*names, None, None)[:2]
        self.server.out.send(messages.Branch(name=name, start=start, drops=drops))

    @line_magic
    def pip(self, line: str) -> None:
        """Run pip, but for ``%pip install``: packages are the host's to install."""
        self._shell.system(f"{shlex.quote(sys.executable)} -m pip {line}")

    def _shown_magic(self, name: str) -> Callable[[str], None]:
        """Return the magic of a table's row whose output the host shows."""

        def magic(line: str) -> None:
            self._show(name, line)

        magic.__doc__ = MAGICS[name].shown
        return magic

    def _show(self, name: str, line: str) -> None:
        """Ask the host to show its table, or a page, at this place."""
        if name == "policy" and without_comment(line):
            # A cell with only a narrowing is handled by the host and never comes here.
            raise UsageError("%policy takes no argument; put %policy narrow into a cell of its own")
        if name == "changes" and line.split(maxsplit=1)[:1] in (["keep"], ["drop"]):
            # So are these: only the user may say them, not code.
            raise UsageError(f"%changes {line.split(maxsplit=1)[0]} must be in a cell of its own")
        argument = encodable(line.strip()[:_LONGEST_ARGUMENT])
        self.server.out.send(messages.Show(what=name, argument=argument))
