"""``llm`` as cells use it, against a real endpoint on loopback."""

import pytest

pytest.importorskip("openai")

from support import model_kernels, reading, tool_kernels
from support.endpoint import KEY

LEFT = "llm: {} of 1,000 calls and {} of 1,000,000 tokens are left for this session."


@pytest.fixture(scope="module")
def kernel(shared_world, start_shared, server):
    argv = model_kernels.argv(shared_world, server)
    return start_shared(argv=argv, world=shared_world, extra_env=model_kernels.ENVIRONMENT)


def run(kernel, code):
    mid = kernel.execute_send(code)
    # The first call imports a client.
    reply, published = kernel.reply(mid, timeout=60), kernel.until_idle(mid, timeout=60)
    assert reply["content"]["status"] == "ok", reply["content"]
    return reply, published


def value(kernel, code):
    return reading.result(run(kernel, code)[1])


def failure(kernel, code):
    content, _ = kernel.run(code)
    return f"{content['ename']}: {content['evalue']}"


ANSWERS = {
    "llm('say hello')": "'hello'",
    "llm(prompt='say a', system='be brief', temperature=0, stop='.')": "'a'",
    "llm('say b', model='large').model": "'large-2026'",
    "llm.chat([{'role': 'user', 'content': 'say c'}])": "'c'",
    "await llm.acall('say d')": "'d'",
    "await llm.achat([{'role': 'user', 'content': 'say e'}])": "'e'",
    "await asyncio.gather(llm.acall('say f'), llm.acall('say g'))": "['f', 'g']",
    "await asyncio.gather(*(asyncio.to_thread(llm, f'say {n}') for n in 'ab'))": "['a', 'b']",
    "asyncio.run(llm.acall('say h'))": "'h'",
    "said = llm('cut in the mid')\nsaid, said.finish_reason": "('in the mid', 'length')",
    "said = llm('say a b')\nsaid.prompt_tokens, said.completion_tokens": "(3, 2)",
    "llm('unmetered x').prompt_tokens is None": "True",
    "llm('say Zürich\\x00!')": "'Zürich\\x00!'",
    "llm('calls')": "''",
    "llm('say x').upper() + 'y', type(llm('say x') + 'y').__name__": "('Xy', 'str')",
}


@pytest.mark.parametrize("code", ANSWERS)
def test_a_model_is_asked_and_answers(kernel, code):
    assert value(kernel, f"import asyncio\n{code}") == ANSWERS[code]


@pytest.mark.quick
def test_the_endpoint_is_asked_what_the_cell_said(kernel, server):
    server.asked.clear()
    code = "llm('say x', system='be brief', model='large', max_tokens=7, temperature=0.5)"
    run(kernel, code)
    (asked,) = server.asked
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.body == {
        "model": "large",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "say x"},
        ],
        "max_tokens": 7,
        "temperature": 0.5,
    }


def test_an_answer_is_not_shown_by_itself(kernel):
    assert reading.kinds(run(kernel, "said = llm('say x')")[1]) == []


CALL_IT = (
    "Call it as llm(prompt: str, *, system: str | None = None, model: Literal['small', 'large'] = 'small',"
    " temperature: float | None = None, max_tokens: int = 4096, stop: str | list[str] | None = None) -> str"
)
FAILS = {
    "llm()": f"TypeError: llm() missing a required argument: 'prompt'. {CALL_IT}",
    "llm('x', base_url='http://a')": f"TypeError: llm() got an unexpected keyword argument 'base_url'. {CALL_IT}",
    "llm('\\ud800')": "ValueError: llm(): the arguments: a text holds surrogates, which stand for no characters",
    "llm(5)": "ToolError: llm: ValidationError: prompt: Expected `str`, got `int`",
    "llm('x', max_tokens=5_000)": "ToolError: llm: ValidationError: max_tokens: 4,096 at most (llm.max_tokens_per_call)",
    "llm.chat([{'role': 'user', 'content': 'status 400 too long'}])": "ToolError: llm.chat: BadRequestError: the endpoint refuses (400): too long",
    "await llm.acall('status 401 wrong key {key}')": "ToolError: llm: AuthenticationError: the endpoint refuses the host's key (401)",
    "llm('raw nothing')": "ToolError: llm: EndpointError: the endpoint's answer is not a completion",
}


@pytest.mark.parametrize("code", FAILS)
def test_what_fails_says_what_failed(kernel, code):
    assert failure(kernel, code) == FAILS[code]


def test_it_says_of_itself_how_it_is_called(kernel):
    asked = kernel.ask("inspect_request", {"code": "llm", "cursor_pos": 3, "detail_level": 0})
    shown = reading.ANSI.sub("", asked["content"]["data"]["text/plain"])
    assert "prompt: str" in shown
    assert "model: Literal['small', 'large'] = 'small'" in shown
    assert "max_tokens: int = 4096" in shown
    asked = kernel.ask("inspect_request", {"code": "llm.chat", "cursor_pos": 8, "detail_level": 0})
    shown = reading.ANSI.sub("", asked["content"]["data"]["text/plain"])
    assert "messages: list[dict[str, str]]" in shown
    assert "Continue a conversation with a language model." in shown
    assert value(kernel, "llm").startswith("<llm(prompt: str, *, system: str | None = None, model")


def test_it_is_completed(kernel):
    def matches(code):
        return kernel.ask("complete_request", {"code": code, "cursor_pos": len(code)})["content"][
            "matches"
        ]

    assert "llm" in matches("ll")
    assert {"acall", "achat", "chat"} <= set(matches("llm."))


def test_it_is_listed_and_what_is_left_is_said(kernel):
    before = reading.cards(run(kernel, "%tools")[1], "tools")[0]["budgets"]["llm"]
    run(kernel, "llm('say one two')")  # three words asked, two answered
    _, published = run(kernel, "%tools")
    (card,) = reading.cards(published, "tools")
    assert [tool["name"] for tool in card["tools"]] == ["llm", "llm.chat"]
    after = card["budgets"]["llm"]
    assert (after["calls"] - before["calls"], after["tokens"] - before["tokens"]) == (1, 5)
    left = (1_000 - after["calls"], 1_000_000 - after["tokens"])
    said = LEFT.format(*(f"{number:,}" for number in left))
    assert said in reading.card_text(published).splitlines()
    assert said in reading.card_text(run(kernel, "%usage")[1]).splitlines()


def test_the_reply_tells_of_the_call_and_what_it_took(kernel):
    reply, _ = run(kernel, "llm('say one', max_tokens=5)")
    (call,) = tool_kernels.calls(reply)
    assert call.pop("seconds") > 0
    assert call.pop("result")["text"] == "one"
    assert call == {
        "name": "llm",
        "args": [],
        "kwargs": {"prompt": "say one", "max_tokens": 5},
        "status": "ok",
        "tokens": 3,
    }


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("llm('x', model='y')", "llm"),
        ("await llm.acall('x')", "llm"),
        ("llm.chat([])", "llm.chat"),
        ("await llm.achat([])", "llm.chat"),
    ],
)
def test_without_a_grant_it_is_said_which_section_would(safe, code, name):
    assert failure(safe, code) == (
        f"ToolError: {name}: NotGranted: this policy does not grant {name}; a section [llm] in it"
        " would, with base_url, the endpoint that is asked, and models"
    )


def test_without_a_grant_a_cell_may_take_the_name(safe):
    assert value(safe, "llm = str.upper\nllm('x')") == "'X'"
    safe.run("del llm")
