"""A cell shows the same whether nbclient runs it in the kernel or a run does without one."""

import json
import re
import shutil
import zlib
from base64 import b64decode
from importlib.util import find_spec
from itertools import chain

import nbformat
import pytest
from nbclient import NotebookClient

from support import lessons
from support.kernels import argv_for
from support.runs import code, document, markdown

#: A line may end in the middle of a long name.
_BREAK = r"(?:\\n\s*)?"
_SCRATCH = _BREAK.join([*"cellblock-", *[r"\w"] * 8])
#: Names that are made by chance, and what is measured.
CHANCE = re.compile(
    rf"ipykernel_\d+/\d+|0x[0-9a-f]+|T_[0-9a-f]{{5}}|[0-9a-f-]{{36}}|[0-9a-f]{{32}}"
    rf"|cellblock-[0-9a-f]{{12}}|{_SCRATCH}(?:/scratch)?(?:/\d+)?"
    # A run's guests, of a pool, have no network of their own.
    r"|files, (?:tcp, )?signals"
    r"|(?<![\d.,])[\d.,]+ (?:n|μ|m)?s\b|\d\d:\d\d(?::\d\d)?"
    # Longer where nothing but what cells write can be written to, and what mounts there are varies.
    r"|\d+ instructions"
)
#: What %timeit says where the machine had other work.
BUSY = re.compile(r"The slowest run took [^\\]*\\n")
#: A frame's page, which is compressed.
PAGE = re.compile(r"[A-Za-z0-9+/=]{500,}")
PREAMBLE = "from IPython.display import clear_output, display, update_display, HTML, Markdown, SVG"

