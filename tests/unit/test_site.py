"""``tools/site``: what it builds takes the place of what there was when it is whole."""

import shutil
import subprocess
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "site"
BUILDER = """\
#!/usr/bin/env bash
out=${!#}
mkdir -p $out
[[ ! -e $out/half ]] || echo "built upon half a site" > $out/index.html
touch $out/half
if [[ -e broken ]]; then kill -9 $PPID; exit 1; fi
rm $out/half
echo "$(cat docs)" >> $out/index.html
"""


def test_an_interrupted_build_leaves_the_site_as_it_was_and_is_not_built_upon(tmp_path):
    tool = tmp_path / "tools" / "site"
    builder = tmp_path / ".venv" / "bin" / "sphinx-build"
    for path in (tool, builder):
        path.parent.mkdir(parents=True)
    shutil.copy(TOOL, tool)
    builder.write_text(BUILDER)
    builder.chmod(0o755)
    index = tmp_path / "artifacts" / "site" / "index.html"

    def build(docs):
        (tmp_path / "docs").write_text(docs)
        return subprocess.run([tool], check=False).returncode == 0

    assert build("one")
    (tmp_path / "broken").touch()
    assert not build("two")
    assert index.read_text() == "one\n"
    (tmp_path / "broken").unlink()
    assert build("three")
    assert index.read_text() == "one\nthree\n"
    assert [one.name for one in index.parent.parent.iterdir() if one.is_dir()] == ["site"]
