"""Secrets of a project, by their names: reading leaves them out, unless a policy names one."""

import pytest

from support import machines, reading
from support.kernels import Kernel, argv_for, world_and_prefix

SECRETS = (".env", ".git/config", ".git/hooks/pre-commit", "deep/down/.env", "nb/kaggle.json")
HONEST = ("open.csv", "deep/down/data.csv", "nb/beside.py", ".git/HEAD")
READ = "print(open({!r}).read())"


@pytest.fixture(params=machines.users())
def project(request):
    world, prefix = world_and_prefix(request.param)
    for name in (*SECRETS, *HONEST):
        path = world.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        world.write(name, "SECRET" if name in SECRETS else "open")
    for folder in sorted(world.work.rglob("*/")):
        world.give(folder)
    yield world, prefix
    world.close()


@pytest.fixture(params=["landlock", "bubblewrap"])
def start_under(project, request):
    if request.param == "bubblewrap" and (why := machines.no_bubblewrap()):
        pytest.skip(f"no bubblewrap: {why}")
    world, prefix = project
    kernels = []

    def start_under(*lines):
        head = [] if any(line.startswith("extends") for line in lines) else ['extends = "data"']
        policy = world.policy("\n".join([*head, f'backend = "{request.param}"', *lines]))
        kernels.append(Kernel(argv_for(policy), world=world, prefix=prefix))
        return kernels[-1].wait_ready()

    yield start_under
    for kernel in kernels:
        kernel.close()


def read(kernel, name):
    _, published = kernel.run(READ.format(name))
    return reading.stream(published).strip()


@pytest.mark.parametrize("staged", [True, False], ids=["layer", "no layer"])
def test_no_cell_reads_what_has_the_name_of_a_secret(start_under, staged):
    kernel = start_under(*([] if staged else ["filesystem_staged_roots = []"]))
    assert {name: read(kernel, name) for name in SECRETS} == dict.fromkeys(SECRETS, "")
    assert {name: read(kernel, name) for name in HONEST} == dict.fromkeys(HONEST, "open")
    _, published = kernel.run("import os; print(sorted(os.listdir('nb'))[-1], os.listdir('deep'))")
    assert "['down']" in reading.stream(published)


def test_a_program_of_a_cells_reads_them_no_better(start_under):
    kernel = start_under()
    _, published = kernel.run("!cat .env deep/down/.env; ln .env x; cat x; cat /proc/self/cwd/.env")
    assert "SECRET" not in reading.stream(published)


def test_one_that_is_made_later_beside_the_notebook_or_above_it_is_not_read(start_under):
    kernel = start_under()
    assert read(kernel, "open.csv") == "open"
    for name in (".env.local", ".pgpass", ".ssh"):
        if name != ".ssh":
            kernel.world.write(name, "SECRET")
    (kernel.world.work / ".ssh").mkdir()
    kernel.world.give(kernel.world.work / ".ssh")
    kernel.world.write(".ssh/id_rsa", "SECRET")
    assert read(kernel, ".pgpass") == read(kernel, ".ssh/id_rsa") == ""


def test_a_link_of_such_a_name_hides_nothing_else(start_under, project):
    (project[0].work / "deep/.env").symlink_to("/")
    (project[0].work / "deep/.netrc").symlink_to("../open.csv")
    kernel = start_under()
    assert read(kernel, "open.csv") == "open"


def test_the_lines_that_a_refusal_says_to_write_let_it_be_read_and_nothing_else(start_under):
    kernel = start_under()
    _, published = kernel.run(READ.format("deep/down/.env"))
    (shown,) = reading.cards(published, "refusal")
    assert shown["field"] == "read_deny_paths"
    kernel.close()
    lines = [line for line in shown["write"] if not line.startswith("extends")]
    kernel = start_under(*lines)
    assert read(kernel, "deep/down/.env") == "SECRET"
    assert read(kernel, ".env") == ""


def test_no_cell_takes_it_back_by_naming_it_as_a_root(start_under):
    kernel = start_under()
    work = kernel.world.work
    for line in (f'filesystem_read_roots=["{work}/.env"]', 'read_deny_paths=["~/.ssh"]'):
        reply, _ = kernel.run(f"%policy narrow {line}")
        assert reply["status"] == "error", line
    assert read(kernel, ".env") == ""


def test_a_name_that_a_cell_adds_is_not_read_from_then_on(start_under):
    kernel = start_under()
    assert read(kernel, "deep/down/data.csv") == "open"
    assert kernel.run('%policy narrow add.read_deny_paths=["**/data.csv"]')[0]["status"] == "ok"
    assert read(kernel, "deep/down/data.csv") == ""
    assert read(kernel, "open.csv") == "open"
