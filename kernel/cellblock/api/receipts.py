"""Receipts: signed statements of a host on how a cell's result, or a notebook, was made.

A receipt is an in-toto Statement v1 (https://in-toto.io/Statement/v1) in a DSSE envelope. It is
signed with an ed25519 key (RFC 8032) of the user whose host ran the cell. It has hashes of sources,
outputs and arguments, and no values. ``sign`` makes the receipt of a cell's result, ``sign_run``
that of a notebook, and ``verify`` reads a receipt. A receipt proves no more than that the holder of
the key says so (docs/receipts.md).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import platform
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from cellblock import __version__
from cellblock.analysis.admission import sha256
from cellblock.errors import AdmissionError, ReceiptError
from cellblock.host.consent.store import check_own, read_file
from cellblock.host.files import PrivateFile
from cellblock.policy import paths
from cellblock.policy.folders import data_folder
from cellblock.render.text import encodable

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_pem_public_key,
    )
except ImportError as error:
    what = "receipts need cryptography, which is not installed"
    raise ReceiptError(f"{what}. Install it: pip install 'cellblock[receipts]'.") from error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cellblock.api.result_parts import Provenance, ToolCall
    from cellblock.host.cell.transcript import Output
    from cellblock.host.services.changes import Kept


# --- the statement --------------------------------------------------------------------------------

PREDICATE_TYPE: Final = "https://cellblock.github.io/cellblock/receipt/v1"
RUN_TYPE: Final = "https://cellblock.github.io/cellblock/run-receipt/v1"
_STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"


class Subject(msgspec.Struct, frozen=True):
    """An output or file that a cell made: ``digest`` has the SHA-256 of its bytes, in hex."""

    name: str
    digest: dict[str, str]


class Call(msgspec.Struct, frozen=True):
    """A call of a tool. ``arguments`` and ``result`` are digests; without a result it is empty."""

    name: str
    status: str
    arguments: str
    result: str = ""


class Change(msgspec.Struct, frozen=True):
    """A staged file that was kept in the project; ``sha256`` is empty for a deleted file."""

    name: str
    change: str
    sha256: str = ""


class Origin(msgspec.Struct, frozen=True, rename="camel"):
    """The session that a fork copied variables from, as it was after the cell of that number."""

    session: str
    execution_count: int


class Conditions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The conditions in force, and how the cell or notebook ended.

    docs/receipts.md explains each field.
    """

    cellblock: str
    python: str
    os_kernel: str
    policy: str
    policy_sha256: str
    backend: str
    capabilities: dict[str, str]
    gaps: tuple[str, ...]
    proved: str
    session: str
    status: str
    ended: str
    changes: tuple[Change, ...]


class Predicate(Conditions, frozen=True, kw_only=True, rename="camel"):
    """How a cell's result was made."""

    execution_count: int
    source_sha256: str
    denials: tuple[str, ...]
    tool_calls: tuple[Call, ...]
    tool_calls_left_out: int
    #: Receipts of versions before this field lack it.
    variables_from: Origin | None = None


class RunPredicate(Conditions, frozen=True, kw_only=True, rename="camel"):
    """How a notebook was executed."""

    notebook: str
    notebook_sha256: str
    parameters_sha256: str
    cells: int
    errors: int


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """The statement that the receipt of a cell's result signs."""

    type: Literal["https://in-toto.io/Statement/v1"] = msgspec.field(name="_type")
    subject: tuple[Subject, ...]
    predicate_type: Literal["https://cellblock.github.io/cellblock/receipt/v1"] = msgspec.field(
        name="predicateType"
    )
    predicate: Predicate


class RunStatement(msgspec.Struct, frozen=True, kw_only=True):
    """The statement that the receipt of a notebook signs."""

    type: Literal["https://in-toto.io/Statement/v1"] = msgspec.field(name="_type")
    subject: tuple[Subject, ...]
    predicate_type: Literal["https://cellblock.github.io/cellblock/run-receipt/v1"] = msgspec.field(
        name="predicateType"
    )
    predicate: RunPredicate


