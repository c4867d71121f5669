"""What a kernel's start finds made: for an environment and a policy, once, and not for each start.

``cellblock install`` and ``cellblock doctor`` make it. Whoever finds it stale makes it again: a
kernel, in the background, while it runs.

- The command that starts the zygote: made here, and by each kernel (``early_zygote``).
- Which policies' types were accepted (``host.files.AcceptedPolicies``), and whether overlays can be
  laid here (``backends.layers.why_not``): by whoever resolves a policy.
- Byte code of what every guest imports, where an installer left it out: here. Any other, for first
  imports: by a guest's word (``host.guests.byte_code``).
- matplotlib's list of fonts, for first plots; Vega, for first charts of altair: by processes of
  their own (``host.guests.background``).
- What a suite of probes sees of the policy here (``proving``), in a process of its own, too.

How much each buys is in ``docs/performance.md``.
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

#: Seconds for which what is made is waited for; a later kernel makes the rest.
PATIENCE: Final = 60.0


def prepare(policy: str, named: str) -> PolicyError | None:
    """Make what starts of kernels under a policy find made, and wait for it.

    ``named`` is what their command calls it. Return what ``judge`` does. What can't be made is left
    to the kernels.
    """
    with _resolved(policy) as (config, scratch):
        if isinstance(config, SessionConfig):
            if (words := words_of(config.wrap)) is not None:
                WrappingCache(cache_folder(), named, str(config.project), scratch).keep(words)
            if sys.platform == "linux":
                make_now(config.prepare)
        return config if isinstance(config, PolicyError) else None


def judge(policy: str) -> PolicyError | None:
    """Return why no cell would run under a policy in a kernel that starts in this folder, or None.

    It is what such a kernel would say. What this machine can't enforce is not the policy's fault.
    """
    with _resolved(policy) as (config, _):
        return config if isinstance(config, PolicyError) else None


@contextlib.contextmanager
def _resolved(
    policy: str,
) -> Iterator[tuple[SessionConfig | PolicyError | BackendError | StartError, str]]:
    """Yield what a kernel in this folder would be started with, or why not, and its scratch."""
    try:
        scratch = make_scratch()
    except StartError as failure:
        yield failure, ""
        return
    folder, work = Path(scratch), Path.cwd() / WORK
    had_work = os.path.lexists(work)
    try:
        options = SessionOptions(
            policy, Path.cwd(), folder, allow_unsafe=True, asks=True, stages_home=True
        )
        yield resolve(options), scratch
    finally:
        remove_scratch(scratch)
        remove_tree(changes.Staged(scratch_name(folder), ()).folder)
        if not had_work:  # which a kernel makes where nothing can be staged
            with contextlib.suppress(OSError):
                work.rmdir()


def _stale(session: Prepare) -> list[background.Stale]:
    """Return how to make what a session could use and that is not up to date."""
    vega = session.charts == "pages" and not session.vega
    found = [background.stale_font_list(), background.stale_vega() if vega else None]
    return [each for each in found if each is not None]


def make_later(reactor: Reactor, session: Prepare) -> None:
    """Have a kernel make in a while what it finds stale.

    Byte code comes by itself: its guest says what it had to compile. A program that uses a sandbox
    makes nothing, for it has no child that it does not know of.
    """

    def make() -> None:
        for program, target in _stale(session):
            with contextlib.suppress(OSError, ValueError):
                background.start(reactor, program, target)

    if sys.platform == "linux":
        reactor.call_later(background.AFTER, make)


#: Seconds after a kernel's begin that its policy is proved: it is at work, or its user reads.
PROVE_AFTER: Final = 30.0


def prove_later(reactor: Reactor, config: SessionConfig, look: Callable[[], bool]) -> None:
    """Have a kernel's policy proved in a while, in a process that takes no time from others.

    ``look`` looks for a proof, then and when the process has ended, and returns whether there is
    one: another kernel may have been first.
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
            tempfile.TemporaryFile() as said,
            open(os.devnull, "r+b") as null,  # noqa: PTH123 - its descriptor alone is used
        ):
            said.write(msgspec.json.encode(policy.as_dict()))
            said.seek(0)
            files = [said.fileno(), null.fileno(), null.fileno()]
            background.spawn(reactor, argv, dict(os.environ), files, ended=look)

    reactor.call_later(PROVE_AFTER, prove)


def make_now(session: Prepare) -> None:
    """Make what is stale, and wait for that."""
    reactor, running = ZmqReactor(), set[str]()

    def ended(target: str) -> None:
        running.discard(target)
        if not running:
            reactor.stop()

    imports = byte_code.stale_imports()
    for program, target in [*_stale(session), *([] if imports is None else [imports])]:
        with contextlib.suppress(OSError, ValueError):
            background.start(reactor, program, target, ended=partial(ended, str(target)))
            running.add(str(target))
    if running:
        reactor.call_later(PATIENCE, reactor.stop)
        reactor.run()
