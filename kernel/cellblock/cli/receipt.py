"""``cellblock receipt``: verify receipts of others' results, and show the key that signs one's own.

What a receipt says is its signer's words: nothing of it is printed with control characters.
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
        typer.Option("--file", metavar="[NAME=]PATH", help="Must be what it is for; repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what a receipt says, once its signature is found to be the key's.

    Exit status 1 when it is not, or a --file is not what it is for: nothing holds then.
    A notebook's is for that notebook; a file that its cells wrote is named: kept/a.csv=PATH.
    """
    public = receipts.own_key(make=False).public_key() if key is None else None
    public = public or receipts.read_public_key(key or Path())
    try:
        with sys.stdin.buffer if receipt == Path("-") else receipt.open("rb") as stream:
            content = stream.read(receipts.MOST_BYTES + 1)
    except OSError as error:
        raise ReceiptError(f"{error.filename}: can't be read: {error.strerror}.") from None
    try:
        said = receipts.verify(content, public)
    except ReceiptError as error:
        complain(f"{receipt}: {error}")
        raise typer.Exit(code=1) from None
    known = {file: _known(file, said) for file in files or ()}
    for file in (others := [file for file, name in known.items() if not name]):
        complain(f"{file}: it is nothing that this receipt is for. Don't rely on it.")
    if others:
        raise typer.Exit(code=1)
    if as_json:
        print_json(msgspec.to_builtins(said))
        return
    say(
        f"signed by {receipts.key_id(public)}{'' if key else ', your own key'}",
        *_lines(said),
        *(f"{file}: {name}" for file, name in known.items()),
    )


@app.command()
def key() -> None:
    """Print your public key, which others verify your receipts with. Made when there is none."""
    say(*receipts.public_pem(receipts.own_key().public_key()).decode().splitlines())


def _known(file: str, said: Statement | RunStatement) -> str:
    """Return what a file is of what the receipt is for; empty for nothing, or something else.

    Cells choose the names and the bytes of what they write, so none of that passes for a notebook.
    """
    named, _, path = file.partition("=")
    if all(one.name != named for one in said.subject):
        named, path = "", file
    try:
        with Path(path).open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise ReceiptError(f"{path}: can't be read: {error.strerror}.") from None
    found = [one.name for one in said.subject if one.digest.get("sha256") == digest]
    if not named and isinstance(said.predicate, RunPredicate):
        named = "notebook"
    return next((name for name in found if named in ("", name)), "")


def _lines(said: Statement | RunStatement) -> Iterator[str]:
    """Yield what a person wants to know first; --json has everything."""
    made = said.predicate
    session = made.session or "without an audit log"
    calls: tuple[Call, ...] = ()
    if isinstance(made, RunPredicate):
        yield f"notebook {made.notebook}, session {session}: {made.status}"
        failed = f"; {made.errors} failed, and were allowed to" if made.errors else ""
        yield f"{count(made.cells, 'cell')} ran{failed}"
        source, left_out = made.notebook_sha256, 0
    else:
        yield f"cell {made.execution_count} of session {session}: {made.status}"
        if (origin := made.variables_from) is not None:
            named = origin.session or "without an audit log"
            yield f"variables from session {named} after cell {origin.execution_count}"
        source, left_out = made.source_sha256, made.tool_calls_left_out
        calls = made.tool_calls
    yield f"ended {made.ended}, cellblock {made.cellblock}, Python {made.python}, {made.os_kernel}"
    yield f"source {source}"
    yield f"policy {made.policy} {made.policy_sha256}"
    yield _enforced(made)
    for one in said.subject:
        yield f"{one.name} {one.digest.get('sha256', '')}"
    for call in calls:
        yield f"called {call.name}: {call.status}"
    if left_out:
        yield f"and {count(left_out, 'more call')}"
    for change in made.changes:
        yield f"kept {change.name}: {change.change}"


def _enforced(made: Conditions) -> str:
    counts = Counter(made.capabilities.values())
    text = ", ".join(f"{number} {status}" for status, number in sorted(counts.items()))
    when = f", by probes at {made.proved}" if made.proved else ""
    gaps = f"; not enforced as asked: {', '.join(made.gaps)}" if made.gaps else "; no gaps"
    return f"backend {made.backend}: {text}{when}{gaps}"
