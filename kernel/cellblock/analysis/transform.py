"""IPython's input transformer and Python's parser, bounded, for the host and the guest.

Source that Python accepts is not transformed: magics, escapes and help queries are syntax errors
in Python, and so are indented cells and most prompts. Other source goes through
``IPython.core.inputtransformer2``. That is loaded when it is first needed; if IPython is not
imported yet, without running ``IPython/__init__.py``, which would cost the host 60 ms and 20 MB.

A cell is hostile to both: each is bounded by the time and memory that the source will take.
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


# --- bounds on source: parsing takes the host at most about 3 s and 0.8 GB ------------------------
#
# CPython's parser takes up to 2 kB and 5 us a word, except for two shapes, which take time or
# memory by the square of their length. Source is searched for those before it is parsed.

#: Characters of a cell, or of one expression.
CHARACTERS: Final = 4 << 20
#: Words and signs, including those in strings and comments.
WORDS: Final = 400_000
_WORD: Final = re.compile(r"\w+|[^\w\s]")

#: Source up to this length is not searched: no shape is expensive in it.
_SHORT: Final = 4096
#: For ``import a.b.c`` the parser joins the name again at each dot, and keeps each result. This
#: bounds the characters of all of them.
DOTTED_CHARACTERS: Final = 50_000_000
_DOTS: Final = 64
#: All characters but ASCII signs. Written as a negation, it compiles at once rather than in 7 ms.
_NAME: Final = r"[^\x00-/:-@\[-^`{-\x7f]"
_DOTTED: Final = re.compile(rf"(?<!{_NAME}){_NAME}++(?:[\s\\]*+\.[\s\\]*+{_NAME}++)++")
#: Python 3.11 searches an f-string from its start for each of its fields. This bounds the
#: characters that it reads for all of them.
FORMATTED_CHARACTERS: Final = 2_000_000_000
_FORMATTED: Final = re.compile(r"(?<!\w)(?:[ft]r?|r[ft])(\"\"\"|'''|\"|')", re.IGNORECASE)
_ENDS: Final = {quote: re.compile(rf"(?<!\\){quote}") for quote in ('"""', "'''")} | {
    quote: re.compile(rf"(?<!\\)[{quote}\n]") for quote in ('"', "'")
}


@lru_cache(maxsize=1)
def exceeded_limit(source: str) -> tuple[int, int, str] | None:
    """Return how much the source has, the limit, and of what; None if it is within the limits.

    The last result is cached, since a kernel calls this before the functions that parse do.
    """
    if len(source) > CHARACTERS:
        return len(source), CHARACTERS, "characters"
    if len(source) > WORDS and (word_count := sum(1 for _ in _WORD.finditer(source))) > WORDS:
        return word_count, WORDS, "words and signs"
    return None


