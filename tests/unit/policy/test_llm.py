"""``[llm]``: an endpoint is granted whole, or refused with one error that can be acted on."""

import pytest

pytest.importorskip("openai")

from cellblock.errors import PolicyError
from cellblock.policy.load import load
from cellblock.policy.model import Policy

GIVEN = {
    "base_url": '"https://llm.example.org/v1"',
    "models": '["small", "large"]',
    "key_env": '"LAB_KEY"',
}


@pytest.fixture
def operator(tmp_path):
    def write(head="", **changed):
        file = tmp_path / "team.toml"
        rows = [f"{key} = {value}" for key, value in (GIVEN | changed).items() if value]
        file.write_text("\n".join([head, "[llm]", *rows]))
        return load(str(file), project=tmp_path, allow_unsafe=False)

    return write


def test_nothing_is_granted_that_is_not_asked_for_and_what_is_left_out_is_the_presets(operator):
    assert not Policy().llm.granted

    llm = operator(max_calls="5").llm
    assert llm.granted
    assert (llm.models, llm.max_calls, llm.max_tokens) == (("small", "large"), 5, 1_000_000)
    assert operator().digest() != operator(max_tokens="7").digest()


def test_denials_name_what_is_granted_as_cells_call_it(operator):
    granted = operator('extends = "safe"\nops.http.hosts = ["https://a.org"]').rules().operations
    assert granted == {"llm", "ops.http"}
    assert operator(base_url=None).rules().operations == frozenset()


def test_dspy_comes_with_both_of_what_it_takes(operator):
    assert operator('extends = "data"').rules().allows_module("cellblock.dspy")
    assert not operator().rules().allows_module("cellblock.dspy")
    assert not operator('extends = "data"', base_url=None).rules().allows_module("cellblock")


NO_SECRET = "it may be shown, so it holds no secret (got '•••'). Give the key by key_env, and nothing behind the path."
#: By key and value.
WRONG = {
    ("base_url", '"llm.example.org"'): (
        "not an endpoint's address (got 'llm.example.org'). Write it as in https://api.openai.com/v1."
    ),
    ("base_url", '"https://me:sk-secret@a.org/v1"'): NO_SECRET,
    ("base_url", '"https://a.org/v1?key=sk-secret"'): NO_SECRET,
    ("base_url", '"http://a.org/v1"'): (
        "the key would cross the network in the clear (got 'http://a.org/v1')."
        " Write https, or leave out the key."
    ),
    ("models", "[]"): "none is named (got []). Name one at least, the default first.",
    ("models", '["a\\nb"]'): (
        "not the name of a model (got 'a\\nb'). Name it as the endpoint does."
    ),
    ("key_env", '"sk-proj-abc"'): (
        "not the name of a variable (got '•••')."
        " Give its name as in `env`, without $; the key itself stands nowhere in a policy."
    ),
    ("max_calls", "0"): "wrong value (got 0). It should be",
    ("max_tokens", "-1"): "wrong value (got -1). It should be",
    ("timeout", "nan"): "wrong value",
    ("max_in_flight", "1001"): "wrong value (got 1001). It should be",
    ("api_key", '"sk-secret"'): "no such key.",
}


@pytest.mark.parametrize(("wrong", "said"), WRONG.items())
def test_one_error_names_key_value_and_remedy(operator, wrong, said):
    key, value = wrong
    with pytest.raises(PolicyError) as refused:
        operator(**{key: value})
    assert f"team.toml: llm.{key}: {said}" in str(refused.value)
    assert "sk-secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ('env_var_access = ["LAB_KEY"]', "llm.key_env: cells would be given the key"),
        ('tools = ["lab_tools:llm"]', "llm.base_url: a tool is named llm"),
    ],
)
def test_what_does_not_go_together_is_refused(operator, head, said):
    with pytest.raises(PolicyError, match=said):
        operator(head)


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "[::1]:1"])
def test_a_key_may_go_in_the_clear_to_this_machine_only(operator, host):
    assert operator(base_url=f'"http://{host}/v1"').llm.granted
    assert operator(base_url='"http://a.org/v1"', key_env=None).llm.granted
