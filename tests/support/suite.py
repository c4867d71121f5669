"""The suite of probes, run as ``cellblock doctor`` runs it: here, as somebody else, or spoilt.

python tests/support/suite.py BACKEND [FIELD=JSON ...] prints what came of it as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from cellblock.backends import choose, gaps, settle
from cellblock.backends.contract import contradicted
from cellblock.host import launch
from cellblock.jupyter import proving
from cellblock.policy.model import Policy

#: Where a zygote's first line of code ends and what spoils it is put in.
_MAIN = "main(int(sys.argv[1]))"


@dataclass(frozen=True)
class Suite:
    """What came of a suite. Outcomes are those of doctor: refused, passed, disclosed, unwitnessed."""

    backend: str
    failure: str
    outcomes: dict[str, str]
    contradicted: list[str]
    statuses: dict[str, str]
    holes: dict[str, list[str]]
    gaps: list[str]


def run(backend: str, *, spoil: str = "", plan: dict[str, Any] | None = None, **fields) -> Suite:
    """Run the suite under preset safe's policy with other ``fields``.

    ``spoil`` is code that the zygote runs before it begins, ``plan`` changes what guests lock.
    """
    policy = Policy().replace(name="tried", backend=backend, **fields)
    chosen = choose(policy, probe=False)
    boot, told = launch._BOOT, proving.told_of
    launch._BOOT = boot.replace(_MAIN, f"exec({spoil!r});{_MAIN}")
    proving.told_of = lambda policy, made, *rest: told(
        policy, msgspec.structs.replace(made, **plan or {}), *rest
    )
    try:
        proof, report = proving.prove(policy, chosen, Path.cwd())
    finally:
        launch._BOOT, proving.told_of = boot, told
    declared = chosen.declare(policy)
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


def run_as(prefix: tuple[str, ...], backend: str, **fields) -> Suite:
    """Run the suite in a process that ``prefix`` makes somebody else's."""
    words = [f"{name}={json.dumps(value)}" for name, value in fields.items()]
    done = subprocess.run(
        [*prefix, sys.executable, __file__, backend, *words],
        check=False,
        capture_output=True,
        timeout=120,
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
    )
    if done.returncode:
        raise RuntimeError(done.stderr.decode())
    return Suite(**json.loads(done.stdout))


def _main(backend: str, *words: str) -> None:
    fields = {name: json.loads(value) for name, _, value in (w.partition("=") for w in words)}
    frozen = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
    print(json.dumps(asdict(replace(run(backend, **frozen)))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
