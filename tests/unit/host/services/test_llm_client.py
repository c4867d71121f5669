"""What the worker makes of an endpoint, honest or not: a real server, and openai's own client."""

import asyncio
import os
import time
from dataclasses import asdict

import pytest

pytest.importorskip("openai")

import openai

from cellblock.host.services import llm_client as client
from cellblock.policy.model import Llm
from support.endpoint import KEY, Endpoint

NO_COMPLETION = ("EndpointError", "the endpoint's answer is not a completion", None)
TOO_LARGE = ("AnswerTooLarge", "the endpoint's answer is too large (tool_max_bytes)", None)


@pytest.fixture(scope="module")
def server():
    made = Endpoint()
    yield made
    made.close()


@pytest.fixture(scope="module")
def runner():
    """One loop, as a worker has: connections are of it."""
    with asyncio.Runner() as made:
        yield made
    client.client_of.cache_clear()


class Asker:
    """Asks the server as a worker does."""

    def __init__(self, server, runner):
        self.server, self.runner = server, runner
        server.left.clear()
        server.asked.clear()

    def __call__(self, prompt, *, stop=(), temperature=None, system="", **changed):
        max_bytes = changed.pop("max_bytes", 100_000)
        fields = {
            "base_url": self.server.base_url,
            "key_env": "THE_KEY",
            "timeout": 20.0,
            "retries": 1,
            "max_in_flight": 4,
        }
        llm = Llm(models=("small",), **fields | changed)
        said = [{"role": "system", "content": system}] if system else []
        wanted = {
            "model": "small",
            "messages": [*said, {"role": "user", "content": prompt}],
            "max_tokens": 500,
            "temperature": temperature,
            "stop": list(stop),
        }
        return self.run(client.complete(asdict(llm), max_bytes, wanted))

    def run(self, coroutine):
        client.key_of.cache_clear()
        return self.runner.run(coroutine)

    def failure(self, prompt, **options):
        said = self(prompt, **options)
        assert "kind" in said, said
        return tuple(said.values())


@pytest.fixture
def ask(server, runner, monkeypatch):
    monkeypatch.setenv("THE_KEY", f" {KEY}\n")
    return Asker(server, runner)


def test_a_prompt_is_asked_with_the_key_and_answered(ask, server):
    assert ask("say hello there", system="be brief", temperature=0.5, stop=["."]) == {
        "value": {
            "text": "hello there",
            "finish_reason": "stop",
            "model": "small-2026",
            "prompt_tokens": 5,
            "completion_tokens": 2,
        },
        "tokens": 7,
    }
    (asked,) = server.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.headers["accept-encoding"] == "identity"
    assert asked.body == {
        "model": "small",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "say hello there"},
        ],
        "max_tokens": 500,
        "temperature": 0.5,
        "stop": ["."],
    }


def test_the_policy_says_what_the_length_is_called_and_whether_there_is_a_key(ask, server):
    ask("say x", token_parameter="max_completion_tokens", key_env="")
    (asked,) = server.asked
    assert asked.body["max_completion_tokens"] == 500
    assert "max_tokens" not in asked.body
    assert asked.headers["authorization"] == "Bearer none"


def test_what_is_busy_is_asked_again(ask, server):
    assert ask("busy now")["value"]["text"] == "now"
    assert len(server.asked) == 2


def test_text_that_json_can_hold_and_utf8_can_not_arrives_mended(ask):
    said = ask("unmetered a\ud800\x00b".encode("utf-8", "replace").decode())
    assert said["value"]["text"] == "a?\x00b"
    body = '{"choices": [{"message": {"content": "a\\ud800b"}}]}'
    assert ask(f"raw {body}")["value"]["text"] == "a?b"


def test_calls_of_tools_in_an_answer_are_nothing(ask):
    said = ask("calls")["value"]
    assert (said["text"], said["finish_reason"]) == ("", "tool_calls")


def test_what_an_endpoint_does_not_tell_counts_a_token_a_byte(ask):
    prompt = "unmetered wörd"
    said = ask(prompt)
    assert said["tokens"] == len(prompt.encode()) + len("wörd".encode())
    assert said["value"]["prompt_tokens"] is None


def test_of_what_follows_the_client_alone_would_have_done_each(server):
    """The control: without our bounds, a key is quoted, a redirect followed, a bomb unpacked."""

    def asked(prompt):
        said = [{"role": "user", "content": prompt}]
        return plain.chat.completions.create(model="small", messages=said)

    server.asked.clear()
    with openai.OpenAI(base_url=server.base_url, api_key=KEY, max_retries=0) as plain:
        with pytest.raises(openai.AuthenticationError, match=KEY):
            asked("status 401 wrong key {key}")
        assert KEY in asked("key it is").choices[0].message.content
        assert len(asked("zipped 50000").choices[0].message.content) == 50_000
        asked("redirect 302 /elsewhere")
        assert server.asked[-1].path == "/elsewhere"
        assert asked('raw {"choices": [{"message": {"content": 5}}]}').choices[0].message


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_told_and_nothing_that_was_said_of_it(ask, status):
    said = ask.failure(f"status {status} Incorrect API key provided: {{key}}")
    told = f"the endpoint refuses the host's key ({status})"
    assert said == ("AuthenticationError", told, 0)


