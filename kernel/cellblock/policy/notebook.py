"""What a notebook says of its own policy, in its metadata: less than the kernel's, never more.

    {"metadata": {"cellblock": {"policy": {"timeout": 10, "network_access": false}}}}

The table holds what ``narrowing.narrow`` takes. Whoever runs a notebook hands it to
``of_notebook``; a kernel looks for the file that it was started for (``file_of``), since no front
end sends what is in it.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cellblock.errors import PolicyError, WideningError
from cellblock.policy.narrowing import narrow
from cellblock.policy.paths import Places
from cellblock.policy.suggest import closest
from cellblock.policy.vocabulary import SESSION_NAME

if TYPE_CHECKING:
    from cellblock.policy.model import Policy

#: The table in a notebook's metadata, and all that is understood in it.
NOTEBOOK_TABLE: Final = "cellblock"
KEYS: Final = ("policy",)
#: Bytes of a notebook that is looked through, and of what it may say of its policy.
MAX_NOTEBOOK_BYTES: Final = 64 * 2**20
MAX_TABLE_BYTES: Final = 64 * 2**10
_SUFFIX: Final = ".ipynb"
_WHERE: Final = f"metadata.{NOTEBOOK_TABLE}"
_REMEDY: Final = "Take it out of the notebook's metadata: only the operator can allow more."


def of_notebook(  # noqa: PLR0913 - a notebook, a policy, and where both are
    notebook: Mapping[str, Any],
    base: Policy,
    *,
    file: Path,
    project: Path,
    scratch: Path | None = None,
    here: bool = True,
) -> Policy:
    """Return ``base``, narrower where a notebook (as nbformat or ``json`` read it) asks for that.

    ``file`` is where it lies: relative paths begin there. Where nothing is to run ``here``, neither
    folders nor packages need be. Raises PolicyError, WideningError for what would allow more; both
    name the file and the key.
    """
    own = asked_of(notebook)
    if own is None:
        return base
    _check_size(own, file)
    return _narrowed(own, base, Places(str(file), file.parent, project, scratch, here), file)


def asked_of(notebook: Mapping[str, Any]) -> Any:
    """Return what a notebook has in our place of its metadata, whatever it is; None for nothing."""
    metadata = notebook.get("metadata")
    return metadata.get(NOTEBOOK_TABLE) if isinstance(metadata, Mapping) else None


def file_of(environ: Mapping[str, str]) -> Path | None:
    """Return the notebook that a kernel was started for, as far as its environment tells."""
    path = environ.get(SESSION_NAME, "")
    return Path(path) if os.path.isabs(path) and path.endswith(_SUFFIX) else None  # noqa: PTH117


def of_file(
    file: Path, base: Policy, *, project: Path, scratch: Path | None = None
) -> tuple[Policy, str]:
    """Return what ``of_notebook`` does of a file, and why that can't be told, where it can't.

    There is none yet for a notebook that was never saved. Raises PolicyError as ``of_notebook``.
    """
    content, why = _read(file)
    if content is None:
        return base, why
    own, why = _table(content, file)
    if own is None or why:
        return base, why
    return _narrowed(own, base, Places(str(file), file.parent, project, scratch), file), ""


def _narrowed(own: Any, base: Policy, places: Places, file: Path) -> Policy:
    changes = _changes(own, file)
    try:
        return narrow(base, changes, places=places)
    except PolicyError as error:
        wider = isinstance(error, WideningError)
        raise type(error)(
            f"a notebook can't have more than the policy: {error.message}"
            if wider
            else error.message,
            file=error.file,
            key=f"{_WHERE}.policy.{error.key}",
            value=error.value,
            remedy=_REMEDY if wider else error.remedy,
        ) from None


def _changes(own: Any, file: Path) -> Mapping[str, Any]:
    if not isinstance(own, Mapping):
        raise _wrong("not a table", file, _WHERE, own)
    for key in own:
        if key not in KEYS:
            remedy = closest(str(key), KEYS, what="keys")
            raise _wrong("no such key", file, f"{_WHERE}.{key}", "", remedy)
    changes = own.get("policy", {})
    if not isinstance(changes, Mapping):
        raise _wrong("not a table", file, f"{_WHERE}.policy", changes)
    return changes


def _check_size(own: Any, file: Path) -> None:
    """Raise PolicyError for what no kernel would read, either."""
    try:
        size = len(json.dumps(own, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError):
        raise _wrong("can't be read", file, _WHERE, "") from None
    if size > MAX_TABLE_BYTES:
        raise _too_large(file)


def _too_large(file: Path) -> PolicyError:
    what = f"larger than {MAX_TABLE_BYTES >> 10} KiB"
    return _wrong(what, file, _WHERE, "", "A policy is a page of text.")


def _wrong(
    message: str, file: Path, key: str, value: object, remedy: str = "Write fields and values."
) -> PolicyError:
    shown = repr(value)[:100] if value != "" else ""
    return PolicyError(message, file=str(file), key=key, value=shown, remedy=remedy)


# --- the file ---------------------------------------------------------------------------------


def _read(file: Path) -> tuple[bytes | None, str]:
    """Return a notebook's bytes, or None and why; nobody has to save one before it runs."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError) as failure:
        return None, _unread(file, getattr(failure, "strerror", None) or str(failure))
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None, _unread(file, "it is no file")
        with open(fd, "rb", closefd=False) as opened:
            content = opened.read(MAX_NOTEBOOK_BYTES + 1)
    except OSError as failure:
        return None, _unread(file, failure.strerror or str(failure))
    finally:
        os.close(fd)
    if len(content) > MAX_NOTEBOOK_BYTES:
        return None, _unread(file, f"it is larger than {MAX_NOTEBOOK_BYTES >> 20} MiB")
    return content, ""


def _table(content: bytes, file: Path) -> tuple[Any, str]:
    """Return the table, None where there is none; nothing else in the file is made a value."""
    import msgspec  # noqa: PLC0415 - few kernels get here

    pieces = dict[str, msgspec.Raw]
    try:
        whole = msgspec.json.decode(content, type=pieces)
        raw = bytes(
            msgspec.json.decode(whole["metadata"], type=pieces).get(NOTEBOOK_TABLE, b"null")
        )
    except (msgspec.MsgspecError, LookupError, ValueError, RecursionError):
        return None, _unread(file, "it is no notebook in JSON")
    if len(raw) > MAX_TABLE_BYTES:
        raise _too_large(file)
    try:
        return msgspec.json.decode(raw), ""
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise _wrong("can't be read", file, _WHERE, "") from None


def _unread(file: Path, why: str) -> str:
    return f"does not know whether {file.name} narrows the policy: {why}"
