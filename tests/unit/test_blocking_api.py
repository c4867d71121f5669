"""A program without a loop has the sandbox that one with a loop has."""

import inspect

from cellblock import AsyncSandbox, Sandbox

#: What MCP sessions and other sandboxes use of an ``AsyncSandbox``.
NOT_FOR_PROGRAMS = {
    "check_budgets",
    "earlier_output",
    "keep_output",
    "listable",
    "look_at_variants",
    "session_of",
}
#: Forks are sandboxes of the same kind.
TYPED_BY_THEMSELVES = {"fork", "go_on_from"}


def public(sandbox):
    return {name: one for name, one in vars(sandbox).items() if not name.startswith("_")}


def test_what_an_async_sandbox_offers_a_blocking_one_offers_in_the_same_words():
    blocking = public(Sandbox)
    for name, one in public(AsyncSandbox).items():
        if name in NOT_FOR_PROGRAMS | {"close"}:  # a pool and a sandbox share how they are closed
            continue
        assert inspect.getdoc(blocking[name]) == inspect.getdoc(one), name
        assert not inspect.iscoroutinefunction(blocking[name]), name
        if not isinstance(one, property) and name not in TYPED_BY_THEMSELVES:
            assert inspect.signature(blocking[name]) == inspect.signature(one), name
