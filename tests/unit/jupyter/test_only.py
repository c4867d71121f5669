"""Kernelspecs for servers that start no kernel but cellblock's."""

import json

import pytest
from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

from cellblock.jupyter.only import OnlyCellblock

OURS = ["python", "-E", "-P", "-m", "cellblock", "-f", "{connection_file}"]
OTHERS = {
    "other": json.dumps({"argv": ["python", "-m", "other", "cellblock"], "display_name": "o"}),
    "broken": "{",
    "empty": "{}",
    "odd": json.dumps({"argv": 1, "display_name": "o"}),
}


@pytest.fixture
def manager(tmp_path):
    """Return a function that makes a manager of these kernels and the native one."""
    ours = json.dumps({"argv": OURS, "display_name": "c"})
    for name, text in {**OTHERS, "cellblock": ours, "cellblock-lab": ours}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "kernel.json").write_text(text)
    return lambda made=OnlyCellblock, **settings: made(kernel_dirs=[str(tmp_path)], **settings)


def test_no_kernel_but_ours_is_listed(manager):
    assert sorted(manager().find_kernel_specs()) == ["cellblock", "cellblock-lab"]
    assert sorted(manager().get_all_specs()) == ["cellblock", "cellblock-lab"]


@pytest.mark.parametrize("name", ["python3", "Python3", "nothing", *OTHERS])
def test_a_kernel_that_is_not_listed_is_not_there(manager, name):
    with pytest.raises(NoSuchKernel):
        manager().get_kernel_spec(name)


def test_a_list_of_allowed_kernels_is_a_rule_and_jupyters_own_is_a_filter(manager):
    allowed = {"allowed_kernelspecs": {"cellblock-lab"}}
    assert list(manager(**allowed).find_kernel_specs()) == ["cellblock-lab"]
    assert manager(**allowed).get_kernel_spec("Cellblock-Lab").argv == OURS
    with pytest.raises(NoSuchKernel):
        manager(**allowed).get_kernel_spec("cellblock")
    # Positive control: what this class is for.
    assert manager(KernelSpecManager, **allowed).get_kernel_spec("python3").argv
