"""Comms and widgets, attacked by raw messages: what is passed on is judged here by other means.

Each program of `widgets` opens and tells what it likes. Whatever reached a front end is held
against what the views of ipywidgets do with each key: make HTML of it, CSS, an address, a class.
"""

import json
import re

import pytest

from cellblock.host.output import frames
from support import reading
from support.active_content import in_tokens
from support.widgets import ATTACKS, prelude

MODULES = {"@jupyter-widgets/base", "@jupyter-widgets/controls", "@jupyter-widgets/output"}
VIEW = "application/vnd.jupyter.widget-view+json"
#: Keys that views only ever show as text, or put into a field or a title.
TEXT = {
    *("_options_labels", "accept", "allowed_tags", "description", "error", "icons", "mapping"),
    *("name", "options", "outputs", "placeholder", "readout", "titles", "tooltip", "tooltips"),
}
#: Models whose value is typed by the user, or shown as text.
TYPED = {
    *("ComboboxModel", "LabelModel", "PasswordModel", "TagsInputModel", "TextModel"),
    "TextareaModel",
}
NAME = re.compile(r"[A-Za-z0-9_.:-]+")
LOADS = re.compile(r"url|image|src|element|//|@|\\\\|[{};<>]", re.IGNORECASE)
FOREIGN = re.compile(r"(jp|lm|p|cm)-")
#: Where interactive output goes, under display isolated; it has tests of its own.
FRAME = re.compile(r"<iframe [^>]*sandbox=\"allow-scripts\"[^>]*>")
MARK = re.compile(r"hit\.|127\.0\.0\.1")


class Page:
    """What a front end knows after a program: every widget's model and whole state."""

    def __init__(self):
        self.models, self.states = {}, {}

    def take(self, message):
        kind, content = message["msg_type"], message["content"]
        if kind in {"comm_open", "comm_msg", "comm_close"}:
            getattr(self, kind)(content, [bytes(b) for b in message["buffers"]])

    def comm_open(self, content, buffers):
        name, state = content["comm_id"], content["data"]["state"]
        assert set(content) == {"comm_id", "data", "target_name"}
        assert content["target_name"] == "jupyter.widget"
        assert NAME.fullmatch(name)
        assert name not in self.models
        assert {state["_model_module"], state["_view_module"]} <= MODULES
        assert re.fullmatch(r"\d+\.\d+\.\d+", state["_model_module_version"])
        assert re.fullmatch(r"[A-Za-z]+", f"{state['_model_name']}{state['_view_name']}")
        self.models[name], self.states[name] = state["_model_name"], {}
        self.update(name, content["data"], buffers)

    def comm_msg(self, content, buffers):
        data = content["data"]
        assert set(content) == {"comm_id", "data"}
        assert content["comm_id"] in self.models
        if data["method"] == "custom":
            assert data["content"] in ({"do": "focus"}, {"do": "blur"})
        else:
            assert data["method"] in {"update", "echo_update"}
            self.update(content["comm_id"], data, buffers)

    def comm_close(self, content, _):
        del self.models[content["comm_id"]], self.states[content["comm_id"]]

    def update(self, name, data, buffers):
        state = data["state"]
        for path, buffer in zip(data["buffer_paths"], buffers, strict=True):
            assert path == ["value"]
            state = state | {"value": buffer}
        self.states[name] |= state
        self.judge(name)

    def judge(self, name):
        model, state = self.models[name], self.states[name]
        for key, value in state.items():
            assert not acts(model, key, value, state), (model, key, value)
        if model.endswith("LinkModel"):
            self.judge_link(state)

    def judge_link(self, state):
        ends = [state.get(end) for end in ("source", "target")]
        for (reference, key), (other, sink) in (ends, ends[::-1]) if all(ends) else ():
            held = self.states[reference.removeprefix("IPY_MODEL_")].get(key)
            name = other.removeprefix("IPY_MODEL_")
            state_ = self.states[name] | {sink: held}
            assert not acts(self.models[name], sink, held, state_), (sink, held)


