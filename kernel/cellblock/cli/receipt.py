"""``cellblock receipt``: verifies receipts, and shows the public key of the user's own.

A receipt has text that its signer chose: it is printed without control characters.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from cellblock.api import receipts
from cellblock.api.receipts import RunPredicate
from cellblock.cli.common import AsJson, complain, print_json, say
from cellblock.errors import ReceiptError
from cellblock.render.cards import count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cellblock.api.receipts import Call, Conditions, RunStatement, Statement

app: Final = typer.Typer(
    help="Verify receipts of cells' results, and show the key that yours are signed with.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command()
def verify(
    receipt: Annotated[Path, typer.Argument(metavar="FILE", help="The receipt; - for stdin.")],
    *,
    key: Annotated[
        Path | None,
        typer.Option("--key", metavar="KEY", help="The host's public key. Default: your own."),
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Option("--file", metavar="[NAME=]PATH", help="A file it must be for; repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Verify a receipt's signature, and print what the receipt says.

    Exit status 1 when the signature is not the key's, or the receipt is not for a --file: then rely
    on nothing in it. A notebook's receipt is for the notebook; name a file that its cells wrote:
    kept/a.csv=PATH.
    """
    public = receipts.own_key(make=False).public_key() if key is None else None
    public = public or receipts.read_public_key(key or Path())
    try:
        with sys.stdin.buffer if receipt == Path("-") else receipt.open("rb") as stream:
            content = stream.read(receipts.MOST_BYTES + 1)
    except OSError as error:
        raise ReceiptError(f"{error.filename}: can't be read: {error.strerror}.") from None
    try:
        statement = receipts.verify(content, public)
    except ReceiptError as error:
        complain(f"{receipt}: {error}")
        raise typer.Exit(code=1) from None
    subject_names = {file: _subject_name_of(file, statement) for file in files or ()}
    for file in (unmatched_files := [file for file, name in subject_names.items() if not name]):
        complain(f"{file}: the receipt is not for this file. Don't rely on it.")
    if unmatched_files:
        raise typer.Exit(code=1)
    if as_json:
        print_json(msgspec.to_builtins(statement))
        return
    say(
        f"signed by {receipts.key_id(public)}{'' if key else ', your own key'}",
        *_lines(statement),
        *(f"{file}: {name}" for file, name in subject_names.items()),
    )


@app.command()
def key() -> None:
    """Print your public key, which others verify your receipts with. Made when there is none."""
    say(*receipts.public_pem(receipts.own_key().public_key()).decode().splitlines())


def _subject_name_of(file: str, statement: Statement | RunStatement) -> str:
    """Return the name under which a receipt has the digest of ``file``, or "" if it has none.

    ``file`` is a path, or ``NAME=PATH``. Cells choose the names and the bytes of files that they
    write. So for a notebook's receipt, a path without a name is compared with the notebook only:
    no file that a cell wrote may pass for the notebook.
    """
    subject_name, _, path = file.partition("=")
    if all(subject.name != subject_name for subject in statement.subject):
        subject_name, path = "", file
    try:
        with Path(path).open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise ReceiptError(f"{path}: can't be read: {error.strerror}.") from None
    names = [
        subject.name for subject in statement.subject if subject.digest.get("sha256") == digest
    ]
    if not subject_name and isinstance(statement.predicate, RunPredicate):
        subject_name = "notebook"
    return next((name for name in names if subject_name in ("", name)), "")


def _lines(statement: Statement | RunStatement) -> Iterator[str]:
    """Yield the parts of a statement that a person wants to know first; --json has everything."""
    predicate = statement.predicate
    session = predicate.session or "without an audit log"
    calls: tuple[Call, ...] = ()
    if isinstance(predicate, RunPredicate):
        yield f"notebook {predicate.notebook}, session {session}: {predicate.status}"
        failed = f"; {predicate.errors} failed, and were allowed to" if predicate.errors else ""
        yield f"{count(predicate.cells, 'cell')} ran{failed}"
        source, left_out = predicate.notebook_sha256, 0
    else:
        yield f"cell {predicate.execution_count} of session {session}: {predicate.status}"
        if (origin := predicate.variables_from) is not None:
            parent_session = origin.session or "without an audit log"
            yield f"variables from session {parent_session} after cell {origin.execution_count}"
        source, left_out = predicate.source_sha256, predicate.tool_calls_left_out
        calls = predicate.tool_calls
    yield (
        f"ended {predicate.ended}, cellblock {predicate.cellblock}, Python {predicate.python}, "
        f"{predicate.os_kernel}"
    )
    yield f"source {source}"
    yield f"policy {predicate.policy} {predicate.policy_sha256}"
    yield _enforced(predicate)
    for subject in statement.subject:
        yield f"{subject.name} {subject.digest.get('sha256', '')}"
    for call in calls:
        yield f"called {call.name}: {call.status}"
    if left_out:
        yield f"and {count(left_out, 'more call')}"
    for change in predicate.changes:
        yield f"kept {change.name}: {change.change}"


def _enforced(conditions: Conditions) -> str:
    counts = Counter(conditions.capabilities.values())
    text = ", ".join(f"{number} {status}" for status, number in sorted(counts.items()))
    probe_time = f", by probes at {conditions.proved}" if conditions.proved else ""
    gaps = (
        f"; not enforced as asked: {', '.join(conditions.gaps)}" if conditions.gaps else "; no gaps"
    )
    return f"backend {conditions.backend}: {text}{probe_time}{gaps}"
