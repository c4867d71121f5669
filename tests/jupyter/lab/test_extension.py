"""The JupyterLab extension as its user sees it, in a server of its own that has it.

With ``CELLBLOCK_PICTURES`` set, the pictures in docs/_static/lab are made anew, of a machine whose
locks were tried; ``CELLBLOCK_TEST_BACKEND=bubblewrap`` has them all hold. That is for root, and in
one process: all is in /home/ada, which is there for as long.
"""

import html
import io
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
from PIL import Image

from support import lessons
from support.cell_servers import serving_cell
from support.kernels import argv_for
from support.lessons import Classroom
from support.ports import next_port

from .conftest import ROOT, Desk, new_page, notebook_of, serving

EXTENSION = ROOT / "jupyterlab" / "cellblock_lab" / "labextension"
AXE = ROOT / "jupyterlab" / "node_modules" / "axe-core" / "axe.min.js"
PICTURES = ROOT / "docs" / "_static" / "lab"
#: Enough for text and icons, in half of the bytes.
COLOURS = 160
MAKES_PICTURES = bool(os.environ.get("CELLBLOCK_PICTURES"))

REFUSED = "import socket, json\nrows = open('a.csv')"
STAGED = "from pathlib import Path\nn = Path('{0}.csv').write_text('month,eur\\n')\nn = Path('{0}.txt').write_text('c')"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    if not (EXTENSION / "package.json").exists() or not AXE.exists():
        pytest.skip("the JupyterLab extension is not built: run `make lab`")
    home = Path("/home/ada") if MAKES_PICTURES else tmp_path_factory.mktemp("extension")
    home.mkdir(exist_ok=not MAKES_PICTURES)
    with serving(home, EXTENSION) as server:
        for policy in ("data", "safe") * MAKES_PICTURES:
            cellblock(server, f"doctor --policy {policy}")
        yield server
    if MAKES_PICTURES:
        shutil.rmtree(home)


def cellblock(lab, arguments):
    """Run the command in the notebooks' folder, and return what it prints."""
    command = [Path(sys.executable).with_name("cellblock"), *arguments.split()]
    done = subprocess.run(
        command, env=lab.environment(), cwd=lab.folder, check=True, capture_output=True, text=True
    )
    return done.stdout


@pytest.fixture(scope="module")
def desk(lab, browser):
    made = Desk(lab, browser)
    yield made
    made.close()


@pytest.fixture(scope="module")
def asking(lab):
    """A kernel that asks before an operation."""
    policy = lab.settings.parent / "asking.toml"
    policy.write_text('approvals = "prompt"\n[ops.list_dir]\nroots = ["{project}"]\n')
    lab.add_kernel("asking", argv_for(policy))
    return "asking"


def shield(view):
    return view.page.locator(".jp-NotebookPanel .cb-Shield button")


def panel(view):
    """Return the panel, opened from the shield by the keyboard."""
    shown = view.page.get_by_role("region", name="cellblock", exact=True)
    if not shown.is_visible():
        shield(view).wait_for()
        status = view.page.locator("#jp-main-statusbar .cb-Shield button")
        status.focus()
        view.page.keyboard.press("Enter")
        shown.wait_for()
    return shown


def section(view, name):
    return (
        panel(view)
        .locator("details.cb-Section")
        .filter(has=view.page.locator("summary", has_text=name))
    )


