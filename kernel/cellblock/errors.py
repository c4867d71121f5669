"""What cellblock raises.

CellblockError
├── PolicyError       a policy can't be read or kept: names file, key, value and remedy
│   ├── InputError        inputs are no JSON data, or too much of it
│   └── WideningError     a change that would allow more than the policy does
├── AdmissionError    approvals or templates can't be read, or trusted: names the same
├── AuditError        the audit log can't be written: names the same
├── WireError         a peer broke the protocol
│   └── FrameTooLargeError  a frame announces more than its cap
├── GuestError        the guest could not be started or was lost
├── BackendError      no backend can carry this policy here
├── ChangesError      what was staged can't be listed, kept or dropped, and why
├── ExchangeError     a variable or file can't be taken from a sandbox or put there, and why
├── ReceiptError      a receipt can't be made, or does not hold
├── CheckError        what is to be checked can't be, whatever is in it
└── StartError        the kernel can't start: connection file, sockets, temporary folder

A denial is not an exception: it is a value (``analysis.Finding``) that is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class CellblockError(Exception):
    """Root of everything cellblock raises on purpose."""

    def each(self) -> tuple[str, ...]:
        """Return what went wrong, a text for each thing."""
        return (str(self),)


class _MendableError(CellblockError):
    """Something on disk that is not as it has to be, with all that is needed to mend it."""

    def __init__(
        self, message: str, *, file: str = "", key: str = "", value: str = "", remedy: str
    ) -> None:
        self.message, self.file, self.key, self.value = message, file, key, value
        self.remedy = remedy
        super().__init__(message)

    def __str__(self) -> str:
        return f"{self.file}: {self.what()} {self.remedy}"

    def what(self) -> str:
        """Return what is wrong, without the file: ``timeout: wrong value (got 0).`` is one."""
        key = f"{self.key}: " if self.key else ""
        got = f" (got {self.value})" if self.value else ""
        return f"{key}{self.message}{got}."


class PolicyError(_MendableError):
    """A policy that can't be read or kept; ``others`` are what else is wrong with it."""

    others: tuple[PolicyError, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self.each())

    def each(self) -> tuple[str, ...]:
        """Return what is wrong, a text for each thing."""
        return tuple(_MendableError.__str__(one) for one in self.all())

    def all(self) -> tuple[PolicyError, ...]:
        """Return this one and the others, none of which has others of its own."""
        return self, *self.others


def together(errors: Sequence[PolicyError]) -> PolicyError:
    """Return one error for all that is wrong; ``errors`` has one at least."""
    first, *others = (one for error in errors for one in error.all())
    first.others = tuple(others)
    return first


class InputError(PolicyError):
    """Inputs that can't be given to cells."""


class WideningError(PolicyError):
    """A change to a policy that can only be made narrower, and would not be."""


class WireError(CellblockError):
    """A peer sent something that the protocol does not know."""


class FrameTooLargeError(WireError):
    """A frame announces more bytes than its cap."""


class GuestError(CellblockError):
    """The guest could not be started, or was lost."""


class AdmissionError(_MendableError):
    """Approvals, or templates, that can't be read or trusted: nothing that takes them runs."""


class AuditError(_MendableError):
    """An audit log that can't be written, or read."""


class BackendError(CellblockError):
    """No backend can carry this policy on this machine."""


class ChangesError(CellblockError):
    """What was staged can't be listed, kept or dropped, and why."""


class ExchangeError(CellblockError):
    """A variable or a file that can't be taken from a sandbox, or put there, and why."""


class ReceiptError(CellblockError):
    """A receipt that can't be made or does not hold, with what to do."""


class CheckError(CellblockError):
    """Source can't be checked here at all."""


class StartError(CellblockError):
    """The kernel can't start at all: nobody can be told but who started it."""
