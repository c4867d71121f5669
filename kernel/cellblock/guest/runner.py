"""Runs one cell: the second check, compiling, executing, and its outcome."""

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

#: The file of the call that starts a template: the kernel's own, which tracebacks leave out.
_TEMPLATE_CALL: Final = __file__
#: What the state is called where it is handed on; no template's name, as it is none of Python's.
_TEMPLATE_STATE: Final = "state of the cell"
#: What is no folder, and stands on ``sys.path`` for the one that a cell runs in.
_NOWHERE: Final = "/dev/null"
_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
#: Held where cells that run at the same time would spoil what they share of the shell. No code of
#: theirs runs meanwhile.
_alone: Final = threading.RLock()


@contextlib.contextmanager
def _as_it_imported() -> Iterator[None]:
    """Have imports of a cell that is run again look past the folder that it runs in.

    It had found nothing there, or it would not be run again. By now there may be something.
    """
    _replace(sys.path, "", _NOWHERE)
    try:
        yield
    finally:
        _replace(sys.path, _NOWHERE, "")


def _replace(places: list[str], old: str, new: str) -> None:
    for at, place in enumerate(places):
        if place == old:
            places[at] = new


#: Of a tool that cells can't call any more.
_HIDDEN: Final = "cellblock: your variable {0} hides the tool {0}. To have the tool back: del {0}\n"


class RulesInForce:
    """The rules of whatever runs now: a policy's, and those of what was approved for a cell."""

    def __init__(self, rules: Rules) -> None:
        self._of_policy = self.rules = rules

    def grant(self, granted: messages.Granted | None) -> None:
        """Allow what is ``granted``, and nothing else, beside the policy's."""
        own = self._of_policy
        self.rules = own if granted is None else own.granting(granted.modules, granted.packages)


