"""Switch protections off, one at a time, and see whether the tests that belong to each notice.

    python tests/mutants/run.py [--jobs 2] [--only PART]...

A mutant is a single change to the source that switches one protection off. The mutants are data,
written by hand: `*.toml` beside this file, one file an area. Tools such as mutmut and cosmic-ray make
mutants by operators (``<`` becomes ``<=``); here a person has picked what must not be lost.

Mutants are tried in copies of the tree below artifacts/, so the tree itself is never changed. A copy
has a virtual environment of its own: guests are started with ``-I``, which ignores PYTHONPATH, so
only an environment decides which cellblock they import.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
TREE = HERE.parents[1]
#: The smallest share of all mutants that the tests must notice.
ENOUGH = 0.97
#: Seconds that the tests of one mutant may take. Those of an unchanged copy take a few.
LIMIT = 180.0
#: pytest's exit status if a test failed. All others but 0 say that the tests did not run as meant.
TESTS_FAILED = 1


@dataclass(frozen=True)
class Mutant:
    """A change that switches a protection off, and the tests that should notice.

    ``file`` and ``tests`` are relative to the tree. ``before`` occurs once in the file. ``accepted`` is
    the reason why no test notices, if none does. ``may_hang`` says that tests which run out of time have
    noticed: without this protection something waits for ever.
    """

    id: str
    file: str
    before: str
    after: str
    tests: list[str]
    why: str
    accepted: str = ""
    may_hang: bool = False

    def applied_to(self, source: str) -> str:
        """Return the source with the protection switched off; ValueError if ``before`` is not unique."""
        found = source.count(self.before)
        if found != 1:
            raise ValueError(f"{self.id}: `before` occurs {found} times in {self.file}")
        return source.replace(self.before, self.after)


def load() -> list[Mutant]:
    """Return all mutants, in the order of files and of entries in each."""
    files = sorted(HERE.glob("*.toml"))
    return [Mutant(**each) for file in files for each in tomllib.loads(file.read_text())["mutant"]]


class Copy:
    """A copy of the tree, uncommitted changes included, with an environment that imports it."""

    def __init__(self, place: Path) -> None:
        self.root = place
        for name in _files():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(TREE / name, place / name, follow_symlinks=False)
        self.python = self._environment(Path(sys.prefix), place / ".venv")

    def _environment(self, original: Path, made: Path) -> Path:
        """Make a virtual environment with the packages of ``original`` but this copy of cellblock.

        The packages' files are hard links: guests may read what lies in the environment, and no more.
        An editable install leads to the tree by a ``.pth`` file, which is left out.
        """
        packages = next(original.glob("lib/python3*/site-packages"))
        own = made / packages.relative_to(original)
        no_pth = shutil.ignore_patterns("*.pth")
        shutil.copytree(packages, own, symlinks=True, ignore=no_pth, copy_function=os.link)
        (own / "mutant.pth").write_text(f"{self.root / 'kernel'}\n")
        shutil.copy(original / "pyvenv.cfg", made)
        shutil.copytree(original / "share", made / "share", symlinks=True)
        shutil.copytree(original / "bin", made / "bin", symlinks=True)
        for script in (made / "bin").iterdir():
            if not script.is_symlink() and script.is_file():
                text = script.read_bytes().replace(os.fsencode(original), os.fsencode(made))
                script.write_bytes(text)
        return made / "bin" / "python"

    def test(self, tests: list[str], *options: str, limit: float) -> tuple[int | None, str]:
        """Run pytest; return its exit status and output. The status is None if the time ran out."""
        command = [self.python, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        with tempfile.TemporaryFile("w+") as output:
            pytest = subprocess.Popen(
                [*command, *options, *tests],
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            status: int | None = None
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = pytest.wait(limit)
            if status is None:
                os.killpg(pytest.pid, signal.SIGKILL)
                pytest.wait()
            output.seek(0)
            return status, output.read()

    def outcome(self, mutant: Mutant) -> tuple[str, str]:
        """Apply a mutant, run its tests, undo it; return the outcome and what pytest printed."""
        file = self.root / mutant.file
        before, times = file.read_text(), file.stat()
        after = mutant.applied_to(before)
        if file.suffix == ".py":
            # A guest that can't import would fail any test.
            ast.parse(after, mutant.id)
        file.write_text(after)
        # Byte code is looked up by time, in seconds, and size: each mutant needs another time.
        later = next(_seconds)
        os.utime(file, (later, later))
        try:
            status, output = self.test(mutant.tests, "-x", limit=LIMIT)
        finally:
            file.write_text(before)
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        return _outcome(status, mutant), output


class _Seconds:
    """Whole seconds, each given out once, from now on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = int(time.time())

    def __next__(self) -> int:
        with self._lock:
            self._last += 1
            return self._last


