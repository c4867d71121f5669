"""Trusted modules search what cells and models write, with the GIL held, in linear time."""

import ast
import collections
import importlib
import inspect
import pkgutil
import re
import time

import cellblock

_PACKAGES = ("host", "api", "mcp", "render", "analysis", "integrations", "batch")
_METHODS = {
    "search": lambda pattern, text: pattern.search(text),
    "match": lambda pattern, text: pattern.match(text),
    "fullmatch": lambda pattern, text: pattern.fullmatch(text),
    "finditer": lambda pattern, text: collections.deque(pattern.finditer(text), 0),
    "findall": lambda pattern, text: pattern.findall(text),
    "split": lambda pattern, text: pattern.split(text),
    "sub": lambda pattern, text: pattern.sub(text[:0], text),
    "subn": lambda pattern, text: pattern.subn(text[:0], text),
}
#: What a text repeats: characters, and beginnings of words.
_REPEATED = (*"\n \t`%'\"\\a0_.-<([", "a ", "a.", "\n ", "a\n")
_LENGTHS = (1_000, 10_000, 100_000)
#: Processor seconds for each character: a hundred times what linear patterns take. Who takes the
#: square of the length is over it at 10,000 or 100,000 characters.
_MOST = 1e-5


def _modules():
    for name in _PACKAGES:
        package = importlib.import_module(f"cellblock.{name}")
        yield package
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            try:
                yield importlib.import_module(found.name)
            except ImportError as error:  # an integration whose framework is not installed
                if (error.name or "").partition(".")[0] == cellblock.__name__:
                    raise


def _patterns(value):
    if isinstance(value, re.Pattern):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, tuple | list | set | frozenset):
        return []
    return [each for each in value if isinstance(each, re.Pattern)]


def _used():
    """Return each compiled pattern of a module's globals with how the module uses it."""
    found = {}
    for module in _modules():
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if not isinstance(node, ast.Attribute) or node.attr not in _METHODS:
                continue
            base = node.value.value if isinstance(node.value, ast.Subscript) else node.value
            if isinstance(base, ast.Name):
                name = base.id
                for pattern in _patterns(getattr(module, name, None)):
                    label = f"{module.__name__.removeprefix('cellblock.')}.{name}.{node.attr}"
                    found.setdefault((pattern, node.attr), label)
    return found


def _seconds(pattern, method, text):
    began = time.process_time()
    _METHODS[method](pattern, text)
    return time.process_time() - began


def _is_slow(pattern, method):
    """Return the first text, by its repeated part and its length, that takes too long; or None."""
    for repeated in _REPEATED:
        for length in _LENGTHS:
            text = repeated * (length // len(repeated))
            text = text.encode() if isinstance(pattern.pattern, bytes) else text
            # The least of three: now and then something else of this process takes its time.
            spent = (_seconds(pattern, method, text) for _ in range(3))
            if all(each > _MOST * length for each in spent):
                return repeated, length
    return None


def test_no_pattern_takes_the_square_of_a_texts_length():
    used = _used()
    labels = set(used.values())
    assert {"host.cell.refusals._READS_DOTENV.search", "analysis.transform._PROMPT.match"} <= labels
    slow = {label: _is_slow(*key) for key, label in used.items()}
    assert {label: found for label, found in slow.items() if found} == {}
