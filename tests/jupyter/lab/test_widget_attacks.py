"""Every program of `escapes/widgets` in a real JupyterLab: nothing of it acts.

The same programs under a stock kernel are the control: all but those that this version of
JupyterLab withstands by itself do act there.
"""

import shutil

import pytest

from support.attacked_page import Watched, terminals
from support.kernels import argv_for
from support.listener import Listener
from support.widgets import ATTACKS, prelude

#: It spoils the page for those that come after it, so it is the last.
LAST = "buffers_at_the_prototype"
#: JupyterLab 4.6 withstands these. Classic front ends, page builders, its next version, or a
#: reader who opens an image in a tab of its own might not.
WITHSTOOD = {
    *("anywidget_script_updated", "classes_of_dialogs", "comm_id_of_markup", "comm_never_opened"),
    *("controller_writes_to_others", "custom_messages", "error_box_moment", "error_box_tag"),
    *("html_math_link", "icons_in_class_lists", "image_drawing", "label_formula"),
    *("layout_computed_over_the_page", "layout_over_the_page", "layout_with_more_than_one_value"),
    *("links_text_to_a_tag", "many_widgets"),
    *("module_at_an_address", "other_targets", "output_with_a_view", "plotly_figure_widget"),
    *("references_to_what_is_not_there", "saved_state_of_a_page", "target_module", "titles"),
    *("tooltips_and_placeholders", "version_that_leads_elsewhere", "view_module_at_an_address"),
}
NAMES = [*(name for name in ATTACKS if name != LAST), LAST]


@pytest.fixture
def listener():
    made = Listener(ATTACKS)
    yield made
    made.close()


def attacked(lab, open_notebook, listener, kernel):
    """Run the attacks in one notebook; return its page, and what was seen of each."""
    cells = ["prelude", *(name for name in NAMES for _ in ATTACKS[name].cells)]
    sources = [prelude(listener.ports), *(c for name in NAMES for c in ATTACKS[name].cells)]
    watches = []

    def prepare(page):
        watches.append(Watched(page, listener, set(ATTACKS)))
        watches[0].arm()

    view = open_notebook(sources, kernel=kernel, prepare=prepare, hidden=True)
    (watch,) = watches
    view.run_all()
    watch.settle(3)
    watch.collect()
    # The box of a view's error makes HTML of the error when it is clicked.
    boxes = view.page.locator(".jupyter-widgets-error-widget")
    boxes.evaluate_all("boxes => boxes.forEach(box => box.click())")
    watch.covers(cells)
    watch.touch(cells)
    if view.page.evaluate("() => ({}).polluted !== undefined"):
        watch.seen["buffers_at_the_prototype"].add("pollution")
    for name in terminals(lab):
        watch.seen[name].add("terminal")
    lab.close_terminals()
    return view, watch


@pytest.mark.parametrize("display", ["isolated", "sanitized"])
def test_no_widget_acts_now_or_when_its_page_is_opened_again(
    lab, open_notebook, listener, world, display
):
    text = f"extends = 'unsafe'\ndisplay = '{display}'\ndisplay_max_bytes = 64_000_000\n"
    lab.add_kernel(display, argv_for(world.policy(text, display), "--allow-unsafe"))
    view, watch = attacked(lab, open_notebook, listener, display)
    view.shot(f"widget-attacks-{display}")
    assert dict(watch.seen) == {}
    view.save()
    shutil.copy(view.path, view.path.with_stem(f"{display}-widgets"))
    view.reopen(f"{display}-widgets.ipynb")
    watch.settle(3)
    watch.collect()
    assert view.page.locator(".jp-OutputArea-output").count() > len(ATTACKS)
    assert dict(watch.seen) == {}


def test_under_a_stock_kernel_they_act(lab, open_notebook, listener):
    _, watch = attacked(lab, open_notebook, listener, "python3")
    quiet = set(ATTACKS) - set(watch.seen)
    assert quiet <= WITHSTOOD, sorted(quiet - WITHSTOOD)
