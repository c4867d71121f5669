"""Backends: they enforce the OS layer of a policy.

A backend does so by a command around the zygote, by locks in guests, or by both.

Invariant: nothing is claimed that a backend does not declare. If a guest's report lacks a lock
that a declaration rests on, or a probe contradicts it, the declaration is lowered before it is
shown.

The parts, in the order in which a start meets them:

- ``base``: the interface of a backend; the choice of a backend for a policy on this machine; the
  types of a declaration, a view and a probe's result; what the host itself enforces with each
- ``landlock``, ``bubblewrap``, ``docker``, ``seatbelt``, ``noop``: a module for each backend, named
  as in a policy. ``docker`` uses ``container_engine`` and ``container_launcher``
- ``plan``: makes from a policy the plan of what guests must lock, and the view of what a zygote
  sees; knows which paths of this machine are always readable, and which never are. ``layers``:
  makes from staged roots the layers that a zygote lays over them. ``networks``: tries whether a
  session can have a network of its own here. ``devices``: finds the devices of a policy that this
  machine has
- ``report``: puts declarations, the guest's report and the results of probes together, for gaps and
  for ``doctor``. A probe is an attempt of a guest to break what was declared

What is asked or claimed, and what comes of it, are separate types, in two pairs: ``Plan`` and
``LockReport``; ``Declaration`` and ``Enforcement``. The host demands a ``Plan`` of
locks, and a guest answers with a ``LockReport``. A backend makes a ``Declaration``, and an
``Enforcement`` says what it is worth here.

The package may import ``policy``, ``wire``, ``descriptors`` and ``errors``; of ``guest`` only the
modules that confine, that try the locks, and that know where packages lie. A zygote may start
before anything else is imported, so nothing is imported here.
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
