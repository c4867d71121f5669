"""Sandboxes for programs without a loop: each sandbox, or pool, has a loop in a thread."""

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
#: Seconds that what goes on in the loop has to end with it.
TASKS_END_TIMEOUT: Final = 1.0


class LoopThread:
    """An asyncio loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._process, self._waited_for = os.getpid(), set[Future[Any]]()
        self._thread = threading.Thread(target=self._serve, name="cellblock", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_end_tasks())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()
            for outcome in tuple(self._waited_for):
                outcome.set_exception(GuestError("the sandbox's thread has ended"))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` there and return what it returns.

        Whatever interrupts the wait (Ctrl-C) cancels it, and is raised when it has ended; to
        interrupt that once more has it end sooner.
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
        """Run ``work`` there, and wait on the running loop; to cancel the wait cancels it."""
        self._check(work)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def _check(self, work: Coroutine[Any, Any, Any]) -> None:
        """Raise GuestError, and close ``work``, where it can't run."""
        if not self.is_here:
            work.close()
            raise GuestError(FORKED)
        if self._loop.is_closed() or threading.current_thread() is self._thread:
            work.close()
            raise GuestError("a sandbox can't be used from its own thread, nor once it is closed")

    def soon(self, action: Callable[[], object]) -> None:
        """Call ``action`` there."""
        self._loop.call_soon_threadsafe(action)

    @property
    def is_here(self) -> bool:
        """Whether its thread is one of this process: a fork has none of its parent's."""
        return self._process == os.getpid()

    @property
    def has_ended(self) -> bool:
        """Whether all that was in it is closed."""
        return self._loop.is_closed()

    def end_after(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run ``work`` and then end the loop, without waiting for either."""

        def start() -> None:
            self._loop.create_task(work()).add_done_callback(lambda _: self._loop.stop())

        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(start)

    def end(self) -> None:
        """End the loop and its thread."""
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
    """Cancel what goes on, and give it a moment."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=TASKS_END_TIMEOUT)


class _Blocking:
    """What a sandbox and a pool share: they are opened, run and closed in a thread."""

    def __init__(self, inner: AsyncSandbox | AsyncSandboxPool, thread: LoopThread | None) -> None:
        self._inner, self._thread = inner, thread
        #: Whether the thread belongs to a pool, which closes what is in it.
        self._is_pools = thread is not None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Start what is in the thread. Raises as the ``open`` of the async class."""
        thread = self._thread = self._thread or LoopThread()
        try:
            thread.run(self._inner.open())
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        """End every guest and remove what it left; nothing in a fork of the process."""
        if self._thread is not None and self._thread.is_here and not self._thread.has_ended:
            try:
                self._thread.run(self._inner.close())
            finally:
                self._end()

    def _end(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None and not self._is_pools:
            thread.end()

    def __del__(self) -> None:
        thread = getattr(self, "_thread", None)
        if thread is None or self._is_pools or not thread.is_here:
            return
        warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=2)
        thread.end_after(self._inner.close)


def _blocking(
    method: Callable[Concatenate[AsyncSandbox, P], Coroutine[Any, Any, T]],
    *,
    anywhere: bool = False,
) -> Callable[Concatenate[Sandbox, P], T]:
    """Return a method of ``AsyncSandbox`` as one that blocks while the sandbox's thread runs it.

    One that can run ``anywhere`` takes nothing of the sandbox's loop. Each call has a thread of its
    own, so that it works in the sandbox's thread and after ``close``, too.
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
    """Give a method the docstring of ``AsyncSandbox``'s."""

    def document(made: F) -> F:
        made.__doc__ = method.__doc__
        return made

    return document


class Sandbox(_Blocking):
    """Runs cells in a confined process, one after another and under a policy.

    ``policy`` is a preset's name (``safe``, ``data``, ``unsafe``), a TOML file or a ``Policy``.
    ``tools`` are functions of yours that cells may call: sync ones run in threads, async ones on a
    loop of their own. ``inputs`` is JSON data that cells find in ``inputs``. ``env`` are variables
    of the environment that cells get, whatever the policy passes on: no secrets, for cells can read
    and print them. ``input`` answers a cell's ``input()``; without it that is an EOFError.
    ``approve`` answers where the policy has its user asked: given an ``ApprovalRequest`` it returns
    True or ``once``, ``session`` or False; without it nothing that takes consent is allowed.
    ``project`` is the folder that ``{project}`` stands for: cells begin there if the policy lets
    them read it. Without one they have a private folder, and no file of the user's, whatever the
    policy says of ``{project}``. ``artifacts`` is where files that match the policy's
    ``artifact_export_paths`` are copied to, instead of its ``artifact_folder``. ``allow_unsafe``
    lets a policy of mode unsafe be used. ``cwd`` is the folder that cells begin in, beneath one
    that they may read. With a ``pool``, that one's policy, tools and project are used.

    Variables live from cell to cell, and are as before a cell that was killed. It works in any
    program, beside a running loop too, which it holds up like any call that waits. Any thread may
    use it; calls of ``execute`` at once run in turn. Ctrl-C while it waits interrupts the cell.
    ``on_output`` and ``choose`` are called in the sandbox's thread. Its methods are those of
    ``AsyncSandbox``, without ``await``.
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
        """Run a cell as ``execute`` does, and wait for it on the loop that runs.

        To cancel that interrupts the cell.
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

    # --- forks: those of a sandbox that blocks block, too -----------------------------------------

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
        """What this sandbox lacks of the one that it is a fork of: its threads, for example."""
        return self._sandbox.not_copied

    def interrupt(self) -> None:
        """Interrupt the cell that runs; a second time, half a second later or more, kill it."""
        self._running.soon(self._sandbox.interrupt)

    @property
    def _running(self) -> LoopThread:
        if self._thread is None:
            raise GuestError(NOT_OPEN)
        return self._thread

    # --- what cells wrote to the project: the sandbox's thread is not needed, nor waited for ------

    changes = _blocking(AsyncSandbox.changes, anywhere=True)
    keep = _blocking(AsyncSandbox.keep, anywhere=True)
    drop = _blocking(AsyncSandbox.drop, anywhere=True)

    ports = _blocking(AsyncSandbox.ports)

    # --- what is in force ---------------------------------------------------------------------

    @property
    def policy(self) -> Policy:
        """The policy in force, with its paths."""
        return self._sandbox.policy

    @property
    def session(self) -> str:
        """What its audit log is called (``cellblock audit show``); empty without one."""
        return self._sandbox.session

    @property
    def backend(self) -> str:
        """The backend's name."""
        return self._sandbox.backend

    @property
    def enforcement(self) -> Mapping[str, Enforcement]:
        """How far each capability is enforced in this sandbox."""
        return self._sandbox.enforcement

    @property
    def tools(self) -> tuple[Tool, ...]:
        """What cells may call."""
        return self._sandbox.tools

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What the policy asks for and is not enforced here; never silent (promise P7)."""
        return self._sandbox.gaps


class _Fork(Sandbox):
    """What blocks over a fork, which is open, in the thread of its parent."""

    def __init__(self, inner: AsyncSandbox, thread: LoopThread) -> None:
        self._sandbox = inner
        _Blocking.__init__(self, inner, thread)

    def __enter__(self) -> Self:
        return self


class SandboxPool(_Blocking):
    """``AsyncSandboxPool`` without async: one thread for the pool and all its sandboxes."""

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
        """Its thread. Raises GuestError if the pool is not open."""
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
        """Return a sandbox that is yet to be opened; see ``AsyncSandboxPool.sandbox``."""
        arguments: dict[str, Any] = {"inputs": inputs, "input": input, "artifacts": artifacts}
        return Sandbox(pool=self, approve=approve, cwd=cwd, env=env, **arguments)
