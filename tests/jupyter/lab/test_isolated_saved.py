"""An isolated output in a saved notebook: reopened untrusted, trusted, and as a page of HTML."""

import nbconvert
import nbformat
import pytest

from cellblock.host.output import gateway as showing
from support import processes
from support.listener import ADDRESS, Listener

ATTACK = """<p id=here>drawn</p><script>
const url = 'http://ADDRESS:PORT/x';
new Image().src = url; fetch(url, {mode: 'no-cors'}); top.postMessage('hi', '*');
try { top.document.title = 'changed'; } catch {}
try { parent.parent.document.body.remove(); } catch {}
here.textContent = 'ran';
</script>"""
FALLBACK = "Interactive output of cellblock: run the cell, or trust this notebook, to see it."


def aimed_at(listener):
    return ATTACK.replace("ADDRESS", ADDRESS).replace("PORT", str(listener.ports["saved"]))


@pytest.fixture
def listener():
    made = Listener(["saved"])
    yield made
    made.close()


@pytest.fixture
def saved(lab, listener):
    """Return a notebook with one such output, as it is saved."""
    bundle = showing.isolated({"text/html": aimed_at(listener)})
    output = nbformat.v4.new_output("display_data", bundle)
    cell = nbformat.v4.new_code_cell("1", execution_count=1, outputs=[output])
    spec = {"kernelspec": {"name": "cellblock", "display_name": "cellblock"}}
    path = lab.folder / "saved-isolated.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[cell], metadata=spec), path)
    return path


@pytest.fixture
def page(browser):
    context = browser.new_context()
    yield context.new_page()
    context.close()


def test_as_a_page_of_its_own_it_reaches_the_listener(page, listener, tmp_path):
    (tmp_path / "plain.html").write_text(aimed_at(listener))
    page.goto(f"file://{tmp_path / 'plain.html'}")
    assert processes.until(listener.take)


def ran(page):
    """Wait until the attack has run in its frames; they have shut it in."""
    outer = page.locator("iframe.cellblock-frame").content_frame
    outer.locator("iframe").content_frame.locator("#here", has_text="ran").wait_for()
    assert "changed" not in page.title()


def test_reopened_it_says_what_it_was_and_trusted_it_runs_and_reaches_nothing(
    open_notebook, saved, listener
):
    page = open_notebook(saved).page
    output = page.locator(".jp-OutputArea-output")
    output.first.wait_for()
    assert output.locator("iframe").count() == 0
    assert FALLBACK in output.inner_text()
    assert listener.take() == []
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:trust'); }")
    page.locator(".jp-Dialog .jp-mod-accept").click()
    ran(page)
    assert listener.take() == []


def test_as_html_it_runs_and_reaches_nothing(page, saved, listener, tmp_path):
    html, _ = nbconvert.HTMLExporter().from_filename(saved)
    (tmp_path / "saved.html").write_text(html)
    page.route("https://**", lambda route: route.abort())  # nbconvert's own scripts
    page.goto(f"file://{tmp_path / 'saved.html'}", wait_until="domcontentloaded")
    ran(page)
    assert listener.take() == []
