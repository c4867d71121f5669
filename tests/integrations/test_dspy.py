"""DSPy's own modules, with a language model that says what the test has it say, over a sandbox."""

import pytest

pytest.importorskip("dspy")

import dspy
from dspy.primitives.code_interpreter import (
    CodeExecutionError,
    CodeInterpreter,
    CodeInterpreterError,
    FinalOutput,
)
from dspy.utils import DummyLM

from cellblock.integrations.dspy import SandboxInterpreter

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(scope="module")
def interpreter(home):
    """An interpreter with a tool."""
    assert home

    def price(item: str, pieces: int = 1) -> float:
        return {"tea": 3.5}[item] * pieces

    with SandboxInterpreter(tools={"price": price}) as one:
        yield one


def test_the_protocol_is_kept(interpreter):
    assert isinstance(interpreter, CodeInterpreter)
    assert interpreter.execute("x = given['n'] + 1", {"given": {"n": 1}}) is None
    assert interpreter.execute("print('x is', x)") == "x is 2\n"
    assert interpreter.execute("[x, price(item='tea', pieces=2)]") == [2, 7.0]
    assert interpreter.execute("SUBMIT(x)\n1 / 0") == FinalOutput({"output": 2})
    with pytest.raises(SyntaxError):
        interpreter.execute("x = = 1")
    with pytest.raises(CodeExecutionError, match="ZeroDivisionError"):
        interpreter.execute("1 / 0")
    with pytest.raises(CodeExecutionError, match="import-not-allowed: subprocess"):
        interpreter.execute("import subprocess")
    with pytest.raises(CodeInterpreterError, match="object is no data"):
        interpreter.execute("1", {"given": object()})


def test_rlm_runs_its_code_in_a_sandbox_and_asks_its_model_from_there():
    cells = [
        "words = context.split()\nsaid = llm_query('count them')\nprint(len(words), said)",
        "SUBMIT(answer=f'{len(words)} {said}')",
    ]
    answers = [{"reasoning": "next", "code": f"```python\n{cell}\n```"} for cell in cells]
    with dspy.context(lm=DummyLM(answers)):
        rlm = dspy.RLM(
            "context, question -> answer",
            sub_lm=lambda *_, **__: ["three"],
            interpreter_factory=SandboxInterpreter,
        )
        found = rlm(context="a b c", question="how many?")
    assert found.answer == "3 three"


def test_what_was_shut_down_runs_nothing():
    one = SandboxInterpreter()
    one.shutdown()
    with pytest.raises(CodeInterpreterError, match="was closed"):
        one.execute("1")
