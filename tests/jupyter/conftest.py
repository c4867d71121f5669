"""What several modules have: folders for all of their kernels, and who answers these."""

import json

import pytest

from support.endpoint import Endpoint
from support.kernels import World


@pytest.fixture(scope="module")
def shared_world():
    """Folders for a whole module; they outlive the kernels in them."""
    made = World()
    yield made
    made.close()


@pytest.fixture(scope="module")
def server():
    """An endpoint with language models."""
    made = Endpoint()
    yield made
    made.close()


@pytest.fixture(scope="module")
def data(start_shared):
    """One kernel under preset data, for tests that leave no state that matters."""
    return start_shared("data")


#: Preset data lets cells start programs; unsafe, where its policy says so.
PROGRAMS = {
    "data": "",
    "unsafe": 'extends = "unsafe"\nsubprocess_execution = true\n'
    'filesystem_read_roots = ["/usr", "/bin", "/lib", "/lib64"]\n',
}


@pytest.fixture(scope="module", params=PROGRAMS)
def programs(request, start_shared, tmp_path_factory):
    """One kernel for a module, in each mode where cells may start programs."""
    if not (text := PROGRAMS[request.param]):
        return start_shared(request.param)
    file = tmp_path_factory.mktemp("policy") / "programs.toml"
    file.write_text(text)
    return start_shared(file, "--allow-unsafe")


@pytest.fixture(scope="session")
def records():
    """Return a function: what is on a world's audit logs, of all kinds or of some, in its order."""

    def of(world, *kinds):
        folder = world.home / ".cache" / "cellblock" / "audit"
        files = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime_ns)
        found = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        return [one for one in found if not kinds or one["kind"] in kinds]

    return of


@pytest.fixture(params=["safe", "unsafe"])
def either(request):
    """Return a kernel of either mode."""
    return request.getfixturevalue(request.param)
