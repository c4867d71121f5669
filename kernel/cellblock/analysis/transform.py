"""IPython's input transformer, for the host as for the guest.

Source that Python accepts as it is is left alone: magics, escapes and help queries are syntax
errors in Python, and so are prompts and indented cells. Everything else goes through
``IPython.core.inputtransformer2``, loaded on first need and, where IPython is not imported yet,
without running ``IPython/__init__.py``: that would cost the host 60 ms and 20 MB.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from tokenize import TokenInfo


# --- how much source is looked at: at most some 3 s and 0.8 GB of the host's ----------------------
#
# CPython's parser takes up to 2 kB and 5 us a word, but for two shapes, which cost it the square
# of their length. Those are looked for before it parses.

#: Characters of a cell, or of one expression.
CHARACTERS: Final = 4 << 20
#: Words and signs, those in text and comments too.
WORDS: Final = 400_000
_WORD: Final = re.compile(r"\w+|[^\w\s]")

#: Source that is too short for any shape to matter.
_SHORT: Final = 4096
#: ``import a.b.c`` joins the name anew at each dot and keeps what it joined: characters in all.
DOTTED_CHARACTERS: Final = 50_000_000
_DOTS: Final = 64
#: All but the signs of ASCII: said this way round, it compiles at once and not in 7 ms.
_NAME: Final = r"[^\x00-/:-@\[-^`{-\x7f]"
_DOTTED: Final = re.compile(rf"(?<!{_NAME}){_NAME}++(?:[\s\\]*+\.[\s\\]*+{_NAME}++)++")
#: Python 3.11 looks for each field of an f-string from its start: characters looked at in all.
FORMATTED_CHARACTERS: Final = 2_000_000_000
_FORMATTED: Final = re.compile(r"(?<!\w)(?:[ft]r?|r[ft])(\"\"\"|'''|\"|')", re.IGNORECASE)
_ENDS: Final = {quote: re.compile(rf"(?<!\\){quote}") for quote in ('"""', "'''")} | {
    quote: re.compile(rf"(?<!\\)[{quote}\n]") for quote in ('"', "'")
}


@lru_cache(maxsize=1)
def exceeded_limit(source: str) -> tuple[int, int, str] | None:
    """Return what there is too much of, how much is looked at, and of what; None if it fits.

    The last answer is kept: a kernel asks, and then whatever parses.
    """
    if len(source) > CHARACTERS:
        return len(source), CHARACTERS, "characters"
    if len(source) > WORDS and (words := sum(1 for _ in _WORD.finditer(source))) > WORDS:
        return words, WORDS, "words and signs"
    return None


