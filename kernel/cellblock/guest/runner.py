"""Runs one cell: the second source check, compiling, executing, and its outcome.

The main thread has a ``Runner``; each message of a subshell gets one. ``server`` calls ``run`` for
cells, ``run_handler`` for comm messages and ``query`` for queries. A cell is one of three kinds:

- an ordinary cell, run as ipykernel does (``_run_cell``);
- a template with a state (``_run_template``);
- a view of the host, such as ``%usage`` (``_show_view``).
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import linecache
import resource
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, cast

from IPython.core import async_helpers, interactiveshell

from cellblock.analysis import analyse, analyse_expression, forget
from cellblock.analysis.templates import ENTRY, definitions, entry
from cellblock.guest import installed, shell_escapes
from cellblock.guest.audit_hook import effects
from cellblock.guest.output import current_cell, encodable
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType

    from cellblock.analysis import Finding, Rules
    from cellblock.guest.loop import Driver
    from cellblock.guest.output import Outlet
    from cellblock.guest.reserve import Reserve
    from cellblock.guest.shell import GuestShell


#: IPython's runner of cells that await, and of those that don't.
run_on_loop: Final[Any] = vars(async_helpers)["_asyncio_runner"]
run_plain: Final[Any] = vars(async_helpers)["_pseudo_sync_runner"]
_Info: Final[Any] = interactiveshell.ExecutionInfo
_Result: Final[Any] = interactiveshell.ExecutionResult

#: File name of the call that starts a template. It is this file's, which tracebacks leave out.
_TEMPLATE_CALL_FILE: Final = __file__
#: Variable of that call that holds the state. Not an identifier, so no template can use it.
_TEMPLATE_STATE: Final = "state of the cell"
#: Entry of ``sys.path`` that replaces the folder that a cell runs in. It is not a folder.
_NOWHERE: Final = "/dev/null"
_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
#: Held while a cell changes parts of the shell that cells running at the same time share. No code
#: of cells runs meanwhile.
_alone: Final = threading.RLock()


@contextlib.contextmanager
def _as_it_imported() -> Iterator[None]:
    """Make imports skip the folder that cells run in, for a cell that is run again.

    The first time, the cell imported nothing from that folder, or it would not be run again. There
    may be a module by now.
    """
    _replace(sys.path, "", _NOWHERE)
    try:
        yield
    finally:
        _replace(sys.path, _NOWHERE, "")


def _replace(entries: list[str], old: str, new: str) -> None:
    for index, path in enumerate(entries):
        if path == old:
            entries[index] = new


#: Notice about a tool that cells can't call any more.
_HIDDEN: Final = "cellblock: your variable {0} hides the tool {0}. To have the tool back: del {0}\n"


class RulesInForce:
    """The rules in force: the policy's, and for a cell also the imports approved for that cell."""

    def __init__(self, rules: Rules) -> None:
        self._of_policy = self.rules = rules

    def grant(self, granted: messages.Granted | None) -> None:
        """Allow what is ``granted`` beside the policy; this replaces an earlier grant."""
        base = self._of_policy
        self.rules = base if granted is None else base.granting(granted.modules, granted.packages)


