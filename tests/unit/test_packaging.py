"""What is shipped: kernelspecs, logos, presets, metadata."""

import json
import struct
import tomllib
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import cellblock
from cellblock.jupyter.install import LOGOS, SHIPPED

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
