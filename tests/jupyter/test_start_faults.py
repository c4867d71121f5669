"""Surroundings in which no kernel, or no cell, can run: each is named, with what to do about it."""

import os
import subprocess

import pytest

from support import reading
from support.kernels import Kernel, World, argv_changed, argv_for, nobody_prefix, world_of_nobody

STRANGER = 54_321
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts or is somebody else")


def behind(words):
    """Return a prefix that has a shell do something before it becomes the kernel."""
    return ("sh", "-c", f'{words}; exec "$@"', "sh")


def last_words(world, prefix, *, measured=True):
    """Return what a kernel says that ends before it reads its connection file.

    Where coverage can keep nothing either and would say so, the kernel is not ``measured``.
    """
    env = world.environment()
    if not measured:
        env.pop("COVERAGE_PROCESS_START", None)
    argv = [part.format(connection_file=world.root / "none.json") for part in argv_for("safe")]
    done = subprocess.run(
        [*prefix, *argv], check=False, capture_output=True, text=True, timeout=30,
        cwd=world.work, env=env,
    )  # fmt: skip
    assert done.returncode == 1
    assert list((world.root / "tmp").iterdir()) == []
    return done.stderr


def problem(policy, world, argv=None, **keywords):
    """Return the card that the first cell ends on."""
    with Kernel(argv or argv_for(policy), world=world, **keywords) as kernel:
        reply, published = kernel.wait_heard().run("1")
    assert reply["ename"] == "PolicyProblem"
    assert "Traceback" not in kernel.stderr()
    return reading.card_text(published)


def unnameable(parent):
    """Make a folder whose name is not UTF-8; return it as Python writes it."""
    folder = parent / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    return folder


def test_few_open_files(world):
    said = last_words(world, behind("ulimit -n 20"))
    assert said == "cellblock: only 20 files may be open. Raise it: ulimit -n 1024.\n"


def test_fewer_open_files_than_snapshots_take(world):
    assert problem("safe", world, prefix=behind("ulimit -n 70")) == (
        "cellblock can't run cells with this policy\n"
        "  only 70 files may be open, and each snapshot takes 4\n"
        "  File:  safe\n"
        "  Key:   undo_depth\n"
        "  Value: 3\n"
        "  Instead: Raise the limit: ulimit -n 1024. Or set undo_depth to 1. Then restart\n"
        "  the kernel."
    )


def test_a_problem_with_a_policy_of_ones_own_names_its_file(world):
    policy = world.policy("extends = 'safe'", name="art")
    lines = problem(policy, world, prefix=behind("ulimit -n 70")).split("\n")
    assert lines[2:4] == [f"  File:  {policy}", "  Key:   undo_depth"]


def test_as_many_open_files_as_snapshots_take_are_enough(world):
    policy = world.policy("extends = 'safe'\nundo_depth = 1")
    with Kernel(
        argv_for(policy), world=world, prefix=behind("ulimit -n 70")
    ).wait_ready() as kernel:
        for number in range(5):
            published = kernel.run(f"{number}; import time; time.monotonic(), time.sleep(0.11)")[1]
            assert reading.stream(published, "stderr") == ""
        assert kernel.run("%undo")[0]["status"] == "ok"


def test_a_folder_that_was_deleted(world):
    said = last_words(world, behind("mkdir gone; cd gone; rmdir ../gone"), measured=False)
    what = "the folder it was started in: No such file or directory"
    assert said == f"cellblock: {what}. Start it in one that is there.\n"


@needs_root
def test_no_null_device(world):
    mounted = ("unshare", "--mount", "--propagation", "private")
    said = last_words(world, (*mounted, *behind("mount -t tmpfs tmpfs /dev")))
    what = "/dev/null can't be opened: No such file or directory"
    assert said == f"cellblock: {what}. Mount /dev in the container or on the machine.\n"


