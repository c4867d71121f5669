"""``run_probes``: proves a policy: runs the suite of probes in a guest, and keeps the outcomes.

The guest starts as a kernel's would, under the same policy. ``cellblock doctor`` and ``cellblock
install`` call this at once. A kernel whose policy has no proof on this machine runs this module as
a program in the background (``preparation.prove_later``). A proof is valid for the same
``host.probes.key``.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cellblock.backends.base import choose
from cellblock.backends.plan import GUEST_LIMITS
from cellblock.backends.report import Proof, Seen, disclosed, probes_for, settle
from cellblock.errors import CellblockError
from cellblock.guest.probes import EARLIER_THREAD
from cellblock.host import probes
from cellblock.host.guests import spawn
from cellblock.host.probes import Prover, Surroundings
from cellblock.host.services.relay import Relay
from cellblock.host.session.config import planned, prepare_message
from cellblock.host.session.history import default_path
from cellblock.jupyter.reactor import ZmqReactor
from cellblock.policy.folders import make_scratch, remove_scratch
from cellblock.policy.load import from_values
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from cellblock.backends.base import Chosen
    from cellblock.policy.model import Enforcement, Policy


_SEEN_BY_HOST: Final = "the host saw it"


def run_probes(
    policy: Policy, choice: Chosen, project: Path | None = None
) -> tuple[Proof | None, messages.LockReport | None]:
    """Prove a policy on Linux, and keep the proof for kernels. Return proof and lock report.

    The proof is not kept if the suite failed or was disturbed. ``project`` is by default the
    current folder. Never raises; returns (None, None) on other systems.
    """
    if sys.platform != "linux":
        return None, None
    project = project or Path.cwd()
    proof, report = prove(policy, choice, project)
    if report is not None and not proof.failure and not _was_disturbed(proof):
        with contextlib.suppress(OSError):  # such as a backend's program that is gone
            key = probes.key(policy, choice.backend, report, project=project, scratch=None)
            probes.Proofs(default_path().parent).keep(key, proof)
    return proof, report


def _was_disturbed(proof: Proof) -> bool:
    """Return whether another program connected to a listener of the suite.

    Then some outcome is "unwitnessed", and another run may witness all.
    """
    return any(
        result.outcome == "unwitnessed" and result.detail.startswith(_SEEN_BY_HOST)
        for result in proof.results.values()
    )


def prove(
    policy: Policy, choice: Chosen, project: Path
) -> tuple[Proof, messages.LockReport | None]:
    """Run the suite under ``policy``; return the proof, and the guest's report of its locks.

    Never raises. If the suite can't be run, all outcomes are "unwitnessed", and the report is None.
    """
    with contextlib.ExitStack() as resources:
        try:
            scratch = Path(make_scratch())
            # If a zygote starts, it removes the folder itself.
            resources.callback(remove_scratch, str(scratch))
            roots = _write_roots(policy, scratch)
            around = resources.enter_context(contextlib.closing(Surroundings(roots)))
            return _prove(policy, choice, project, scratch, around)
        except (OSError, CellblockError) as error:
            reason = str(error)
            results = {probe.name: Seen("unwitnessed", reason) for probe in probes_for(policy)}
            return Proof(results, probes.where(), _now(), reason), None


def _prove(
    policy: Policy, choice: Chosen, project: Path, scratch: Path, around: Surroundings
) -> tuple[Proof, messages.LockReport | None]:
    """Run the suite in the surroundings that the host can observe (``Surroundings``)."""
    addresses = policy.network_access
    if isinstance(addresses, tuple) and addresses:
        addresses = (*addresses, around.listed)
    # The same policy, but with a root and a denied path of the suite's own, for probes to try.
    tried_policy = policy.replace(
        filesystem_read_roots=(*policy.filesystem_read_roots, str(around.inside)),
        filesystem_write_roots=_write_roots(policy, scratch),
        read_deny_paths=(*policy.read_deny_paths, str(around.denied)),
        network_access=addresses,
    )
    private = [default_path().parent, around.outside]
    folders: dict[str, Any] = {"project": project, "scratch": scratch, "private": private}
    plan, wrap = planned(tried_policy, choice.backend, **folders)
    prepare = prepare_message(tried_policy, plan, project, scratch)
    loop = ZmqReactor()
    with contextlib.ExitStack() as resources:
        relay_in_use = None
        if plan.neighbours and isinstance(addresses, tuple):
            relay = Relay(loop, addresses)
            relay_in_use = resources.enter_context(contextlib.closing(relay))
        prover = Prover(loop, prepare, lambda: spawn.start(wrap), around.touched, relay_in_use)
        prover.run(_trial(policy, around, scratch))
    declared = settle(choice.declare(tried_policy), prover.report)
    results = _compared(policy, prover, declared, around.listening)
    return Proof(results, probes.where(), _now(), prover.failure), prover.report


def _trial(policy: Policy, around: Surroundings, scratch: Path) -> messages.Trial:
    """Return the message that has the guest run the probes, with what they try."""
    names = (probe.name for probe in probes_for(policy))
    return messages.Trial(
        probes=tuple(name for name in names if name != EARLIER_THREAD),
        scratch=str(scratch),
        outside=str(around.outside),
        secret=str(around.outside / "secret"),
        inside=str(around.inside),
        denied=str(around.denied),
        ports=around.ports,
        sockets=around.sockets,
        process=around.process,
        variable=around.variable,
        limits=messages.Limits(**{field: getattr(policy, field) for field in GUEST_LIMITS}),
    )


def _compared(
    policy: Policy,
    prover: Prover,
    declared: Mapping[str, Enforcement],
    listening: Collection[str],
) -> dict[str, Seen]:
    """Return each probe's outcome. What the host observed overrides what the guest reports."""
    outcomes = {}
    for probe in probes_for(policy):
        attempt = prover.results.get(probe.name)
        outcome = attempt.outcome if attempt else "unwitnessed"
        detail = attempt.detail if attempt else prover.failure or "nothing was said of it"
        if probe.name in prover.touched and outcome != "passed":
            detail = f"{_SEEN_BY_HOST}, and the guest said: {outcome}"
            # Any program may have connected to a listener, but only the suite knows its files and
            # processes.
            outcome = "unwitnessed" if probe.name in listening else "passed"
        is_known = outcome == "passed" and disclosed(probe, declared)
        outcomes[probe.name] = Seen(outcome, detail, is_known)
    return outcomes


def _write_roots(policy: Policy, scratch: Path) -> tuple[str, ...]:
    """Return the policy's roots for writing, with the path of this scratch folder."""
    return tuple(root.replace("{scratch}", str(scratch)) for root in policy.filesystem_write_roots)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def main() -> None:
    """Prove the policy on stdin, which is JSON of ``Policy.as_dict``, for a kernel.

    Arguments: the pid of the kernel, with which this process ends, and the project's folder.
    """
    host = int(sys.argv[1])
    project = Path(sys.argv[2])
    spawn.end_with_host(host)
    os.nice(19)
    policy = from_values(json.load(sys.stdin))
    run_probes(policy, choose(policy), project)


if __name__ == "__main__":
    main()