#: Notebooks as people write them, by what they are about.
CORPUS = {
    "text": [
        "print('one')\nprint('two', end='')\nprint(' three')",
        "import sys\nprint('out')\nprint('err', file=sys.stderr)\nprint('out again')",
        "for n in range(2_000): print(n, 'x' * 20)",
        "print('50%\\r100%')\nprint('\\x1b[31mred\\x1b[0m and \\x1b[2Jcleared')",
        "'é \\u202e 日本 \\U0001f600'",
        "x = 3\nx;",
        "[list(range(30)), {'a': {'b': ['c'] * 30}}]",
        "None",
        "_ is None",
        "1\n2\n3",
        "",
        "# only a comment",
    ],
    "tables": [
        "import pandas as pd",
        "df = pd.DataFrame({'n': range(5), 'é': list('abcde'), 'x': [1.5, None, 3, -1, 1e9]})\ndf",
        "df.describe()",
        "df.T",
        "print(df.to_string())\ndisplay(df.head(1), df.tail(1))",
        "df.groupby('é')['n'].sum()",
        "pd.DataFrame(index=range(200), data={'a': range(200)})",
        "df['no such column']",
    ],
    "figures": [
        "%matplotlib inline\nimport matplotlib.pyplot as plt",
        "plt.plot([1, 3, 2]);",
        "fig, axes = plt.subplots(1, 2, figsize=(4, 2))\naxes[0].bar(['a', 'b'], [1, 2])\nprint('beside')",
        "fig",
        "SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"><circle r=\"5\" onclick=\"x()\"/></svg>')",
    ],
    "rich": [
        "HTML('<b>bold</b><script>alert(1)</script><img src=x onerror=alert(1)>')",
        "Markdown('# Title\\n<script>x</script> *text* $x^2$')",
        "display({'application/json': {'a': [1, None]}, 'text/plain': 'j'}, raw=True)",
        "display({'application/x-unknown': 'x', 'text/plain': 'known'}, raw=True)",
        "class R:\n    def _repr_html_(self): return '<i>html</i>'\n    def _repr_latex_(self): return '$x$'\nR()",
        # Of a method whose class begins above it, a traceback shows that line or not, by chance.
        "class Broken: __repr__ = lambda self: 1 / 0",
        "Broken()",
    ],
    "errors": [
        code("1 / 0", "raises-exception"),
        code("def f(x):\n    return g(x)\ndef g(x):\n    return x['k']\nf({})", "raises-exception"),
        code("try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('é') from e", "raises-exception"),
        code("x = = 1", "raises-exception"),
        code("def broken(:\n    pass", "raises-exception"),
        code("  indented", "raises-exception"),
        code("print('before')\nundefined", "raises-exception"),
        code("raise SystemExit(3)", "raises-exception"),
        code("raise KeyboardInterrupt", "raises-exception"),
        code("raise ExceptionGroup('several', [ValueError(1), KeyError('k')])", "raises-exception"),
        code("class E(Exception):\n    def __str__(self): return 'two\\nlines'\nraise E", "raises-exception"),
        code("assert 1 == 2, 'no'", "raises-exception"),
        code("def deep(n): return deep(n + 1)\ndeep(0)", "raises-exception"),
        "'and on'",
    ],
    "denials": [
        code("import socket", "raises-exception"),
        code("print('never')\nopen('/etc/passwd')\neval('1')", "raises-exception"),
        code("getattr(1, '__cla' + 'ss__')", "raises-exception"),
        code("!ls", "raises-exception"),
        "1",
    ],
    "updates": [
        "handle = display('first', display_id='a')\ndisplay('beside')",
        "update_display('second', display_id='a')\nprint('here')",
        "display('third', display_id='a')",
        "handle.update(HTML('<b>fourth</b>'))",
        "for n in range(5):\n    clear_output(wait=True)\n    print(n)",
        "print('gone')\nclear_output()\nprint('kept')",
        "print('kept')\nclear_output(wait=True)",
        "h = display('x', display_id=True)\nclear_output()\nh.update('y')",
        "for n in range(100): h.update(n)",
    ],
    "input": [
        code("input('name? ')", "raises-exception"),
        code("import getpass\ngetpass.getpass()", "raises-exception"),
        "'and on'",
    ],
    "state": [
        "import asyncio\nasync def later(x):\n    await asyncio.sleep(0.01)\n    return x\nawait later(1)",
        "total = 0\nfor n in range(10): total += n\ntotal",
        "_ + 1",
        "_2, Out[3]",
        "%%capture said\nprint('captured')",
        "said.stdout",
        "inputs",
        code("skipped = 1", "skip-execution"),
        code("skipped", "raises-exception"),
    ],
    "widgets": [
        "import ipywidgets as w",
        "slider = w.IntSlider(value=3, description='n')\nslider",
        "slider.value = 7",
        "out = w.Output()\nwith out:\n    print('in it')\n    display('too')\nout",
        "w.HBox([w.Button(description='b'), w.HTML('<b>x</b><script>y</script>')])",
    ],
}  # fmt: skip
#: One of each library; what is not installed is left out.
CHARTS = {
    "altair": "import altair as alt, pandas as pd\nalt.Chart(pd.DataFrame({'a': [1, 2], 'b': [3, 5]})).mark_bar().encode(x='a:O', y='b')",
    "plotly": "import plotly.graph_objects as go\ngo.Figure(go.Scatter(x=[1, 2, 3], y=[1, 3, 2]))",
}
CORPUS["charts"] = ["'charts'", *(cell for name, cell in CHARTS.items() if find_spec(name))]
#: Lessons that say what the corpus does not; the last one leaves less of the policy.
LESSONS = ("tour", "output", "narrow")
STOPPED = [
    "x = 1",
    code("x = 2\nwhile True: pass", "raises-exception"),
    "x",
    code("raise MemoryError", "raises-exception"),
]


def run_by_both(run, policy, made):
    """Return a notebook as a run and as nbclient wrote it."""
    (run.work / "a.ipynb").write_text(json.dumps(made))
    ended = run("a.ipynb", "-o", "out", "--policy", policy, "--allow-errors")
    assert ended.err == ""
    return nbformat.read(run.work / "out/a.ipynb", 4), by_nbclient(run, policy, made)


