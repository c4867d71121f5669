"""Receipts: what a host vouches for of a cell's result, signed, for whoever gets that result.

A receipt is an in-toto Statement v1 (https://in-toto.io/Statement/v1) in a DSSE envelope, signed
with an ed25519 key (RFC 8032) of the user's whose host ran the cell. It has hashes, and no values.
``sign`` makes one of a cell's result, ``sign_run`` of a notebook, ``verify`` reads one. It says
what the holder of that key says, and no more: docs/receipts.md.
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
    """Bytes that came of a cell: ``digest`` has their SHA-256, in hex."""

    name: str
    digest: dict[str, str]


class Call(msgspec.Struct, frozen=True):
    """A call of a tool; ``arguments`` and ``result`` are digests, the latter empty without one."""

    name: str
    status: str
    arguments: str
    result: str = ""


class Change(msgspec.Struct, frozen=True):
    """A staged file that was kept in the project; ``sha256`` is empty for one that was deleted."""

    name: str
    change: str
    sha256: str = ""


class Origin(msgspec.Struct, frozen=True, rename="camel"):
    """The session that variables came from by a fork, as it was after the cell of that number."""

    session: str
    execution_count: int


class Conditions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was in force, and how it ended; docs/receipts.md has the meaning of each field."""

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
    #: Absent from receipts of versions before this field.
    variables_from: Origin | None = None


class RunPredicate(Conditions, frozen=True, kw_only=True, rename="camel"):
    """How a notebook was executed."""

    notebook: str
    notebook_sha256: str
    parameters_sha256: str
    cells: int
    errors: int


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """What is signed."""

    type: Literal["https://in-toto.io/Statement/v1"] = msgspec.field(name="_type")
    subject: tuple[Subject, ...]
    predicate_type: Literal["https://cellblock.github.io/cellblock/receipt/v1"] = msgspec.field(
        name="predicateType"
    )
    predicate: Predicate


class RunStatement(msgspec.Struct, frozen=True, kw_only=True):
    """What is signed of a notebook."""

    type: Literal["https://in-toto.io/Statement/v1"] = msgspec.field(name="_type")
    subject: tuple[Subject, ...]
    predicate_type: Literal["https://cellblock.github.io/cellblock/run-receipt/v1"] = msgspec.field(
        name="predicateType"
    )
    predicate: RunPredicate


class _Kind(msgspec.Struct, frozen=True):
    predicate_type: str = msgspec.field(name="predicateType")


def digest(value: Any) -> str:
    """Return the SHA-256, in hex, of JSON data in one form: sorted keys, ASCII, no spaces."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=repr)
    return hashlib.sha256(text.encode()).hexdigest()


def outputs_digest(outputs: Iterable[Output]) -> str:
    """Return the digest of a result's ``outputs``: what subject ``outputs`` has."""
    return digest(
        [
            [
                one.kind,
                one.content,
                one.metadata,
                [hashlib.sha256(part).hexdigest() for part in one.buffers],
            ]
            for one in outputs
        ]
    )


def _conditions(made: Provenance, status: str) -> dict[str, Any]:
    """Return the fields of ``Conditions``."""
    system = os.uname()
    return {
        "cellblock": __version__,
        "python": platform.python_version(),
        "os_kernel": f"{system.sysname} {system.release}",
        "policy": made.policy.name,
        "policy_sha256": paths.without_scratch(made.policy, Path(made.scratch)).digest(),
        "backend": made.backend,
        "capabilities": {name: str(each.status) for name, each in made.enforcement.items()},
        "gaps": tuple(gap.capability for gap in made.gaps),
        "proved": made.proved,
        "session": made.session,
        "status": status,
        "ended": datetime.fromtimestamp(made.ended, UTC).isoformat(timespec="milliseconds"),
        "changes": _changes(made.staged.kept if made.staged is not None else ()),
    }


