"""The executors that are compared, each behind one function: it runs code, and returns what that
said and whether it failed.

As a program, a worker: ``executors.py NAME`` reads a line of JSON ``{"code": …, "imports": […]}`` and
answers ``{"said": …, "failed": …}``, again and again. ``imports`` are modules to allow beside.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[[str, list[str]], tuple[str, bool]]

#: Seconds that a case may run.
SECONDS = 5.0


def cellblock(preset: str) -> Run:
    """Return a function that runs cells in a sandbox, or one of its own for other imports."""
    from cellblock import Policy, Sandbox

    opened: dict[tuple[str, ...], Sandbox] = {}

    def run(code: str, imports: list[str]) -> tuple[str, bool]:
        sandbox = opened.get(key := tuple(imports))
        if sandbox is None:
            for other in opened.values():
                other.close()
            opened.clear()
            allowed = (*Policy.preset(preset).allowed_modules, *key)
            opened[key] = sandbox = Sandbox(Policy.preset(preset, allowed_modules=allowed))
            sandbox.open()
        result = sandbox.execute(code, timeout=SECONDS)
        shown = [str(one.data) for one in result.displays]
        error = result.error.traceback if result.error is not None else ""
        texts = [result.output, result.error_output, result.result or "", error, *shown]
        return "\n".join(texts), not result.success

    return run


def ipykernel(_: str) -> Run:
    """Return a function that runs cells in one kernel of plain ipykernel's."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3")

    def run(code: str, _: list[str]) -> tuple[str, bool]:
        said: list[str] = []
        status = "timeout"
        with contextlib.suppress(TimeoutError):
            reply = client.execute_interactive(
                code,
                timeout=SECONDS,
                allow_stdin=False,
                output_hook=lambda message: said.append(json.dumps(message["content"])),
            )
            status = reply["content"]["status"]
        if not manager.is_alive():
            sys.exit("the kernel is gone")
        return "\n".join(said), status != "ok"

    return run


def smolagents(authorized: str) -> Run:
    """Return a function that runs each case in a new local executor, as agents have it.

    ``authorized`` are imports beyond the default: none, or ``*``.
    """
    from smolagents.local_python_executor import BASE_PYTHON_TOOLS, LocalPythonExecutor

    def run(code: str, imports: list[str]) -> tuple[str, bool]:
        executor = LocalPythonExecutor([*authorized, *imports])
        executor.send_tools(dict(BASE_PYTHON_TOOLS))
        try:
            done = executor(code)
        except Exception as error:  # noqa: BLE001 - what a model's code raises is what it said
            return f"{executor.state.get('_print_outputs', '')}\n{error}", True
        return f"{done.logs}\n{done.output}", False

    return run


def main(name: str) -> None:
    """Answer cases until stdin ends."""
    # What a case's own processes print is no answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    kind, _, policy = name.partition(":")
    run = {"cellblock": cellblock, "ipykernel": ipykernel, "smolagents": smolagents}[kind](policy)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        case = json.loads(line)
        said, failed = run(case["code"], case["imports"])
        print(json.dumps({"said": said, "failed": failed}), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
