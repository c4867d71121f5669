"""ipywidgets' own controls in a real JupyterLab: drawn, moved, heard in Python, kept on reload."""

import pytest

from support.kernels import argv_for

pytest.importorskip("ipywidgets", reason="extra 'interactive' is not installed")

SLIDER = """
import ipywidgets as w
s = w.IntSlider(value=3, max=10, description='n')
out = w.Output()
def heard(change):
    with out:
        print('heard', change['new'])
s.observe(heard, 'value')
w.VBox([s, out])
"""
INTERACT = """
import ipywidgets as w
@w.interact(x=(0, 10), shout=False)
def f(x=2, shout=False):
    print(('X' if shout else 'x') * x)
"""
CHOICE = """
import ipywidgets as w
d = w.Dropdown(options=[('one', 1), ('two', 2)], description='take')
b = w.Button(description='Count', icon='plus', button_style='primary')
label = w.Label('nothing yet')
def clicked(_):
    label.value = f'took {d.value}'
b.on_click(clicked)
w.HBox([d, b, label], layout=w.Layout(border='1px solid gray', padding='4px', width='calc(100% - 20px)'))
"""
MARKUP = """
import ipywidgets as w
w.VBox([
    w.HTML('<b>bold</b> <table><tr><td style="color: red">cell</td></tr></table><script>document.title = "run"</script>'),
    w.HTMLMath(r'a formula: $x^2$'),
    w.Label(r'$\\alpha$ and text', style={'font_weight': 'bold', 'text_color': 'teal'}),
    w.IntSlider(description='<i>slanted</i>', description_allow_html=True),
])
"""
PANES = """
import ipywidgets as w
tab = w.Tab([w.Label('in one'), w.Label('in two')], titles=['One', 'Two'])
accordion = w.Accordion([w.Text('typed'), w.Checkbox(description='tick')], titles=['First', 'Second'])
grid = w.GridspecLayout(2, 2, height='120px')
grid[0, :] = w.Button(description='across')
grid[1, 0], grid[1, 1] = w.Button(description='left'), w.Button(description='right')
w.VBox([tab, accordion, grid])
"""
PROGRESS = """
import time
import ipywidgets as w
p = w.IntProgress(max=20, bar_style='success')
display(p)
for i in range(20):
    p.value += 1
    time.sleep(0.01)
"""
IMAGE = """
import io
import ipywidgets as w
import matplotlib.pyplot as plt
buffer = io.BytesIO()
plt.figure(figsize=(2, 1)).savefig(buffer, format='png')
plt.close()
w.Image(value=buffer.getvalue(), format='png', width='200px')
"""
CAPTURE = """
import ipywidgets as w
import matplotlib.pyplot as plt
import pandas as pd
out = w.Output(layout={'border': '1px solid gray'})
with out:
    print('captured')
    display(pd.DataFrame({'city': ['Oslo']}))
    plt.plot([1, 3, 2])
    plt.show()
print('not captured')
out
"""
LINKED = """
import ipywidgets as w
a, b = w.IntSlider(max=10), w.FloatText()
link = w.jslink((a, 'value'), (b, 'value'))
w.VBox([a, b])
"""
NAMES = """
Accordion Audio BoundedFloatText BoundedIntText Box Button Checkbox ColorPicker ColorsInput Combobox
Controller DatePicker DatetimePicker Dropdown FileUpload FloatLogSlider FloatProgress FloatRangeSlider FloatSlider
FloatText FloatsInput GridBox HBox HTML HTMLMath Image IntProgress IntRangeSlider IntSlider IntText IntsInput Label
NaiveDatetimePicker Output Password Play RadioButtons Select SelectMultiple SelectionRangeSlider SelectionSlider
Stack Tab TagsInput Text Textarea TimePicker ToggleButton ToggleButtons VBox Valid Video
""".split()  # noqa: SIM905 - names, as they stand in the documentation
EVERY = f"""
import ipywidgets as w
names = {NAMES}
some = dict(options=['a', 'b'])
need = dict(
    Combobox=some, Dropdown=some, RadioButtons=some, Select=some, SelectMultiple=some, SelectionSlider=some,
    SelectionRangeSlider=some, ToggleButtons=some | dict(icons=['check', 'plus']), ColorsInput=dict(value=['red', '#0f0']),
    TagsInput=dict(value=['a']), IntsInput=dict(value=[1]), FloatsInput=dict(value=[1.5]),
)
made = [getattr(w, name)(**need.get(name, dict())) for name in names]
w.VBox(made)
"""
ANY = """
import anywidget
import traitlets
class Counter(anywidget.AnyWidget):
    _esm = "export default { render({ el }) { document.title = 'run'; el.innerHTML = 'counts'; } }"
    value = traitlets.Int(0).tag(sync=True)
Counter()
"""
COUNTER = """
import anywidget
import traitlets
class Counter(anywidget.AnyWidget):
    _esm = '''export default { render({ model, el }) {
        const button = document.createElement("button");
        const show = () => { button.textContent = "count " + model.get("value"); };
        button.onclick = () => { model.set("value", model.get("value") + 1); model.save_changes(); };
        model.on("change:value", show);
        show();
        el.append(button);
    } }'''
    value = traitlets.Int(0).tag(sync=True)
c = Counter()
c
"""
ERRORS = ".jupyter-widgets-error-widget, .jupyter-widgets-disconnected"


