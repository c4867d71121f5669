"""Calls and cells that need approval, and a user whose answers a test gives."""

from __future__ import annotations

import re

from cellblock.host.consent.approver import Approver, Prompt
from cellblock.host.consent.grants import GrantContext, Grants
from cellblock.host.consent.store import Store
from cellblock.host.services.tools.calls import Call
from cellblock.host.session.types import ExecuteRequest
from cellblock.wire import messages, values

UNDER = GrantContext(scope="/home/ada/lab", policy="mine", digest="d" * 64)
WRITE = messages.Tool(
    name="ops.write_file",
    parameters=(
        messages.Parameter(name="path", kind=1),
        messages.Parameter(name="data", kind=1),
        messages.Parameter(name="more", kind=2),
        messages.Parameter(name="token", kind=3, secret=True),
    ),
)


def call(*args, number=1, tool=WRITE, **kwargs):
    """Return a call of a tool, as a guest makes it."""
    arguments = values.encode((list(args), kwargs), 2**21)
    return Call(number, tool, arguments, answer=lambda _answer: None)


def cell(raw="ops.write_file('a', 'b')", count=3, *, stdin=True):
    return ExecuteRequest(code=raw, execution_count=count, allow_stdin=stdin)


def code_in(text):
    """Return the code in the text of a question."""
    return re.search(r"type (\d{3})", text)[1]


class User:
    """A front end's user, whose questions wait until the test answers them."""

    def __init__(self):
        self.questions, self.withdrawn, self.takes_input = [], 0, True

    def consult(self, asked, told):
        if not self.takes_input:
            return None
        self.questions.append((str(asked), told))
        return self._take_back

    def _take_back(self):
        self.withdrawn += 1

    @property
    def text(self):
        """The text of the last question."""
        return self.questions[-1][0]

    def says(self, word=""):
        """Answer the last question with its code and this word."""
        self.types(f"{code_in(self.text)} {word}")

    def types(self, text):
        """Type this text as the answer to the last question."""
        self.questions[-1][1](text)


def always_answers(store):
    """Return all answers "always" in a store, of all scopes."""
    return [record for _, manifest in store.manifests() for record in manifest.records]


class Desk:
    """An approver with its user, and lists of the calls that ran or were refused.

    The store is in ``folder``.
    """

    def __init__(self, folder, under=UNDER):
        self.user, self.store = User(), Store(folder / "approved", folder / "approval.key")
        self.ran, self.refused, self.entered, self.told = [], [], [], []
        self.grants = Grants(under, self.store)
        self.approver = Approver(
            Prompt(self.user.consult, self.grants),
            self.grants,
            observe=lambda wanted, decision: self.entered.append((wanted, decision)) or "",
            tell=self.told.append,
        )

    def calls(self, *args, number=1, **kwargs):
        made = call(*args, number=number, **kwargs)
        self.approver.decide(
            made,
            lambda: self.ran.append(made),
            lambda why: self.refused.append((number, why)),
        )
        return made


# --- kernels ----------------------------------------------------------------------------------


def answer_question(kernel, answer):
    """Answer a kernel's next question, and return its prompt. ``{}`` in the answer is the code."""
    prompt = kernel.recv("stdin")["content"]["prompt"]
    code = code_in(prompt) if "type " in prompt else ""
    kernel.send("input_reply", {"value": answer.format(code)}, "stdin")
    return prompt


def drop_questions(kernel):
    """Read and drop all questions so far, such as withdrawn ones."""
    while kernel.stdin.poll(500):
        kernel.recv("stdin")


def run(kernel, code, *answers, **extra):
    """Run a cell and answer its questions in order; return prompts, reply and output."""
    mid = kernel.execute_send(code, **{"allow_stdin": True} | extra)
    prompts = [answer_question(kernel, answer) for answer in answers]
    reply = kernel.reply(mid)["content"]
    assert not kernel.stdin.poll(0), "a question that nobody expected"
    return prompts, reply, kernel.until_idle(mid)
