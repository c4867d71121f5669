"""The exceptions that cellblock raises.

CellblockError
├── PolicyError       a policy can't be read or enforced: has file, key, value and remedy
│   ├── InputError        inputs are not JSON data, or too much of it
│   └── WideningError     a change would allow more than the policy does
├── AdmissionError    approvals or templates can't be read or trusted: has the same
├── AuditError        the audit log can't be written or read: has the same
├── WireError         a peer broke the protocol
│   └── FrameTooLargeError  a frame announces more bytes than its bound
├── GuestError        the guest could not be started, or was lost
├── BackendError      no backend can enforce this policy on this machine
├── ChangesError      staged changes can't be listed, kept or dropped
├── ExchangeError     a variable or file can't be copied from or to a sandbox
├── ReceiptError      a receipt can't be made, or is not valid
├── CheckError        nothing can be checked here, whatever the files are
└── StartError        the kernel can't start: connection file, sockets, temporary folder

A denial is not an exception: it is a value (``analysis.Finding``) that is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class CellblockError(Exception):
    """The root of all exceptions that cellblock raises on purpose."""

    def each(self) -> tuple[str, ...]:
        """Return the message, or a message for each fault if there are several."""
        return (str(self),)


class _MendableError(CellblockError):
    """An error in a file, with everything that is needed to mend it."""

    def __init__(
        self, message: str, *, file: str = "", key: str = "", value: str = "", remedy: str
    ) -> None:
        self.message = message
        self.file = file
        self.key = key
        self.value = value
        self.remedy = remedy
        super().__init__(message)

    def __str__(self) -> str:
        return f"{self.file}: {self.what()} {self.remedy}"

    def what(self) -> str:
        """Return the message without file and remedy: ``timeout: wrong value (got 0).`` for one."""
        key = f"{self.key}: " if self.key else ""
        value_text = f" (got {self.value})" if self.value else ""
        return f"{key}{self.message}{value_text}."


class PolicyError(_MendableError):
    """The error for a policy that can't be read or enforced. ``others`` are its other faults."""

    others: tuple[PolicyError, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self.each())

    def each(self) -> tuple[str, ...]:
        """Return a message for each fault."""
        return tuple(_MendableError.__str__(error) for error in self.all())

    def all(self) -> tuple[PolicyError, ...]:
        """Return this error and the others, which have no others of their own."""
        return self, *self.others


def together(errors: Sequence[PolicyError]) -> PolicyError:
    """Return one error for all faults in ``errors``, which must not be empty."""
    first, *further = (fault for error in errors for fault in error.all())
    first.others = tuple(further)
    return first


class InputError(PolicyError):
    """The error for inputs that can't be given to cells."""


class WideningError(PolicyError):
    """The error for a change that would make a policy wider, where it may only get narrower."""


class WireError(CellblockError):
    """The error for a peer that broke the protocol."""


class FrameTooLargeError(WireError):
    """The error for a frame that announces more bytes than its bound."""


class GuestError(CellblockError):
    """The error for a guest that could not be started, or was lost; also for a closed sandbox."""


class AdmissionError(_MendableError):
    """The error for approvals or templates that can't be read or trusted.

    Nothing that needs them runs.
    """


class AuditError(_MendableError):
    """The error for an audit log that can't be written or read."""


class BackendError(CellblockError):
    """The error for a policy that no backend can enforce on this machine."""


class ChangesError(CellblockError):
    """The error for staged changes that can't be listed, kept or dropped. It says why."""


class ExchangeError(CellblockError):
    """The error for a variable or file that can't be copied from or to a sandbox. It says why."""


class ReceiptError(CellblockError):
    """The error for a receipt that can't be made or is not valid. It says what to do."""


class CheckError(CellblockError):
    """The error if nothing can be checked here, whatever the files are."""


class StartError(CellblockError):
    """The error for a kernel that can't start. Only whoever started it can be told."""
