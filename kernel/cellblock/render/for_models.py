"""``for_models``: rewords remedies for a language model.

The host's remedies speak to a user at a keyboard: "cellblock policy add …", "choose the kernel …",
"restart the kernel". A model can do none of these, so for it they name the operator.
``Result.to_string`` applies this to the host's own texts, never to a cell's.
"""

from __future__ import annotations

import re
from typing import Final

_ASKED_THERE: Final = "a cell that breaks no other rule: there a person is asked, if one can be"
#: Patterns of the words for a user, and the words for a model. A blank matches a line's end too,
#: since cards are wrapped. No pattern looks far ahead, since names in the text may be a cell's.
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
    (re.compile(f"{to_user} ".replace(" ", r"\s+").removesuffix(r"\s+"), re.DOTALL), to_model)
    for to_user, to_model in _WORDS
)
#: Marks a rewritten "choose", which keeps its case.
_HAVE: Final = re.compile("<([A-Za-z])>ave the operator")


def for_models(remedy: str) -> str:
    """Return a text of the host's with remedies that name the operator, not the reader."""
    for pattern, to_model in _PATTERNS:
        remedy = pattern.sub(to_model, remedy)
    return _HAVE.sub(lambda mark: f"{'H' if mark[1].isupper() else 'h'}ave the operator", remedy)
