"""What is made once for all tracebacks, and that nobody sees it."""

import json
import subprocess
import sys

#: In a process of its own: what is shared stays so.
PROGRAM = """
import json
from IPython.core.interactiveshell import InteractiveShell
from pygments.formatters.terminal256 import Terminal256Formatter
from pygments import lexers
from pygments.styles import get_style_by_name
from cellblock.guest import traceback_colours as colouring

shell = InteractiveShell.instance()

def shown(theme, mode):
    shell.colors = theme
    shell.InteractiveTB.set_mode(mode)
    source = "def f(x):\\n    y = [x, 'a']\\n    return y[0] / 0\\nf(1) + 2"
    try:
        exec(compile(source, shell.compile.cache(source, 1), "exec"), {})
    except ZeroDivisionError as error:
        return shell.InteractiveTB.structured_traceback(
            type(error), error, error.__traceback__, tb_offset=1
        )

def all_of_them():
    themes, modes = ("neutral", "linux", "nocolor"), ("Context", "Verbose")
    return [shown(theme, mode) for theme in themes for mode in modes for _ in range(2)]

theirs, known, style = all_of_them(), dict(lexers.LEXERS), get_style_by_name("default")
colouring.make_once()
ours = all_of_them()
colouring.make_once()
one, two = Terminal256Formatter(style=style), Terminal256Formatter(style=style)
other = Terminal256Formatter(style=style, linenos=True)
print(json.dumps({
    "coloured": "\\x1b[" in "".join(ours[0]),
    "the same": ours == theirs,
    "all lexers": known == lexers.LEXERS,
    "Python's first": next(iter(lexers.LEXERS)),
    "shared": one.style_string is two.style_string,
    "options heard": [one.linenos, other.linenos, other.style_string is one.style_string],
}))
"""


def test_a_traceback_is_what_it_was_and_what_is_shared_are_tables_not_options():
    made = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True)
    assert json.loads(made.stdout) == {
        "coloured": True,
        "the same": True,
        "all lexers": True,
        "Python's first": "PythonLexer",
        "shared": True,
        "options heard": [False, True, False],
    }
