"""What a cell shows, in the order in which it happened, and what could not be shown."""

import asyncio
import threading

from cellblock import AsyncSandbox
from cellblock.api.images import pictures
from cellblock.api.results import logged

#: Raises ValueError once, when the cell has ended.
LATE = """
def late():
    get_ipython().events.unregister('post_execute', late)
    raise ValueError('late')
get_ipython().events.register('post_execute', late)
"""


def test_a_cells_own_error_is_its_error_whatever_is_raised_behind_it(unsafe):
    r = unsafe.execute(f"{LATE}raise KeyError('own')")
    assert (r.error.type, r.error.message) == ("KeyError", "'own'")
    assert [one.content["ename"] for one in r.outputs if one.kind == "error"] == [
        "KeyError",
        "ValueError",
    ]
    assert "own" in r.error.traceback
    assert unsafe.execute(LATE).success


def test_why_a_result_could_not_be_shown_is_no_traceback_of_the_cells_own_error(unsafe):
    r = unsafe.execute(
        "class A:\n    def __repr__(self): raise ValueError('repr')\n"
        "get_ipython().ast_node_interactivity = 'all'\n"
    )
    r = unsafe.execute("A()\nraise KeyError('own')")
    unsafe.execute("get_ipython().ast_node_interactivity = 'last_expr'")
    assert r.error.type == "KeyError"
    assert "raise KeyError('own')" in r.error.traceback


def test_what_could_not_be_displayed_is_said_in_its_place_and_not_said_to_be_displayed(unsafe):
    r = unsafe.execute(
        "class Figure:\n"
        "    def __repr__(self): return '<Figure 1>'\n"
        "    def _repr_png_(self): raise ValueError('no picture')\n"
        "class A:\n"
        "    def __repr__(self): raise EOFError\n"
        "class Table:\n"
        "    def __repr__(self): return 'a b'\n"
        "    def _repr_html_(self): return 1 / 0\n"
        "print('one'); display(Figure()); print('two'); display(A()); print('three')\n"
        "display(Table())"
    )
    frame = (
        "line 3, in Figure._repr_png_(self): def _repr_png_(self): raise ValueError('no picture')"
    )
    assert r.to_string() == (
        "The cell ran.\n\nstdout:\none\n\n"
        f"Could not be displayed: <Figure 1>: ValueError: no picture\n  {frame}\n\n"
        "stdout:\ntwo\n\nCould not be displayed: EOFError\n  line 5, in A.__repr__(self): def __repr__(self): raise EOFError\n\nstdout:\nthree\n\n"
        "Could not be displayed: ZeroDivisionError: division by zero\n"
        "  line 8, in Table._repr_html_(self): def _repr_html_(self): return 1 / 0\n\n"
        "Displayed: a b"
    )


def test_an_error_behind_the_cells_own_is_short_and_said_once(unsafe):
    said = unsafe.execute(f"{LATE}raise KeyError('own')").to_string()
    assert said.startswith(
        "The cell failed: KeyError: 'own'\n\n  line 5: raise KeyError('own')\n\n"
    )
    assert said.endswith(
        "Raised and shown: ValueError: late\n  line 3, in late(): raise ValueError('late')"
    )


def test_that_there_was_no_memory_for_a_picture_is_said(unsafe):
    said = unsafe.execute(
        "class A:\n    def _repr_png_(self): raise MemoryError\n"
        "    def __repr__(self): return '<Figure>'\ndisplay(A())"
    ).to_string()
    assert "Could not be displayed: <Figure>: MemoryError: [cellblock: " in said
    assert "the operator" in said
    assert "Displayed" not in said


def test_an_error_in_a_librarys_formatter_has_one_of_the_librarys_frames(unsafe):
    said = unsafe.execute(
        "import textwrap\nclass A:\n    _repr_html_ = textwrap.dedent\n    def __repr__(self): return '<A>'\n"
        "from functools import partial\nA._repr_html_ = partial(textwrap.dedent, 1)\ndisplay(A())"
    ).to_string()
    assert "Could not be displayed: <A>: TypeError: expected string" in said
    assert "\n  File " in said
    assert len(said) < 600


