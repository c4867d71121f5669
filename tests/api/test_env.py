"""Variables of the environment that a program gives a sandbox."""

import pytest

from cellblock import Policy, Sandbox, SandboxPool
from cellblock.errors import InputError, PolicyError

pytestmark = pytest.mark.usefixtures("home")
SHOW = "import os, subprocess\nos.environ.get('STAGE'), subprocess.getoutput('echo $STAGE')"


@pytest.mark.quick
def test_cells_and_their_programs_have_them_and_no_other_sandbox_does(monkeypatch):
    monkeypatch.setenv("STAGE", "of the host")
    given = {"STAGE": "test", "empty": ""}
    with SandboxPool("data") as pool, pool.sandbox(env=given) as one, pool.sandbox() as other:
        assert one.execute(SHOW).value == ["test", "test"]
        assert other.execute(SHOW).value == [None, ""]
        (fork,) = one.fork(1)
        assert fork.execute(SHOW).value == ["test", "test"]
        one.execute("import os\nos.kill(os.getpid(), 9)")
        assert one.execute(SHOW).value == ["test", "test"]


@pytest.mark.parametrize("how", ["", "--fresh "])
def test_a_narrower_policy_leaves_them(how):
    with Sandbox("data", env={"STAGE": "test"}) as s:
        if not how:
            s.execute("1")
        assert s.execute(f"%policy narrow {how}max_open_files=200").success
        assert s.execute(SHOW).value == ["test", "test"]


@pytest.mark.parametrize(
    ("env", "why"),
    [
        ({"PATH": "/evil"}, "env: PATH: cells have a value of cellblock's for it. Leave it out"),
        ({"HOME": "/root"}, "value of cellblock's"),
        ({"A": 1}, "env: A: not a text"),
        ({"": "x"}, "no variable can be that"),
        ({"A=B": "x"}, "no variable can be that"),
        ({"A": "x\0y"}, "no variable can be that"),
    ],
)
def test_what_can_not_be_given_is_an_error_before_anything_runs(env, why):
    with pytest.raises(InputError, match=why):
        Sandbox("safe", env=env).open()


def test_the_key_of_language_models_is_no_cells():
    llm = {"base_url": "https://localhost/v1", "models": ["small"], "key_env": "LAB_KEY"}
    with pytest.raises(InputError, match=r"LAB_KEY: .* which no cell gets"):
        Sandbox(Policy.preset("safe", llm=llm), env={"LAB_KEY": "secret"}).open()


def test_the_variable_of_a_credential_is_no_cells():
    policy = Policy.preset(
        "safe",
        ops={"http": {"hosts": ["api.example.org"]}},
        credentials={"API": {"hosts": ["api.example.org:443"], "value": "env:API_KEY"}},
    )
    why = r"API_KEY: the policy has the credential API there, which no cell gets"
    with pytest.raises(InputError, match=why):
        Sandbox(policy, env={"API_KEY": "secret"}).open()


def test_what_is_too_large_or_no_utf_8_is_said():
    for value in ("x" * 2**17, "\ud800"):
        with pytest.raises(PolicyError):
            Sandbox("safe", env={"A": value}).open()