_seconds = _Seconds()


def _outcome(status: int | None, mutant: Mutant) -> str:
    """Name an outcome. Only tests that ran and failed have noticed: a mutant must still import."""
    if status is None:
        return "noticed" if mutant.may_hang else "timed out"
    return {0: "survived", TESTS_FAILED: "noticed"}.get(status, "did not run")


def _files() -> list[str]:
    """Return the files of the tree that git tracks or would add, and which are there."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=TREE, check=True, capture_output=True, text=True).stdout
    return [name for name in names.split("\0") if name and (TREE / name).is_file()]


def _control(copy: Copy, mutants: list[Mutant], jobs: int) -> str:
    """Run all tests on an unchanged copy; return what pytest printed if any failed, or ``""``."""
    named = {test for mutant in mutants for test in mutant.tests}
    tests = sorted(test for test in named if "::" not in test or test.split("::")[0] not in named)
    parallel = ["-n", str(jobs), "--dist", "worksteal"] if jobs > 1 else []
    status, output = copy.test(tests, *parallel, limit=LIMIT * len(tests))
    return output if status != 0 else ""


def main(arguments: list[str]) -> int:
    """Try the mutants and print a table; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--only", action="append", default=[], help="ids that contain this")
    parser.add_argument("--show", action="store_true", help="what pytest printed of each")
    chosen = parser.parse_args(arguments)
    mutants = [
        each for each in load() if not chosen.only or any(part in each.id for part in chosen.only)
    ]
    if not mutants:
        print(f"No mutant's id contains {' or '.join(chosen.only)}.")
        return 2

    (TREE / "artifacts").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=TREE / "artifacts", prefix="mutants-") as scratch:
        # Some tests start kernels as another user, who must be able to read the copy.
        Path(scratch).chmod(0o755)
        copies = [Copy(Path(scratch) / str(number)) for number in range(chosen.jobs)]
        failed = _control(copies[0], mutants, chosen.jobs)
        if failed:
            print(failed, "\nThese tests fail without any mutant. Repair them first.", sep="")
            return 2

        free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for copy in copies:
            free.put(copy)

        def attempt(mutant: Mutant) -> str:
            copy = free.get()
            began = time.monotonic()
            try:
                outcome, output = copy.outcome(mutant)
            finally:
                free.put(copy)
            note = f"  ({mutant.accepted})" if mutant.accepted else ""
            print(f"{outcome:12} {time.monotonic() - began:5.1f} s  {mutant.id}{note}", flush=True)
            if chosen.show or outcome == "did not run":
                print(output)
            return outcome

        with ThreadPoolExecutor(chosen.jobs) as pool:
            try:
                outcomes = list(pool.map(attempt, mutants))
            except BaseException:  # Ctrl-C, most likely: those that have begun are waited for
                pool.shutdown(cancel_futures=True)
                raise
    return _verdict(mutants, outcomes, complete=not chosen.only)


def _verdict(mutants: list[Mutant], outcomes: list[str], *, complete: bool) -> int:
    """Print the share that was noticed, and what is wrong; return the exit status."""
    missed = [
        (mutant, outcome)
        for mutant, outcome in zip(mutants, outcomes, strict=True)
        if outcome != "noticed"
    ]
    share = 1 - len(missed) / len(mutants)
    print(f"\n{len(mutants) - len(missed)} of {len(mutants)} mutants noticed: {share:.1%}")
    unexplained = [(mutant, outcome) for mutant, outcome in missed if not mutant.accepted]
    for mutant, outcome in unexplained:
        print(f"{mutant.id} {outcome}: {mutant.why}")
    return int(bool(unexplained) or (complete and share < ENOUGH))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
