"""A pytest plugin: smolagents' security tests ask another executor than smolagents' own.

Only tests that expect a refusal count. Which words a refusal has is smolagents' own business: of
another executor any error is one. Where a test runs the command ``:`` it is given one whose effect
can be seen, beside the executor.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from smolagents import local_python_executor as theirs

NAME = os.environ["SCORECARD_EXECUTOR"]
PYTHON = os.environ["SCORECARD_PYTHON"]
RAN = Path("/tmp/ran")  # of the sandbox that all of this is in
_OUTCOMES: dict[str, int] = {"passed": 0, "failed": 0, "skipped": 0, "tries": 0, "ran": 0}


class _AnyWords(str):
    __slots__ = ()

    def __contains__(self, _: object) -> bool:
        return True


class Refused(theirs.InterpreterError):
    """A refusal, which says whatever is looked for."""

    def __str__(self) -> str:
        return _AnyWords("refused")


class Executor:
    """Takes the place of ``LocalPythonExecutor``; runs code in a worker, anew for each."""

    _worker: subprocess.Popen | None = None

    def __init__(self, imports: list[str], **_: object) -> None:
        self._imports, self.state = imports, {}

    def send_tools(self, tools: object) -> None:
        """Do nothing: refusals are asked about, not tools."""

    def __call__(self, code: str) -> str:
        answer = _ask({"code": armed(code), "imports": self._imports})
        observe()
        if answer["failed"]:
            raise Refused("refused")
        return answer["said"]


def armed(code: str) -> str:
    """Return code whose commands leave something behind."""
    made, commands = re.subn(r"system\((['\"]):\1\)", f"system('touch {RAN}')", code)
    _OUTCOMES["tries"] += bool(commands)
    return made


def observe() -> None:
    """Count a command that ran."""
    if RAN.exists():
        RAN.unlink()
        _OUTCOMES["ran"] += 1


class Watched(theirs.LocalPythonExecutor):
    """smolagents' own, seen by the same eyes."""

    def __call__(self, code: str) -> Any:
        try:
            return super().__call__(armed(code))
        finally:
            observe()


def _ask(question: dict[str, Any]) -> dict[str, Any]:
    if Executor._worker is None:
        argv = [PYTHON, "-B", str(Path(__file__).with_name("executors.py")), NAME]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        Executor._worker = subprocess.Popen(argv, **pipes)
        Executor._worker.stdout.readline()
        answer = _ask({"code": "print(6 * 7)", "imports": []})
        if answer["failed"] or "42" not in answer["said"]:
            pytest.exit(f"{NAME} runs nothing: {answer}")
    Executor._worker.stdin.write(json.dumps(question) + "\n")
    Executor._worker.stdin.flush()
    return json.loads(Executor._worker.stdout.readline())


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Leave out what expects no refusal."""
    items[:] = [
        item
        for item in items
        if getattr(item, "callspec", None) is None or item.callspec.params.get("expected_error", 1)
    ]


def pytest_runtest_logreport(report: Any) -> None:
    """Count."""
    if report.when == "call" or report.skipped or report.failed:
        _OUTCOMES[report.outcome] += 1


def pytest_sessionfinish() -> None:
    """Say how many."""
    print(f"\nSCORECARD {json.dumps(_OUTCOMES)}")


if NAME == "smolagents":
    theirs.LocalPythonExecutor = Watched
else:
    theirs.LocalPythonExecutor = Executor
    _raises = pytest.raises

    def _without_words(expected: Any, *, match: object = None) -> Any:
        del match
        return _raises(expected)

    pytest.raises = _without_words
