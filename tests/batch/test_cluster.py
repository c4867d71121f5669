"""The same run on a Dask cluster: a scheduler and workers in processes of their own."""

import os
import signal
import time
from pathlib import Path

import pytest

from cellblock.host.audit import log as chain
from cellblock.host.audit.log import verify
from support import processes
from support.clusters import Cluster
from support.runs import MAIN, texts, write

pytest.importorskip("distributed", reason="Dask is not installed")

OTHER_VERSION = "import cellblock; cellblock.__version__ = '0.0.1'; "


@pytest.fixture
def cluster():
    made = Cluster()
    yield made
    made.close()


@pytest.fixture(scope="module")
def worker_and_cluster():
    """A worker of a cluster that no test leaves anything in."""
    made = Cluster()
    yield made.worker(), made
    made.close()


def zygotes(worker):
    return [pid for pid in processes.tree(worker.pid) if processes.name(pid) == "cb-zygote"]


def guests(worker):
    return [pid for pid in processes.tree(worker.pid) if processes.name(pid) == "cb-guest"]


def begun(cluster, cell=1):
    """In how many guests of a cluster that cell has begun, as their logs say."""
    logs = Path(cluster.world.home, ".cache/cellblock/audit").glob("*.jsonl")
    return sum(f'"kind":"cell","cell":{cell},' in path.read_text() for path in logs)


def starts(cluster):
    """How often a worker of it was told of a run."""
    return cluster.logs().count("Starting Worker plugin cellblock-")


ENDLESS = "import time\ntime.sleep(600)"
SLOW = "import time\ntime.sleep(1)\n'slept'"


@pytest.mark.timeout(180)
def test_a_worker_that_is_killed_costs_no_notebook_and_none_is_there_twice(run, cluster):
    workers = [cluster.worker() for _ in range(3)]
    other = cluster.worker(OTHER_VERSION)
    expected = {}
    for number in range(9):
        write(run.work / f"nb/{number:02}.ipynb", f"n = {number}", SLOW, "n * inputs['k']")
        expected[f"nb/{number:02}.ipynb"] = "passed"
    write(run.work / "nb/denied.ipynb", "import socket")
    write(run.work / "nb/fails.ipynb", "1 / 0")
    (run.work / "nb/torn.ipynb").write_bytes(b"{")
    expected |= {"nb/denied.ipynb": "denied", "nb/fails.ipynb": "failed"}
    write(run.work / "nb/placeless.ipynb", "1")
    (run.work / "out/nb/placeless.ipynb").mkdir(parents=True)
    expected |= {"nb/torn.ipynb": "could not read", "nb/placeless.ipynb": "killed"}

    options = ("-o", "out", "-p", "k=2", "--junit", "junit.xml", "--policy", "safe")
    process = run.start("nb", *options, "--cluster", cluster.address)
    processes.until(lambda: guests(workers[0]), 90)
    time.sleep(0.3)
    held = processes.tree(workers[0].pid)[1:]
    os.kill(workers[0].pid, signal.SIGKILL)
    out, err = process.communicate(timeout=120)

    assert processes.gone(held) == []
    lines = [line for line in out.splitlines() if line.endswith(" s)")]
    names = sorted(line.split("  (")[0].rsplit(" ", 1)[1] for line in lines)
    assert names == sorted(expected), out + err
    statuses = {one.split("  (")[0][14:].strip(): one[:14].strip() for one in lines}
    assert statuses == expected
    assert (process.returncode, err) == (1, "")
    for number in range(9):
        assert texts(run.work / f"out/nb/{number:02}.ipynb") == ["", "'slept'", str(2 * number)]
    assert "cellblock is 0.0.1 here" in out
    assert "    its output can't be written: Is a directory\n" in out
    assert zygotes(other) == []
    assert (run.work / "junit.xml").exists()
    assert "gap:" not in cluster.logs()

    audit = chain.sessions(run.work / "out/.cellblock/audit")
    assert len(audit) == len(expected) - 1
    assert all(verify(one).sound for one in audit)
    own = sorted(path.name for path in (run.work / "out/.cellblock").iterdir())
    assert own == ["audit", "lock", "run.jsonl"]
    processes.until(lambda: not any(map(zygotes, workers)), 30)

    again = run("nb", *options, "--resume")
    assert again.out.count(", kept)") == 9


@pytest.mark.timeout(120)
def test_a_notebook_has_less_there_too_and_none_has_more(run, worker_and_cluster):
    _, cluster = worker_and_cluster
    roots = 'filesystem_read_roots = ["{project}"]\n'
    lab = 'extends = "safe"\nallowed_modules = ["gc"]\ntimeout = 20\n'
    policy = run.world.policy(lab + roots)
    asks = {
        "plain": {},
        "time": {"timeout": 1, "filesystem_read_roots": ["data"]},
        "modules": {"allowed_modules": []},
        "wider": {"timeout": 21},
        "gone": {"filesystem_read_roots": ["no"]},
    }
    (run.work / "nb/data").mkdir(parents=True)
    for name, less in asks.items():
        cells = ("while True: pass",) if name == "time" else ("import gc\n'ran'",)
        write(run.work / f"nb/{name}.ipynb", *cells, metadata={"cellblock": {"policy": less}})
    write(run.work / "nb/cell.ipynb", "x = 1", "%policy narrow max_open_files=100", "x")
    options = ("-o", "out", "--policy", policy, "--cluster", cluster.address)
    ended = run("nb", *options, seconds=110)
    assert (ended.statuses, ended.err) == (
        {
            "nb/plain.ipynb": "passed",
            "nb/time.ipynb": "timed out",
            "nb/modules.ipynb": "denied",
            "nb/wider.ipynb": "denied",
            "nb/gone.ipynb": "denied",
            "nb/cell.ipynb": "passed",
        },
        "",
    )
    assert "it ran longer than 1 s (timeout)" in ended.out
    assert "a notebook can't have more than the policy: 21 is more than 20" in ended.out
    assert texts(run.work / "out/nb/modules.ipynb") == ["PolicyDenied"]
    assert texts(run.work / "out/nb/cell.ipynb") == ["", "", "1"]