class Runner:
    """Executes admitted cells in the shell's namespace."""

    def __init__(
        self,
        shell: GuestShell,
        current: RulesInForce,
        driver: Driver,
        out: Outlet,
        plan: messages.Plan,
        reserve: Reserve,
    ) -> None:
        # IPython says that a shell may lack each of its parts; this one has them.
        self._shell: Any = shell
        self._current, self._driver, self._out = current, driver, out
        #: Of which locks errors speak.
        self.plan = plan
        self._reserve = reserve
        self._builtins = shell.user_ns["__builtins__"]
        self.running = False
        #: An interrupt came before, or between, what runs as user code.
        self.interrupted = False

    def run(self, request: messages.Execute) -> messages.Done:
        """Run the cell and return its end; nothing it raises escapes."""
        self._current.grant(request.granted)
        cell = current_cell.set(request.execution_count if request.store_history else 0)
        try:
            with _as_it_imported() if request.again else contextlib.nullcontext():
                return self._run_admitted(request)
        finally:
            current_cell.reset(cell)
            self._current.grant(None)

    def _run_admitted(self, request: messages.Execute) -> messages.Done:
        refused = self._findings(request)
        if refused:
            fields = [{name: getattr(f, name) for name in f.__slots__} for f in refused]
            return messages.Done(id=request.id, refused=fields)
        shell, read = self._shell, _read_bytes()
        effects.begin()
        shell_escapes.take_failure()
        shell.execution_count = request.execution_count
        shell.payload_manager.clear_payload()
        shell.forget_errors()
        hook = shell.displayhook
        hook.is_asked, hook.value = request.value, messages.NOTHING
        run = self._run_cell if request.template is None else self._run_template
        if request.view is not None:
            run = self._show_view
        error = self._guarded(run, request) or shell.display_error()
        self._tell_of_hidden_tools()
        # IPython numbers results by the count after the running cell's.
        shell.execution_count = request.execution_count + 1
        values = {}
        if error is None:
            values = {name: self._value(text) for name, text in request.user_expressions.items()}
        return messages.Done(
            id=request.id,
            error=error,
            user_expressions=values,
            payload=shell.payload_manager.read_payload(),
            read_bytes=max(0, _read_bytes() - read),
            repeatable=effects.repeatable(self._driver.loop),
            compiled=tuple(installed.take_compiled()),
            value=hook.value,
            program_status=shell_escapes.take_failure(),
        )

    def _tell_of_hidden_tools(self) -> None:
        """Say once of each tool that cells have given its name to something else.

        A model would wonder later why a call fails: tools are builtins, which a variable hides.
        """
        tools, variables = self._shell.tools, self._shell.user_ns
        for name, tool in tuple(tools.items()):
            if dict.get(variables, name, tool) is not tool:
                del tools[name]
                self._out.add("stderr", _HIDDEN.format(name))

    def _findings(self, request: messages.Execute) -> tuple[Finding, ...]:
        """Return what the policy forbids of the cell, and keep no tree of it.

        Let go of after the next fork, it would be memory of that copy's and written to besides.
        """
        try:
            found = analyse(request.source, self._shell.rules_now(self._current.rules))
            if request.template is None:
                return found
            # What keeps a template from being one is judged here again, as cells are.
            return (*definitions(request.source), *entry(request.source), *found)
        finally:
            forget()

    def _guarded(self, action: Any, *args: Any) -> messages.Error | None:
        """Call ``action`` as user code; return what it returns, or what it raised, shown."""
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
        if self.interrupted:
            self.interrupted = False
            raise KeyboardInterrupt
        return action(*args)

    def rehearse(self) -> None:
        """Run a cell that does nothing, and leaves no trace in names, hooks and numbers.

        After a fork the memory that it takes is shared; what is copied now need not be copied
        while a user waits.
        """
        request = messages.Execute(id=0, source="None", raw="None", execution_count=0)
        with contextlib.suppress(BaseException):  # a shell that a cell has spoilt
            self._findings(request)
            compiler = self._shell.compile
            body = compiler.ast_parse(request.source).body
            run_plain(self._shell.run_ast_nodes(body, "<none>", "none", compiler))

    def query(self, action: Any, otherwise: Any) -> Any:
        """Return ``action()``, which may run user code; ``otherwise`` when it is interrupted."""
        self.running = True
        try:
            return action()
        except BaseException:
            return otherwise
        finally:
            self.running = False

    def run_handler(self, action: Any) -> None:
        """Call a comm's handler as user code, with its error shown."""
        self._guarded(self._in_reserve, action)

    def _bare(self, error: BaseException) -> messages.Error:
        """Show an error without a word of the user's code, which may never return."""
        name = type.__getattribute__(type(error), "__name__")
        shown = messages.Error(
            ename=encodable(name),
            evalue="",
            traceback=[encodable(name)],
            # Where nothing else can be said of it, for want of memory, this still can.
            failed_call=messages.FailedCall("memory") if isinstance(error, MemoryError) else None,
        )
        self._out.send(shown)
        return shown

    def _run_cell(self, request: messages.Execute) -> messages.Error | None:
        """Run a cell as ipykernel does (``IPythonKernel.do_execute``); return how it failed."""
        shell, raw, spoilt = self._shell, request.raw, None
        kept = request.store_history and not request.silent
        try:
            source = shell.transform_admitted(request.source, raw)
        except Exception:
            source, spoilt = raw, sys.exc_info()
        prepared = {"transformed_cell": source, "preprocessing_exc_tuple": spoilt}
        name = request.cell_id
        cell = shell.run_cell_async(raw, kept, request.silent, cell_id=name, **prepared)
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
            result = _Result(_Info(raw, kept, request.silent, True, name))
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
        """Answer a view of the host's by its own function: not by what cells made of the name."""
        self._store_input(request)
        view = cast("messages.View", request.view)
        return self._guarded(self._shell.views[view.name], view.argument)

    def _store_input(self, request: messages.Execute) -> None:
        if request.store_history and not request.silent:
            with _alone:
                history = self._shell.history_manager
                history.store_inputs(request.execution_count, request.raw)

    def _run_template(self, request: messages.Execute) -> messages.Error | None:
        shell, template = self._shell, request.template
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
        name, source = f"<template {template.name}>", request.source
        # Tracebacks find its lines there.
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
        self._run(ast.fix_missing_locations(start), _TEMPLATE_CALL, mode, namespace)

    def _parse(self, source: str, name: str) -> ast.Module:
        try:
            tree = self._shell.compile.ast_parse(source, filename=name)
        except SyntaxError as exc:
            raise exc.with_traceback(None) from None
        return cast("ast.Module", tree)

    def _run(self, tree: ast.AST, name: str, mode: str, namespace: dict[str, Any]) -> None:
        shell = self._shell
        with _alone, shell.compile.extra_flags(_AWAIT):
            code: CodeType = shell.compile(tree, name, mode)
        # What a function finds as its builtins is decided when it is made.
        namespace["__builtins__"] = self._builtins
        if code.co_flags & inspect.CO_COROUTINE:
            self._in_reserve(self._driver.run, eval(code, namespace))
            return
        with self._driver.entered():
            self._in_reserve(exec, code, namespace)

    def _in_reserve(self, run: Any, *args: Any) -> None:
        """Call ``run``; whatever it leaves, there is memory again for what comes after it.

        As short as it is: where no memory is left, CPython 3.11 does not get out of a handler that
        begins further down in its function (it makes an int of the place, and looks for a handler).
        """
        try:
            run(*args)
        finally:
            self._reserve.refill()

    def _value(self, expression: str) -> dict[str, Any]:
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
    """Return what this process has had read from disk so far (getrusage(2))."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_inblock * 512