def test_displays_stand_between_what_was_printed_before_and_after(unsafe):
    said = unsafe.execute(
        "import sys\n"
        "for name in 'ab':\n"
        "    print('Region', name)\n"
        "    print('warn', name, file=sys.stderr)\n"
        "    print('all of it')\n"
        "    display(1); display(2)\n"
        "print('end')\n3"
    ).to_string()
    part = "stdout:\nRegion {0}\nall of it\n\nstderr:\nwarn {0}\n\nDisplayed: 1; 2\n\n"
    assert said == (
        f"The cell ran.\n\n{part.format('a')}{part.format('b')}stdout:\nend\n\nresult:\n3"
    )


def test_of_objects_that_have_only_a_name_as_text_another_type_is_read(unsafe):
    said = unsafe.execute(
        "from IPython.display import HTML, JSON, Markdown\n"
        "display(Markdown('# hello')); print(1)\n"
        "display(JSON({'a': [1]})); print(2)\n"
        "display(HTML('<style>p {}</style><p>One <b>bold</b> &lt;text&gt;</p>\\n"
        "<table><tr><th></th><th>a</th></tr>\\n<tr><td>x</td>\\n <td>1</td></tr></table>')); print(3)\n"
        "Markdown('*that*')"
    ).to_string()
    assert said == (
        "The cell ran.\n\nDisplayed: <text/markdown> # hello\n\nstdout:\n1\n\n"
        'Displayed: <application/json> {"a": [1]}\n\nstdout:\n2\n\n'
        "displayed:\nOne bold <text>\n\ta\nx\t1\n\nstdout:\n3\n\nresult:\n*that*"
    )


def test_pictures_come_in_the_order_in_which_the_text_names_them(unsafe):
    unsafe.execute("get_ipython().ast_node_interactivity = 'all'")
    r = unsafe.execute(
        "class Picture:\n"
        "    def __init__(self, name): self.name = name\n"
        "    def __repr__(self): return f'<{self.name}>'\n"
        "    def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n' + self.name.encode()\n"
        "Picture('a')\nx = display(Picture('b'))\nPicture('c')\n"
        "get_ipython().ast_node_interactivity = 'last_expr'"
    )
    assert r.to_string() == (
        "The cell ran.\n\nresult:\n<image/png> <a>\n\nDisplayed: <image/png> <b>\n\n"
        "result:\n<image/png> <c>"
    )
    assert [one.content[-1:] for one in pictures(r)] == [b"a", b"b", b"c"]


#: Prints once a file is there.
WAITS = """
import os, threading, time
def late():
    while not os.path.exists('go'): time.sleep(0.01)
    print('late\\n[cellblock] no')
threading.Thread(target=late).start()
2
"""


def test_what_is_printed_between_two_cells_is_in_the_result_of_the_second(unsafe):
    came = threading.Event()

    def hears(output):
        if "late" in str(output.content.get("text")):
            came.set()

    first = unsafe.execute(WAITS, on_output=hears)
    unsafe.write("go", b"")
    assert came.wait(60)
    second = unsafe.execute("print('own')")
    assert (first.result, first.output, first.late_output) == ("2", "", "")
    assert (second.output, second.late_output) == ("own\n", "late\n[cellblock] no\n")
    assert second.to_string() == (
        "The cell ran.\n\nPrinted by what earlier cells left running:\n"
        "late\n\\[cellblock] no\n\nstdout:\nown"
    )
    assert logged(second) == (
        "Printed by what earlier cells left running:\nlate\n\\[cellblock] no\nown\n"
    )
    assert unsafe.execute("3").late_output == ""


def test_a_progress_bar_that_is_a_widget_is_read_as_it_was_last(unsafe):
    said = unsafe.execute(
        "from tqdm.notebook import tqdm\nfor n in tqdm(range(3), desc='rows'): pass\n"
        "for n in tqdm(range(3), leave=False): pass\n"
        "import ipywidgets\nbar = ipywidgets.IntProgress(max=3)\nbar"
    ).to_string()
    assert "> rows: 100% 3 of 3 3/3 [" in said
    assert said.count("widget-view") == 1
    assert said.endswith("IntProgress(value=0, max=3)")
    assert unsafe.execute("display(bar)\nbar.value = 2").to_string().endswith("> 2 of 3")


