"""smolagents' own agent, with a model that says what the test has it say, over a sandbox."""

from typing import ClassVar

import pytest

pytest.importorskip("smolagents")

from smolagents import CodeAgent, FinalAnswerTool, Tool, tool
from smolagents.local_python_executor import InterpreterError
from smolagents.models import ChatMessage, MessageRole, Model

from cellblock.errors import ExchangeError
from cellblock.integrations.smolagents import SandboxExecutor

pytestmark = pytest.mark.usefixtures("home")


class Scripted(Model):
    """A model that answers with the cells it was given, one after the other."""

    def __init__(self, *cells):
        super().__init__(model_id="scripted")
        self.cells, self.asked = list(cells), []

    def generate(self, messages, **_):
        self.asked.append(str(messages[-1].content))
        said = f"Thought: next\n<code>\n{self.cells.pop(0)}\n</code>"
        return ChatMessage(role=MessageRole.ASSISTANT, content=said)


@tool
def price(item: str, pieces: int = 1) -> float:
    """Look up a price.

    Args:
        item: What is sold.
        pieces: How many.
    """
    return {"tea": 3.5, "cake": 4.0}[item] * pieces


class Prices(Tool):
    name = "prices"
    description = "All prices."
    inputs: ClassVar = {
        "least": {"type": "number", "description": "From here on.", "nullable": True}
    }
    output_type = "object"

    def forward(self, least=None):
        return {"tea": 3.5, "cake": 4.0} if least is None else {"cake": 4.0}


def run(*cells, **more):
    model = Scripted(*cells)
    with SandboxExecutor() as executor:
        agent = CodeAgent([price, Prices()], model, executor=executor, verbosity_level=0)
        return agent.run("task", **more), model.asked


def test_an_agent_calls_tools_keeps_variables_and_answers():
    answer, asked = run(
        "total = sum(price(i, pieces=2) for i in given)\nprint('so far', total)\nprices()",
        "final_answer({'total': total, 'dear': prices(least=4)})\nprint('never')",
        additional_args={"given": ["tea", "cake"]},
    )
    assert answer == {"total": 15.0, "dear": {"cake": 4.0}}
    assert "so far 15.0" in asked[1]
    assert "{'tea': 3.5, 'cake': 4.0}" in asked[1]


def test_a_model_reads_why_a_cell_was_refused_and_corrects_it():
    answer, asked = run("import subprocess", "price(3)", "final_answer(6 * 7)")
    assert answer == 42
    assert "import-not-allowed: subprocess" in asked[1]
    assert "ValidationError" in asked[2]


def test_an_answer_is_the_first_that_a_cell_gave_whatever_it_does_then():
    cell = "try: final_answer(1)\nexcept Exception: pass\nfinal_answer(2)"
    assert run(cell)[0] == 1


def test_tools_that_come_after_the_first_cell_are_refused():
    with SandboxExecutor() as executor:
        executor.send_tools({"price": price})
        assert executor("price('tea')").output == 3.5
        assert "\x1b" not in executor("'\x1b]0;title\x07'").output
        executor.send_tools({"price": price, "prices": Prices()})
        with pytest.raises(InterpreterError, match="cells have run without prices"):
            executor("1")


def test_an_input_may_have_several_types():
    @tool
    def find(key: int | str) -> str:
        """Find an entry.

        Args:
            key: Its number or its name.
        """
        return f"{type(key).__name__} {key}"

    with SandboxExecutor() as executor:
        executor.send_tools({"find": find})
        assert executor("find(3) + ', ' + find('x')").output == "int 3, str x"
        with pytest.raises(InterpreterError, match="key"):
            executor("find([])")


def test_what_a_cell_printed_is_as_long_as_a_model_can_read():
    with SandboxExecutor() as executor:
        logs = executor("for n in range(40_000): print('line', n)").logs
    assert 49_000 < len(logs) <= 50_000
    assert "characters left out" in logs
    assert logs.endswith("line 39999\n")


def test_the_program_is_told_of_a_variable_that_does_not_cross_before_a_model_is_asked():
    model = Scripted("final_answer(1)")
    with SandboxExecutor() as executor:
        agent = CodeAgent([], model, executor=executor, verbosity_level=0)
        with pytest.raises(ExchangeError, match="cfg"):
            agent.run("task", additional_args={"cfg": object()})
    assert not model.asked


LATE = """
import asyncio, threading
go, came, said = threading.Event(), threading.Event(), []

def answer(text):
    try:
        final_answer(text)
    except Exception as error:
        said.append(str(error))

def in_thread():
    go.wait()
    answer("of a thread")
    came.set()

threading.Thread(target=in_thread).start()
turn = asyncio.Event()

async def in_task():
    await turn.wait()
    answer("of a task")

task = asyncio.ensure_future(in_task())
"""


def test_an_answer_is_the_cells_that_gives_it_and_no_later_ones():
    with SandboxExecutor("unsafe", allow_unsafe=True) as executor:
        executor.send_tools({"final_answer": FinalAnswerTool()})
        assert not executor(LATE).is_final_answer
        later = executor("go.set(); came.wait(); turn.set(); await task; ' | '.join(said)")
        assert not later.is_final_answer
        assert "final_answer was called in a thread" in later.output
        assert "the cell that called final_answer has ended" in later.output
        given = executor("await asyncio.to_thread(final_answer, 3)")
        assert (given.is_final_answer, given.output) == (True, 3)
