"""A DSPy program in a cell: asks as ``llm`` does, with a state that came from outside."""

import json

import pytest

pytest.importorskip("dspy")

from support import model_kernels, reading
from support.endpoint import Endpoint

PROGRAM = """
import dspy, json
from cellblock.dspy import LM

dspy.configure(lm=LM(max_tokens=50, temperature=0.5))

class Answer(dspy.Signature):
    "Answer in one word."
    question: str = dspy.InputField()
    answer: str = dspy.OutputField()

program = dspy.Predict(Answer)
"""
#: What another session saved of such a program.
STATE = {
    "traces": [],
    "train": [],
    "demos": [{"question": "and of Spain?", "answer": "Madrid"}],
    "signature": {
        "instructions": "Answer in one word, of a city.",
        "fields": [
            {"prefix": "Question:", "description": "${question}"},
            {"prefix": "Answer:", "description": "${answer}"},
        ],
    },
    "lm": None,
}


@pytest.fixture(scope="module")
def server():
    made = Endpoint()
    made.answers["capital of Italy"] = "[[ ## answer ## ]]\nRome\n\n[[ ## completed ## ]]"
    yield made
    made.close()


@pytest.fixture(scope="module")
def kernel(shared_world, start_shared, server):
    given = shared_world.write("given.json", json.dumps({"program": STATE}))
    argv = [
        *model_kernels.argv(shared_world, server, "data", max_tokens=100_000),
        "--input",
        str(given),
    ]
    kernel = start_shared(argv=argv, world=shared_world, extra_env=model_kernels.ENVIRONMENT)
    run(kernel, PROGRAM)
    return kernel


def run(kernel, code):
    mid = kernel.execute_send(code)
    # dspy is large.
    reply, published = kernel.reply(mid, timeout=110), kernel.until_idle(mid)
    assert reply["content"]["status"] == "ok", reply["content"]
    return reading.result(published)


def test_a_program_asks_by_the_broker_with_a_state_that_came_from_outside(kernel, server):
    demo = "program = dspy.Predict(Answer)\nprogram.demos = [dspy.Example(question='and of France?', answer='Paris')]\n"
    saved = run(kernel, f"{demo}json.dumps(program.dump_state())")
    state = json.loads(saved[1:-1].encode().decode("unicode_escape"))
    assert state["lm"] is None

    # Of another session: only the state comes back, as data and as a file of the project.
    file = state | {"metadata": {"dependency_versions": {}}}
    kernel.world.write("program.json", json.dumps(file))
    loads = (f"program.load_state({state!r})", "program.load('program.json')")
    for load in loads:
        server.asked.clear()
        ask = "program(question='the capital of Italy?').answer"
        assert run(kernel, f"program = dspy.Predict(Answer)\n{load}\n{ask}") == "'Rome'"
        if load is loads[0]:
            (asked,) = server.asked
            said = "\n".join(message["content"] for message in asked.body["messages"])
            assert "and of France?" in said
            assert "Paris" in said
            assert (asked.body["max_tokens"], asked.body["temperature"]) == (50, 0.5)
            assert asked.body["model"] == "small"
    # The second time DSPy's own cache knew.
    assert server.asked == []


def test_a_program_takes_its_state_from_an_input(kernel, server):
    server.asked.clear()
    load = "program = dspy.Predict(Answer)\nprogram.load_state(inputs['program'])\n"
    ask = "program(question='by an input: the capital of Italy?').answer"
    assert run(kernel, load + ask) == "'Rome'"
    (asked,) = server.asked
    said = "\n".join(message["content"] for message in asked.body["messages"])
    assert "Answer in one word, of a city." in said
    assert "and of Spain?" in said
    assert "Madrid" in said


def test_a_program_asks_from_a_loop_and_from_threads(kernel, server):
    server.asked.clear()
    code = """
import asyncio
first = await program.acall(question='async: capital of Italy?')
rest = dspy.Parallel(num_threads=3, disable_progress_bar=True)(
    [(program, dspy.Example(question=f'{n}: capital of Italy?').with_inputs('question'))
     for n in range(3)])
[one.answer for one in (first, *rest)]
"""
    assert run(kernel, code) == "['Rome', 'Rome', 'Rome', 'Rome']"
    assert len(server.asked) == 4


def test_what_can_not_go_on_is_refused_and_not_dropped(kernel, server):
    server.asked.clear()
    code = """
said = []
for options in ({'top_p': 0.5}, {'tools': [{'type': 'function', 'function': {'name': 'f'}}]},
                {'max_tokens': 10**6}):
    try: LM(**options)('hello')
    except Exception as error: said.append(f'{type(error).__name__}: {error}')
said
"""
    told = run(kernel, code)
    assert "the host carries no top_p" in told
    assert "the host carries no tools" in told
    assert "max_tokens: 4,096 at most (llm.max_tokens_per_call)" in told
    assert server.asked == []