def acts(model, key, value, state):
    """Return whether a view makes more of a value than text."""
    text = value if isinstance(value, str) else json.dumps(value, default=repr)
    if (model in {"HTMLModel", "HTMLMathModel"} and key == "value") or (
        key == "description" and state.get("description_allow_html")
    ):
        return in_tokens(text)
    if key == "outputs":
        ours = f"<script>{frames.page_script()}</script>"  # beside each frame, the same for all
        return any(in_tokens(FRAME.sub("", markup).replace(ours, "")) for markup in markups(value))
    if model in {"ImageModel", "VideoModel", "AudioModel"} and key in {"value", "format"}:
        return is_address(state) or is_played(model, state)
    if key == "_dom_classes":
        return FOREIGN.search(text)
    if "Style" in model or model == "LayoutModel":
        return LOADS.search(text) if not key.startswith("_") else False
    return key not in TEXT and not (key == "value" and model in TYPED) and MARK.search(text)


def markups(outputs):
    bundles = [output.get("data", {}) for output in outputs]
    shown = [(mime, text) for bundle in bundles for mime, text in bundle.items()]
    programs = [f"<script>{text}" for mime, text in shown if "javascript" in mime]
    return programs + [text for mime, text in shown if mime == "text/html"]


def is_address(state):
    return state.get("format") == "url" and not state.get("value", b"").startswith(b"data:image/")


def is_played(model, state):
    value = state.get("value") or b""
    drawn = state.get("format") == "svg+xml" and in_tokens(value.decode())
    return drawn or (model != "ImageModel" and b"#EXTM3U" in value)


@pytest.fixture(scope="module", params=["isolated", "sanitized"])
def kernel(request, start_shared, tmp_path_factory):
    policy = tmp_path_factory.mktemp("policy") / "attacked.toml"
    policy.write_text(f"extends = 'unsafe'\ndisplay = '{request.param}'\n")
    made = start_shared(policy, "--allow-unsafe")
    assert made.run(prelude())[0]["status"] == "ok"
    return made


@pytest.fixture
def with_policy(start, world):
    """Return a function that starts a kernel of a test's own, under unsafe and these settings."""

    def started(settings):
        policy = world.policy(f"extends = 'unsafe'\n{settings}\n")
        made = start(policy, "--allow-unsafe", world=world)
        made.run(prelude())
        return made

    return started


@pytest.mark.parametrize("name", ATTACKS)
def test_nothing_that_acts_is_passed_on(kernel, name):
    page = Page()
    for cell in ATTACKS[name].cells:
        _, published = kernel.run(cell)
        for message in published:
            page.take(message)
        shown = [c["data"] for c in reading.of(published, "display_data", "execute_result")]
        views = [data[VIEW]["model_id"] for data in shown if VIEW in data]
        assert set(views) <= set(page.models)
        assert all("text/html" in data or "text/plain" in data for data in shown)


def test_the_judge_sees_what_acts():
    """Without the gateway the same messages are found out: the control of this file's own eyes."""
    hits = {
        ("HTMLModel", "value"): "<img src=x onerror=hit.x()>",
        ("IntSliderModel", "readout_format"): "<img src=x onerror=hit.x()>",
        ("HTMLStyleModel", "background"): "url(http://127.0.0.1/x)",
        ("LayoutModel", "width"): "1px;background:url(x)",
        ("ButtonModel", "_dom_classes"): ["jp-Dialog"],
        ("ImageModel", "format"): "url",
        ("OutputModel", "outputs"): [{"data": {"text/html": "<script>hit.x()</script>"}}],
    }
    for (model, key), value in hits.items():
        assert acts(model, key, value, {key: value}), (model, key)