class _Kind(msgspec.Struct, frozen=True):
    predicate_type: str = msgspec.field(name="predicateType")


def digest(value: Any) -> str:
    """Return the SHA-256, in hex, of JSON data in canonical form: sorted keys, ASCII, no spaces."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=repr)
    return hashlib.sha256(text.encode()).hexdigest()


def outputs_digest(outputs: Iterable[Output]) -> str:
    """Return the digest of a result's ``outputs``, which the subject ``outputs`` has."""
    return digest(
        [
            [
                output.kind,
                output.content,
                output.metadata,
                [hashlib.sha256(buffer).hexdigest() for buffer in output.buffers],
            ]
            for output in outputs
        ]
    )


def _conditions(provenance: Provenance, status: str) -> dict[str, Any]:
    """Return the fields of ``Conditions``."""
    system = os.uname()
    return {
        "cellblock": __version__,
        "python": platform.python_version(),
        "os_kernel": f"{system.sysname} {system.release}",
        "policy": provenance.policy.name,
        "policy_sha256": paths.without_scratch(
            provenance.policy, Path(provenance.scratch)
        ).digest(),
        "backend": provenance.backend,
        "capabilities": {
            name: str(enforced.status) for name, enforced in provenance.enforcement.items()
        },
        "gaps": tuple(gap.capability for gap in provenance.gaps),
        "proved": provenance.proved,
        "session": provenance.session,
        "status": status,
        "ended": datetime.fromtimestamp(provenance.ended, UTC).isoformat(timespec="milliseconds"),
        "changes": _changes(provenance.staged.kept if provenance.staged is not None else ()),
    }


def _changes(kept_files: Sequence[Kept]) -> tuple[Change, ...]:
    """Return the staged files that were kept, each in its last state.

    A file's name is its path within the staged folder, or its absolute path if files of several
    staged folders have the same path.
    """
    last_by_name = {file.change.name: file for file in kept_files}
    path_counts = Counter(file.change.path for file in last_by_name.values())
    return tuple(
        Change(
            encodable(file.change.path if path_counts[file.change.path] == 1 else file.change.name),
            file.change.kind,
            file.sha256,
        )
        for file in last_by_name.values()
    )


def _as_subjects(
    digests: Iterable[tuple[str, str]], changes: Iterable[Change]
) -> tuple[Subject, ...]:
    """Return a subject for each name and digest, and for each kept file that exists."""
    kept_files = ((f"kept/{change.name}", change.sha256) for change in changes if change.sha256)
    return tuple(Subject(name, {"sha256": value}) for name, value in (*digests, *kept_files))


def _artifact_subjects(artifacts: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(f"artifacts/{encodable(name)}", value) for name, value in artifacts.items()]


def _call_entry(call: ToolCall) -> Call:
    returned = digest(call.result) if call.status == "ok" else ""
    return Call(call.name, call.status, digest([call.args, call.kwargs]), returned)


# --- the key: a seed of 32 bytes in hexadecimal ---------------------------------------------------
#
# It lies in the user's data folder, like approvals, which no guest can read (``session.config``).

_SEED_BYTES: Final = 32
_MOST_KEY_FILE: Final = 4096
_REMOVE_KEY: Final = "Remove it: the next receipt is then signed with a new key."


def key_file() -> Path:
    """Return the path of the key: ``$XDG_DATA_HOME/cellblock/receipt.key``."""
    return Path(data_folder(), "receipt.key")