@pytest.mark.timeout(120)
def test_workers_that_can_not_keep_the_policy_get_no_notebook(run, worker_and_cluster):
    _, cluster = worker_and_cluster
    write(run.work / "a.ipynb", "1")
    nothing = run.world.policy('extends = "safe"\nbackend = "noop"\nrequire = []\n')
    ended = run("a.ipynb", "-o", "out", "--policy", nothing, "--cluster", cluster.address)
    assert ended.status == 2
    assert f"{cluster.address}: no worker keeps the policy. " in ended.err
    assert "backend noop can't enforce the policy here" in ended.err
    assert not (run.work / "out/a.ipynb").exists()


@pytest.mark.timeout(120)
def test_a_run_that_is_told_to_end_ends_its_notebooks_there(run, worker_and_cluster):
    worker, cluster = worker_and_cluster
    before = begun(cluster, 2)
    write(run.work / "nb/a.ipynb", "'a'", "import time\ntime.sleep(60)")
    write(run.work / "nb/b.ipynb", "'b'", "import time\ntime.sleep(60)")
    write(run.work / "nb/c.ipynb", "1")
    process = run.start("nb", "-o", "out", "--cluster", cluster.address)
    processes.until(lambda: begun(cluster, 2) > before, 90)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    assert out.count("interrupted     ") >= 1
    assert texts(run.work / "out/nb/a.ipynb") == ["'a'", "KeyboardInterrupt"]
    processes.until(lambda: not zygotes(worker), 30)


def test_a_scheduler_that_is_not_there_is_told_in_one_line(run):
    write(run.work / "a.ipynb", "1")
    short = f"from cellblock.batch import cluster; cluster.CONNECT_TIMEOUT = 1.0; {MAIN}"
    process = run.start("a.ipynb", "-o", "out", "--cluster", "tcp://127.0.0.1:9", main=short)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.startswith("cellblock: no scheduler at tcp://127.0.0.1:9: ")
    assert len(err.splitlines()) == 1
    ended = run("a.ipynb", "-o", "out", "--cluster", "nonsense")
    said = "cellblock: no scheduler at nonsense: missing port number in address 'nonsense'\n"
    assert (ended.status, ended.err) == (2, said)


@pytest.mark.timeout(180)
def test_a_run_waits_for_workers_so_long_and_those_that_join_later_take_part(run, cluster):
    # Two wait for the only worker, and two more may be for the second before the third is seen.
    for number in range(8):
        write(run.work / f"nb/{number}.ipynb", ENDLESS)
    options = ("nb", "-o", "out", "--cluster", cluster.address)
    short = f"from cellblock.batch import cluster; cluster.MAX_WAIT = 2.0; {MAIN}"
    process = run.start(*options, main=short)
    _, err = process.communicate(timeout=60)
    said = f"cellblock: {cluster.address}: the cluster has no workers\n"
    assert (process.returncode, err) == (2, said)

    calls = cluster.logs().count("Receive client connection")
    process = run.start(*options)
    processes.until(lambda: cluster.logs().count("Receive client connection") > calls, 60)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    assert "the run was ended before" in out

    process = run.start(*options)
    time.sleep(1)
    cluster.worker()
    processes.until(lambda: begun(cluster) or process.poll() is not None, 60)
    assert process.poll() is None, process.communicate()
    for _ in range(2):
        cluster.worker()
    try:
        processes.until(lambda: begun(cluster) >= 3, 60)
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        print(begun(cluster), out, err, cluster.logs()[-4_000:])  # shown where this fails
    assert (process.returncode, err) == (130, "")
    assert "8 notebooks: " in out


@pytest.mark.timeout(180)
def test_workers_hold_nothing_for_a_run_that_was_killed_or_sends_nothing(run, cluster):
    worker = cluster.worker()
    write(run.work / "a.ipynb", ENDLESS)
    short = f"from cellblock.batch import cluster; cluster.IDLE = 1.0; {MAIN}"
    process = run.start("a.ipynb", "-o", "out", "--cluster", cluster.address, main=short)
    processes.until(lambda: begun(cluster), 60)
    held = processes.tree(worker.pid)[1:]
    process.kill()
    process.communicate()
    processes.until(lambda: not set(held) & set(processes.tree(worker.pid)), 40)

    known = starts(cluster)
    later = cluster.worker()
    processes.until(lambda: starts(cluster) > known, 40)
    time.sleep(1)
    assert zygotes(later) == []


@pytest.mark.timeout(120)
def test_workers_that_are_stopped_just_after_their_scheduler_run_nothing_more(run, cluster):
    workers = [cluster.worker() for _ in range(3)]
    for number in range(6):
        write(run.work / f"nb/{number}.ipynb", ENDLESS)
    process = run.start("nb", "-o", "out", "--cluster", cluster.address)
    processes.until(lambda: begun(cluster) >= 3, 90)
    cluster.scheduler.terminate()
    time.sleep(0.025)
    for worker in workers:
        worker.terminate()
    # They may wait for their own end for ever, whatever they run (distributed 2026.8.0).
    processes.until(lambda: not any(map(guests, workers)), 40)
    for worker in workers:
        worker.kill()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2, out + err
    assert "the scheduler was lost. --resume goes on." in err