def test_a_refused_module_is_named_once_on_a_card_with_what_to_do(kernel):
    code = "for _ in range(9): widget('newwidget', 'AnyModel', 'AnyView')"
    _, published = kernel.run(code)
    (card,) = reading.cards(published, "comm")
    assert card == {
        "version": 1,
        "title": "cellblock did not show a widget of newwidget",
        "outcome": "refused",
        "module": "newwidget",
        "model": "AnyModel",
    }
    text = reading.card_text(published)
    assert "cellblock did not show a widget of newwidget" in text
    assert 'add.widget_modules = ["newwidget"]' in " ".join(text.split())
    left = "a widget\n[cellblock left out application/vnd.jupyter.widget-view+json]"
    assert left in text
    # What is left out of each cell is said there; the card comes once in the session.
    _, published = kernel.run(code)
    assert reading.cards(published, "comm") == []
    assert left in reading.card_text(published)


def test_many_refused_modules_are_no_flood(kernel):
    _, published = kernel.run("for n in range(300): widget(f'm{n}', 'M', 'V', show=False)")
    assert len(reading.cards(published, "comm")) == 5


def test_a_comm_without_a_widget_is_refused_by_its_target(kernel):
    _, published = kernel.run("comm.create_comm(target_name='bokeh', data={})")
    (card,) = reading.cards(published, "comm")
    assert card == {
        "version": 1,
        "title": "cellblock did not open a comm to bokeh",
        "outcome": "refused",
        "target": "bokeh",
    }
    assert '\n    add.comm_targets = ["bokeh"]' in reading.card_text(published)


def test_markup_of_which_nothing_is_left_counts_by_what_there_was(with_policy):
    kernel = with_policy("display_max_bytes = 1_000_000")
    code = "begin('x'); made = control('HTML', value='')\nfor _ in range(50): update(made, value='<script>' + 'x' * 100_000)"
    _, published = kernel.run(code)
    assert len(reading.of(published, "comm_msg")) < 10
    assert "display_max_bytes" in reading.notices(published)


def test_the_focus_is_taken_once_a_request(kernel):
    code = "made = control('Text', value='')\nfor _ in range(9):\n    made.send({'method': 'custom', 'content': {'do': 'focus'}})"
    _, published = kernel.run(code)
    assert len(reading.of(published, "comm_msg")) == 1


def test_a_capture_ends_before_a_card_of_the_kernel(with_policy):
    kernel = with_policy("timeout = 1.0")
    mid = kernel.execute_send(
        "begin('x'); widget(OUTPUT, 'OutputModel', 'OutputView', msg_id='x', outputs=[])\n"
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    )
    published = kernel.until_idle(mid)
    kinds = [m["msg_type"] for m in published]
    (released,) = [m["content"]["data"] for m in published if m["msg_type"] == "comm_msg"]
    assert released["state"] == {"msg_id": ""}
    assert kinds.index("comm_msg") < len(kinds) - 1 - kinds[::-1].index("display_data")


@pytest.mark.parametrize(("snapshots", "known"), [("off", set()), ("auto", {"mine"})])
def test_a_fresh_guest_knows_no_comm_and_a_restored_one_those_it_had(with_policy, snapshots, known):
    kernel = with_policy(f"snapshots = '{snapshots}'")
    kernel.run("begin('x'); made = control('HTML', comm_id='mine', value='x')")
    assert set(kernel.ask("comm_info_request", {})["content"]["comms"]) == {"mine"}
    kernel.run("import os; os._exit(1)")
    kernel.run("1")
    assert set(kernel.ask("comm_info_request", {})["content"]["comms"]) == known


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("extends = 'safe'", {"module": "@jupyter-widgets/controls", "model": "HTMLModel"}),
        ("extends = 'data'\ndisplay = 'text'", {"target": "jupyter.widget"}),
    ],
)
def test_without_widgets_every_comm_is_refused(start, world, text, named):
    policy = world.policy(f"{text}\n[add]\nallowed_modules = ['comm']\n")
    kernel = start(policy, world=world)
    code = "import comm\nstate = {'_model_module': '@jupyter-widgets/controls', '_model_name': 'HTMLModel'}\ncomm.create_comm(target_name='jupyter.widget', data={'state': state})"
    _, published = kernel.run(code)
    assert reading.of(published, "comm_open") == []
    (card,) = reading.cards(published, "comm")
    assert named.items() <= card.items()
