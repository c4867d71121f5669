"""Parses macOS sandbox profiles (SBPL), strictly where Apple's parser is not documented.

Forms become nested lists, strings ``Text``, other tokens plain words. As in the OS kernel, the last
matching rule decides.
"""

from __future__ import annotations

import re

TOKEN = re.compile(
    r'\s+|;[^\n]*|(?P<open>\()|(?P<close>\))|"(?P<text>(?:[^"\\]|\\.)*)"|(?P<word>[^\s()";\\]+)',
    re.DOTALL,
)


class Text(str):
    """A string in a profile, without its quotes and escapes."""

    __slots__ = ()


def parse(source):
    """Return the forms of ``source``. Raises ValueError for unbalanced parentheses or bad tokens."""
    stack, at = [[]], 0
    while at < len(source):
        found = TOKEN.match(source, at)
        if found is None:
            raise ValueError(f"no token at {at}: {source[at : at + 30]!r}")
        at = found.end()
        if found["open"]:
            stack.append([])
        elif found["close"]:
            if len(stack) == 1:
                raise ValueError(f"closed and never opened, at {at}")
            form = stack.pop()
            stack[-1].append(form)
        elif found["text"] is not None:
            stack[-1].append(Text(_unescaped(found["text"])))
        elif found["word"]:
            stack[-1].append(found["word"])
    if len(stack) != 1:
        raise ValueError(f"{len(stack) - 1} never closed")
    return stack[0]


def _unescaped(text):
    if set(re.findall(r"\\(.)", text, re.DOTALL)) - {"\\", '"'}:
        raise ValueError(f"an escape that is not documented: {text!r}")
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


def strings(forms):
    """Return all strings in forms."""
    found = []
    for each in forms:
        found += strings(each) if isinstance(each, list) else [each]
    return [each for each in found if isinstance(each, Text)]


class Rule:
    """A rule: an action (allow or deny), its operations, and its filters."""

    def __init__(self, form):
        self.action, *rest = form
        self.operations = [each for each in rest if not isinstance(each, list)]
        self.filters = [each for each in rest if isinstance(each, list)]

    def covers(self, operation, path=None):
        """Return whether the rule matches this operation on this path."""
        if not any(_named(pattern, operation) for pattern in self.operations):
            return False
        return not self.filters or any(_matches(each, path) for each in self.filters)


def _named(pattern, operation):
    if pattern == "default":
        return True
    return operation.startswith(pattern[:-1]) if pattern.endswith("*") else operation == pattern


def _matches(filter_, path):
    kind, *given = filter_
    if kind == "require-all":
        return all(_matches(each, path) for each in given)
    if kind == "require-not":
        return not _matches(given[0], path)
    if path is None or not isinstance(given[0], Text):
        return False
    if kind == "literal":
        return path == given[0]
    return kind == "subpath" and (path == given[0] or path.startswith(given[0].rstrip("/") + "/"))


class Profile:
    """The rules of a profile, in order."""

    def __init__(self, source):
        self.version, *forms = parse(source)
        self.rules = [Rule(form) for form in forms]

    def allows(self, operation, path=None):
        """Return whether the last matching rule allows this operation on this path."""
        return [r for r in self.rules if r.covers(operation, path)][-1].action == "allow"

    def texts(self):
        """Return all strings in the profile's filters."""
        return strings([rule.filters for rule in self.rules])
