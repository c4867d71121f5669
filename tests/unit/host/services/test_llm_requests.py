"""What a cell may ask of a model, read from bytes that anybody may have written."""

import msgspec
import pytest

from cellblock.host.services import llm as provider
from cellblock.host.services.tools.calls import Call
from cellblock.policy.model import Llm

SECTION = Llm(base_url="http://127.0.0.1:1/v1", models=("small", "large"), max_tokens_per_call=100)
TOOLS = {tool.name: tool for tool in provider.tools(SECTION)}


def read(arguments, name="llm"):
    raw = arguments if isinstance(arguments, bytes) else msgspec.msgpack.encode(([], arguments))
    return provider.read(Call(1, TOOLS[name], msgspec.Raw(raw), print), SECTION)


def test_a_prompt_becomes_messages_with_all_numbers_filled_in():
    wanted = read({"prompt": "é", "system": "be brief", "stop": ".", "temperature": 1})
    assert wanted == provider.CompletionRequest(
        model="small",
        messages=[provider.Message("system", "be brief"), provider.Message("user", "é")],
        max_tokens=100,
        temperature=1.0,
        stop=["."],
    )
    # Two messages of ten bytes, and what they may take beyond that.
    assert wanted.most_tokens() == 10 + 2 * 16 + 64 + 100


def test_a_conversation_is_taken_as_it_is():
    said = [{"role": "user", "content": "a\x00b"}, {"role": "assistant", "content": ""}]
    wanted = read({"messages": said, "model": "large", "max_tokens": 7}, "llm.chat")
    assert (wanted.model, wanted.max_tokens) == ("large", 7)
    assert [msgspec.to_builtins(one) for one in wanted.messages] == said


MOST = "max_tokens: 100 at most (llm.max_tokens_per_call)"
NAMED = "model: 'other' is not allowed; the policy names small, large"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "Object missing required field `prompt`"),
        ({"prompt": 5}, "prompt: Expected `str`, got `int`"),
        ({"prompt": b"x"}, "prompt: Expected `str`, got `bytes`"),
        ({"prompt": "x", "max_tokens": 0}, "max_tokens: Expected `int` >= 1"),
        ({"prompt": "x", "max_tokens": True}, "max_tokens: Expected `int | null`, got `bool`"),
        ({"prompt": "x", "max_tokens": 1e9}, "max_tokens: Expected `int | null`, got `float`"),
        ({"prompt": "x", "max_tokens": 2**64 - 1}, MOST),
        ({"prompt": "x", "max_tokens": 101}, MOST),
        ({"prompt": "x", "temperature": float("nan")}, "temperature: Expected `float` >= 0.0"),
        ({"prompt": "x", "temperature": float("inf")}, "temperature: Expected `float` <= 2.0"),
        ({"prompt": "x", "model": "other"}, NAMED),
        ({"prompt": "x", "base_url": "http://a"}, "Object contains unknown field `base_url`"),
        ({"prompt": "x", "extra_headers": {}}, "Object contains unknown field `extra_headers`"),
        ({"prompt": "x", "n": 100}, "Object contains unknown field `n`"),
        ({"prompt": "x", "stop": ["a"] * 5}, "stop: Expected `array` of length <= 4"),
        ({"prompt": "x", "stop": [""]}, "stop[0]: Expected `str` of length >= 1"),
    ],
)
def test_what_is_not_to_be_asked_is_refused_by_its_name(given, said):
    with pytest.raises(provider.InvalidRequestError) as refused:
        read(given)
    assert str(refused.value) == said


@pytest.mark.parametrize(
    "messages",
    [
        [],
        "hello",
        [{"role": "tool", "content": "x"}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": "http://a"}]}],
        [{"role": "user", "content": "x", "tool_calls": []}],
        [{"role": "user", "content": None}],
        [["user", "x"]],
    ],
)
def test_messages_are_texts_by_those_who_may_speak(messages):
    with pytest.raises(provider.InvalidRequestError):
        read({"messages": messages}, "llm.chat")


@pytest.mark.parametrize(
    "payload",
    [
        b"\x92\x90\x81\xa6prompt\xa2\xff\xfe",  # no UTF-8
        b"\x92\x90\x81\xa6prompt\xa3\xed\xa0\x80",  # a lone surrogate
        b"\x92\x91\x01\x81\xa6prompt\xa1x",  # by position
        b"\x91\x90",
        b"\xc0",
        b"",
        b"\x91" * 5_000,
        # A refusal repeats little of what was said.
        msgspec.msgpack.encode(([], {"prompt": "x", "y" * 100_000: 1})),
        msgspec.msgpack.encode(([], {"prompt": "x", "model": "y" * 100_000})),
    ],
)
def test_bytes_that_no_honest_guest_sends_are_refused_too(payload):
    with pytest.raises(provider.InvalidRequestError) as refused:
        read(payload)
    assert len(str(refused.value)) <= 300