def check_size(source: str) -> None:
    """Raise ValueError for source that is too long to parse, or has an expensive shape.

    All source that is parsed here passes this check. A caller that needs words for the user calls
    ``exceeded_limit`` first.
    """
    if len(source) <= _SHORT:
        return
    if excess := exceeded_limit(source):
        raise ValueError(f"too many {excess[2]}")
    if source.count(".") > _DOTS:
        # The characters that the parser would join, if all dotted names were imports.
        names = (match[0] for match in _DOTTED.finditer(source))
        joined = (name.count(".") * len(name) // 2 for name in names if name.count(".") > _DOTS)
        if sum(joined) > DOTTED_CHARACTERS:
            raise ValueError("a name of too many parts")
    if source.count("{") > _DOTS and _searched(source) > FORMATTED_CHARACTERS:
        raise ValueError("an f-string of too many fields")


def _searched(source: str) -> int:
    """Return the most characters that Python 3.11 reads for the fields of all f-strings.

    Anything that looks like the start of an f-string counts, also in strings and comments, so that
    no text can hide one.
    """
    total = 0
    for start in _FORMATTED.finditer(source):
        end = _ENDS[start[1]].search(source, start.end())
        length = (end.start() if end else len(source)) - start.end()
        total += length * source.count("{", start.end(), start.end() + length)
    return total


# --- the transformer ------------------------------------------------------------------------------

#: The most tokens for one cell, which is tokenised again after each line that is transformed. That
#: takes about a third of a second; a cell that needs more is not transformed. So many characters of
#: a token's line count as another token, since Python 3.12 copies the line for each.
_MAX_TOKENS = 100_000
_LINE = 16_000
#: Runs of blanks. If no token follows one, Python 3.11 starts again from each blank in it, which
#: takes time by the square of its length. So many of that square count as a token.
_BLANKS: Final = re.compile(r"[ \t\f]{100,}")
_SQUARE: Final = 30
#: The number of lines that are tokenised first.
_AHEAD = 8
#: The most characters and lines of source that is transformed.
_MAX_CHARACTERS = 1_000_000
_MAX_LINES = 100_000
#: IPython copies the start of a line for each triple quote in it. This bounds all those characters.
_MAX_COPIED = 2_000_000_000
#: The most characters of source whose completeness a front end may ask about.
_MAX_CHECKED = 50_000


@dataclass(frozen=True, slots=True)
class Transformed:
    """Source as Python parses it. ``line_offset`` is how many lines were dropped at its start."""

    source: str
    changed: bool
    line_offset: int


@lru_cache(maxsize=1)
def parse(source: str) -> ast.Module:
    """Parse ``source``. The last tree is cached, since transform and analyse parse the same text.

    Raises:
        SyntaxError: not Python.
        ValueError: null bytes, lone surrogates, too long, an expensive shape.
        RecursionError, MemoryError: nested too deeply.

    """
    check_size(source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes are reported where the cell runs
        return ast.parse(source)


def is_python(raw: str) -> bool:
    """Return whether a cell's source, transformed, is Python; True if that is too long to tell."""
    try:
        parse(transform(raw).source)
    except SyntaxError:
        return False
    except (ValueError, RecursionError, MemoryError):
        pass
    return True


def forget() -> None:
    """Free the cached tree and source. Called when they are not needed any more."""
    parse.cache_clear()
    exceeded_limit.cache_clear()


def parse_expression(source: str) -> ast.Expression:
    """Parse an expression. Raises as ``parse`` does."""
    check_size(source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source, mode="eval")


#: The start of a cell that was copied with its prompt, which IPython looks for in two lines.
_PROMPT: Final = re.compile(
    r"\s*+(?:[^\n]*+\n[ \t]*+)?(?:\[(?:ins|nav)\])?[ \t]*+(?:In \[\d+\]:|\.{3,}:)"
)


@lru_cache(maxsize=1)
def transform(raw: str) -> Transformed:
    """Return ``raw`` as IPython transforms it, unchanged if it can't be. Never raises."""
    if _PROMPT.match(raw):  # ``In [1]: x = 5`` is valid Python: an annotated assignment
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
    """Return the source that IPython runs for ``raw``, the code in a magic's argument or body.

    Unlike ``transform``, IPython transforms valid Python, too: it removes prompts, even in strings.

    Raises:
        ValueError: too long, or takes too many steps to transform.

    """
    if _is_too_long(raw):
        raise ValueError("more code than there is time for")
    source = _ask_ipython(lambda manager: str(manager.transform_cell(raw)))
    return raw if source is None else source  # IPython in the guest will fail, too, and run nothing


def check_complete(code: str) -> tuple[str, int | None]:
    """Return "complete", "incomplete", "invalid" or "unknown", and the next line's indent."""
    result = None
    if len(code) <= _MAX_CHECKED:
        with suppress(ValueError):
            check_size(code)
            result = _ask_ipython(lambda manager: manager.check_complete(code))
    return ("unknown", None) if result is None else (str(result[0]), result[1])


def _ask_ipython(ask: Callable[[Any], Any]) -> Any:
    """Return the result of ``ask``, called with IPython's transformers; None if they fail.

    Raises ValueError if they take too many steps.
    """
    try:
        module = _module()
        real = module.tokenutil
        module.tokenutil = _Meter(real.generate_tokens_catch_errors)  # bounded for one cell
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about line ends that Python does not know
                return ask(module.TransformerManager())
        finally:
            module.tokenutil = real
    except RuntimeError as error:
        raise ValueError("more magics than there is time for") from error
    except Exception:  # noqa: BLE001 - tokenisers fail in many ways; Python has a better message
        return None


def _transform_ahead(manager: Any, lines: list[str]) -> list[str]:
    """Transform lines as IPython's ``do_token_transforms`` does, in less time.

    IPython tokenises the whole cell again after each change. This reads from the last change to
    the next only.

    Raises:
        RuntimeError: the lines still change after as many steps as IPython allows.

    """
    done: list[str] = []
    for _ in range(_module().TRANSFORM_LOOP_LIMIT):
        changed = _transform_first(manager, lines)
        if changed is None:
            return done + lines
        pairs = enumerate(zip(lines, changed, strict=False))
        same = next((n for n, (before, after) in pairs if before != after), 0)
        # Lines can only be tokenised without those before them from one that is not indented.
        cut = same if changed[same : same + 1] and not changed[same][0].isspace() else 0
        done, lines = done + changed[:cut], changed[cut:]
    raise RuntimeError("still changing")


def _transform_first(manager: Any, lines: list[str]) -> list[str] | None:
    """Return the lines with the first transformation that one needs; None if none does."""
    module = _module()
    ahead = _AHEAD
    while True:  # with more and more lines
        ahead = min(ahead, len(lines))
        tokens = module.make_tokens_by_line(lines[:ahead])
        if ahead < len(lines):
            tokens.pop()  # the last line may continue beyond these
        candidates = [kind.find(tokens) for kind in manager.token_transformers]
        for transformer in sorted(filter(None, candidates), key=module.TokenTransformBase.sortby):
            try:
                return list(transformer.transform(lines))
            except SyntaxError:
                continue
        if ahead == len(lines):
            return None
        ahead *= 4


class _Meter:
    """A stand-in for ``IPython.utils.tokenutil`` that passes on so many tokens, then raises."""

    def __init__(self, generate: Callable[..., Iterator[TokenInfo]]) -> None:
        self._generate = generate
        self._left = _MAX_TOKENS

    def generate_tokens_catch_errors(
        self, readline: Callable[[], str], *args: Any, **options: Any
    ) -> Iterator[TokenInfo]:
        """Yield tokens as IPython's function does. Raises RuntimeError beyond the bound."""

        def read() -> str:
            line = readline()
            self._spend(sum(len(blanks) ** 2 for blanks in _BLANKS.findall(line)) // _SQUARE)
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
    """Import the transformer with empty stand-ins for its parent packages, which don't run."""
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
