"""A Hub: the kernel for all, as the page installs it; test_operators_policy has the claims."""

import json

import pytest
from traitlets.config import Config

from cellblock.jupyter.only import OnlyCellblock
from support import doc_pages
from support.notebooks import notebook

PAGE = "howto/jupyterhub.md"


def test_the_kernel_is_installed_for_all_and_heads_of_logs_are_kept(world, shell):
    kept = world.root / "kept"
    kept.mkdir()
    variables = {"ETC": str(world.root), "HOMES": str(world.root), "KEPT": str(kept)}
    policy, _ = doc_pages.files(PAGE).values()
    world.write("lab.toml", policy)
    install, heads = doc_pages.blocks(PAGE, "bash")
    install = install.replace("--sys-prefix", f"--prefix {world.root}")
    script = "\n".join(line for line in install.splitlines() if not line.startswith("pip "))
    ran = shell(script, **variables)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    kernel = json.loads((world.root / "share/jupyter/kernels/lab/kernel.json").read_text())
    assert kernel["argv"][-1] == str(world.root / "cellblock/lab.toml")

    world.write("a.ipynb", notebook("1"))
    ran = shell('cellblock run --policy "$ETC/cellblock/lab.toml" --output-dir "$KEPT/out" a.ipynb')
    assert ran.returncode == 0, ran.stdout + ran.stderr
    ran = shell(heads, **variables)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert len((kept / "heads").read_text().splitlines()) == 1


def test_the_configuration_sets_what_there_is():
    (config,) = (text for name, text in doc_pages.files(PAGE).items() if name.endswith(".py"))
    c = Config()
    exec(config, {"c": c})
    server = pytest.importorskip("jupyter_server.serverapp", reason="no server under this Python")
    lab = pytest.importorskip("jupyterlab.labapp", reason="no server under this Python")
    there = {made.__name__: made for made in (server.ServerApp, lab.LabApp, OnlyCellblock)}
    for argument in c.Spawner.args:
        made, _, name = argument.removeprefix("--").partition("=")[0].partition(".")
        assert there[made].class_traits(config=True)[name], argument