def failures(page, *selectors):
    """Return what axe finds in the parts of a page that a selector finds."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE.read_text())
    found = page.evaluate(
        "async include => (await axe.run({include: include.map(one => [one])})).violations",
        list(selectors),
    )
    return [(one["id"], node["html"][:200]) for one in found for node in one["nodes"]]


def picture(locator, name, width=2_000, height=2_000):
    """Have a picture of a part of the page, at most so wide and high, from its upper left."""
    if MAKES_PICTURES:
        locator.evaluate("e => { e.scrollTop = 0; }")
        drawn = Image.open(io.BytesIO(locator.screenshot())).convert("RGB")
        drawn = drawn.crop((0, 0, min(drawn.width, width), min(drawn.height, height)))
        few = drawn.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(PICTURES / f"{name}.png", optimize=True)


def underlined(view, index):
    return view.cell(index).locator(".cm-lintRange-error")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1_200, 600])
def test_all_that_is_shown_is_accessible_in_both_themes_wide_and_narrow(
    open_notebook, theme, width
):
    cells = [STAGED.format("results"), "%checkpoint clean", "1 / 0", "%usage"]
    view = open_notebook(cells, kernel="cellblock-data", theme=theme, width=width, height=1_450)
    for index in range(len(cells)):
        view.run(index)
    section(view, "Staged changes").get_by_text("results.csv").click()
    section(view, "Staged changes").get_by_text("+month,eur").wait_for()
    section(view, "Audit").locator("summary").first.click()
    record = section(view, "Audit").locator(
        "li summary", has_text="Cell 3 ended: ZeroDivisionError"
    )
    record.focus()
    record.press("Enter")
    fields = section(view, "Audit").get_by_text("outcome cell 3 status error")
    fields.wait_for()
    view.run(3)
    section(view, "Audit").get_by_text("Cell 5 ended: ok").wait_for()
    assert fields.is_visible()  # it is the record that was opened, not its place in the list
    section(view, "Policy").locator(".cb-Enforced summary").first.click()
    section(view, "Cells").get_by_label("ended with an error").wait_for()
    view.shot(f"extension-{theme}-{width}")
    assert failures(view.page, ".cb-Panel", ".cb-Shield", ".cb-Card") == []
    wide = "e => e.scrollWidth > e.clientWidth + 1"
    assert not panel(view).evaluate(wide)
    if (theme, width) == ("light", 1_200):
        picture(section(view, "Audit"), "audit-light", height=440)
        picture(section(view, "Staged changes"), "changes-light")
        picture(section(view, "Checkpoints"), "checkpoints-light")
        picture(view.page.locator(".jp-NotebookPanel-toolbar"), "shield-light", width=500)
    if width == 1_200:
        section(view, "Audit").locator("summary").first.click()
        picture(panel(view), f"panel-{theme}", height=1_230)


def test_a_denial_card_leads_to_its_line_by_the_keyboard_alone(open_notebook):
    view = open_notebook([REFUSED, "1"], kernel="cellblock")
    view.run(1)
    view.run(0)
    card = view.cell(0).get_by_role("group", name="cellblock did not run this cell: 2 findings")
    card.wait_for()
    underlined(view, 0).nth(1).wait_for()
    assert underlined(view, 0).all_inner_texts() == ["socket", "open"]
    assert failures(view.page, ".cb-Card") == []
    picture(view.cell(0), "card-light")
    card.get_by_role("button", name="line 2").focus()
    view.page.keyboard.press("Enter")
    assert view.page.evaluate("() => getSelection().toString()") == "open"
    view.page.keyboard.type("list")
    view.page.wait_for_function(
        "() => document.querySelectorAll('.jp-Cell .cm-lintRange-error').length === 1"
    )


def test_a_denials_block_is_copied_as_a_file_has_it(open_notebook):
    view = open_notebook([REFUSED, "#"], kernel="cellblock")
    view.run(0)
    block = view.cell(0).locator(".cb-Block")
    block.get_by_role("button", name="Copy").click()
    block.get_by_role("button", name="Copied").wait_for()
    view.cell(1).locator(".cm-content").click()
    view.page.keyboard.press("Control+a")
    view.page.keyboard.press("Control+v")
    view.save()
    pasted = json.loads(view.path.read_text())["cells"][1]["source"]
    assert tomllib.loads("".join(pasted)) == tomllib.loads(block.locator("pre").inner_text())
    assert "".join(pasted).startswith('extends = "safe"\n')


@pytest.fixture(scope="module")
def strict(lab):
    """A kernel whose cells run for seconds, and say little; and a secret beside it."""
    (lab.folder / ".env").write_text("PASSWORD=no\n")
    policy = lab.settings.parent / "strict.toml"
    policy.write_text('extends = "data"\ntimeout = 5\nstdout_max_bytes = 100\n')
    if MAKES_PICTURES:
        cellblock(lab, f"doctor --policy {policy}")
    # Cells are run here as soon as the one before has failed, and not to be aborted for that.
    lab.add_kernel("strict", argv_for(policy, "--Kernel.stop_on_error_timeout=0"))
    return "strict"


#: What of the cards has to be scrolled to be read.
SCROLLED = """shown => [...shown.querySelectorAll('[role=group] *')].filter(
    e => e.clientWidth && e.scrollWidth > e.clientWidth + 1).map(e => e.outerHTML.slice(0, 200))"""


@pytest.mark.parametrize(
    ("name", "cells", "title"),
    [
        ("refusal", ["open('.env').read()"], "cells can't read files of this name"),
        ("stopped", ["degrees = [11.5, 13.0, 9.5]", "sum(range(10**12))", "degrees"], "(timeout)"),
        ("output", ["for n in range(1_000): print('line', n)", "%output"], "Output kept on disk"),
        ("usage", ["degrees = [11.5, 13.0, 9.5]", "len(range(10**7))", "%usage"], "Usage: 2 cells"),
        ("policy", ["%policy"], "Policy strict"),
    ],
)
def test_what_a_kernel_shows_below_cells_reads_well(open_notebook, strict, name, cells, title):
    view = open_notebook(cells, kernel=strict, width=1_000, height=1_400)
    view.page.evaluate("() => window.jupyterapp.shell.collapseRight()")
    for index in range(len(cells)):
        view.run(index)
    shown = view.page.locator(".jp-WindowedPanel-viewport")
    shown.get_by_text(title).first.wait_for()
    assert failures(view.page, ".jp-OutputArea-output [role=group]") == []
    picture(shown, f"{name}-light")
    view.set_size(760, 1_400)
    assert shown.evaluate(SCROLLED) == []


#: What the commands of a picture work on.
REPORT = ["import pandas\nsales = pandas.read_csv('sales.csv')", "sales.max().to_csv('best.csv')"]
TERMINAL = """<body style="color: #e6edf3; background: #14181e">
<pre style="display: inline-block; font: 12px/1.5 monospace; padding: 12px 16px">{0}</pre>"""


@pytest.mark.skipif(not MAKES_PICTURES, reason="makes pictures, and tests nothing")
@pytest.mark.parametrize(
    ("name", "commands"),
    [
        ("learn", ["learn report.ipynb -o cells.toml"]),
        (
            "receipt",
            [
                "run report.ipynb --policy data --changes keep --receipt -o out",
                "receipt verify out/report.receipt.json --file out/report.ipynb",
            ],
        ),
    ],
)
def test_pictures_of_commands(lab, browser, name, commands):
    nbformat.write(notebook_of(REPORT, "cellblock"), lab.folder / "report.ipynb")
    (lab.folder / "sales.csv").write_text("month,eur\n1,10\n2,12\n")
    shown = "".join(
        f"<b style='color: #62c7bc'>$ cellblock {one}</b>\n{html.escape(cellblock(lab, one))}"
        for one in commands
    )
    page = new_page(browser, 1_200, 1_000)
    page.set_content(TERMINAL.format(shown))
    picture(page.locator("pre"), name)
    page.context.close()


def test_a_cell_is_checked_while_it_is_typed(open_notebook):
    view = open_notebook(["x = 1", ""], kernel="cellblock", height=620)
    view.run(0)
    view.type(1, "import json\nimport socket")
    underlined(view, 1).first.wait_for()
    found = section(view, "In this cell")
    assert "socket opens network connections" in found.inner_text()
    underlined(view, 1).first.hover()
    tooltip = view.page.locator(".cb-Tooltip")
    tooltip.wait_for()
    assert tooltip.locator("strong").inner_text() == found.get_by_role("button").inner_text()
    picture(view.page.locator("#main"), "check-light")
    found.get_by_role("button").click()
    view.page.keyboard.press("Home")
    view.page.keyboard.press("F8")
    assert view.page.evaluate("() => getSelection().toString()") == "socket"
    view.page.keyboard.press("Control+A")
    view.page.keyboard.type("import json")
    found.wait_for(state="detached")
    assert underlined(view, 1).count() == 0


def test_after_a_restart_the_new_kernel_is_asked(open_notebook):
    view = open_notebook(["x = 1", "import socket"], kernel="cellblock")
    view.select(1)
    underlined(view, 1).first.wait_for()
    view.run(0)
    section(view, "Cells").get_by_text("x = 1").wait_for()
    view.restart()
    section(view, "Cells").get_by_text("No cell has run yet.").wait_for()
    view.type(1, ", json, os")
    view.page.keyboard.press("End")
    view.page.keyboard.type("; open")
    view.page.wait_for_function(
        "() => document.querySelectorAll('.cm-lintRange-error').length === 2"
    )


def test_a_question_is_answered_in_the_panel(open_notebook, asking):
    view = open_notebook(["'listed' if ops.list_dir('.') else ''", "'next'"], kernel=asking)
    panel(view)
    view.start(0)
    question = section(view, "Questions")
    question.wait_for()
    assert "may cell [1] call ops.list_dir?" in question.inner_text()
    assert "1 question for you" in shield(view).get_attribute("title")
    assert failures(view.page, ".cb-Panel", ".cb-Shield") == []
    picture(question, "question-light")
    question.get_by_role("button", name="Allow once", disabled=False).focus()
    view.page.keyboard.press("Enter")
    question.wait_for(state="detached")
    view.wait_idle()
    assert "'listed'" in view.outputs(0).all_inner_texts()[-1]
    section(view, "Calls").get_by_text("list_dir").wait_for()
    picture(section(view, "Calls"), "calls-light")
    assert view.cell(0).locator(".jp-Stdin").count() == 0
    view.run(1)
    assert view.outputs(1).all_inner_texts() == ["'next'"]


def test_staged_files_are_kept_and_dropped_and_a_cell_undone(open_notebook, lab):
    view = open_notebook([STAGED.format("kept"), "n = 'after'", "n"], kernel="cellblock-data")
    view.run(0)
    view.run(1)
    staged = section(view, "Staged changes")
    staged.get_by_text("kept.txt").click()
    staged.get_by_text("+c").wait_for()
    staged.get_by_role("button", name="Keep: kept.csv").click()
    panel(view).get_by_text("Kept 1 file").wait_for()
    assert (lab.folder / "kept.csv").read_text() == "month,eur\n"
    assert not (lab.folder / "kept.txt").exists()
    staged.get_by_role("button", name="Keep: kept.csv").wait_for(state="detached")
    staged.get_by_text("+c").wait_for()
    staged.get_by_role("button", name="Drop: kept.txt").click()
    view.page.locator(".jp-Dialog .jp-mod-accept").click()
    staged.wait_for(state="detached")
    section(view, "Checkpoints").get_by_role("button", name="Undo").click()
    view.run(2)
    assert view.outputs(2).all_inner_texts() == ["1"]


def test_a_cells_server_is_a_link_in_the_panel(open_notebook, lab):
    port = next_port()
    policy = lab.settings.parent / "served.toml"
    policy.write_text(f'extends = "unsafe"\nports = [{port}]\n')
    lab.add_kernel("served", argv_for(policy, "--allow-unsafe"))
    view = open_notebook(["1", serving_cell(port)], kernel="served")
    view.run(0)
    ports = section(view, "Ports")
    ports.get_by_text("nothing listens yet").wait_for()
    view.run(1)
    ports.get_by_text("a server listens").wait_for()
    link = ports.get_by_role("link")
    with view.page.context.expect_page() as opened:
        link.click()
    assert opened.value.url == link.get_attribute("href")
    assert opened.value.inner_text("body") == "a cell's page"
    assert opened.value.evaluate("window.opener") is None
    assert failures(view.page, ".cb-Panel") == []
    opened.value.close()


def test_without_ports_the_panel_has_no_such_section(open_notebook):
    view = open_notebook(["1"], kernel="cellblock")
    view.run(0)
    section(view, "Cells").get_by_text("1").first.wait_for()
    assert section(view, "Ports").count() == 0


def test_the_lesson_of_the_panel_goes_as_its_text_says(open_notebook, lab, monkeypatch):
    lessons.skip_unless_installed("panel")
    for name, value in lab.environment().items():
        monkeypatch.setenv(name, value)
    with Classroom(lab.folder) as room:
        room.install("panel")
    view = open_notebook(lab.folder / "panel.ipynb")
    cells = {cell.id: index for index, cell in enumerate(lessons.read(view.path).cells)}
    view.run(cells["degrees"])
    section(view, "Cells").get_by_text("degrees = ").wait_for()
    view.select(cells["denied"])
    underlined(view, cells["denied"]).wait_for()
    section(view, "In this cell").get_by_text("socket").first.wait_for()
    view.run(cells["staged"])
    staged = section(view, "Staged changes")
    staged.get_by_text("lesson/warm.csv").click()
    staged.get_by_text("+13.0").wait_for()
    staged.get_by_role("button", name="Keep: lesson/warm.csv").click()
    staged.wait_for(state="detached")
    assert (lab.folder / "lesson/warm.csv").read_text() == "degrees\n13.0\n"
    view.run(cells["cleared"])
    section(view, "Checkpoints").get_by_role("button", name="Undo").click()
    section(view, "Checkpoints").get_by_text("degrees.clear()").wait_for(state="detached")
    view.run(cells["after"])
    assert view.outputs(cells["after"]).all_inner_texts() == ["[11.5, 13.0, 9.5, 12.0]"]


# A kernel that is not cellblock, says that it is, and has the secret of the page.
IMPOSTOR = """
import base64, hmac, json
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp

