"""Packages for cells: installed by the host while a cell waits, or before the first one."""

import json
import time

import pytest

from support import reading
from support.kernels import Kernel, argv_for
from support.wheels import Index

POLICY = """
timeout = 300.0
allowed_modules = ["alpha_one", "beta"]
packages = [{packages}]
[ops.install]
index = "{url}"
allow = ["alpha-one", "beta", "delta", "sources"]
cells = {cells}
"""


@pytest.fixture(scope="module")
def index():
    with Index() as made:
        made.add("alpha-one", "1.0")
        made.add("beta", "1.0", needs=("alpha-one",))
        made.add("delta", "1.0")
        yield made


def argv(world, index, *packages, cells=True):
    named = ", ".join(json.dumps(one) for one in packages)
    text = POLICY.format(url=index.url, packages=named, cells=str(cells).lower())
    return argv_for(world.policy(text))


def result(kernel, code):
    mid = kernel.execute_send(code)
    reply, published = kernel.reply(mid, timeout=120), kernel.until_idle(mid)
    assert reply["content"]["status"] == "ok", reply["content"]
    return reading.result(published), published


@pytest.fixture(scope="module")
def kernel(shared_world, index, start_shared):
    return start_shared(argv=argv(shared_world, index), world=shared_world)


def test_a_package_is_installed_and_imported_in_one_cell(world, index):
    code = "told = ops.install('beta')\nimport beta, alpha_one\ntold, beta.version"
    with Kernel(argv(world, index), world=world) as kernel:
        value, published = result(kernel.wait_ready(), code)
    assert value == "(['alpha-one 1.0', 'beta 1.0'], '1.0')"
    said = reading.stream(published)
    assert said == (
        "ops.install: fetching beta …\n"
        "ops.install: fetching alpha-one …\n"
        "ops.install: alpha-one 1.0, beta 1.0\n"
    )


def test_it_is_awaited_too(kernel):
    assert result(kernel, "await ops.install('alpha-one')")[0] == "['alpha-one 1.0']"


def test_what_is_not_in_the_list_is_not_granted(kernel, index):
    index.asked_for()
    reply, _ = kernel.run("ops.install('gamma')")
    assert f"{reply['ename']}: {reply['evalue']}" == (
        "ToolError: ops.install: NotGranted: gamma: it is not in allow of [ops.install]"
    )
    assert index.asked_for() == []


def test_another_kernel_has_it_before_its_first_cell_and_asks_nobody(shared_world, index, kernel):
    result(kernel, "ops.install('beta')")
    index.asked_for()
    with Kernel(argv(shared_world, index, "beta", cells=False), world=shared_world) as other:
        other.wait_ready()
        assert result(other, "import beta\nbeta.version")[0] == "'1.0'"
        reply, _ = other.run("ops.install('beta')")
        assert "NotGranted: this policy does not grant ops.install" in reply["evalue"]
    assert index.asked_for() == []


@pytest.mark.parametrize("guest", ["awaited", "there"])
def test_the_first_cell_shows_how_packages_were_installed(world, index, guest):
    with Kernel(argv(world, index, "beta", "delta"), world=world) as other:
        other.wait_heard()
        if guest == "there":
            other.guest()
            time.sleep(1)
        value, published = result(other, "import beta\nbeta.version")
        assert value == "'1.0'"
        said = reading.stream(published).splitlines()
        assert sum("fetching" in line for line in said[:-1]) == 3
        assert said[-1] == "ops.install: alpha-one 1.0, beta 1.0, delta 1.0"


def test_where_one_can_not_be_had_no_cell_runs_and_each_says_why(shared_world, index):
    with Kernel(argv(shared_world, index, "sources"), world=shared_world) as other:
        other.wait_heard()
        for _ in range(2):
            mid = other.execute_send("1")
            reply, published = other.reply(mid, timeout=120), other.until_idle(mid)
            assert (
                reply["content"]["ename"] == "PolicyProblem"
                or reply["content"]["status"] == "error"
            )
            text = " ".join(reading.card_text(published).split())
            assert "they can't be installed: sources: " in text
            assert "cellblock packages clear" in text
    index.asked_for()
    # Another kernel is told so at once.
    with Kernel(argv(shared_world, index, "sources"), world=shared_world) as other:
        other.wait_heard()
        mid = other.execute_send("1")
        assert other.reply(mid, timeout=60)["content"]["status"] == "error"
    assert index.asked_for() == []


def test_an_unsafe_cell_can_not_write_to_what_was_installed(shared_world, index, start):
    policy = shared_world.policy(
        'extends = "unsafe"\n'
        + POLICY.format(url=index.url, packages="", cells="true").replace(
            'allowed_modules = ["alpha_one", "beta"]', ""
        ),
        "unsafe",
    )
    other = start(argv=argv_for(policy, "--allow-unsafe"), world=shared_world)
    code = """
ops.install('alpha-one')
import alpha_one, os
told = []
for act in (lambda: open(alpha_one.__file__, 'a'), lambda: open(os.path.dirname(alpha_one.__file__) + '/x', 'w'),
            lambda: os.mkdir(os.path.dirname(os.path.dirname(alpha_one.__file__)) + '/evil'),
            lambda: os.rename(alpha_one.__file__, alpha_one.__file__ + '.old')):
    try: act(); told.append('done')
    except OSError: told.append('refused')  # what is mounted read-only is another
told, open(alpha_one.__file__).read(7)
"""
    value, _ = result(other, code)
    assert value == "(['refused', 'refused', 'refused', 'refused'], 'version')"
    code = "try: os.listdir(os.path.dirname(os.path.dirname(os.path.dirname(alpha_one.__file__))) + '/../failed')"
    assert result(other, f"{code}\nexcept OSError: told = 'refused'\ntold")[0] == "'refused'"
