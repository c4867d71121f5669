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
UPLOAD = """
import ipywidgets as w
u = w.FileUpload(accept='.csv')
u
"""
UPLOADED = "u.value[0].name, bytes(u.value[0].content)"
TQDM = "from tqdm.notebook import tqdm\nfor _ in tqdm(range(50), desc='work'): pass"
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


def slide(view, index, steps=1):
    handle = view.cell(index).locator(".noUi-handle")
    handle.focus()
    for _ in range(steps):
        handle.press("ArrowRight")


def result(view, index):
    return view.outputs(index).last.inner_text().strip()


@pytest.mark.quick
def test_a_slider_is_moved_and_python_hears_of_it_while_a_cell_runs(notebook):
    busy = "import time\nfor _ in range(50): time.sleep(0.1)\ns.value"
    view = notebook(SLIDER, "s.value", busy, "s.value")
    view.run(0)
    slide(view, 0)
    wait_for(view, 0, "heard 4")
    slide(view, 0)
    wait_for(view, 0, "heard 5")
    view.shot("widget-slider", 0)
    view.run(1)
    assert result(view, 1) == "5"
    view.start(2)
    view.wait_busy(2)
    slide(view, 0, steps=4)
    wait_for(view, 0, "heard 9")
    assert view.prompt(2).inner_text() == "[*]:"
    view.wait_ran(2, "[*]:")
    view.run(3)
    assert (result(view, 2), result(view, 3)) == ("9", "9")


def test_what_is_done_to_controls_reaches_python(notebook, tmp_path):
    file = tmp_path / "list.csv"
    file.write_text("a,b\n1,2\n")
    chosen = "tab.selected_index, accordion.selected_index"
    view = notebook(INTERACT, CHOICE, PANES, chosen, LINKED, UPLOAD, UPLOADED, height=1_600)
    interact_calls_its_function_and_shows_what_it_prints(view, 0)
    a_choice_and_a_click_reach_python(view, 1)
    panes_and_grids_hold_what_is_put_into_them(view, 2)
    view.run(3)
    assert result(view, 3) == "(1, 1)"
    a_link_in_the_page_carries_numbers(view, 4)
    a_file_that_the_user_chooses_is_taken(view, 5, file)
    view.run(6)
    assert result(view, 6) == "('list.csv', b'a,b\\n1,2\\n')"


def interact_calls_its_function_and_shows_what_it_prints(view, index):
    view.run(index)
    wait_for(view, index, "xx")
    slide(view, index)
    wait_for(view, index, "xxx")
    view.cell(index).locator("input[type=checkbox]").click()
    wait_for(view, index, "XXX")
    assert view.cell(index).locator(".widget-interact").count() == 1


def a_choice_and_a_click_reach_python(view, index):
    view.run(index)
    view.cell(index).locator("select").select_option(label="two")
    view.cell(index).get_by_role("button", name="Count").click()
    wait_for(view, index, "took 2")
    view.shot("widget-choice", index)
    assert view.cell(index).locator("button i.fa-plus").count() == 1
    assert view.cell(index).locator("button.mod-primary").count() == 1


def panes_and_grids_hold_what_is_put_into_them(view, index):
    view.run(index)
    cell = view.cell(index)
    cell.locator(".lm-TabBar-tab", has_text="Two").click()
    cell.locator(".widget-label", has_text="in two").wait_for()
    cell.locator(".jupyter-widget-Collapse-header", has_text="Second").click()
    cell.locator(".widget-checkbox", has_text="tick").wait_for()
    view.shot("widget-panes", index)


def a_link_in_the_page_carries_numbers(view, index):
    view.run(index)
    slide(view, index)
    box = view.cell(index).locator("input[type=number]")
    view.page.wait_for_function("box => box.value === '1'", arg=box.element_handle())


def a_file_that_the_user_chooses_is_taken(view, index, file):
    view.run(index)
    with view.page.expect_file_chooser() as chosen:
        view.cell(index).get_by_role("button", name="Upload (0)").click()
    chosen.value.set_files(file)
    view.cell(index).get_by_role("button", name="Upload (1)").wait_for()


def test_each_kind_of_control_is_drawn(notebook):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    pytest.importorskip("tqdm", reason="tqdm is not installed")
    view = notebook(MARKUP, PROGRESS, TQDM, IMAGE, CAPTURE, EVERY, height=4_000)
    view.run_all()
    markup_is_shown_and_its_script_is_not_run(view, 0)
    progress_was_told_while_the_cell_ran(view, 1)
    tqdm_draws_its_bar(view, 2)
    an_image_is_drawn_from_its_bytes(view, 3)
    what_is_captured_is_shown_in_its_widget_alone(view, 4)
    every_control_is_drawn(view, 5)


def markup_is_shown_and_its_script_is_not_run(view, index):
    view.cell(index).locator("mjx-container").first.wait_for()
    view.shot("widget-markup", index)
    assert view.cell(index).locator(".widget-html-content b").inner_text() == "bold"
    assert view.cell(index).locator(".widget-html-content td").inner_text() == "cell"
    assert view.cell(index).locator("label i").inner_text() == "slanted"
    assert view.cell(index).locator(".widget-html-content script").count() == 0
    assert "[cellblock left out script]" in text_of(view, index)
    assert view.page.title() != "run"


def progress_was_told_while_the_cell_ran(view, index):
    bar = view.cell(index).locator(".progress-bar")
    view.page.wait_for_function("bar => bar.style.width === '100%'", arg=bar.element_handle())
    assert "progress-bar-success" in bar.get_attribute("class")


def tqdm_draws_its_bar(view, index):
    wait_for(view, index, "50/50")
    assert "work" in text_of(view, index)
    assert view.cell(index).locator(".progress-bar-success").count() == 1


def an_image_is_drawn_from_its_bytes(view, index):
    image = view.cell(index).locator("img.widget-image")
    image.wait_for()
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") == 200


def what_is_captured_is_shown_in_its_widget_alone(view, index):
    inside = view.cell(index).locator(".widget-output")
    inside.locator("img").wait_for()
    view.shot("widget-capture", index)
    assert "captured" in inside.inner_text()
    assert "not captured" not in inside.inner_text()
    assert "not captured" in text_of(view, index)
    assert inside.locator("table.dataframe td").inner_text() == "Oslo"


def every_control_is_drawn(view, index):
    boxes = view.cell(index).locator(".widget-vbox").first.locator(":scope > *")
    boxes.nth(len(NAMES) - 1).wait_for(state="attached")
    view.page.wait_for_timeout(1_000)  # a control that can't be drawn says so late
    view.shot("widget-every")
    assert boxes.count() == len(NAMES) > 50
    assert view.page.locator(ERRORS).count() == 0
    assert view.cell(index).get_by_role("group", name="left out").count() == 0


def test_a_module_that_the_operator_lets_in_runs_and_talks(lab, open_notebook, world):
    pytest.importorskip("anywidget", reason="anywidget is not installed")
    policy = world.policy("extends = 'data'\n[add]\nwidget_modules = ['anywidget']\n", "lets-in")
    lab.add_kernel("lets-in", argv_for(policy))
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
    slide(view, 0)
    wait_for(view, 0, "heard 4")
    view.run(1)
    assert result(view, 1) == "4"
    assert view.page.locator(ERRORS).count() == 0