def _changes(kept: Sequence[Kept]) -> tuple[Change, ...]:
    """Return what was kept, the last state of each file.

    A name is the path beneath the folder that is staged, or the whole path where files of several
    folders have the same.
    """
    last = {one.change.name: one for one in kept}
    number = Counter(one.change.path for one in last.values())
    return tuple(
        Change(
            encodable(one.change.path if number[one.change.path] == 1 else one.change.name),
            one.change.kind,
            one.sha256,
        )
        for one in last.values()
    )


def _as_subjects(
    digests: Iterable[tuple[str, str]], changes: Iterable[Change]
) -> tuple[Subject, ...]:
    kept = ((f"kept/{change.name}", change.sha256) for change in changes if change.sha256)
    return tuple(Subject(name, {"sha256": value}) for name, value in (*digests, *kept))


def _artifact_subjects(artifacts: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(f"artifacts/{encodable(name)}", value) for name, value in artifacts.items()]


def _call(call: ToolCall) -> Call:
    returned = digest(call.result) if call.status == "ok" else ""
    return Call(call.name, call.status, digest([call.args, call.kwargs]), returned)


# --- the key: a seed of 32 bytes in hexadecimal ---------------------------------------------------
#
# It lies in the folder of what the user decided, which no guest can read (``session.config``).

_SEED_BYTES: Final = 32
_MOST_KEY_FILE: Final = 4096
_REMOVE: Final = "Remove it: another is made, and signs what comes."


def key_file() -> Path:
    """Return where the key lies: ``$XDG_DATA_HOME/cellblock/receipt.key``."""
    return Path(data_folder(), "receipt.key")


def own_key(*, make: bool = True) -> Ed25519PrivateKey:
    """Return this user's key, which is made when it is first needed. Raises ReceiptError."""
    path = key_file()
    try:
        if make and not os.path.lexists(path):
            # Of two programs that make it at once, both sign with the one that was there first.
            seed = os.urandom(_SEED_BYTES).hex().encode() + b"\n"
            PrivateFile(path, _MOST_KEY_FILE).write(seed, replace=False)
        content, status = read_file(path, _MOST_KEY_FILE, what="the key", remedy=_REMOVE)
        check_own(path, status, secret=True)
        check_own(path.parent, path.parent.stat())
        seed = bytes.fromhex(content.decode("ascii"))
        return Ed25519PrivateKey.from_private_bytes(seed)
    except FileNotFoundError:
        why = "there is no key of yours here. Name that of the host that signed: --key FILE."
    except AdmissionError as error:
        raise ReceiptError(str(error)) from None
    except OSError as error:
        why = f"the key can't be made: {error.strerror or error}. Make the folder yours alone."
    except ValueError:
        why = f"it holds no key: {_SEED_BYTES} bytes in hexadecimal. {_REMOVE}"
    raise ReceiptError(f"{path}: {why}")


def public_pem(key: Ed25519PublicKey) -> bytes:
    """Return a public key as openssl writes it."""
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def key_id(key: Ed25519PublicKey) -> str:
    """Return what names a key: the SHA-256 of its SubjectPublicKeyInfo, in hex."""
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
        raise ReceiptError(f"{path}: there is no such file. Name that of a key.") from None
    except ValueError:
        key = None
    if not isinstance(key, Ed25519PublicKey):
        what = "it holds no public key of ed25519 in PEM"
        raise ReceiptError(f"{path}: {what}. Its owner gets it by: cellblock receipt key")
    return key


# --- the envelope (DSSE 1.0, https://github.com/secure-systems-lab/dsse) --------------------------

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
#: Bytes of a receipt that is read, and signatures that are tried.
MOST_BYTES: Final = 4 << 20
_MOST_SIGNATURES: Final = 8
_AGAIN: Final = "Get it again from who made it."


class _Signature(msgspec.Struct, frozen=True):
    sig: str
    keyid: str = ""


class _Envelope(msgspec.Struct, frozen=True):
    payload: str
    payload_type: str = msgspec.field(name="payloadType")
    signatures: tuple[_Signature, ...]


