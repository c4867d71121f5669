"""What a policy grants, as whoever runs operations has it, and servers."""

import dataclasses

import pytest

from cellblock.host.services.operations import catalog
from cellblock.policy import operations as tables
from support.web import Web, answer


@pytest.fixture
def everything(tmp_path):
    """Return what grants some of each operation, beneath a folder ``lab``."""
    (tmp_path / "lab/keys").mkdir(parents=True)
    roots = (str(tmp_path / "lab"),)
    granted = {
        "read_file": tables.ReadFile(roots=roots, max_bytes=10),
        "write_file": tables.WriteFile(roots=roots, max_bytes=10, max_total_bytes=10_000),
        "list_dir": tables.ListDir(roots=roots, max_entries=10),
        "http": tables.Http(hosts=("*", "10.0.0.1"), paths=("/v1/",)),
        "install": tables.Install(
            index="http://127.0.0.1:9/simple",
            allow=("Some-Package<2",),
            max_bytes=10**6,
            timeout=1.0,
        ),
    }
    return catalog.OperationGrants(
        project=str(tmp_path / "lab"),
        denied=(str(tmp_path / "lab/keys"),),
        tables={name: dataclasses.asdict(table) for name, table in granted.items()},
        packages=str(tmp_path / "packages"),
    )


@pytest.fixture
def web():
    """Start servers that end with the test."""
    started = []

    def start(say=lambda *_: answer(b"hello"), **keywords):
        started.append(Web(say, **keywords))
        return started[-1]

    yield start
    for one in started:
        one.close()
