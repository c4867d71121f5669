"""Prepares what makes kernels' starts short: once for an environment and a policy.

``cellblock install`` and ``cellblock doctor`` call ``prepare`` and wait for it. A kernel that finds
something stale makes it again in the background (``make_later``, ``prove_later``). What is
prepared, and by which module:

- the command that starts the zygote: here, and by each kernel (``early_zygote``)
- the policies whose types were accepted (``host.files.AcceptedPolicies``), and whether overlays
  work on this machine (``backends.layers.why_not``): when a policy is resolved
- byte code of modules that all guests import, if an installer left it out: here. Of other modules:
  after a guest had to compile them (``host.guests.byte_code``)
- matplotlib's list of fonts, for first plots, and Vega, for first charts of altair: in processes of
  their own (``host.guests.background``)
- the proof of the policy on this machine: in a process of its own (``proving``)

``docs/performance.md`` says how much time each saves.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from cellblock.descriptors import remove_tree
from cellblock.errors import BackendError, PolicyError, StartError
from cellblock.host.guests import background, byte_code
from cellblock.host.guests.spawn import WrappingCache
from cellblock.host.services import changes
from cellblock.host.session.config import WORK, SessionConfig, SessionOptions, resolve
from cellblock.jupyter.early_zygote import words_of
from cellblock.jupyter.reactor import ZmqReactor
from cellblock.policy.folders import cache_folder, make_scratch, remove_scratch, scratch_name
from cellblock.policy.paths import without_scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cellblock.host.reactor import Reactor
    from cellblock.wire.messages import Prepare

#: Seconds that ``make_now`` waits. Kernels make what is missing then.
PATIENCE: Final = 60.0


def prepare(policy: str, named: str) -> PolicyError | None:
    """Prepare for kernels under a policy in the current folder, and wait for that.

    ``named`` is the policy as the kernels' command names it. Return the error that ``judge``
    returns. A part that fails is left to the kernels.
    """
    with _resolved(policy) as (config, scratch):
        if isinstance(config, SessionConfig):
            if (wrapping_words := words_of(config.wrap)) is not None:
                WrappingCache(cache_folder(), named, str(config.project), scratch).keep(
                    wrapping_words
                )
            if sys.platform == "linux":
                make_now(config.prepare)
        return config if isinstance(config, PolicyError) else None


def judge(policy: str) -> PolicyError | None:
    """Return why no cell would run under a policy in a kernel that starts in this folder, or None.

    Such a kernel would show the same error. That this machine can't enforce a policy is not one.
    """
    with _resolved(policy) as (config, _):
        return config if isinstance(config, PolicyError) else None


@contextlib.contextmanager
def _resolved(
    policy: str,
) -> Iterator[tuple[SessionConfig | PolicyError | BackendError | StartError, str]]:
    """Yield the config that a kernel in this folder would have, or the error, and its scratch."""
    try:
        scratch = make_scratch()
    except StartError as failure:
        yield failure, ""
        return
    folder = Path(scratch)
    work = Path.cwd() / WORK
    had_work = os.path.lexists(work)
    try:
        options = SessionOptions(
            policy, Path.cwd(), folder, allow_unsafe=True, asks=True, stages_home=True
        )
        yield resolve(options), scratch
    finally:
        remove_scratch(scratch)
        remove_tree(changes.Staged(scratch_name(folder), ()).folder)
        if not had_work:  # ``resolve`` makes it if nothing can be staged
            with contextlib.suppress(OSError):
                work.rmdir()


def _stale(session: Prepare) -> list[background.Stale]:
    """Return the programs that make what the session could use and is not up to date."""
    vega = session.charts == "pages" and not session.vega
    programs = [background.stale_font_list(), background.stale_vega() if vega else None]
    return [program for program in programs if program is not None]


def make_later(reactor: Reactor, session: Prepare) -> None:
    """Make what is stale in the background, some time after the kernel's start.

    Byte code is not made here: the guest reports which modules it had to compile. Programs that use
    sandboxes do not call this: they should have no child processes that they do not know of.
    """

    def make() -> None:
        for program, target in _stale(session):
            with contextlib.suppress(OSError, ValueError):
                background.start(reactor, program, target)

    if sys.platform == "linux":
        reactor.call_later(background.AFTER, make)


#: Seconds after a kernel's start when its policy is proved. By then the first cells have run.
PROVE_AFTER: Final = 30.0


def prove_later(reactor: Reactor, config: SessionConfig, look: Callable[[], bool]) -> None:
    """Prove a kernel's policy some time after its start, in a process of the lowest priority.

    ``look`` returns whether there is a proof. It is called before, since another kernel may have
    proved the same policy, and when the process has ended.
    """
    if sys.platform != "linux" or config.chosen.backend.name == "noop":
        return
    policy = without_scratch(config.policy, config.scratch)
    argv = [sys.executable, "-P", "-m", "cellblock.jupyter.proving"]
    argv += [str(os.getpid()), str(config.project)]

    def prove() -> None:
        if look():
            return
        with (
            contextlib.suppress(OSError, ValueError),
            tempfile.TemporaryFile() as policy_file,
            open(os.devnull, "r+b") as null,  # noqa: PTH123 - its descriptor alone is used
        ):
            policy_file.write(msgspec.json.encode(policy.as_dict()))
            policy_file.seek(0)
            files = [policy_file.fileno(), null.fileno(), null.fileno()]
            background.spawn(reactor, argv, dict(os.environ), files, ended=look)

    reactor.call_later(PROVE_AFTER, prove)


def make_now(session: Prepare) -> None:
    """Make what is stale, and wait until all of it is made, ``PATIENCE`` seconds at most."""
    reactor = ZmqReactor()
    running_targets = set[str]()

    def ended(target: str) -> None:
        running_targets.discard(target)
        if not running_targets:
            reactor.stop()

    imports = byte_code.stale_imports()
    for program, target in [*_stale(session), *([] if imports is None else [imports])]:
        with contextlib.suppress(OSError, ValueError):
            background.start(reactor, program, target, ended=partial(ended, str(target)))
            running_targets.add(str(target))
    if running_targets:
        reactor.call_later(PATIENCE, reactor.stop)
        reactor.run()