def _signed_bytes(payload: bytes) -> bytes:
    """Return DSSE's pre-authentication encoding: type and payload, each behind its length."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def sign(
    made: Provenance | None,
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

    ``texts`` are what the cell wrote and its value, by name. ``artifacts`` are files copied out,
    with their SHA-256. ``fields`` are those of ``Predicate`` itself. Raises ReceiptError, without a
    Provenance for a result that no sandbox made.
    """
    if made is None:
        raise ReceiptError("there is no receipt: no sandbox made this result. Execute the cell.")
    conditions = _conditions(made, status)
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
        tool_calls=tuple(map(_call, tool_calls)),
        variables_from=made.variables_from and Origin(*made.variables_from),
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
    made: Provenance,
    *,
    written: Iterable[bytes],
    artifacts: Mapping[str, str],
    status: str,
    **fields: Any,
) -> str:
    """Return the receipt of a notebook that was executed, as ``sign``; ``made`` is its last cell's.

    ``written`` is the file that came of it, ``artifacts`` are files copied out, with their SHA-256;
    ``fields`` are those of ``RunPredicate`` itself. Raises ReceiptError.
    """
    conditions, hashed = _conditions(made, status), hashlib.sha256()
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


def _signed(said: Statement | RunStatement) -> str:
    key = own_key()
    payload = msgspec.json.encode(said, order="sorted")
    signature = base64.b64encode(key.sign(_signed_bytes(payload))).decode()
    signatures = (_Signature(signature, key_id(key.public_key())),)
    made = _Envelope(base64.b64encode(payload).decode(), PAYLOAD_TYPE, signatures)
    return msgspec.json.encode(made, order="sorted").decode()


def verify(receipt: str | bytes, key: Ed25519PublicKey) -> Statement | RunStatement:
    """Return what ``key`` has signed. Raises ReceiptError, which says what is wrong.

    Nothing in it is looked at before the signature is found to be the key's. It is still only that
    host's word, and its texts may hold anything: what is shown of them has to be cleaned.
    """
    if len(receipt) > MOST_BYTES:
        raise ReceiptError(f"it is larger than {MOST_BYTES:,} bytes. {_AGAIN}")
    try:
        envelope = msgspec.json.decode(receipt, type=_Envelope)
        payload = base64.b64decode(envelope.payload, validate=True)
        found = [
            (base64.b64decode(one.sig, validate=True), one.keyid)
            for one in envelope.signatures[:_MOST_SIGNATURES]
        ]
    except (msgspec.MsgspecError, RecursionError, UnicodeError, binascii.Error) as error:
        raise ReceiptError(f"it is no receipt, or not whole: {error}. {_AGAIN}") from None
    if envelope.payload_type != PAYLOAD_TYPE:
        raise ReceiptError(f"it is signed as something else than {PAYLOAD_TYPE}. {_AGAIN}")
    if not any(_holds(key, signature, payload) for signature, _ in found):
        ours = key_id(key)
        if all(name != ours for _, name in found):
            remedy = "Get the key of the host that ran it from whom you trust to know it: --key."
            raise ReceiptError(f"it is not signed by the key {ours}. {remedy}")
        raise ReceiptError(f"it is not what was signed: the signature does not hold. {_AGAIN}")
    try:
        kind = msgspec.json.decode(payload, type=_Kind).predicate_type
        if kind == RUN_TYPE:
            return msgspec.json.decode(payload, type=RunStatement)
        return msgspec.json.decode(payload, type=Statement)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        what = "that key signed it, and it is no statement of this type"
        raise ReceiptError(f"{what}: {error}. Verify it with the version that made it.") from None


def _holds(key: Ed25519PublicKey, signature: bytes, payload: bytes) -> bool:
    try:
        key.verify(signature, _signed_bytes(payload))
    except InvalidSignature:
        return False
    return True
