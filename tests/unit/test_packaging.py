"""What is shipped: kernelspecs, logos, presets, metadata."""

import json
import struct
import tomllib
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import cellblock
from cellblock.jupyter.install import LOGOS, SHIPPED
from cellblock.policy.load import load

ROOT = Path(cellblock.__file__).parents[2]

pytestmark = pytest.mark.skipif(
    not (ROOT / "pyproject.toml").exists(), reason="an installed package has no source tree"
)


@pytest.mark.parametrize(("kernel", "policy"), [("cellblock", "safe"), ("cellblock-data", "data")])
def test_a_shipped_kernelspec_starts_isolated_under_its_policy(kernel, policy):
    spec = json.loads((ROOT / "kernelspec" / kernel / "kernel.json").read_text())
    module = ["python", "-E", "-P", "-m", "cellblock"]
    assert spec == {
        "argv": [*module, "-f", "{connection_file}", "--policy", policy],
        "display_name": f"cellblock ({policy})",
        "language": "python",
        "interrupt_mode": "message",
        "metadata": {"debugger": False, "supported_encryption": ["curve"]},
    }


@pytest.mark.parametrize("kernel", SHIPPED)
def test_logos_are_what_their_names_say(kernel):
    folder = ROOT / "kernelspec" / kernel
    assert sorted(path.name for path in folder.iterdir()) == sorted(["kernel.json", *LOGOS])
    for size in (32, 64):
        header = (folder / f"logo-{size}x{size}.png").read_bytes()[:24]
        assert header[:8] == b"\x89PNG\r\n\x1a\n"
        assert struct.unpack(">II", header[16:]) == (size, size)
    svg = ET.parse(folder / "logo-svg.svg").getroot()
    assert svg.get("viewBox") == "0 0 64 64"


def test_the_wheel_carries_each_kernelspec_folder_and_the_packages_version():
    made = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert made["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"] == {
        f"kernelspec/{kernel}": f"share/jupyter/kernels/{kernel}" for kernel in SHIPPED
    }
    assert made["project"]["version"] == cellblock.__version__


def test_every_package_of_another_kind_has_the_version_and_dependencies_of_the_wheel():
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with JupyterLab and with bokeh")
    made = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    server = json.loads((ROOT / "server.json").read_text())
    recipe = yaml.safe_load((ROOT / "packaging/conda/recipe.yaml").read_text("utf-8"))
    named = (server["version"], server["packages"][0]["version"], recipe["context"]["version"])
    assert {*named} == {made["version"]}
    # conda-forge calls fastjsonschema by the language that it is for.
    run = (one.removeprefix("python-") for one in recipe["requirements"]["run"])
    needed = {one.replace(" ", "").replace("_", "-") for one in run}
    assert needed - {*made["dependencies"]} == {"--linux", "python>=${{python-min}}", "bubblewrap"}
    assert {*made["dependencies"]} <= needed
    assert f">={recipe['context']['python_min']}" == made["requires-python"]


def test_the_policy_of_the_image_holds_and_leaves_half_of_its_memory():
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with JupyterLab and with bokeh")
    image = ROOT / "packaging" / "image"
    policy = load(str(image / "lab.toml"), project=ROOT, allow_unsafe=False)
    compose = yaml.safe_load((image / "compose.yaml").read_text("utf-8"))
    values = yaml.safe_load((image / "values.yaml").read_text("utf-8"))
    limits = (compose["services"]["lab"]["mem_limit"], values["singleuser"]["memory"]["limit"])
    for limit in limits:
        assert policy.memory_max_bytes * 2 < int(limit.lower().removesuffix("g")) * 2**30