class Impostor(IPythonKernel):
    banner = "cellblock 0.1"

    def __init__(self, **options):
        super().__init__(**options)
        self.comm_manager.register_target("cellblock.lab", self.opened)

    def opened(self, comm, message):
        secret = base64.b64decode(message["content"]["data"]["secret"])

        def say(number, name, key=secret):
            state = {"policy": {"name": name, "mode": "safe", "digest": ""}, "backend": "b",
                     "verified": True, "unverified_because": None, "enforced": [], "gaps": [],
                     "budgets": []}
            body = json.dumps({"n": number, "kind": "state", **state})
            comm.send({"body": body, "mac": hmac.digest(key, body.encode(), "sha256").hex()})

        self.shell.user_ns["say"] = say
        comm.on_msg(lambda message: self.shell.user_ns["heard"](message["content"]["data"]))
        self.shell.user_ns["heard"] = lambda request: None

IPKernelApp.launch_instance(kernel_class=Impostor)
"""


@pytest.fixture
def impostor(lab):
    script = lab.settings.parent / "impostor.py"
    script.write_text(IMPOSTOR)
    lab.add_kernel("impostor", [sys.executable, str(script), "-f", "{connection_file}"])
    return "impostor"


@pytest.mark.parametrize("forged", ["say(2, 'forged', b'?')", "say(1, 'forged')"])
def test_a_message_with_a_wrong_mac_or_an_old_number_is_not_shown(open_notebook, impostor, forged):
    view = open_notebook(["say(1, 'honest')", forged], kernel=impostor)
    shield(view).wait_for()
    view.run(0)
    shield(view).get_by_text("honest").wait_for()
    assert shield(view).get_attribute("title") == ("cellblock policy honest, backend b. Verified.")
    view.run(1)
    panel(view).get_by_text("Not verified:").wait_for()
    assert shield(view).inner_text().strip() == "honest"
    assert "forged" not in panel(view).inner_text()


def test_what_was_missed_is_asked_for(open_notebook, impostor):
    heard = "heard = lambda request: say(9, f'again: {request[\"what\"][-1]}')"
    view = open_notebook(["say(0, 'first')", f"{heard}\nsay(8, 'later')"], kernel=impostor)
    view.run(0)
    shield(view).get_by_text("first").wait_for()
    view.run(1)
    shield(view).get_by_text("again: question").wait_for()
    assert shield(view).get_attribute("title").endswith(" Verified.")


def test_a_page_that_was_cut_off_hears_the_question_that_stands(open_notebook, asking):
    view = open_notebook(["ops.list_dir('.')"], kernel=asking)
    panel(view)
    view.start(0)
    question = section(view, "Questions")
    question.wait_for()
    first = question.element_handle()
    view.page.evaluate(
        "() => { window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.reconnect(); }"
    )
    first.wait_for_element_state("hidden")
    question.get_by_role("button", name="Do not allow", disabled=False).click()
    view.outputs(0).get_by_text("ToolError").first.wait_for()


def test_a_strangers_card_is_text_and_no_more(open_notebook, lab):
    finding = {
        "rule": "<img src=x onerror='document.title=1'>",
        "line": "one",
        "column": -5,
        "end_column": 1e9,
        "excerpt": "safe \u202e<b>bold</b>",
        "reason": ["?"],
        "remedy": "<script>document.title=1</script>",
    }
    row = {"place": "line \u202e1", "what": ["?"], "why": "<b>bold</b>", "finding": -1}
    forged = {
        "title": "<i>t</i>",
        "findings": [finding],
        "rows": [row, "?", {"finding": "x"}],
        "instead": [{"label": {}, "text": "<i>no</i>", "rewrite": "?"}],
        "write": ["<b>x</b>", 1],
        "allow": ["?"],
        "policy": "<i>p</i>",
    }
    shapes = [forged, {"findings": "?"}, {"title": "old", "findings": [finding]}, "?", None]
    notebook = notebook_of(["x = 1"], "python3")
    notebook.cells[0].outputs = [
        nbformat.v4.new_output(
            "display_data",
            {"application/vnd.cellblock.denial+json": shape, "text/plain": "in plain text"},
        )
        for shape in shapes
    ]
    nbformat.write(notebook, lab.folder / "stranger.ipynb")
    view = open_notebook(lab.folder / "stranger.ipynb")
    card = view.cell(0).locator(".cb-Card")
    card.wait_for()
    assert card.locator("img,script,b:not(.cb-Chip b),i").count() == 0
    assert "line ⟨U+202E⟩1 <b>bold</b>" in card.inner_text()
    assert view.cell(0).get_by_text("in plain text").count() == 4
    assert not shield(view).is_visible()


#: Clicks on each question's first button as soon as that is there.
CLICKS = """() => {
    const seen = new WeakSet();
    new MutationObserver(() => {
        const button = document.querySelector('.cb-Question button');
        if (button && !seen.has(button)) {
            seen.add(button);
            button.click();
        }
    }).observe(document.body, {childList: true, subtree: true});
}"""


def test_a_click_as_a_question_comes_is_no_answer_to_it(open_notebook, asking):
    view = open_notebook(["ops.list_dir('.'); ops.list_dir('./')"], kernel=asking)
    panel(view)
    view.page.evaluate(CLICKS)
    view.start(0)
    questions = section(view, "Questions")
    for folder in (".", "./"):
        questions.get_by_text(f"path = '{folder}'").wait_for()
        questions.get_by_role("button", name="Allow once").click()
    view.wait_idle()
    assert section(view, "Calls").get_by_text("list_dir(").count() == 2
