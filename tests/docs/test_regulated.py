"""Regulated data: read where it lies, nothing leaves, and every decision is on record."""

import pytest

from support import doc_pages, machines, reading
from support.kernels import World, argv_for

PAGE = "howto/regulated.md"


@pytest.fixture
def world():
    if why := machines.no_bubblewrap():
        pytest.skip(f"no bubblewrap: {why}")
    made = World(backend="bubblewrap")
    (made.root / "registry").mkdir()
    (made.root / "registry/visits.csv").write_text("name,ward\nAda,A\nBob,A\nCy,B\n")
    yield made
    made.close()


def test_its_cells_meet_what_the_page_says_and_are_on_record(world, start, follow, shell):
    places = [
        ("/srv/registry", str(world.root / "registry")),
        ("/var/log/registry", str(world.root / "log")),
    ]
    follow(PAGE, places, but=("cellblock audit",))
    kernel = start(argv=argv_for(world.work / "registry.toml"), world=world)
    for cell in doc_pages.cells(PAGE):
        ran = kernel.run(cell.source.replace(*places[0]))
        assert doc_pages.answer(*ran).replace(*places[0][::-1]) == cell.says
    (html,) = (content["data"] for content in reading.of(ran[1], "execute_result"))
    assert "example.org" not in html["text/html"]
    kernel.end()

    audit = doc_pages.blocks(PAGE, "bash")[-1].replace(*places[1])
    ran = shell(audit)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert len(ran.stdout.splitlines()[-1].split()[-1]) == 64