@pytest.fixture
def notebook(open_notebook):
    def opened(*sources, **keywords):
        return open_notebook([s.strip() for s in sources], kernel="cellblock-data", **keywords)

    return opened


def text_of(view, index):
    return view.cell(index).locator(".jp-Cell-outputArea").inner_text()


def wait_for(view, index, text):
    view.cell(index).locator(".jp-OutputArea", has_text=text).first.wait_for()


def result(view, index):
    return view.outputs(index).last.inner_text().strip()


def test_a_slider_is_moved_and_python_hears_of_it(notebook):
    view = notebook(SLIDER, "s.value")
    view.run(0)
    handle = view.cell(0).locator(".noUi-handle")
    handle.focus()
    handle.press("ArrowRight")
    wait_for(view, 0, "heard 4")
    handle.press("ArrowRight")
    wait_for(view, 0, "heard 5")
    view.shot("widget-slider", 0)
    view.run(1)
    assert result(view, 1) == "5"


def test_interact_calls_its_function_and_shows_what_it_prints(notebook):
    view = notebook(INTERACT)
    view.run(0)
    wait_for(view, 0, "xx")
    handle = view.cell(0).locator(".noUi-handle")
    handle.focus()
    handle.press("ArrowRight")
    wait_for(view, 0, "xxx")
    view.cell(0).locator("input[type=checkbox]").click()
    wait_for(view, 0, "XXX")
    assert view.cell(0).locator(".widget-interact").count() == 1


def test_a_choice_and_a_click_reach_python(notebook):
    view = notebook(CHOICE)
    view.run(0)
    view.cell(0).locator("select").select_option(label="two")
    view.cell(0).get_by_role("button", name="Count").click()
    wait_for(view, 0, "took 2")
    view.shot("widget-choice", 0)
    assert view.cell(0).locator("button i.fa-plus").count() == 1
    assert view.cell(0).locator("button.mod-primary").count() == 1


def test_markup_is_shown_and_its_script_is_not_run(notebook):
    view = notebook(MARKUP)
    view.run(0)
    view.cell(0).locator("mjx-container").first.wait_for()
    view.shot("widget-markup", 0)
    assert view.cell(0).locator(".widget-html-content b").inner_text() == "bold"
    assert view.cell(0).locator(".widget-html-content td").inner_text() == "cell"
    assert view.cell(0).locator("label i").inner_text() == "slanted"
    assert view.cell(0).locator(".widget-html-content script").count() == 0
    assert "[cellblock left out script]" in text_of(view, 0)
    assert view.page.title() != "run"


def test_panes_and_grids_hold_what_is_put_into_them(notebook):
    view = notebook(PANES, "tab.selected_index, accordion.selected_index")
    view.run(0)
    cell = view.cell(0)
    cell.locator(".lm-TabBar-tab", has_text="Two").click()
    cell.locator(".widget-label", has_text="in two").wait_for()
    cell.locator(".jupyter-widget-Collapse-header", has_text="Second").click()
    cell.locator(".widget-checkbox", has_text="tick").wait_for()
    view.shot("widget-panes", 0)
    view.run(1)
    assert result(view, 1) == "(1, 1)"


def test_progress_is_told_while_the_cell_runs(notebook):
    view = notebook(PROGRESS)
    view.run(0)
    bar = view.cell(0).locator(".progress-bar")
    view.page.wait_for_function("bar => bar.style.width === '100%'", arg=bar.element_handle())
    assert "progress-bar-success" in bar.get_attribute("class")


def test_tqdm_draws_its_bar(notebook):
    pytest.importorskip("tqdm", reason="tqdm is not installed")
    view = notebook("from tqdm.notebook import tqdm\nfor _ in tqdm(range(50), desc='work'): pass")
    view.run(0)
    wait_for(view, 0, "50/50")
    assert "work" in text_of(view, 0)
    assert view.cell(0).locator(".progress-bar-success").count() == 1


def test_an_image_is_drawn_from_its_bytes(notebook):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    view = notebook(IMAGE)
    view.run(0)
    image = view.cell(0).locator("img.widget-image")
    image.wait_for()
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") == 200


