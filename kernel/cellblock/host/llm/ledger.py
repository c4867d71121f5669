"""What calls of language models have cost a session, and what is left of what they may.

Kept in the host, so that no restored guest and no new worker has it anew. A call is entered with
the most that it may take before it is made, so that no number of them at once takes more.
"""

from __future__ import annotations

from cellblock.render.budgets import Asked


class Ledger:
    """One session's account."""

    def __init__(self, *, max_calls: int, max_tokens: int) -> None:
        self._max_calls, self._max_tokens = max_calls, max_tokens
        self._calls = self._tokens = 0
        #: By number of call, what it may take at most.
        self._reserved: dict[int, int] = {}

    def spent(self) -> Asked:
        """Return how the account stands."""
        tokens = self._tokens + sum(self._reserved.values())
        return Asked(self._calls, self._max_calls, tokens, self._max_tokens)

    def reserve(self, number: int, tokens: int) -> str:
        """Enter a call that may take so many tokens; return why it may not be made, or nothing."""
        spent = self.spent()
        if spent.calls >= self._max_calls:
            return f"the session's calls are spent (llm.max_calls): {spent}"
        if spent.tokens + tokens > self._max_tokens:
            return f"it may take {tokens:,} tokens, too many (llm.max_tokens): {spent}"
        self._calls += 1
        self._reserved[number] = tokens
        return ""

    def settle(self, number: int, tokens: int | None = None) -> int:
        """Enter what a call took, None where nobody knows: then it counts as all that it might.

        Returns what was entered; nothing the second time.
        """
        reserved = self._reserved.pop(number, None)
        if reserved is None:
            return 0
        taken = reserved if tokens is None else tokens
        self._tokens += taken
        return taken
