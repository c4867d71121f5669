"""The Jupyter project's own kernel tests, every attribute filled in."""

import json

import jupyter_kernel_test
import pytest

from support.kernels import World, argv_for

SPEC = {"argv": [], "display_name": "cellblock", "language": "python", "interrupt_mode": "message"}


@pytest.fixture(scope="module", autouse=True)
def _installed():
    """Install the kernelspec where only these tests find it."""
    world = World()
    folder = world.home / ".local/share/jupyter/kernels/cellblock"
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps(SPEC | {"argv": argv_for("safe")}))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in world.environment().items():
            patch.setenv(name, value)
        yield
    world.close()


class TestKernel(jupyter_kernel_test.KernelTests):
    kernel_name = "cellblock"
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import warnings; warnings.warn('on stderr')"
    completion_samples = (
        {"text": "zi", "matches": {"zip"}},
        {"text": "import sta", "matches": {"statistics"}},
        {"text": "math.isc", "matches": {"isclose"}},
    )
    complete_code_samples = ("1", "print('hi')", "def f(x):\n  return x\n\n\n", "x = 1")
    incomplete_code_samples = ("print('''hi", "def f(x):\n  x*2", "for x in y:", "f(")
    invalid_code_samples = ("import = 7q", "def")
    code_page_something = "zip?"
    code_generate_error = "raise ValueError('wrong')"
    code_execute_result = (
        {"code": "1 + 2", "result": "3"},
        {"code": "'a' * 3", "result": "'aaa'"},
        {"code": "[n * n for n in range(4)]", "result": "[0, 1, 4, 9]"},
    )
    code_display_data = (
        {
            "code": "from IPython.display import HTML; display(HTML('<b>x</b>'))",
            "mime": "text/html",
        },
        {"code": "from IPython.display import Math; display(Math('x'))", "mime": "text/latex"},
    )
    code_history_pattern = "1 ?*2"
    supported_history_operations = ("tail", "range", "search")
    code_inspect_sample = "zip"
    code_clear_output = "from IPython.display import clear_output; clear_output()"


def test_every_attribute_is_filled_in():
    blank = [
        name
        for name, value in vars(jupyter_kernel_test.KernelTests).items()
        if not name.startswith("_") and value in ("", [], ()) and not getattr(TestKernel, name)
    ]
    assert blank == []
