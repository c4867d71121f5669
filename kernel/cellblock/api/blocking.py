"""Sandboxes for programs without an asyncio loop: ``Sandbox`` and ``SandboxPool``.

Each wraps the async class of its name, which runs on a loop in a thread of its own
(``LoopThread``); a pool's sandboxes share the pool's thread. A method blocks its caller until the
loop has run the async method. The methods of ``Sandbox`` have the signatures and docstrings of
``AsyncSandbox`` (``tests/unit/test_blocking_api.py``).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import threading
import warnings
from concurrent.futures import CancelledError, Future, wait
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar

from cellblock.api.sandbox import (
    FORKED,
    NOT_OPEN,
    OPENED_ONCE,
    AsyncSandbox,
    AsyncSandboxPool,
)
from cellblock.errors import GuestError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from pathlib import Path

    from cellblock.api.results import ApprovalRequest, Result
    from cellblock.api.sandbox import Tools
    from cellblock.policy.model import Enforcement, Gap, Policy
    from cellblock.wire.messages import Tool


P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound="Callable[..., Any]")
#: Seconds that tasks have to end, once they are cancelled because their loop ends.
TASKS_END_TIMEOUT: Final = 1.0


class LoopThread:
    """An asyncio loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._process = os.getpid()
        #: The outcomes that callers of ``run`` wait for. They must all be set when the loop ends.
        self._waited_for = set[Future[Any]]()
        self._thread = threading.Thread(target=self._serve, name="cellblock", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        """Run the loop until ``end``, and close it. This is what the thread does."""
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_end_tasks())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()
            # Work that did not end in time never sets its outcome.
            for outcome in tuple(self._waited_for):
                outcome.set_exception(GuestError("the sandbox's thread has ended"))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on the loop, and return its result or raise its exception.

        An exception that interrupts the wait, such as KeyboardInterrupt, cancels ``work``, and is
        raised here when ``work`` has ended. Each further Ctrl-C cancels again, so that it ends
        sooner. Raises GuestError if the loop can't run it.
        """
        self._check(work)
        outcome: Future[T] = Future()
        self._waited_for.add(outcome)
        outcome.add_done_callback(self._waited_for.discard)
        tasks: list[asyncio.Task[T]] = []

        def start() -> None:
            tasks.append(self._loop.create_task(work))
            tasks[0].add_done_callback(lambda task: _pass_on(task, outcome))

        def cancel() -> None:
            tasks[0].cancel()

        self._loop.call_soon_threadsafe(start)
        try:
            return outcome.result()
        except BaseException:
            while not outcome.done():
                with contextlib.suppress(KeyboardInterrupt):
                    self._loop.call_soon_threadsafe(cancel)
                    wait([outcome])
            raise

    async def run_async(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on this loop while the caller's own loop goes on, and return its result.

        Cancelling the call cancels ``work``.
        """
        self._check(work)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def _check(self, work: Coroutine[Any, Any, Any]) -> None:
        """Raise GuestError if the loop can't run ``work``, and close ``work`` then.

        The loop's own thread would wait for itself, and a forked process has no such thread.
        """
        if not self.is_here:
            work.close()
            raise GuestError(FORKED)
        if self._loop.is_closed() or threading.current_thread() is self._thread:
            work.close()
            raise GuestError("a sandbox can't be used from its own thread, nor once it is closed")

    def soon(self, action: Callable[[], object]) -> None:
        """Call ``action`` on the loop, without waiting for it."""
        self._loop.call_soon_threadsafe(action)

    @property
    def is_here(self) -> bool:
        """Whether the thread runs in this process: a forked process lacks its parent's threads."""
        return self._process == os.getpid()

    @property
    def has_ended(self) -> bool:
        """Whether the loop is closed."""
        return self._loop.is_closed()

    def end_after(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run ``work`` and then end the loop, without waiting. Called by ``__del__``."""

        def start() -> None:
            self._loop.create_task(work()).add_done_callback(lambda _: self._loop.stop())

        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(start)

    def end(self) -> None:
        """End the loop, and wait until its thread has ended."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()


def _pass_on(task: asyncio.Task[T], outcome: Future[T]) -> None:
    if task.cancelled():
        outcome.set_exception(CancelledError())
    elif (error := task.exception()) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(task.result())


async def _end_tasks() -> None:
    """Cancel the other tasks of this loop, and wait a moment until they have ended."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=TASKS_END_TIMEOUT)


class _Blocking:
    """The base of ``Sandbox`` and ``SandboxPool``: opens, closes and owns the thread of one.

    ``inner`` is the async object. ``thread`` is the thread of the pool or parent sandbox that it
    belongs to; without it, ``open`` starts a thread, and ``close`` ends that.
    """

    def __init__(self, inner: AsyncSandbox | AsyncSandboxPool, thread: LoopThread | None) -> None:
        self._inner = inner
        self._thread = thread
        #: Whether the thread belongs to a pool or parent, which ends it.
        self._has_others_thread = thread is not None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Start the thread, and open the sandbox or pool on it.

        Raises like ``open`` of the async class.
        """
        thread = self._thread = self._thread or LoopThread()
        try:
            thread.run(self._inner.open())
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        """End every guest, and remove its scratch folder.

        Does nothing in a process that was forked from the one that opened it.
        """
        if self._thread is not None and self._thread.is_here and not self._thread.has_ended:
            try:
                self._thread.run(self._inner.close())
            finally:
                self._end()

    def _end(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None and not self._has_others_thread:
            thread.end()

    def __del__(self) -> None:
        thread = getattr(self, "_thread", None)
        if thread is None or self._has_others_thread or not thread.is_here:
            return
        warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=2)
        thread.end_after(self._inner.close)


def _blocking(
    method: Callable[Concatenate[AsyncSandbox, P], Coroutine[Any, Any, T]],
    *,
    anywhere: bool = False,
) -> Callable[Concatenate[Sandbox, P], T]:
    """Return a blocking version of a method of ``AsyncSandbox``, with its docstring and signature.

    The sandbox's thread runs the method. If it may run ``anywhere``, because it uses nothing of the
    sandbox's loop, each call starts a thread of its own instead. Such a method also works in
    callbacks, which run in the sandbox's thread, and after ``close``.
    """

    @functools.wraps(method)
    def call(self: Sandbox, /, *args: P.args, **kwargs: P.kwargs) -> T:
        thread = LoopThread() if anywhere else self._running
        try:
            return thread.run(method(self._sandbox, *args, **kwargs))
        finally:
            if anywhere:
                thread.end()

    call.__qualname__ = f"Sandbox.{method.__name__}"
    return call


def _documented_as(method: Callable[..., Any]) -> Callable[[F], F]:
    """Return a decorator that gives a method the docstring of another."""

    def document(function: F) -> F:
        function.__doc__ = method.__doc__
        return function

    return document


class Sandbox(_Blocking):
    """A sandbox: runs cells one after another in a confined process, under a policy.

    - ``policy``: the name of a preset (``safe``, ``data``, ``unsafe``), a TOML file or a
      ``Policy``.
    - ``tools``: your functions that cells may call. Sync functions run in threads, async functions
      on a loop of their own.
    - ``inputs``: JSON data that cells find in the variable ``inputs``.
    - ``env``: environment variables for cells, in addition to those that the policy passes on. Put
      no secrets there: cells can read and print them.
    - ``input``: called with the prompt when a cell calls ``input()``; returns the answer. Without
      it, ``input()`` raises EOFError.
    - ``approve``: called with an ``ApprovalRequest`` when the policy requires an approval; returns
      True or ``"once"``, ``"session"``, or False. Without it, such requests are denied.
    - ``project``: the folder that ``{project}`` stands for in the policy. Cells begin there if the
      policy lets them read it. Without it, cells have a private folder and none of the user's
      files, whatever the policy says about ``{project}``.
    - ``artifacts``: the folder that files matching the policy's ``artifact_export_paths`` are
      copied to, instead of its ``artifact_folder``.
    - ``allow_unsafe``: permits a policy of mode unsafe.
    - ``cwd``: the folder that cells begin in; it must lie in a folder that they may read.
    - ``pool``: the ``SandboxPool`` to use, with its policy, tools and project.

    Variables live from cell to cell. If a cell is killed, they are restored to what they were
    before it. A sandbox works in any program; if the program runs a loop, a call blocks that loop
    like any call that waits. Any thread may use it; concurrent calls of ``execute`` run one after
    the other. Ctrl-C while ``execute`` waits interrupts the cell. ``on_output`` and ``choose`` are
    called in the sandbox's thread. The methods are those of ``AsyncSandbox``, without ``await``.
    """

    def __init__(
        self,
        policy: str | Path | Policy = "safe",
        *,
        tools: Tools = (),
        inputs: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        input: Callable[[str], Any] | None = None,
        approve: Callable[[ApprovalRequest], Any] | None = None,
        project: str | Path | None = None,
        artifacts: str | Path | None = None,
        allow_unsafe: bool = False,
        cwd: str | Path | None = None,
        pool: SandboxPool | None = None,
    ) -> None:
        arguments: dict[str, Any] = {"inputs": inputs, "input": input, "artifacts": artifacts}
        arguments |= {"cwd": cwd, "approve": approve, "env": env}
        if pool is not None:
            self._sandbox = pool.inner.sandbox(**arguments)
        else:
            arguments |= {"tools": tools, "project": project, "allow_unsafe": allow_unsafe}
            self._sandbox = AsyncSandbox(policy, **arguments)
            self._sandbox.pool.has_tools_loop = True
        super().__init__(self._sandbox, None if pool is None else pool.thread)

    @_documented_as(AsyncSandbox.open)
    def open(self) -> None:  # noqa: D102 - it has AsyncSandbox's
        if self._sandbox.was_opened:
            raise GuestError(OPENED_ONCE)
        super().open()

    execute = _blocking(AsyncSandbox.execute)

    async def execute_async(self, code: str, *, timeout: float | None = None) -> Result:
        """Run a cell like ``execute``, without blocking the caller's loop.

        Cancelling the call interrupts the cell.
        """
        return await self._running.run_async(self._sandbox.execute(code, timeout=timeout))

    variables = _blocking(AsyncSandbox.variables)
    images = _blocking(AsyncSandbox.images)
    get = _blocking(AsyncSandbox.get)
    set = _blocking(AsyncSandbox.set)
    save = _blocking(AsyncSandbox.save)
    load = _blocking(AsyncSandbox.load)
    upload = _blocking(AsyncSandbox.upload)
    download = _blocking(AsyncSandbox.download)
    read = _blocking(AsyncSandbox.read)
    write = _blocking(AsyncSandbox.write)
    files = _blocking(AsyncSandbox.files)

    # --- forks, which are blocking sandboxes on this sandbox's thread -----------------------------

    @_documented_as(AsyncSandbox.fork)
    def fork(  # noqa: D102 - it has AsyncSandbox's
        self, count: int = 1, *, shares_files: bool = False
    ) -> tuple[Sandbox, ...]:
        thread = self._running
        forks = thread.run(self._sandbox.fork(count, shares_files=shares_files))
        return tuple(_Fork(inner, thread) for inner in forks)

    @_documented_as(AsyncSandbox.go_on_from)
    def go_on_from(self, fork: Sandbox) -> None:  # noqa: D102 - it has AsyncSandbox's
        self._running.run(self._sandbox.go_on_from(fork._sandbox))

    try_variants = _blocking(AsyncSandbox.try_variants)

    @property
    def not_copied(self) -> tuple[str, ...]:
        """What a fork lacks that its parent has, such as threads; empty if this is no fork."""
        return self._sandbox.not_copied

    def interrupt(self) -> None:
        """Interrupt the running cell. A second call, at least half a second later, kills it."""
        self._running.soon(self._sandbox.interrupt)

    @property
    def _running(self) -> LoopThread:
        """The sandbox's thread. Raises GuestError if the sandbox is not open."""
        if self._thread is None:
            raise GuestError(NOT_OPEN)
        return self._thread

    # --- staged files: these need not wait for the sandbox's thread, and work after it has ended --

    changes = _blocking(AsyncSandbox.changes, anywhere=True)
    keep = _blocking(AsyncSandbox.keep, anywhere=True)
    drop = _blocking(AsyncSandbox.drop, anywhere=True)

    ports = _blocking(AsyncSandbox.ports)

    # --- what is in force ---------------------------------------------------------------------

    @property
    def policy(self) -> Policy:
        """The policy in force, with resolved paths."""
        return self._sandbox.policy

    @property
    def session(self) -> str:
        """The name of the session's audit log (``cellblock audit show``); empty without a log."""
        return self._sandbox.session

    @property
    def backend(self) -> str:
        """The backend's name."""
        return self._sandbox.backend

    @property
    def enforcement(self) -> Mapping[str, Enforcement]:
        """How far each capability is enforced in this sandbox, by capability."""
        return self._sandbox.enforcement

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that cells may call."""
        return self._sandbox.tools

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The capabilities that the policy asks for and that are not enforced here (promise P7)."""
        return self._sandbox.gaps


class _Fork(Sandbox):
    """A blocking sandbox over a fork, which is open already and runs on its parent's thread."""

    def __init__(self, inner: AsyncSandbox, thread: LoopThread) -> None:
        self._sandbox = inner
        _Blocking.__init__(self, inner, thread)

    def __enter__(self) -> Self:
        return self


class SandboxPool(_Blocking):
    """The blocking ``AsyncSandboxPool``: one thread runs the pool and all its sandboxes."""

    def __init__(
        self,
        policy: str | Path | Policy = "safe",
        *,
        tools: Tools = (),
        project: str | Path | None = None,
        allow_unsafe: bool = False,
    ) -> None:
        arguments: dict[str, Any] = {"project": project, "allow_unsafe": allow_unsafe}
        self.inner = AsyncSandboxPool(policy, tools=tools, **arguments)
        self.inner.has_tools_loop = True
        super().__init__(self.inner, None)

    @property
    def thread(self) -> LoopThread:
        """The pool's thread. Raises GuestError if the pool is not open."""
        if self._thread is None:
            raise GuestError("the pool is not open: use `with SandboxPool(…) as pool:`")
        return self._thread

    def sandbox(
        self,
        *,
        inputs: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        input: Callable[[str], Any] | None = None,
        approve: Callable[[ApprovalRequest], Any] | None = None,
        artifacts: str | Path | None = None,
        cwd: str | Path | None = None,
    ) -> Sandbox:
        """Return a sandbox that the caller must open; see ``AsyncSandboxPool.sandbox``."""
        arguments: dict[str, Any] = {"inputs": inputs, "input": input, "artifacts": artifacts}
        return Sandbox(pool=self, approve=approve, cwd=cwd, env=env, **arguments)
