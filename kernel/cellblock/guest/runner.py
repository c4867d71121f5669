"""Runs one cell: the second check, compiling, executing, and what came of it."""

from __future__ import annotations

import ast
import contextlib
import inspect
import resource
import sys
from typing import TYPE_CHECKING, Any, cast

from cellblock.analysis import analyse, analyse_expression, forget
from cellblock.guest import notes, templates, tracebacks
from cellblock.guest.text import encodable
from cellblock.wire import messages

if TYPE_CHECKING:
    from types import CodeType

    from cellblock.analysis import Finding
    from cellblock.guest.display import Out
    from cellblock.guest.guards import Permits
    from cellblock.guest.loop import Driver
    from cellblock.guest.reserve import Reserve
    from cellblock.guest.shell import GuestShell

_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


class Runner:
    """Executes admitted cells in the shell's namespace."""

    def __init__(  # noqa: PLR0913, PLR0917 - what a cell meets
        self,
        shell: GuestShell,
        permits: Permits,
        driver: Driver,
        out: Out,
        plan: messages.Plan,
        reserve: Reserve,
    ) -> None:
        # IPython says that a shell may lack each of its parts; this one has them.
        self._shell: Any = shell
        self._permits, self._driver, self._out = permits, driver, out
        #: Of which locks errors speak.
        self.plan = plan
        self._reserve = reserve
        self._builtins = shell.user_ns["__builtins__"]
        self.running = False
        #: An interrupt came before, or between, what runs as user code.
        self.interrupted = False

    def run(self, request: messages.Execute) -> messages.Done:
        """Run the cell and return its end; nothing it raises escapes."""
        self._permits.give(request.granted)
        try:
            return self._run_permitted(request)
        finally:
            self._permits.give(None)

    def _run_permitted(self, request: messages.Execute) -> messages.Done:
        refused = self._findings(request)
        if refused:
            return messages.Done(id=request.id, refused=[_as_dict(f) for f in refused])
        shell, read = self._shell, _read_bytes()
        shell.execution_count = request.execution_count
        shell.payload_manager.clear_payload()
        self._remember(request)
        shell.events.trigger("pre_execute")
        error = self._guarded(self._execute, request)
        error = self._guarded(shell.events.trigger, "post_execute") or error
        if not request.silent:
            error = self._guarded(shell.events.trigger, "post_run_cell", None) or error
        values = {} if error else self._values(request.user_expressions)
        return messages.Done(
            id=request.id,
            error=error,
            user_expressions=values,
            payload=shell.payload_manager.read_payload(),
            read_bytes=max(0, _read_bytes() - read),
        )

    def _findings(self, request: messages.Execute) -> tuple[Finding, ...]:
        """Return what the policy forbids of the cell, and keep no tree of it.

        Let go of after the next fork, it would be memory of that copy's and written to besides.
        """
        try:
            found = analyse(request.source, self._permits.rules)
            return found if request.template is None else (*templates.refused(request), *found)
        finally:
            forget()

    def _remember(self, request: messages.Execute) -> None:
        shell = self._shell
        if not request.silent and request.store_history:
            source = request.source if request.template is None else request.raw
            shell.note_input(request.execution_count, source, request.raw)
        # IPython numbers results by the count after the running cell's.
        shell.execution_count = request.execution_count + 1

    def _guarded(self, action: Any, *args: Any) -> messages.Error | None:
        """Call ``action`` as user code; return what it raised, shown and described."""
        self.running = True
        try:
            try:
                self._begin(action, *args)
            except BaseException as exc:  # noqa: BLE001 - SystemExit and KeyboardInterrupt too
                return self._failed(exc)
        except BaseException as exc:  # noqa: BLE001 - interrupted while it was described
            return self._bare(exc)
        finally:
            self.running = False
        return None

    def _begin(self, action: Any, *args: Any) -> None:
        if self.interrupted:
            self.interrupted = False
            raise KeyboardInterrupt
        action(*args)

    def rehearse(self) -> None:
        """Go the way of a cell that does nothing: no name, no hook and no number learns of it.

        After a fork the memory that it takes is shared; what is copied now need not be copied
        while a user waits.
        """
        request = messages.Execute(id=0, source="None", raw="None", execution_count=0)
        with contextlib.suppress(BaseException):  # a shell that a cell has spoilt
            self._findings(request)
            self._execute(request)

    def query(self, action: Any, otherwise: Any) -> Any:
        """Return ``action()``, which may run user code; ``otherwise`` when it is interrupted."""
        self.running = True
        try:
            return action()
        except BaseException:  # noqa: BLE001 - user code
            return otherwise
        finally:
            self.running = False

    def attempt(self, action: Any) -> None:
        """Call a comm's handler as user code, with its error shown."""
        self._guarded(self._in_reserve, action)

    def _failed(self, error: BaseException) -> messages.Error:
        notes.explain(error, self.plan)
        tracebacks.trim(error)
        sys.last_type, sys.last_value, sys.last_traceback = (
            type(error),
            error,
            error.__traceback__,
        )
        shown = messages.Error(
            ename=type(error).__name__,
            evalue=encodable(tracebacks.describe(error)),
            traceback=[encodable(line) for line in tracebacks.render(self._shell, error)],
        )
        self._out.send(shown)
        return shown

    def _bare(self, error: BaseException) -> messages.Error:
        """Show an error without a word of the user's code, which may never return."""
        name = type.__getattribute__(type(error), "__name__")
        shown = messages.Error(ename=encodable(name), evalue="", traceback=[encodable(name)])
        self._out.send(shown)
        return shown

    def _execute(self, request: messages.Execute) -> None:
        shell = self._shell
        if request.template is not None:
            self._execute_template(request, request.template)
            return
        name = shell.compile.cache(request.source, request.execution_count, request.raw)
        tree = self._parse(request.source, name)
        body, last = tree.body, None
        if not request.silent and body and isinstance(body[-1], ast.Expr):
            *body, last = body
        if body:
            self._run(ast.Module(body, []), name, "exec")
        if last is not None:
            self._run(ast.Interactive([last]), name, "single")

    def _execute_template(self, request: messages.Execute, asked: messages.Template) -> None:
        """Run a template's definitions in a namespace of its own, then what it is started by."""
        name = templates.remember(asked.name, request.source)
        namespace: dict[str, Any] = {"__name__": "__main__"}
        tree = self._parse(request.source, name)
        self._run(tree, name, "exec", namespace)
        namespace[templates.STATE] = asked.state
        start = templates.start_call(tree, show=not request.silent)
        mode = "exec" if request.silent else "single"
        self._run(start, templates.CALL, mode, namespace)

    def _parse(self, source: str, name: str) -> ast.Module:
        try:
            tree = self._shell.compile.ast_parse(source, filename=name)
        except SyntaxError as exc:
            raise exc.with_traceback(None) from None
        return cast("ast.Module", tree)

    def _run(
        self, tree: ast.AST, name: str, mode: str, namespace: dict[str, Any] | None = None
    ) -> None:
        shell = self._shell
        with shell.compile.extra_flags(_AWAIT):
            code: CodeType = shell.compile(tree, name, mode)
        if namespace is None:
            namespace = shell.user_ns
        # What a function finds as its builtins is decided when it is made.
        namespace["__builtins__"] = self._builtins
        if code.co_flags & inspect.CO_COROUTINE:
            self._in_reserve(self._driver.run, eval(code, namespace))  # noqa: S307 - checked above
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
            self._reserve.settle()

    def _values(self, expressions: dict[str, str]) -> dict[str, dict[str, Any]]:
        return {name: self._value(text) for name, text in expressions.items()}

    def _value(self, expression: str) -> dict[str, Any]:
        if analyse_expression(expression, self._permits.rules):
            return {"status": "error", "ename": "PolicyDenied", "evalue": "", "traceback": []}
        self.running = True
        try:
            code = self._shell.compile(expression.lstrip(" \t"), "<expression>", "eval")
            value = eval(code, self._shell.user_ns)  # noqa: S307 - checked above
            data, metadata = self._shell.display_formatter.format(value)
        except BaseException as exc:  # noqa: BLE001 - user code
            tracebacks.trim(exc)
            return {
                "status": "error",
                "ename": type(exc).__name__,
                "evalue": encodable(tracebacks.describe(exc)),
                "traceback": [encodable(ln) for ln in tracebacks.render(self._shell, exc)],
            }
        finally:
            self.running = False
        return {"status": "ok", "data": data, "metadata": metadata}


def _read_bytes() -> int:
    """Return what this process has had read from disk so far (getrusage(2))."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_inblock * 512


def _as_dict(finding: Any) -> dict[str, Any]:
    return {name: getattr(finding, name) for name in finding.__slots__}