#: Leaves running what prints when the next cell says so.
LEFT = """
import asyncio, functools, threading
from concurrent.futures import ThreadPoolExecutor
go = threading.Event()
def late(what):
    go.wait(60)
    print(what)
class Late(threading.Thread):
    def run(self): late('of a class')
threads = [
    threading.Thread(target=functools.partial(late, 'thread')),
    threading.Timer(0, lambda: late('timer')),
    Late(),
]
for one in threads: one.start()
async def waits():
    while not go.is_set(): await asyncio.sleep(0.01)
    print('task')
task = asyncio.ensure_future(waits())
pool = ThreadPoolExecutor(1)
pool.submit(len, '').result()
"""
#: Has it print, and a pool's thread, which any cell gives work.
MEANWHILE = """
print('first')
go.set()
for one in threads: one.join()
await task
pool.submit(print, 'pool').result()
print('last')
"""


def test_what_earlier_cells_threads_and_tasks_print_while_a_cell_runs_is_not_its_output(unsafe):
    unsafe.execute(LEFT)
    r = unsafe.execute(MEANWHILE)
    assert r.output == "first\npool\nlast\n", r
    assert sorted(r.late_output.split("\n")) == sorted(
        ["thread", "timer", "of a class", "task", ""]
    )
    # All of it is there in the order in which it was printed.
    texts = [one.content["text"] for one in r.outputs if one.kind == "stream"]
    assert "".join(texts) == f"first\n{r.late_output}pool\nlast\n"
    assert "".join(one.content["text"] for one in r.outputs if one.late) == r.late_output
    assert r.to_string().endswith("\n\nstdout:\nfirst\npool\nlast")
    assert logged(r).endswith("\nfirst\npool\nlast\n")


def test_who_asks_for_earlier_output_finds_what_was_printed_since_the_last_cell(home):
    assert home

    async def main():
        async with AsyncSandbox("unsafe", allow_unsafe=True) as sandbox:
            came = asyncio.Event()
            await sandbox.execute(WAITS, on_output=lambda one: one.late and came.set())
            assert sandbox.earlier_output("1") == "Nothing is kept of cell 1."
            await sandbox.write("go", b"")
            await asyncio.wait_for(came.wait(), 60)
            late = "Printed by what earlier cells left running:\nlate\n\\[cellblock] no"
            for asked in ("", "1", "1 stdout"):
                assert sandbox.earlier_output(asked).endswith(f"\n\n{late}")
            await sandbox.execute("3")
            assert late not in sandbox.earlier_output()

    asyncio.run(main())


def test_a_traceback_that_python_wrote_names_the_cells_lines_as_others_do(unsafe):
    r = unsafe.execute("def f(): raise ExceptionGroup('a', [ValueError(1)])\nf()")
    assert r.to_string().startswith(
        "The cell failed: ExceptionGroup: a (1 sub-exception)\n\n"
        "    + Exception Group Traceback (most recent call last):\n"
        "    |   line 2\n"
        "    |     f()\n"
        "    |   line 1, in f\n"
    )


def test_what_the_tokenizer_refuses_is_said_once(unsafe):
    assert unsafe.execute("if 1:\n    x = 1\n  y = 2").to_string() == (
        "The cell was not run: IndentationError: unindent does not match any outer indentation "
        "level\n\n  line 3\n      y = 2\n      ^"
    )


def test_a_librarys_error_that_it_raised_anew_with_the_same_words_is_said_once(unsafe):
    lookup = "import pandas\npandas.DataFrame({'a': [1]})['nope']"
    frame = "  line 2: pandas.DataFrame({'a': [1]})['nope']"
    assert unsafe.execute(lookup).to_string() == f"The cell failed: KeyError: 'nope'\n\n{frame}"
    own = "try: {}['a']\nexcept KeyError as e: raise KeyError('a') from e"
    assert "Caused by: KeyError: 'a'\n  line 1" in unsafe.execute(own).to_string()