@pytest.mark.parametrize(
    ("prompt", "kind", "told"),
    [
        ("status 400 context is\n8192", "BadRequestError", "(400): context is 8192"),
        ("status 404 no model {key}", "NotFoundError", "(404): no model •••"),
        ("status 429 slow down", "RateLimitError", "(429): slow down"),
        ("status 422 sk-abc*****xyz", "UnprocessableEntityError", "(422): •••"),
        ("status 500 oops \x1b[31m", "InternalServerError", "(500): oops [31m"),
        ("status 418 {key}{key}", "APIStatusError", "(418): ••••••"),
    ],
)
def test_other_refusals_are_told_in_the_endpoints_words_without_the_key(ask, prompt, kind, told):
    assert ask.failure(prompt) == (kind, f"the endpoint refuses {told}", 0)


def test_what_an_endpoint_says_of_an_error_is_bounded(ask):
    _, told, _ = ask.failure("status 400 " + "no " * 50_000)
    assert len(told) < 400
    began = time.monotonic()
    ask.failure("status 400 " + "a." * 100_000)
    assert time.monotonic() - began < 5


def test_the_key_is_taken_out_of_an_answer_before_anything_is_cut(ask):
    assert ask("key it is")["value"]["text"] == "it is ••• there"
    said = ask(f"reason {'x' * 190}")
    assert said["value"]["finish_reason"] == "x" * 190 + "•••"


def test_a_server_that_is_not_there_is_told(ask):
    said = ask.failure("x", base_url="http://127.0.0.1:9/v1")
    # Nothing was sent, so nothing can have been paid for.
    assert said == ("ConnectionError", "the endpoint can't be reached, or hung up", 0)


@pytest.mark.parametrize("where", ["http://127.0.0.1:{port}/elsewhere", "http://127.7.7.8:9/"])
def test_a_redirect_is_not_followed(ask, server, where):
    port = server.base_url.split(":")[2].split("/")[0]
    for status in (301, 302, 307, 308):
        _, told, cost = ask.failure(f"redirect {status} {where.format(port=port)}")
        assert told == f"the endpoint redirects, which is not followed ({status})"
        assert cost == 0
    assert {one.path for one in server.asked} == {"/v1/chat/completions"}


NO_COMPLETIONS = [
    "this is no JSON",
    "",
    "[]",
    "null",
    '{"choices": []}',
    '{"choices": "x"}',
    '{"choices": [{"message": {"content": 5}}]}',
    '{"choices": [{"message": {"content": ["a"]}}]}',
    '{"choices": [{"message": {"content": "a"}}, {"message": {"content": "b"}}]}',
    '{"choices": [{"message": {"content": "a"}}], "model": {"a": 1}}',
    "[" * 100_000,
    'data: {"choices": [{"delta": {"content": "a"}}]}\n\n',
]


def test_what_is_no_completion_is_told(ask):
    for body in NO_COMPLETIONS:
        assert ask.failure(f"raw {body}") == NO_COMPLETION, body


@pytest.mark.parametrize("tokens", ["-5", "1.5", "true", '"5"', str(2**70), "NaN"])
def test_a_count_of_tokens_that_is_none_is_not_believed(ask, tokens):
    usage = f'{{"prompt_tokens": {tokens}, "completion_tokens": 1}}'
    body = f'{{"choices": [{{"message": {{"content": "a"}}}}], "usage": {usage}}}'
    assert ask.failure(f"raw {body}") == NO_COMPLETION


# --- floods -----------------------------------------------------------------------------------


def test_an_answer_that_is_longer_than_may_cross_is_refused_and_paid_for(ask):
    assert ask("long 100000")["value"]["text"] == "x" * 100_000
    kind, told, cost = ask.failure("long 100001")
    assert (kind, told) == TOO_LARGE[:2]
    assert cost == 3  # as the endpoint tells


@pytest.mark.parametrize("kind", ["line", "events"])
def test_a_flood_is_cut_off(ask, server, kind):
    assert ask.failure(f"flood {kind}") == TOO_LARGE
    assert server.left.wait(10)


def test_what_is_packed_is_not_unpacked(ask):
    assert ask.failure("zipped 50000") == NO_COMPLETION


def test_time_that_runs_out_is_told(ask, server):
    said = ask.failure("hang", timeout=0.3, retries=0)
    told = "the endpoint did not answer in time (llm.timeout)"
    assert said == ("TimeoutError", told, None)
    assert server.left.wait(10)


def test_a_call_that_is_cancelled_hangs_up(ask, server, monkeypatch):
    complete = client.complete

    async def cancelled(*given):
        task = asyncio.create_task(complete(*given))
        while not server.asked:  # noqa: ASYNC110 - another thread serves
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    monkeypatch.setattr(client, "complete", cancelled)
    for prompt in ("hang", "drip"):
        server.left.clear()
        server.asked.clear()
        ask(prompt)
        assert server.left.wait(10)


# --- the key ----------------------------------------------------------------------------------


def test_a_key_that_is_not_there_or_can_not_be_sent_is_told_without_it(ask, monkeypatch):
    said = ask.failure("x", key_env="NO_SUCH_VARIABLE")
    assert said == ("NoKey", "the host's environment has no NO_SUCH_VARIABLE", 0)
    monkeypatch.setenv("THE_KEY", "sk-é\r\nX-Other: 1")
    said = ask.failure("x")
    assert said == ("NoKey", "the host's key can't be sent: it is not one line of ASCII", 0)


def test_nothing_but_the_policy_says_where_and_how_to_ask(ask, server, monkeypatch):
    client.client_of.cache_clear()
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("OPENAI_ORG_ID", "other")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Other: 1")
    assert ask("say x")["tokens"]
    assert not {"openai-organization", "x-other"} & set(server.asked[0].headers)
    assert not [name for name in os.environ if name.startswith("OPENAI_")]
