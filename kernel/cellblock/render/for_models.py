"""Remedies for a language model: what only the operator can do is said of the operator.

The host's remedies are for whoever has the cells run at a keyboard: "cellblock policy add …",
"choose the kernel …", "restart the kernel". A model can do none of these. ``for_models`` is the one
place that says so: ``Result.to_string`` applies it to texts of the host's, and to no cell's.
"""

from __future__ import annotations

import re
from typing import Final

_ASKED_THERE: Final = "a cell that breaks no other rule: there a person is asked, if one can be"
#: What a remedy says to a user, and what it says of the operator. Blanks match line ends too, as
#: cards are wrapped. None looks far ahead, as a cell may have had a say in the text.
_WORDS: Final = (
    (r"in a policy file of your own \(cellblock install --policy FILE\)", "in the policy file"),
    (r"\b(To (?:raise it|have it measured)), (set) ", r"\1, the operator can \2 "),
    (r"\b(To (?:raise|allow) it), (save|add|ask) ", r"\1, the operator can \2 "),
    (r"\b(To open one), (write) ", r"\1, the operator can \2 "),
    (r"\b(To (?:raise|allow) it): (?=cellblock )", r"\1, the operator can run: "),
    (r"\b([Cc])hoose the kernel cellblock \((\w+)\)", r"<\1>ave the operator choose policy \2"),
    (r"\bHave it approved: cellblock approve NOTEBOOK\.", "Have the operator approve it."),
    (r"\bor change the policy file\b", "or have the operator change the policy file"),
    (r"\bApprove it where you can be asked\b", f"Import it in {_ASKED_THERE}"),
    (r"\bapprove it where you can be asked\b", f"import it in {_ASKED_THERE}"),
    (
        r'; display = "isolated" in the policy would show it',
        ": it is for people with a browser. You can see pictures, such as matplotlib's",
    ),
    (r"\brestart the kernel\b", "have the sandbox begin anew"),
    (r"\bRestart the kernel\b", "Have the sandbox begin anew"),
)
_PATTERNS: Final = tuple(
    (re.compile(f"{said} ".replace(" ", r"\s+").removesuffix(r"\s+"), re.DOTALL), of_operator)
    for said, of_operator in _WORDS
)
_HAVE: Final = re.compile("<([A-Za-z])>ave the operator")


def for_models(remedy: str) -> str:
    """Return a text of the host's with what the operator can do said of the operator."""
    for pattern, of_operator in _PATTERNS:
        remedy = pattern.sub(of_operator, remedy)
    return _HAVE.sub(lambda it: f"{'H' if it[1].isupper() else 'h'}ave the operator", remedy)
