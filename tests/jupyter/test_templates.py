"""Templates as cells run them: definitions of the operator's, and a state that stays data."""

import json

import pytest

from support import reading
from support.admission import ATTACKS, UNSAFE
from support.kernels import Kernel, World, argv_for

TEMPLATES = {
    "boom": "def inner(x):\n    return 1 / x\n\n\ndef run(state):\n    return inner(0)",
    "echo": "def run(state):\n    return state",
    "leave": (
        "def run(state):\n    global left\n    left = 1\n    print('x' in globals(), len(state))"
    ),
    "wait": "import asyncio\n\n\nasync def run(state):\n    await asyncio.sleep(0)\n    return state",
}


CAREFUL = {
    "computed": "def run(state):\n    return getattr(lambda: 1, state['name'])",
    "opens": "def run(state):\n    return open(state['path']).read()",
}


def begun(templates, text, *options):
    """Start a kernel that has these templates; ``{folder}`` in its policy is theirs."""
    world = World()
    folder = world.root / "templates"
    folder.mkdir(mode=0o755)
    for name, source in templates.items():
        (folder / f"{name}.py").write_text(f"{source}\n")
        (folder / f"{name}.schema.json").write_text("{}")
    policy = world.policy(text.replace("{folder}", str(folder)))
    kernel = Kernel(argv_for(policy, *options), world=world)
    kernel.own_world = True
    return kernel


@pytest.fixture(scope="module")
def templated():
    """Templates alone may run."""
    text = 'admission = "template"\ntemplates.folders = ["{shipped}", "{folder}"]\n'
    with begun(TEMPLATES, UNSAFE + text, "--allow-unsafe").wait_heard() as kernel:
        yield kernel


@pytest.fixture(scope="module")
def careful():
    """Templates of the operator's run, under the language layer."""
    with begun(CAREFUL, 'templates.folders = ["{folder}"]').wait_ready() as kernel:
        yield kernel


def template(name, state):
    return f"%%template {name}\n{json.dumps(state)}"


@pytest.mark.parametrize(
    ("cell", "result"),
    [
        (template("echo", {"a": [1, 2.5, None, "); x"]}), "{'a': [1, 2.5, None, '); x']}"),
        ("%%template echo", "{}"),
        (template("wait", {"a": 2**64 - 1}), "{'a': 18446744073709551615}"),
        (
            template("describe", {"numbers": [1, 2, 4], "digits": 1}),
            (
                "{'count': 3,\n 'mean': 2.3,\n 'deviation': 1.5,\n 'least': 1,\n"
                " 'quartile 1': 1.5,\n 'median': 2.0,\n 'quartile 3': 3.0,\n 'most': 4}"
            ),
        ),
    ],
)
def test_a_template_gets_its_state_as_data_and_gives_its_result(templated, cell, result):
    assert reading.result(templated.run(cell)[1]) == result


@pytest.mark.parametrize("name", ATTACKS)
def test_under_template_admission_no_other_source_runs(templated, name):
    content = ATTACKS[name](templated)
    refused = content if content["status"] == "error" else content["user_expressions"]["a"]
    assert refused["ename"] == "PolicyDenied"


def test_a_template_that_is_named_in_another_magic_is_refused(templated, safe, unsafe):
    cell = f"%%time\n{template('describe', {'numbers': [1, 2]})}"
    assert templated.run(cell)[0]["ename"] == "PolicyDenied"
    (card,) = reading.cards(safe.run(cell)[1], "denial")
    assert [(f["rule"], f["line"]) for f in card["findings"]] == [("magic-not-allowed", 2)]
    assert unsafe.run(cell)[0]["ename"] == "UsageError"  # there, by IPython


def test_a_refused_state_says_path_and_keyword(templated):
    _, published = templated.run(template("describe", {"numbers": [1, "x"], "more": 1}))
    (card,) = reading.cards(published, "denial")
    assert sorted((f["rule"], f["why"]) for f in card["findings"]) == [
        ("template-state", "The state, $.numbers[1]: 'x' is not of type 'number' (type)"),
        ("template-state", "The state, $: 'more' is not a key that it has (additionalProperties)"),
    ]


def test_a_template_leaves_nothing_behind_and_sees_nothing_of_others(templated):
    for _ in range(2):
        _, published = templated.run(template("leave", {"a": 1}))
        assert reading.stream(published) == "False 1\n"


def test_an_error_in_a_template_is_shown_with_the_templates_lines(templated):
    _, published = templated.run(template("boom", {}))
    text = reading.traceback(published)
    assert "ZeroDivisionError" in text
    assert "<template boom>" in text
    assert "return 1 / x" in text
    assert "cellblock" not in text


@pytest.mark.quick
def test_templates_are_listed_and_one_is_shown_with_its_schema(templated):
    (card,) = reading.cards(templated.run("%template")[1], "templates")
    assert [each["name"] for each in card["templates"]] == sorted([*TEMPLATES, "describe", "table"])
    _, published = templated.run("%template describe")
    (card,) = reading.cards(published, "templates")
    assert card["schema"]["required"] == ["numbers"]
    assert '"maxItems": 10000' in reading.card_text(published)


def test_under_any_admission_a_template_runs_beside_other_cells(safe):
    rows = {"columns": ["a", "b"], "rows": [{"a": 1, "b": "x|<b>y"}, {"a": None}]}
    safe.run("columns = 1")
    _, published = safe.run(template("table", rows))
    (shown,) = reading.of(published, "execute_result")
    assert "| a | b |\n|---|---|\n| 1 | x" in shown["data"]["text/markdown"]
    assert "<b>" not in shown["data"]["text/markdown"].replace("\\<", "")
    assert reading.result(safe.run("columns")[1]) == "1"
    assert reading.result(safe.run("type(_).__name__")[1]) == "'int'"


def test_a_name_that_is_a_path_is_no_template(safe, templated):
    for kernel in (safe, templated):
        (card,) = reading.cards(kernel.run("%%template ../describe")[1], "denial")
        assert [f["rule"] for f in card["findings"]] == ["template-not-found"]


def test_a_template_is_judged_as_cells_are_and_told_from_them(careful):
    _, published = careful.run(template("opens", {"path": "/etc/hostname"}))
    (card,) = reading.cards(published, "denial")
    assert card["source"] == "template opens"
    assert [(f["rule"], f["line"]) for f in card["findings"]] == [("builtin-not-allowed", 2)]
    assert "cellblock did not run template opens: 1 finding " in reading.card_text(published)


def test_what_a_template_computes_from_its_state_is_guarded_as_in_cells(careful):
    reply, _ = careful.run(template("computed", {"name": "__globals__"}))
    assert reply["ename"] == "AttributeViolation"
    reply, _ = careful.run(template("computed", {"name": "__name__"}))
    assert reply["status"] == "ok"