def own_key(*, make: bool = True) -> Ed25519PrivateKey:
    """Return this user's key. If there is none, make it, or raise if ``make`` is false.

    Raises ReceiptError if there is no key, if it can't be made or read, or if others can read it.
    """
    path = key_file()
    try:
        if make and not os.path.lexists(path):
            # If two programs make a key at once, both sign with the one that was written first:
            # the other is not written, and the file is read below.
            seed = os.urandom(_SEED_BYTES).hex().encode() + b"\n"
            PrivateFile(path, _MOST_KEY_FILE).write(seed, replace=False)
        content, status = read_file(path, _MOST_KEY_FILE, what="the key", remedy=_REMOVE_KEY)
        check_own(path, status, secret=True)
        check_own(path.parent, path.parent.stat())
        seed = bytes.fromhex(content.decode("ascii"))
        return Ed25519PrivateKey.from_private_bytes(seed)
    except FileNotFoundError:
        why = "you have no key here. Name the public key of the host that signed: --key FILE."
    except AdmissionError as error:
        raise ReceiptError(str(error)) from None
    except OSError as error:
        why = f"the key can't be made: {error.strerror or error}. Make the folder yours alone."
    except ValueError:
        why = f"it does not hold a key ({_SEED_BYTES} bytes in hexadecimal). {_REMOVE_KEY}"
    raise ReceiptError(f"{path}: {why}")


def public_pem(key: Ed25519PublicKey) -> bytes:
    """Return a public key in PEM, as openssl writes it."""
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def key_id(key: Ed25519PublicKey) -> str:
    """Return the id of a key: the SHA-256 of its SubjectPublicKeyInfo, in hex."""
    encoded = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(encoded).hexdigest()


def read_public_key(path: Path) -> Ed25519PublicKey:
    """Return the public key in a PEM file. Raises ReceiptError."""
    try:
        content, _ = read_file(path, _MOST_KEY_FILE, what="the key", remedy="Name another file.")
        key = load_pem_public_key(content)
    except AdmissionError as error:
        raise ReceiptError(str(error)) from None
    except FileNotFoundError:
        raise ReceiptError(f"{path}: there is no such file. Name a public key's.") from None
    except ValueError:
        key = None
    if not isinstance(key, Ed25519PublicKey):
        problem = "it does not hold an ed25519 public key in PEM"
        raise ReceiptError(
            f"{path}: {problem}. The owner of the key prints it: cellblock receipt key"
        )
    return key


# --- the envelope (DSSE 1.0, https://github.com/secure-systems-lab/dsse) --------------------------

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
#: Bytes of a receipt that is read.
MOST_BYTES: Final = 4 << 20
#: Signatures of a receipt that are tried.
_MOST_SIGNATURES: Final = 8
_GET_AGAIN: Final = "Get the receipt again from whoever made it."


class _Signature(msgspec.Struct, frozen=True):
    sig: str
    keyid: str = ""


class _Envelope(msgspec.Struct, frozen=True):
    payload: str
    payload_type: str = msgspec.field(name="payloadType")
    signatures: tuple[_Signature, ...]


