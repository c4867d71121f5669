"""Runs the suite of probes as ``cellblock doctor`` does: here, as another user, or sabotaged.

python tests/support/probe_suite.py BACKEND [FIELD=JSON ...] prints the results as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from cellblock.backends.base import choose
from cellblock.backends.report import contradicted, gaps, known_report, settle
from cellblock.host.guests import spawn
from cellblock.jupyter import proving
from cellblock.policy.model import Policy

#: The call in a zygote's boot code before which sabotaging code is inserted.
_MAIN = "main(int(sys.argv[1]), reaper_pipe, line)"


#: Capabilities that have a probe, and for which no hole is declared.
PROVED = {
    "filesystem_write_roots",
    "read_deny_paths",
    "network_access",
    "subprocess_execution",
    "package_installation",
    "env_var_access",
    "memory_max_bytes",
    "max_open_files",
    "max_file_size",
}
WIDE = {"network_access": True, "subprocess_execution": True}


@dataclass(frozen=True)
class Suite:
    """The results of a suite. The outcomes are refused, passed, disclosed or unwitnessed."""

    backend: str
    failure: str
    outcomes: dict[str, str]
    contradicted: list[str]
    statuses: dict[str, str]
    holes: dict[str, list[str]]
    gaps: list[str]


def run(backend: str, *, spoil: str = "", plan: dict[str, Any] | None = None, **fields) -> Suite:
    """Run the suite under preset safe with these ``fields``.

    ``spoil`` is code that the zygote runs first; ``plan`` replaces fields of the guests' plan.
    """
    policy = Policy().replace(name="tried", backend=backend, **fields)
    chosen = choose(policy, "attempt")
    boot, told = spawn._BOOT, proving.prepare_message
    spawn._BOOT = boot.replace(_MAIN, f"exec({spoil!r});{_MAIN}")
    proving.prepare_message = lambda policy, made, *rest: told(
        policy, msgspec.structs.replace(made, **plan or {}), *rest
    )
    try:
        proof, seen = proving.prove(policy, chosen, Path.cwd())
    finally:
        spawn._BOOT, proving.prepare_message = boot, told
    declared, report = chosen.declare(policy), known_report(chosen, proof, seen)
    settled = settle(declared, report, proof)
    return Suite(
        chosen.backend.name,
        proof.failure,
        {k: "disclosed" if v.disclosed else v.outcome for k, v in proof.results.items()},
        [probe.name for probe in contradicted(proof)],
        {name: str(each.status) for name, each in settled.items()},
        {name: list(each.holes) for name, each in settled.items()},
        [gap.capability for gap in gaps(policy, declared, report, proof)],
    )


def assert_proved(found: Suite, backend: str) -> None:
    """Assert that everything that a backend declares for preset safe was proved."""
    assert (found.backend, found.failure, found.contradicted) == (backend, "", [])
    assert "unwitnessed" not in found.outcomes.values(), found.outcomes
    disclosed = {name for name, outcome in found.outcomes.items() if outcome == "disclosed"}
    names = backend == "landlock"  # under landlock the names of files can be looked up
    # Exactly these: a declared hole that does not exist would be a wrong claim, too.
    assert disclosed == {"earlier_hard_link"} | ({"look_up_name"} if names else set())
    verified = {name for name, status in found.statuses.items() if status == "verified"}
    assert verified == PROVED | (set() if names else {"filesystem_read_roots"})


def assert_wide_proved(found: Suite) -> None:
    """Assert that a policy with network and processes was proved as far as it restricts."""
    assert (found.failure, found.contradicted) == ("", [])
    assert not {"tcp", "udp", "fork", "execute"} & set(found.outcomes)
    around = ("mptcp", "unix_socket", "abstract_socket", "netlink", "child_reads", "signal")
    assert {name: found.outcomes[name] for name in around} == dict.fromkeys(around, "refused")
    assert found.statuses["network_access"] == found.statuses["subprocess_execution"] == "verified"


def run_as(prefix: tuple[str, ...], backend: str, **fields) -> Suite:
    """Run the suite in a process of another user, by the words of ``prefix``."""
    words = [f"{name}={json.dumps(value)}" for name, value in fields.items()]
    done = subprocess.run(
        [*prefix, sys.executable, __file__, backend, *words],
        check=False,
        capture_output=True,
        timeout=120,
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **_engine()},
    )
    if done.returncode:
        raise RuntimeError(done.stderr.decode())
    return Suite(**json.loads(done.stdout))


def _engine() -> dict[str, str]:
    """Return the variables that lead to a container engine, if any are set."""
    return {name: os.environ[name] for name in ("DOCKER_HOST",) if name in os.environ}


def _main(backend: str, *words: str) -> None:
    fields = {name: json.loads(value) for name, _, value in (w.partition("=") for w in words)}
    frozen = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
    print(json.dumps(asdict(replace(run(backend, **frozen)))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