def check_size(source: str) -> None:
    """Raise ValueError for source that is too long to be parsed, or costs the square of its length.

    Whatever is parsed here passes this: who asks ``exceeded_limit`` before has words for users.
    """
    if len(source) <= _SHORT:
        return
    if excess := exceeded_limit(source):
        raise ValueError(f"too many {excess[2]}")
    if source.count(".") > _DOTS:
        # What the parser would join for dotted names, if all of them were imports.
        names = (found[0] for found in _DOTTED.finditer(source))
        joined = (name.count(".") * len(name) // 2 for name in names if name.count(".") > _DOTS)
        if sum(joined) > DOTTED_CHARACTERS:
            raise ValueError("a name of too many parts")
    if source.count("{") > _DOTS and _searched(source) > FORMATTED_CHARACTERS:
        raise ValueError("an f-string of too many fields")


def _searched(source: str) -> int:
    """Return how many characters Python 3.11 looks at for the fields of all f-strings, at most.

    What looks like the beginning of one counts, in text and comments too: no text can hide one.
    """
    total = 0
    for start in _FORMATTED.finditer(source):
        end = _ENDS[start[1]].search(source, start.end())
        length = (end.start() if end else len(source)) - start.end()
        total += length * source.count("{", start.end(), start.end() + length)
    return total


# --- the transformer ------------------------------------------------------------------------------

#: A cell is read anew after each line that is transformed: how many tokens in all, and how
#: many characters of a token's line count as one more, which Python 3.12 copies each time. About a
#: third of a second; a cell that needs more is left as it is.
_MAX_TOKENS = 100_000
_LINE = 16_000
#: Blanks in a row: Python 3.11 reads on from each where what follows is no token, so that they take
#: time as their square; how many of that count as a token.
_BLANKS: Final = re.compile(r"[ \t\f]{100,}")
_SQUARE: Final = 30
#: Lines that are looked at first.
_AHEAD = 8
#: Characters of source that is looked at although Python does not accept it.
_MAX_CHARACTERS = 1_000_000
_MAX_LINES = 100_000
#: IPython copies the start of a line for each triple quote in it: how many characters in all.
_MAX_COPIED = 2_000_000_000
#: Characters of source whose completeness a front end may ask about.
_MAX_CHECKED = 50_000


@dataclass(frozen=True, slots=True)
class Transformed:
    """Source as Python sees it. ``line_offset``: raw lines that were dropped at its start."""

    source: str
    changed: bool
    line_offset: int


@lru_cache(maxsize=1)
def parse(source: str) -> ast.Module:
    """Parse ``source``; the last tree is kept, since transform and analyse ask in turn.

    Raises:
        SyntaxError: not Python.
        ValueError: null bytes, lone surrogates, too long, a shape that costs too much.
        RecursionError, MemoryError: nested too deeply.

    """
    check_size(source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes are reported where the cell runs
        return ast.parse(source)


def is_python(raw: str) -> bool:
    """Return whether a cell's source, transformed, is Python; True where that takes too much."""
    try:
        parse(transform(raw).source)
    except SyntaxError:
        return False
    except (ValueError, RecursionError, MemoryError):
        pass
    return True


def forget() -> None:
    """Let go of the last tree and its source, where nobody asks for them again."""
    parse.cache_clear()
    exceeded_limit.cache_clear()


def parse_expression(source: str) -> ast.Expression:
    """Parse one expression; raises as ``parse`` does."""
    check_size(source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source, mode="eval")


#: How a cell begins that was copied with its prompt: IPython looks at the first two lines.
_PROMPT: Final = re.compile(
    r"\s*+(?:[^\n]*+\n[ \t]*+)?(?:\[(?:ins|nav)\])?[ \t]*+(?:In \[\d+\]:|\.{3,}:)"
)


@lru_cache(maxsize=1)
def transform(raw: str) -> Transformed:
    """Return what IPython makes of ``raw``. Never raises: what can't be transformed comes back."""
    if _PROMPT.match(raw):  # ``In [1]: x = 5`` is Python, too: an annotation
        return _transform(raw)
    try:
        parse(raw)
    except SyntaxError:
        return _transform(raw)
    except (ValueError, RecursionError, MemoryError):
        pass
    return Transformed(raw, changed=False, line_offset=0)


def _transform(raw: str) -> Transformed:
    def ask(manager: Any) -> str:
        manager.do_token_transforms = partial(_transform_ahead, manager)
        return str(manager.transform_cell(raw))

    source = None
    if not _is_too_long(raw):
        with suppress(ValueError):
            source = _ask_ipython(ask)
    if source is None:
        return Transformed(raw, changed=False, line_offset=0)
    return Transformed(source, changed=source != raw, line_offset=leading_blank_lines(raw))


def _is_too_long(raw: str) -> bool:
    if len(raw) > _MAX_CHARACTERS or raw.count("\n") > _MAX_LINES:
        return True
    quotes = raw.count('"""') + raw.count("'''")
    return quotes * max(map(len, raw.splitlines()), default=0) > _MAX_COPIED


def leading_blank_lines(raw: str) -> int:
    """Return how many lines IPython drops at the start of ``raw``."""
    lines = raw.splitlines()
    return next((n for n, line in enumerate(lines) if line and not line.isspace()), 0)


def transform_as_ipython(raw: str) -> str:
    """Return what IPython runs for ``raw``, as it transforms the code that a magic carries.

    It transforms Python too: prompts go, inside of strings as well.

    Raises:
        ValueError: too long, or still changing after as many steps as there is time for.

    """
    if _is_too_long(raw):
        raise ValueError("more code than there is time for")
    source = _ask_ipython(lambda manager: str(manager.transform_cell(raw)))
    return raw if source is None else source  # IPython fails in the same way, and runs nothing


def check_complete(code: str) -> tuple[str, int | None]:
    """Return complete, incomplete, invalid or unknown, and the indent of the next line."""
    found = None
    if len(code) <= _MAX_CHECKED:
        with suppress(ValueError):
            check_size(code)
            found = _ask_ipython(lambda manager: manager.check_complete(code))
    return ("unknown", None) if found is None else (str(found[0]), found[1])


def _ask_ipython(ask: Callable[[Any], Any]) -> Any:
    """Return what ``ask`` returns of IPython's transformers, None where they fail.

    Raises ValueError for more steps than there is time for.
    """
    try:
        module = _module()
        real = module.tokenutil
        module.tokenutil = _Meter(real.generate_tokens_catch_errors)  # bounded for one cell
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of lines that end as no line of Python's does
                return ask(module.TransformerManager())
        finally:
            module.tokenutil = real
    except RuntimeError as error:
        raise ValueError("more magics than there is time for") from error
    except Exception:  # noqa: BLE001 - tokenisers fail in many ways; Python then says it better
        return None


def _transform_ahead(manager: Any, lines: list[str]) -> list[str]:
    """Do as ``do_token_transforms``, reading from the last change to the next and no further.

    Raises:
        RuntimeError: still changing after as many steps as IPython allows.

    """
    done: list[str] = []
    for _ in range(_module().TRANSFORM_LOOP_LIMIT):
        changed = _transform_first(manager, lines)
        if changed is None:
            return done + lines
        pairs = enumerate(zip(lines, changed, strict=False))
        same = next((n for n, (one, other) in pairs if one != other), 0)
        # Only a line that is not indented can be read without those before it.
        cut = same if changed[same : same + 1] and not changed[same][0].isspace() else 0
        done, lines = done + changed[:cut], changed[cut:]
    raise RuntimeError("still changing")


def _transform_first(manager: Any, lines: list[str]) -> list[str] | None:
    """Transform the first line that needs it; None where none does."""
    module, ahead = _module(), _AHEAD
    while True:  # more and more lines
        ahead = min(ahead, len(lines))
        tokens = module.make_tokens_by_line(lines[:ahead])
        if ahead < len(lines):
            tokens.pop()  # may go on
        found = [kind.find(tokens) for kind in manager.token_transformers]
        for transformer in sorted(filter(None, found), key=module.TokenTransformBase.sortby):
            try:
                return list(transformer.transform(lines))
            except SyntaxError:
                continue
        if ahead == len(lines):
            return None
        ahead *= 4


class _Meter:
    """Stands in for ``IPython.utils.tokenutil`` and hands on so many tokens, then fails."""

    def __init__(self, generate: Callable[..., Iterator[TokenInfo]]) -> None:
        self._generate, self._left = generate, _MAX_TOKENS

    def generate_tokens_catch_errors(
        self, readline: Callable[[], str], *args: Any, **options: Any
    ) -> Iterator[TokenInfo]:
        """Yield as IPython's does. Raises RuntimeError, as IPython's loop does."""

        def read() -> str:
            line = readline()
            self._spend(sum(len(run) ** 2 for run in _BLANKS.findall(line)) // _SQUARE)
            return line

        for token in self._generate(read, *args, **options):
            self._spend(1 + len(token.line) // _LINE)
            yield token

    def _spend(self, tokens: int) -> None:
        self._left -= tokens
        if self._left < 0:
            raise RuntimeError("more tokens than there is time for")


@lru_cache(maxsize=1)
def _module() -> Any:
    if "IPython" in sys.modules:
        return importlib.import_module("IPython.core.inputtransformer2")
    return _load_alone()


def _load_alone() -> ModuleType:
    """Import the transformer under empty stand-ins for its parent packages."""
    spec = importlib.util.find_spec("IPython")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("IPython is not installed")
    root = Path(spec.submodule_search_locations[0])
    for name, folder in (
        ("IPython", root),
        ("IPython.core", root / "core"),
        ("IPython.utils", root / "utils"),
    ):
        package = ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package
    try:
        return importlib.import_module("IPython.core.inputtransformer2")
    finally:
        for name in [n for n in sys.modules if n == "IPython" or n.startswith("IPython.")]:
            del sys.modules[name]