def test_a_umask_that_takes_the_owners_rights(world):
    prefix = () if os.geteuid() else nobody_prefix()
    if prefix is None:
        pytest.skip("nobody can't be had here: the interpreter is out of reach")
    if prefix:
        world = world_of_nobody()
    said = last_words(world, (*prefix, *behind("umask 777")), measured=False)
    what = f"a folder made in {world.root / 'tmp'} can't be used, though it is ours"
    assert said == f"cellblock: {what}. Give its owner all rights: umask 077.\n"
    world.close()


def test_a_project_whose_name_is_not_utf8(world):
    world.work = unnameable(world.work)
    assert problem("data", world) == (
        "cellblock can't run cells with this policy\n"
        "  a name that cells need is not UTF-8\n"
        "  File:  data\n"
        f"  Value: {str(world.work)!a}\n"
        "  Instead: Give the folder a name in UTF-8, or take it out of the policy. Then\n"
        "  restart the kernel."
    )


def test_such_a_project_is_nothing_to_cells_that_read_no_files(start, world):
    world.work = unnameable(world.work)
    assert start("safe", world=world).run("6 * 7")[0]["status"] == "ok"


def test_temporary_files_in_a_folder_whose_name_is_not_utf8(world):
    folder = unnameable(world.root)
    card = problem("safe", world, extra_env={"TMPDIR": str(folder)})
    said, _, rest = card.partition("  Value: ")
    assert said.splitlines() == [
        "cellblock can't run cells with this policy",
        "  a name that cells need is not UTF-8",
        "  File:  safe",
    ]
    value, remedy = rest.split("\n  Instead: ")
    assert value.startswith(f"{ascii(str(folder))[:-1]}/cellblock-")
    assert remedy == "Set TMPDIR to a folder with a name in UTF-8. Then restart the kernel."
    assert list(folder.iterdir()) == []


def test_less_memory_than_an_interpreter_takes(world):
    policy = world.policy("memory_max_bytes = 1")
    assert problem(policy, world) == (
        "cellblock can't run cells with this policy\n"
        "  wrong value\n"
        f"  File:  {policy}\n"
        "  Key:   memory_max_bytes\n"
        "  Value: 1\n"
        '  Instead: It should be greater than or equal to 33554432, or "none" for no\n'
        "  limit. Then restart the kernel."
    )


def test_the_least_memory_runs_a_cell(start, world):
    policy = world.policy("memory_max_bytes = 33554432")
    assert start(policy, world=world).run("sum(range(9))")[0]["status"] == "ok"


@needs_root
def test_a_user_without_a_home():
    if nobody_prefix() is None:
        pytest.skip("nobody else can be had here: the interpreter is out of reach")
    prefix = [word.replace("65534", str(STRANGER)) for word in nobody_prefix()]
    world = World(STRANGER)
    try:
        card = problem("safe", world, prefix=(*prefix, "env", "-u", "HOME"))
    finally:
        world.close()
    assert card == (
        "cellblock can't run cells with this policy\n"
        "  the user who runs the kernel has no home folder\n"
        "  File:  safe\n"
        "  Key:   read_deny_paths\n"
        "  Value: '~/.ssh'\n"
        "  Instead: Set HOME where the kernel is started. Then restart the kernel."
    )


def test_an_interpreter_whose_ipython_is_broken(world):
    package = world.write("IPython.py", "raise ImportError('IPython is broken here')").parent
    # Behind bubblewrap there is nothing but roots.
    policy = world.policy(f'extends = "safe"\nfilesystem_read_roots = ["{package}"]\n')
    # The zygote has ended before it is told anything.
    change = (
        f"import os, sys; sys.path.insert(0, {str(package)!r}); from cellblock.host.guests import spawn as launch; "
        "real = launch.start; launch.start = lambda *wrap: (started := real(*wrap), "
        "os.waitid(os.P_PID, started[1], os.WEXITED | os.WNOWAIT))[0]"
    )
    assert problem("safe", world, argv=argv_changed(change, policy)) == (
        "The guest can't be started\n"
        "  ImportError: IPython is broken here\n"
        "  Instead: Run cellblock doctor; then restart the kernel."
    )
