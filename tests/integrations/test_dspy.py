"""DSPy's own modules, with a language model that says what the test has it say, over a sandbox."""

import dataclasses
import datetime as dt
import enum

import numpy as np
import pydantic
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
    with pytest.raises(CodeInterpreterError, match="given: object can't be passed"):
        interpreter.execute("1", {"given": object()})


class Colour(enum.StrEnum):
    red = "red"


class Order(pydantic.BaseModel):
    day: dt.date
    pieces: dict[str, int]


@dataclasses.dataclass
class Basket:
    orders: list[Order]
    colour: Colour = Colour.red


ORDER = Order(day=dt.date(2026, 1, 2), pieces={"tea": 2})
DATA = {"day": "2026-01-02", "pieces": {"tea": 2}}


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        (ORDER, DATA),
        ([Basket([ORDER])], [{"orders": [DATA], "colour": "red"}]),
        ({1: {2.5: "a"}, None: [float("inf")], "n": 2**70}, None),
        ({Colour.red: (1, {3, 2})}, {"red": [1, [2, 3]]}),
        ({1: Basket([ORDER])}, {1: {"orders": [DATA], "colour": "red"}}),
    ],
)
def test_inputs_are_what_dspys_own_interpreter_makes_of_them(interpreter, given, seen):
    said = interpreter.execute("repr(given)", {"given": given})
    assert said == repr(given if seen is None else seen)


def test_arrays_are_inputs_and_a_name_may_begin_as_those_of_dspys_own_tables_do(interpreter):
    assert interpreter.execute("_raw.upper()", {"_raw": "text"}) == "TEXT"
    with SandboxInterpreter("data") as one:
        assert one.execute("list(_raw.shape)", {"_raw": np.ones((2, 3))}) == [2, 3]
    with pytest.raises(CodeInterpreterError, match="neither a text nor a number"):
        interpreter.execute("1", {"given": {(1, 2): 3}})


def test_an_input_moves_no_line_of_a_cell(interpreter):
    with pytest.raises(CodeExecutionError, match="line 2: 1 / 0"):
        interpreter.execute("x = 1\n1 / 0", {"given": {1: 2}})


def test_a_tool_may_return_what_has_a_text_in_json():
    def basket() -> dict:
        return {1: Basket([ORDER])}

    async def later() -> dict:
        return {None: 1}

    with SandboxInterpreter(tools={"basket": basket, "later": later}) as one:
        seen = {"1": {"orders": [DATA], "colour": "red"}}
        assert one.execute("[basket(), await later()]") == [seen, {"null": 1}]


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