class Runner:
    """Executes admitted cells in the shell's namespace.

    ``current`` are the rules in force, ``driver`` the event loop of the calling thread, ``reserve``
    the memory that is set aside.
    """

    def __init__(
        self,
        shell: GuestShell,
        current: RulesInForce,
        driver: Driver,
        out: Outlet,
        plan: messages.Plan,
        reserve: Reserve,
    ) -> None:
        # Any: by IPython's types a shell may lack each of its parts, but this one has them.
        self._shell: Any = shell
        self._current = current
        self._driver = driver
        self._out = out
        #: The plan whose locks error messages refer to.
        self.plan = plan
        self._reserve = reserve
        self._builtins = shell.user_ns["__builtins__"]
        #: User code is running, so an interrupt may raise KeyboardInterrupt.
        self.running = False
        #: An interrupt came before user code ran, or between two pieces. The next piece raises it.
        self.interrupted = False

    def run(self, request: messages.Execute) -> messages.Done:
        """Run a cell and return its ``Done``, which has the error that the cell raised, if any."""
        self._current.grant(request.granted)
        cell = current_cell.set(request.execution_count if request.store_history else 0)
        try:
            with _as_it_imported() if request.again else contextlib.nullcontext():
                return self._run_admitted(request)
        finally:
            current_cell.reset(cell)
            self._current.grant(None)

    def _run_admitted(self, request: messages.Execute) -> messages.Done:
        """Check the cell's source again, run the cell, and collect its outcome."""
        refused = self._findings(request)
        if refused:
            fields = [
                {name: getattr(finding, name) for name in finding.__slots__} for finding in refused
            ]
            return messages.Done(id=request.id, refused=fields)
        shell = self._shell
        read_before = _read_bytes()
        effects.begin()
        shell_escapes.take_failure()
        shell.execution_count = request.execution_count
        shell.payload_manager.clear_payload()
        shell.forget_errors()
        hook = shell.displayhook
        hook.is_asked = request.value
        hook.value = messages.NOTHING
        run_cell = self._run_cell if request.template is None else self._run_template
        if request.view is not None:
            run_cell = self._show_view
        error = self._guarded(run_cell, request) or shell.display_error()
        self._tell_of_hidden_tools()
        # ``user_expressions`` see the count that IPython has after a cell.
        shell.execution_count = request.execution_count + 1
        values = {}
        if error is None:
            values = {name: self._value(text) for name, text in request.user_expressions.items()}
        return messages.Done(
            id=request.id,
            error=error,
            user_expressions=values,
            payload=shell.payload_manager.read_payload(),
            read_bytes=max(0, _read_bytes() - read_before),
            repeatable=effects.repeatable(self._driver.loop),
            compiled=tuple(installed.take_compiled()),
            value=hook.value,
            program_status=shell_escapes.take_failure(),
        )

    def _tell_of_hidden_tools(self) -> None:
        """Tell the user, once for each tool, that a variable has taken the tool's name.

        Tools are builtins, which a variable hides. A model would wonder later why its call fails.
        """
        tools, variables = self._shell.tools, self._shell.user_ns
        for name, tool in tuple(tools.items()):
            if dict.get(variables, name, tool) is not tool:
                del tools[name]
                self._out.add("stderr", _HIDDEN.format(name))

    def _findings(self, request: messages.Execute) -> tuple[Finding, ...]:
        """Return what the policy forbids in the cell.

        The cached syntax tree is dropped at once. If it were dropped after the next fork, writing
        to its memory would copy pages that the snapshot shares.
        """
        try:
            findings = analyse(request.source, self._shell.rules_now(self._current.rules))
            if request.template is None:
                return findings
            # The host has checked the form of templates, too; like cells, they are checked twice.
            return (*definitions(request.source), *entry(request.source), *findings)
        finally:
            forget()

    def _guarded(self, action: Any, *args: Any) -> messages.Error | None:
        """Call ``action`` as user code; return its result, or show and return the error it raised.

        ``action`` itself returns an error that it has shown, or None.
        """
        outer, self.running = self.running, True
        try:
            try:
                return cast("messages.Error | None", self._begin(action, *args))
            except BaseException as exc:
                self._shell.showtraceback((type(exc), exc, exc.__traceback__))
                return cast("messages.Error", self._shell.error_of(exc))
        except BaseException as exc:
            return self._bare(exc)
        finally:
            self.running = outer

    def _begin(self, action: Any, *args: Any) -> Any:
        """Call ``action``, unless an interrupt came before."""
        if self.interrupted:
            self.interrupted = False
            raise KeyboardInterrupt
        return action(*args)

    def rehearse(self) -> None:
        """Run a cell that does nothing, and leaves no trace in names, hooks and numbers.

        After a fork, pages of memory are copied when they are written to first. This writes to
        those that every cell writes to, so that the user's next cell need not wait for the copies.
        """
        request = messages.Execute(id=0, source="None", raw="None", execution_count=0)
        with contextlib.suppress(BaseException):  # a cell may have spoilt the shell
            self._findings(request)
            compiler = self._shell.compile
            body = compiler.ast_parse(request.source).body
            run_plain(self._shell.run_ast_nodes(body, "<none>", "none", compiler))

    def query(self, action: Any, otherwise: Any) -> Any:
        """Return ``action()``, which may run user code, or ``otherwise`` if it raises anything.

        That includes an interrupt.
        """
        self.running = True
        try:
            return action()
        except BaseException:
            return otherwise
        finally:
            self.running = False

    def run_handler(self, action: Any) -> None:
        """Call a comm's handler as user code; show the error that it raises, if any."""
        self._guarded(self._in_reserve, action)

    def _bare(self, error: BaseException) -> messages.Error:
        """Show an error without running any of the user's code, which may never return."""
        name = type.__getattribute__(type(error), "__name__")
        message = messages.Error(
            ename=encodable(name),
            evalue="",
            traceback=[encodable(name)],
            # Even if there is no memory for more, the card can say that memory ran out.
            failed_call=messages.FailedCall("memory") if isinstance(error, MemoryError) else None,
        )
        self._out.send(message)
        return message

    def _run_cell(self, request: messages.Execute) -> messages.Error | None:
        """Run a cell as ipykernel does (``IPythonKernel.do_execute``).

        Return the error that it failed with, or None.
        """
        shell = self._shell
        raw = request.raw
        transform_error = None
        stored = request.store_history and not request.silent
        try:
            source = shell.transform_admitted(request.source, raw)
        except Exception:
            source = raw
            transform_error = sys.exc_info()
        prepared = {"transformed_cell": source, "preprocessing_exc_tuple": transform_error}
        name = request.cell_id
        cell = shell.run_cell_async(raw, stored, request.silent, cell_id=name, **prepared)
        awaits = shell.should_run_async(raw, **prepared)
        result = None
        try:
            if awaits and shell.loop_runner is run_on_loop:
                if self._driver.deliver is not None:
                    self._out.send(messages.Awaits(id=request.id))
                result = self._driver.run(cell)
            else:
                with self._driver.entered():
                    result = (shell.loop_runner if awaits else run_plain)(cell)
        except BaseException as exc:
            result = _Result(_Info(raw, stored, request.silent, True, name))
            result.error_in_exec = exc
            shell.showtraceback()
        finally:
            failed = shell.error_of_result(result)
            with self._driver.entered():
                shell.events.trigger("post_execute")
                if not request.silent:
                    shell.events.trigger("post_run_cell", result)
        return cast("messages.Error | None", failed)

    def _show_view(self, request: messages.Execute) -> messages.Error | None:
        """Show a view of the host. Calls the view's own function, whose name cells may rebind."""
        self._store_input(request)
        view = cast("messages.View", request.view)
        return self._guarded(self._shell.views[view.name], view.argument)

    def _store_input(self, request: messages.Execute) -> None:
        """Put the cell into ``In``."""
        if request.store_history and not request.silent:
            with _alone:
                history = self._shell.history_manager
                history.store_inputs(request.execution_count, request.raw)

    def _run_template(self, request: messages.Execute) -> messages.Error | None:
        """Run a cell that names a template; return the error that it failed with, or None."""
        shell = self._shell
        template = request.template
        self._store_input(request)
        # IPython numbers results by the count after the running cell's.
        shell.execution_count = request.execution_count + 1
        shell.events.trigger("pre_execute")
        try:
            return self._guarded(self._execute_template, request, template)
        finally:
            shell.events.trigger("post_execute")

    def _execute_template(self, request: messages.Execute, template: messages.Template) -> None:
        """Run a template's definitions in a namespace of its own, then its ``run(state)``."""
        name = f"<template {template.name}>"
        source = request.source
        # Tracebacks read the template's lines from this cache.
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        namespace: dict[str, Any] = {"__name__": "__main__"}
        tree = self._parse(source, name)
        self._run(tree, name, "exec", namespace)
        namespace[_TEMPLATE_STATE] = template.state
        load = ast.Load()
        call: ast.expr = ast.Call(ast.Name(ENTRY, load), [ast.Name(_TEMPLATE_STATE, load)], [])
        if any(isinstance(n, ast.AsyncFunctionDef) and n.name == ENTRY for n in tree.body):
            call = ast.Await(call)
        line: list[ast.stmt] = [ast.Expr(call)]
        start = ast.Module(line, []) if request.silent else ast.Interactive(line)
        mode = "exec" if request.silent else "single"
        self._run(ast.fix_missing_locations(start), _TEMPLATE_CALL_FILE, mode, namespace)

    def _parse(self, source: str, name: str) -> ast.Module:
        """Parse and rewrite a template. Raises SyntaxError, without this module's frames."""
        try:
            tree = self._shell.compile.ast_parse(source, filename=name)
        except SyntaxError as exc:
            raise exc.with_traceback(None) from None
        return cast("ast.Module", tree)

    def _run(self, tree: ast.AST, name: str, mode: str, namespace: dict[str, Any]) -> None:
        """Compile a tree and run it in ``namespace``."""
        shell = self._shell
        with _alone, shell.compile.extra_flags(_AWAIT):
            code: CodeType = shell.compile(tree, name, mode)
        # Must be set first: a function keeps the builtins of its namespace when it is defined.
        namespace["__builtins__"] = self._builtins
        if code.co_flags & inspect.CO_COROUTINE:
            self._in_reserve(self._driver.run, eval(code, namespace))
            return
        with self._driver.entered():
            self._in_reserve(exec, code, namespace)

    def _in_reserve(self, function: Any, *args: Any) -> None:
        """Call ``function``, then set memory aside again, so that there is some for what follows.

        Keep this function short. If no memory is left, CPython 3.11 never leaves a handler that
        begins further down in its function: it would need memory for an int of that position.
        """
        try:
            function(*args)
        finally:
            self._reserve.refill()

    def _value(self, expression: str) -> dict[str, Any]:
        """Return the reply to one of the request's ``user_expressions``, in Jupyter's form."""
        if analyse_expression(expression, self._shell.rules_now(self._current.rules)):
            return {"status": "error", "ename": "PolicyDenied", "evalue": "", "traceback": []}
        self.running = True
        try:
            code = self._shell.compile(expression.lstrip(" \t"), "<expression>", "eval")
            value = eval(code, self._shell.user_ns)
            data, metadata = self._shell.display_formatter.format(value)
        except BaseException:
            return cast("dict[str, Any]", self._shell._user_obj_error())  # noqa: SLF001 - IPython's own
        finally:
            self.running = False
        return {"status": "ok", "data": data, "metadata": metadata}


def _read_bytes() -> int:
    """Return how many bytes were read from disk for this process so far (getrusage(2))."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_inblock * 512