def _signed_bytes(payload: bytes) -> bytes:
    """Return the bytes that DSSE signs: type and payload, each after its length."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def sign(
    provenance: Provenance | None,
    *,
    status: str,
    outputs: Iterable[Output],
    texts: Mapping[str, str | None],
    artifacts: Mapping[str, str],
    tool_calls: Iterable[ToolCall],
    source: str,
    **fields: Any,
) -> str:
    """Return the receipt of a cell's result: JSON on one line.

    ``texts`` are the cell's stdout, stderr and value, by the names of their subjects; empty texts
    have no subject. ``artifacts`` are the SHA-256 of files that were copied out, by name.
    ``fields`` are the remaining fields of ``Predicate``. Raises ReceiptError if the key can't be
    used, or if ``provenance`` is None because no sandbox made the result.
    """
    if provenance is None:
        raise ReceiptError("there is no receipt: no sandbox made this result. Execute the cell.")
    conditions = _conditions(provenance, status)
    subjects = [
        ("outputs", outputs_digest(outputs)),
        *(
            (name, hashlib.sha256(encodable(text).encode()).hexdigest())
            for name, text in texts.items()
            if text
        ),
        *_artifact_subjects(artifacts),
    ]
    predicate = Predicate(
        **conditions,
        **fields,
        source_sha256=sha256(source),
        tool_calls=tuple(map(_call_entry, tool_calls)),
        variables_from=provenance.variables_from and Origin(*provenance.variables_from),
    )
    return _signed(
        Statement(
            type=_STATEMENT_TYPE,
            subject=_as_subjects(subjects, conditions["changes"]),
            predicate_type=PREDICATE_TYPE,
            predicate=predicate,
        )
    )


def sign_run(
    provenance: Provenance,
    *,
    written: Iterable[bytes],
    artifacts: Mapping[str, str],
    status: str,
    **fields: Any,
) -> str:
    """Return the receipt of a notebook that was executed: JSON on one line.

    ``provenance`` is that of its last cell, and ``written`` the content of the executed
    notebook, in pieces. ``artifacts`` are the SHA-256 of files that were copied out, by name.
    ``fields`` are the remaining fields of ``RunPredicate``. Raises ReceiptError if the key can't be
    used.
    """
    conditions = _conditions(provenance, status)
    hashed = hashlib.sha256()
    for piece in written:
        hashed.update(piece)
    subjects = [("notebook", hashed.hexdigest()), *_artifact_subjects(artifacts)]
    subject = _as_subjects(subjects, conditions["changes"])
    predicate = RunPredicate(**conditions, **fields)
    return _signed(
        RunStatement(
            type=_STATEMENT_TYPE, subject=subject, predicate_type=RUN_TYPE, predicate=predicate
        )
    )


def _signed(statement: Statement | RunStatement) -> str:
    """Return a statement in an envelope, signed with the user's key."""
    key = own_key()
    payload = msgspec.json.encode(statement, order="sorted")
    signature = base64.b64encode(key.sign(_signed_bytes(payload))).decode()
    signatures = (_Signature(signature, key_id(key.public_key())),)
    envelope = _Envelope(base64.b64encode(payload).decode(), PAYLOAD_TYPE, signatures)
    return msgspec.json.encode(envelope, order="sorted").decode()


def verify(receipt: str | bytes, key: Ed25519PublicKey) -> Statement | RunStatement:
    """Return the statement in a receipt that ``key`` has signed.

    Nothing of the statement is parsed before the signature is verified. The statement is still only
    that host's word, and its texts may hold anything: clean them before you show them.

    Raises ReceiptError, which says what is wrong with the receipt.
    """
    if len(receipt) > MOST_BYTES:
        raise ReceiptError(f"it is larger than {MOST_BYTES:,} bytes. {_GET_AGAIN}")
    try:
        envelope = msgspec.json.decode(receipt, type=_Envelope)
        payload = base64.b64decode(envelope.payload, validate=True)
        signatures = [
            (base64.b64decode(signature.sig, validate=True), signature.keyid)
            for signature in envelope.signatures[:_MOST_SIGNATURES]
        ]
    except (msgspec.MsgspecError, RecursionError, UnicodeError, binascii.Error) as error:
        raise ReceiptError(f"it is not a whole receipt: {error}. {_GET_AGAIN}") from None
    if envelope.payload_type != PAYLOAD_TYPE:
        raise ReceiptError(f"it is signed as another type than {PAYLOAD_TYPE}. {_GET_AGAIN}")
    if not any(_is_signed_by(key, signature, payload) for signature, _ in signatures):
        name = key_id(key)
        if all(signer != name for _, signer in signatures):
            remedy = "Get the host's public key from somebody you trust, and name it: --key FILE."
            raise ReceiptError(f"it is not signed by the key {name}. {remedy}")
        problem = "it was changed after it was signed: the signature does not match"
        raise ReceiptError(f"{problem}. {_GET_AGAIN}")
    try:
        kind = msgspec.json.decode(payload, type=_Kind).predicate_type
        if kind == RUN_TYPE:
            return msgspec.json.decode(payload, type=RunStatement)
        return msgspec.json.decode(payload, type=Statement)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        problem = "that key signed it, but it is not a statement of this type"
        raise ReceiptError(
            f"{problem}: {error}. Verify it with the version that made it."
        ) from None


def _is_signed_by(key: Ed25519PublicKey, signature: bytes, payload: bytes) -> bool:
    try:
        key.verify(signature, _signed_bytes(payload))
    except InvalidSignature:
        return False
    return True
