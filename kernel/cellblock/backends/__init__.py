"""What enforces the OS layer of a policy: a command around the zygote, locks in guests, or both.

Invariant: nothing is claimed that a backend does not declare, and what a guest's report of its
locks or a probe does not bear out is lowered before it is shown.

The parts, in the order in which a start meets them:

- ``base``: what a backend is; which one carries a policy on this machine, and why not the others;
  what a declaration, a view and a probe's result are; what the host itself enforces behind each.
- ``landlock``, ``bubblewrap``, ``docker``, ``seatbelt``, ``noop``: one module a backend, named as
  in a policy. Behind ``docker`` stand ``container_engine`` and ``container_launcher``.
- ``plan``: from a policy to what guests must lock, and to what a zygote sees; which paths of this
  machine are always readable, and which never are. ``layers``: from staged roots to what a zygote
  lays over them. ``networks``: whether a session can have a network of its own here. ``devices``:
  the devices of a policy that this machine has.
- ``report``: the probes, which are attempts of a guest to break what was declared; and their
  results, declarations and the guest's report together: gaps, ``doctor``.

What is demanded and what was achieved are two types, twice: the host demands a ``Plan`` of locks
and a guest answers with a ``LockReport``; a backend makes a ``Declaration``, and an ``Enforcement``
says what it is worth here.

May import ``policy``, ``wire``, ``descriptors``, ``errors``; of ``guest`` only what confines, what
is tried on its locks, and where packages lie. A zygote may start before anything else is imported,
so no part is imported here.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cellblock.backends.base import named as named
    from cellblock.backends.report import COMPATIBILITY_MATRIX as COMPATIBILITY_MATRIX
    from cellblock.backends.report import resolve as resolve

#: What the documentation offers to users, and the module that has it.
_PUBLIC = {"COMPATIBILITY_MATRIX": "report", "named": "base", "resolve": "report"}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)
