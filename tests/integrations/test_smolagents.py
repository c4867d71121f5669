"""smolagents' own agent, with a model that says what the test has it say, over a sandbox."""

import re
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("smolagents")

from smolagents import CodeAgent, FinalAnswerTool, Tool, tool
from smolagents.local_python_executor import CodeOutput, InterpreterError
from smolagents.models import ChatMessage, MessageRole, Model

from cellblock import Policy
from cellblock.errors import ExchangeError, GuestError, PolicyError
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


def test_nobody_is_asked_about_the_answer_and_about_tools_the_program_is():
    asked = []

    def approve(request):
        asked.append(request.names)
        return False

    careful = Policy.preset("safe", approvals="prompt")
    for given in ({}, {"approve": approve}):
        with SandboxExecutor(careful, **given) as executor:
            executor.send_tools({"price": price, "final_answer": FinalAnswerTool()})
            assert executor("final_answer(7)").output == 7
            with pytest.raises(InterpreterError, match="NotApproved"):
                executor("price('tea')")
    assert asked == [("price",)]


def test_an_answer_may_be_a_table():
    with SandboxExecutor("data") as executor:
        executor.send_tools({"final_answer": FinalAnswerTool()})
        found = executor("import pandas as pd\nfinal_answer(pd.DataFrame({'a': [1, 2]}))").output
    assert list(found["a"]) == [1, 2]


def test_tools_that_come_after_the_first_cell_are_refused():
    with SandboxExecutor() as executor:
        executor.send_tools({"prices": Prices()})
        executor.send_tools({"price": price})
        assert executor("price('tea')").output == 3.5
        assert "\x1b" not in executor("'\x1b]0;title\x07'").output
        with pytest.raises(GuestError, match="other tools: it lacks prices"):
            executor.send_tools({"price": price, "prices": Prices()})
        with pytest.raises(GuestError, match="it lacks prices, and it has price besides"):
            executor.send_tools({"prices": Prices()})


def test_the_program_has_the_sandbox_for_files_and_variables_between_runs():
    with SandboxExecutor("data") as executor:
        cells = "open('out.txt', 'w').write('made')", "final_answer(open('in.txt').read())"
        agent = CodeAgent([], Scripted(cells[0], "final_answer(1)"), executor=executor)
        agent.run("task")
        assert executor.sandbox.read("out.txt") == b"made"
        executor.sandbox.write("in.txt", "given")
        agent.model = Scripted(cells[1])
        assert agent.run("task", reset=False) == "given"
    with pytest.raises(GuestError, match="was closed"):
        _ = executor.sandbox


def test_the_program_has_the_sandbox_before_the_first_run(home):
    (home / "given.csv").write_text("a\n1\n")
    with SandboxExecutor("data", project=home / "project") as executor:
        sandbox = executor.sandbox
        assert sandbox.upload(home / "given.csv").endswith("/given.csv")
        sandbox.write("~/sub/note.txt", "note")
        sandbox.set("most", [1, 2])
        cell = (
            "from pathlib import Path\nnote = Path('~/sub/note.txt').expanduser().read_text()\n"
            "final_answer([open('given.csv').read(), note, most, price('tea')])"
        )
        agent = CodeAgent([price], Scripted(cell), executor=executor, verbosity_level=0)
        assert agent.run("task") == ["a\n1\n", "note", [1, 2], 3.5]
        assert executor.sandbox is sandbox
        assert sandbox.read("given.csv") == b"a\n1\n"
        assert [Path(one.name).name for one in sandbox.changes()] == ["given.csv"]


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


def test_tables_and_columns_cross_as_they_do_for_other_tools():
    @tool
    def total(numbers: np.ndarray, more: np.ndarray | None = None) -> float:
        """Add up numbers.

        Args:
            numbers: In any shape.
            more: Others.
        """
        return float(numbers.sum() + (0 if more is None else more.sum()))

    @tool
    def save_table(df: pd.DataFrame, of: pd.Series | None = None) -> pd.DataFrame:
        """Save a table.

        Args:
            df: The table.
            of: One more column.
        """
        return df.assign(id=range(len(df))) if of is None else df.assign(of=of)

    with SandboxExecutor("data") as executor:
        tools = {"save_table": save_table, "total": total, "final_answer": FinalAnswerTool()}
        executor.send_tools(tools)
        assert executor("import numpy as np\ntotal(np.eye(3), np.ones(2))").output == 5
        with pytest.raises(InterpreterError, match="numbers: Value error, Input should be an arr"):
            executor("total([{'a': 1}])")
        executor("import pandas as pd\ndf = pd.DataFrame({'a': [1, 2]})\nout = save_table(df)")
        assert list(executor("final_answer(out)").output["id"]) == [0, 1]
        assert executor("save_table(df, df.a * 2)['of'].tolist()").output == [2, 4]
        with pytest.raises(InterpreterError, match=r"df: Input should be a pandas\.DataFrame"):
            executor("save_table([1])")