def test_what_is_captured_is_shown_in_its_widget_alone(notebook):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    view = notebook(CAPTURE)
    view.run(0)
    inside = view.cell(0).locator(".widget-output")
    inside.locator("img").wait_for()
    view.shot("widget-capture", 0)
    assert "captured" in inside.inner_text()
    assert "not captured" not in inside.inner_text()
    assert "not captured" in text_of(view, 0)
    assert inside.locator("table.dataframe td").inner_text() == "Oslo"


def test_a_link_in_the_page_carries_numbers(notebook):
    view = notebook(LINKED)
    view.run(0)
    handle = view.cell(0).locator(".noUi-handle")
    handle.focus()
    handle.press("ArrowRight")
    box = view.cell(0).locator("input[type=number]")
    view.page.wait_for_function("box => box.value === '1'", arg=box.element_handle())


def test_a_file_that_the_user_chooses_reaches_python(notebook, tmp_path):
    file = tmp_path / "list.csv"
    file.write_text("a,b\n1,2\n")
    view = notebook(
        "import ipywidgets as w\nu = w.FileUpload(accept='.csv')\nu",
        "u.value[0].name, bytes(u.value[0].content)",
    )
    view.run(0)
    with view.page.expect_file_chooser() as chosen:
        view.cell(0).get_by_role("button", name="Upload (0)").click()
    chosen.value.set_files(file)
    view.cell(0).get_by_role("button", name="Upload (1)").wait_for()
    view.run(1)
    assert result(view, 1) == "('list.csv', b'a,b\\n1,2\\n')"


def test_a_slider_moved_while_a_cell_runs_is_heard_after_it(notebook):
    view = notebook(SLIDER, "import time\nfor _ in range(30): time.sleep(0.1)\ns.value", "s.value")
    view.run(0)
    view.start(1)
    view.wait_busy(1)
    handle = view.cell(0).locator(".noUi-handle")
    handle.focus()
    for _ in range(4):
        handle.press("ArrowRight")
    view.wait_ran(1, "[*]:")
    wait_for(view, 0, "heard 7")
    view.run(2)
    assert (result(view, 1), result(view, 2)) == ("3", "7")


def test_every_control_is_drawn(notebook):
    view = notebook(EVERY, height=3_000)
    view.run(0)
    view.cell(0).locator(".jupyter-widgets").first.wait_for()
    view.page.wait_for_timeout(1_500)
    view.shot("widget-every")
    boxes = view.cell(0).locator(".widget-vbox").first.locator(":scope > *")
    assert boxes.count() == len(NAMES) > 50
    assert view.page.locator(ERRORS).count() == 0
    assert view.cell(0).get_by_role("group", name="left out").count() == 0


@pytest.mark.parametrize("added", ["widget_modules = ['anywidget']", "display = 'trusted'"])
def test_a_module_that_the_operator_lets_in_runs_and_talks(lab, open_notebook, world, added):
    pytest.importorskip("anywidget", reason="anywidget is not installed")
    table = "[add]\n" if "modules" in added else ""
    policy = world.policy(f"extends = 'data'\n{table}{added}\n", "lets-in")
    lab.add_kernel("lets-in", argv_for(policy, "--allow-unsafe"))
    view = open_notebook([COUNTER.strip(), "c.value"], kernel="lets-in")
    view.run(0)
    view.cell(0).get_by_role("button", name="count 0").click()
    view.cell(0).get_by_role("button", name="count 1").wait_for()
    view.run(1)
    assert result(view, 1) == "1"


def test_widgets_are_there_after_the_page_is_loaded_anew(notebook):
    view = notebook(SLIDER, "s.value")
    view.run(0)
    view.save()
    view.page.reload()
    view.page.wait_for_selector(".jp-NotebookPanel .jp-Cell")
    view.wait_idle()
    handle = view.cell(0).locator(".noUi-handle")
    handle.wait_for()
    handle.focus()
    handle.press("ArrowRight")
    wait_for(view, 0, "heard 4")
    view.run(1)
    assert result(view, 1) == "4"
    assert view.page.locator(ERRORS).count() == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_widget_that_brings_a_script_is_refused_with_a_card(notebook, theme):
    pytest.importorskip("anywidget", reason="anywidget is not installed")
    view = notebook(ANY, SLIDER, CHOICE, MARKUP, theme=theme, height=1_400)
    for index in range(4):
        view.run(index)
    view.page.wait_for_timeout(500)
    card = view.card(0).last
    card.scroll_into_view_if_needed()
    view.shot(f"widget-refused-{theme}")
    assert "cellblock did not show a widget of anywidget" in card.inner_text()
    assert 'add "anywidget" to widget_modules in the policy' in card.inner_text()
    assert view.page.title() != "run"