def by_nbclient(run, policy, made):
    folder = run.world.home / ".local/share/jupyter/kernels/same"
    folder.mkdir(parents=True)
    spec = {"argv": argv_for(policy), "display_name": "same", "language": "python"}
    (folder / "kernel.json").write_text(json.dumps(spec | {"interrupt_mode": "message"}))
    notebook = nbformat.from_dict(json.loads(json.dumps(made)))
    resources = {"metadata": {"path": str(run.work)}}
    keywords = {"kernel_name": "same", "allow_errors": True, "resources": resources}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in run.world.environment().items():
            patch.setenv(name, value)
        NotebookClient(notebook, timeout=60, **keywords).execute()
    return notebook


def shown(cell):
    """Return a cell's outputs: streams in one piece each, and nothing that is made by chance."""
    made = []
    for one in cell.get("outputs", ()):
        last = made[-1] if made else {}
        if one["output_type"] == "stream" and last.get("name") == one["name"]:
            last["text"] += one["text"]
        else:
            made.append(json.loads(json.dumps(one)))
    text = BUSY.sub("", json.dumps(made, indent=1, sort_keys=True, ensure_ascii=False))
    return CHANCE.sub("<id>", PAGE.sub(lambda found: unpacked(found[0]), text))


def unpacked(text):
    """Return a frame's page; what is no page, such as a picture, as it is."""
    try:
        return zlib.decompress(b64decode(text), wbits=-15).decode()
    except (ValueError, zlib.error):
        return text


def same(ours, theirs):
    """Assert that two notebooks say the same, up to the names of widgets."""
    for mine, other in zip(ours.cells, theirs.cells, strict=True):
        assert shown(mine) == shown(other), mine.source
        assert mine.get("execution_count") == other.get("execution_count"), mine.source
        assert mine.metadata.keys() == other.metadata.keys(), mine.source
        assert (mine.id, mine.source) == (other.id, other.source)
    rows = [made.metadata.pop("widgets", {}) for made in (ours, theirs)]
    assert ours.metadata == theirs.metadata
    assert named(rows[0], ours) == named(rows[1], theirs)


def named(state, notebook):
    """Return the widgets there are, and which cells show, with models' names in ids' places."""
    rows = state.get("application/vnd.jupyter.widget-state+json", {}).get("state", {})
    outputs = chain.from_iterable(cell.get("outputs", ()) for cell in notebook.cells)
    shown_as = "application/vnd.jupyter.widget-view+json"
    data = [one.get("data", {}) for one in outputs]  # a stream has none, and may come in pieces
    told = [*rows.values(), [each[shown_as] for each in data if shown_as in each]]

    def name(found):
        return rows[found[0]]["model_name"] if found[0] in rows else "<id>"

    return sorted(re.sub(r"[0-9a-f]{32}", name, json.dumps(one, sort_keys=True)) for one in told)


def lesson(run, name):
    """Return a lesson's cells, its files beside them."""
    shutil.copytree(lessons.FOLDER, run.work, dirs_exist_ok=True)
    cells = lessons.read(lessons.FOLDER / f"{name}.ipynb").cells
    return [cell | {"id": f"{name}-{cell.id}"} for cell in cells]


def test_cells_show_what_they_show_under_nbclient(run):
    parts = [(markdown(name), *cells) for name, cells in CORPUS.items()]
    parts += [lesson(run, name) for name in LESSONS if not lessons.missing(name)]
    # On a busy machine ``auto`` rests, and says so.
    policy = run.world.policy('extends = "data"\nsnapshots = "always"\n')
    # Otherwise it is proven in the background, at some time while the cells run.
    proven = run("--policy", policy, name="doctor")
    assert proven.status == 0, proven
    same(*run_by_both(run, policy, document(PREAMBLE, *chain.from_iterable(parts))))


def test_what_is_stopped_says_what_it_says_under_nbclient(run):
    policy = run.world.policy('extends = "safe"\ntimeout = 1.5\n')
    same(*run_by_both(run, policy, document(*STOPPED)))


def test_templates_show_what_they_show_under_nbclient(run):
    made = document(*lesson(run, "templates"))
    same(*run_by_both(run, run.work / "templates.toml", made))