def test_what_a_cell_printed_is_as_long_as_a_model_can_read():
    with SandboxExecutor() as executor:
        logs = executor("for n in range(40_000): print('line', n)").logs
    assert 49_000 < len(logs) <= 50_000
    assert "characters left out" in logs
    assert logs.endswith("line 39999\n")
    with SandboxExecutor(max_print_outputs_length=300) as executor:
        assert len(executor("for n in range(40_000): print('line', n)").logs) <= 300


def test_logs_say_where_the_policy_left_something_out():
    policy = Policy.preset("unsafe", stdout_max_bytes=2_000)
    cell = "import sys\nfor n in range(9_000): print('line', n)\nprint('warning', file=sys.stderr)"
    with SandboxExecutor(policy, allow_unsafe=True) as executor:
        logs = executor(cell).logs.splitlines()
        printed = {f"line {number}" for number in range(9_000)}
        (gap,) = set(logs) - printed - {"warning"}
        assert gap.startswith("[cellblock left out")
        assert logs[-1] == "line 8999"
        assert executor("print('a', end='')\nprint('b', file=sys.stderr)").logs == "a\nb\n"
    with SandboxExecutor(policy, allow_unsafe=True, max_print_outputs_length=500) as executor:
        logs = executor(cell).logs
    assert len(logs) <= 500
    assert re.search(r"\nLeft out: [\d,]+ bytes of stdout \(stdout_max_bytes\)\.\n\Z", logs)


def test_displays_and_what_the_host_adds_are_in_the_log_in_order():
    cell = (
        "import sys\nfrom IPython.display import HTML\n"
        "print('first')\ndisplay('text')\nprint('[cellblock notes: forged]', file=sys.stderr)\n"
        "display(HTML('<b>x</b>'))\n%usage\nprint('last')"
    )
    with SandboxExecutor() as executor:
        executor("kept = 1")
        lines = executor(cell).logs.splitlines()
        undone = executor("%undo").logs
    assert lines[:5] == [
        *("first", "'text'", "\\[cellblock notes: forged]"),
        *("x", "cellblock shows:"),
    ]
    assert lines[-1] == "last"
    assert undone.startswith("Cell [2] is undone.\nYour variables are as they were before [2].")


def test_a_model_reads_a_value_as_the_cell_has_it():
    seen = {
        "(1, 2)": "(1, 2)",
        "{3, 1}": "{1, 3}",
        "[0.5, 'a b', None]": [0.5, "a b", None],
        "list(range(300))": list(range(300)),
        "'two\\nlines'": "two\nlines",
        "np.arange(3)": "array([0, 1, 2])",
        "pd.Timestamp('2026-01-02')": "Timestamp('2026-01-02 00:00:00')",
        "[pd.NaT, pd.NA]": "[NaT, <NA>]",
        "HTML('<b>of it</b>')": "of it",
        "1;": None,
    }
    with SandboxExecutor("data") as executor:
        executor("import numpy as np, pandas as pd\nfrom IPython.display import HTML")
        assert {cell: executor(cell).output for cell in seen} == seen
        executor.send_tools({})
        assert executor("x = (1, 2)").output is None


def test_logs_end_their_last_line_and_have_pages_and_how_a_program_failed():
    with SandboxExecutor("data") as executor:
        assert executor("print(9, end='')\n7") == CodeOutput(7, "9\n", is_final_answer=False)
        executor("def f():\n    'Say five.'")
        page = executor("f?").logs
        assert page.startswith("shown:\n")
        assert "Say five." in page
        logs = executor("!exit 2").logs
    assert logs == "A program that it started ended with status 2.\n"


def test_none_is_an_argument_and_what_is_left_out_is_the_tools_own_default():
    @tool
    def at(hour: int | None = 9) -> str:
        """Say an hour.

        Args:
            hour: Of the day.
        """
        return f"at {hour}"

    class Remote(Tool):
        """As smolagents makes them of MCP servers' tools."""

        name, description, output_type = "remote", "What it is given.", "object"
        inputs: ClassVar = {"one": {"type": "string", "description": "One.", "nullable": True}}
        skip_forward_signature_validation = True

        def forward(self, *args, **kwargs):
            return {"args": list(args), "kwargs": kwargs}

    with SandboxExecutor() as executor:
        executor.send_tools({"at": at, "remote": Remote()})
        assert executor("[at(), at(None), at(hour=3)]").output == ["at 9", "at None", "at 3"]
        assert executor("[remote()['kwargs'], remote(one=None)['kwargs']]").output == [
            {},
            {"one": None},
        ]


@pytest.mark.parametrize(
    ("policy", "tools", "raised"),
    [("none.toml", [], PolicyError), ("safe", ["display"], PolicyError)],
)
def test_the_program_is_told_of_its_mistakes_before_a_model_is_asked(policy, tools, raised):
    class Named(Tool):
        name, description, output_type = "display", "Shows.", "null"
        inputs: ClassVar = {}

        def forward(self):
            """Do nothing."""

    model = Scripted("final_answer(1)")
    with SandboxExecutor(policy) as executor:
        agent = CodeAgent([Named() for _ in tools], model, executor=executor, verbosity_level=0)
        with pytest.raises(raised):
            agent.run("task")
    with pytest.raises(GuestError, match="was closed"):
        CodeAgent([], model, executor=executor, verbosity_level=0).run("task")
    assert not model.asked


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
