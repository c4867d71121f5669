"""Runs outside suites against cellblock, plain ipykernel and smolagents' local executor.

python tests/scorecard/scorecard.py [SUITE...] [--material FOLDER]

Results go to artifacts/scorecard/SUITE.json, and from all that are there docs/scorecard.md is made.
Nothing of the suites is kept in this repository: they are cloned from GitHub when they are run, or from
FOLDER, which holds a repository for each as OWNER+NAME or OWNER+NAME/repo.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

sys.path.insert(0, str(Path(__file__).parent))
import redcode

ROOT = Path(__file__).parents[2]
WORK = ROOT / "artifacts" / "scorecard"
PAGE = ROOT / "docs" / "scorecard.md"
EXECUTORS = {
    "cellblock:safe": "cellblock, `safe`",
    "cellblock:data": "cellblock, `data`",
    "ipykernel": "ipykernel",
    "smolagents": "smolagents",
    "smolagents:*": 'smolagents, `["*"]`',
}


def source(repository: str, material: Path | None, *paths: str) -> Path:
    """Return a folder with these paths of a repository's newest commit."""
    folder = WORK / repository.replace("/", "+")
    if not folder.exists():
        command = ["git", "clone", "--quiet", "--no-checkout"]
        if material is None:
            command += ["--depth=1", "--filter=blob:none", f"https://github.com/{repository}"]
        else:
            place = material / folder.name
            command.append(str(place / "repo" if (place / "repo").exists() else place))
        subprocess.run([*command, str(folder)], check=True)
    subprocess.run(["git", "-C", str(folder), "checkout", "HEAD", "--", *paths], check=True)
    return folder


def commit(folder: Path) -> str:
    """Return which commit it is."""
    argv = ["git", "-C", str(folder), "rev-parse", "--short=10", "HEAD"]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def smolagents_python() -> Path:
    """Return the Python of a virtual environment with smolagents and what its tests import."""
    python = WORK / "venv" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(WORK / "venv")], check=True)
        wanted = ["smolagents", "pytest", "psutil", "requests", "pandas", "ipython"]
        argv = [str(python), "-m", "pip", "install", "--quiet", *wanted]
        subprocess.run([*argv, "--disable-pip-version-check"], check=True)
    return python


def python_of(executor: str) -> str:
    """Return the interpreter in which an executor is installed."""
    return str(smolagents_python() if executor.startswith("smolagents") else sys.executable)


def shown() -> list[Path]:
    """Return what the sandboxes around executors show of this machine."""
    return [Path(sys.base_prefix), ROOT]


#: Families of RedCode's cases to run again, where not all are: the others keep their results.
FAMILIES = os.environ.get("REDCODE_FAMILIES", "").split()


def _family(index: str) -> bool:
    return index.partition("_")[0] in FAMILIES


# --- the suites -----------------------------------------------------------------------------------


def run_redcode(material: Path | None) -> dict:
    """Count what RedCode-Exec's Python cases do, by family."""
    folder = source("AI-secure/RedCode", material, "dataset/RedCode-Exec/py2text_dataset_json")
    cases = []
    for file in sorted(folder.glob("dataset/RedCode-Exec/py2text_dataset_json/*.json")):
        cases += [
            {"Index": case["Index"], "Code": case["Code"]} for case in json.loads(file.read_text())
        ]
    stored = WORK / "redcode.json"
    known = json.loads(stored.read_text())["effects"] if FAMILIES else {}
    cases, every = [one for one in cases if not FAMILIES or _family(one["Index"])], len(cases)
    pythons = {executor: python_of(executor) for executor in EXECUTORS}

    def run(executor: str) -> dict[str, list[str]]:
        given = WORK / f"cases-{re.sub('[^a-z]', '-', executor)}.json"
        given.write_text(json.dumps(cases))
        effects = redcode.run(shown(), given, executor, pythons[executor])
        print(executor, sum(map(bool, effects.values())), "of", len(cases), flush=True)
        return known.get(executor, {}) | effects

    with ThreadPoolExecutor(os.cpu_count()) as pool:  # most of them wait for time limits
        found = dict(zip(EXECUTORS, pool.map(run, EXECUTORS), strict=True))
    return {"commit": commit(folder), "cases": every, "effects": found}


#: Has a page say what ran in it, and touches whatever it has, as a reader may.
_WATCH = """
window.ran = [];
for (const name of ['alert', 'confirm', 'prompt', 'print'])
    window[name] = () => { window.ran.push(name) };
"""
_TOUCH = """
document.addEventListener('click', event => {
    if (/^https?:/.test(event.target.closest?.('a')?.protocol)) event.preventDefault();
}, true);
for (const one of document.querySelectorAll('body *'))
    for (const kind of ['mouseover', 'focus', 'click', 'submit', 'toggle', 'animationend'])
        try { one.dispatchEvent(new MouseEvent(kind, {bubbles: true, cancelable: true})) } catch {}
"""


def run_dompurify(material: Path | None) -> dict:
    """Count DOMPurify's fixtures that act in Chromium: as a kernel sends them, and cleaned."""
    from playwright.sync_api import sync_playwright

    from cellblock.host.output import gateway

    folder = source("cure53/DOMPurify", material, "test/fixtures/expect.mjs", "package.json")
    text = (folder / "test/fixtures/expect.mjs").read_text().replace("export default", "", 1)
    clean = gateway.for_display("sanitized")
    found: dict[str, dict[str, list[str]]] = {"cellblock": {}, "ipykernel": {}}
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=os.environ.get("CELLBLOCK_CHROMIUM", "/usr/bin/chromium"),
            args=["--no-sandbox"],
        )
        page = chromium.new_page()
        fixtures = page.evaluate(text.strip().removesuffix(";"))
        page.close()
        watcher = Watcher(chromium)
        for number, fixture in enumerate(fixtures):
            cleaned = clean({"text/html": fixture["payload"], "text/plain": "."})
            for name, shown in (
                ("ipykernel", fixture["payload"]),
                ("cellblock", cleaned.get("text/html", "")),
            ):
                found[name][str(number)] = watcher.acts(shown or "-")
        version = chromium.version
        chromium.close()
    return {"commit": commit(folder), "chromium": version, "effects": found}


class Watcher:
    """A page of Chromium in which markup is shown, and what that does is seen."""

    def __init__(self, chromium: Any) -> None:
        self._chromium, self._page = chromium, None
        self._html, self._requests = "", []

    def acts(self, html: str) -> list[str]:
        """Return what markup does: ``scripts`` that ran, ``requests`` that it makes."""
        if self._page is None:
            self._page = self._chromium.new_page()
            self._page.route("**/*", self._answer)
            self._page.add_init_script(_WATCH)
        self._html, self._requests, ran = html, [], []
        try:
            self._page.goto("http://page.invalid/", wait_until="load", timeout=3_000)
            self._page.evaluate(_TOUCH)
            self._page.wait_for_timeout(30)
            ran = self._page.evaluate("window.ran")
        except Exception as error:  # noqa: BLE001 - a page that leaves or hangs did something
            self._requests.append(f"{type(error).__name__}")
            self._page.close()
            self._page = None
        return ["scripts"] * bool(ran) + ["requests"] * bool(self._requests)

    def _answer(self, route: Any) -> None:
        if route.request.url != "http://page.invalid/" or not self._html:
            self._requests.append(route.request.url)
            route.abort()
            return
        body = f"<!doctype html><link rel=icon href=data:,><body>{self._html}</body>"
        self._html = ""
        route.fulfill(content_type="text/html", body=body)


def run_smolagents(material: Path | None) -> dict:
    """Count refusals that smolagents' security tests expect, of each executor."""
    folder = source("huggingface/smolagents", material, "tests/test_local_python_executor.py")
    python, counts = smolagents_python(), {}
    tests = folder / "tests" / "test_local_python_executor.py::TestLocalPythonExecutorSecurity"
    for executor in ("cellblock:safe", "ipykernel", "smolagents"):
        variables = {
            "PYTHONPATH": Path(__file__).parent,
            "SCORECARD_EXECUTOR": executor,
            "SCORECARD_PYTHON": python_of(executor),
        }
        argv = ["/usr/bin/env", *(f"{name}={value}" for name, value in variables.items())]
        argv += [str(python), "-B", "-m", "pytest", "-q", "-p", "smolagents_plugin", "--noconftest"]
        argv += ["-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir=/workspace", str(tests)]
        done = subprocess.run(
            redcode.behind(shown(), argv), check=False, capture_output=True, text=True
        )
        said = re.search(r"^SCORECARD (.*)", done.stdout, re.MULTILINE)
        if said is None:
            raise SystemExit(f"{executor}: {done.stdout[-3000:]}{done.stderr[-3000:]}")
        (WORK / f"smolagents-{executor}.txt").write_text(done.stdout)
        counts[executor] = json.loads(said[1])
    version = "import importlib.metadata as m; print(m.version('smolagents'))"
    argv = [str(python), "-c", version]
    release = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    return {"commit": commit(folder), "release": release, "counts": counts}


#: What the suites of kernels need of a policy: they are run as they are, by who trusts them.
_POLICY = """
extends = "data"
name = "suites"
mode = "unsafe"
on_unsupported = "ignore"
add.filesystem_write_roots = [{roots}]
add.env_var_access = ["IPYKERNEL_CELL_NAME", "NBEXECUTE_TEST_PARALLEL_TMPDIR"]
add.comm_targets = ["this-comm-tests-a-missing-handler"]
"""


def run_suite(repository: str, material: Path | None, *tests: str) -> dict:
    """Run a suite of Jupyter's with its kernel, and with cellblock installed as ``python3``."""
    folder = source(repository, material, "tests", "pyproject.toml")
    extra = WORK / "extra"
    if not extra.exists():
        wanted = ["flaky", "pytest-asyncio", "testpath", "xmltodict", "pytest-timeout"]
        argv = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(extra)]
        subprocess.run([*argv, "--no-deps", "--disable-pip-version-check", *wanted], check=True)
    counts = {}
    for executor in ("cellblock", "ipykernel"):
        base = WORK / "base" / executor
        base.mkdir(parents=True, exist_ok=True)
        spec, policy = base / "jupyter/kernels/python3", base / "policy.toml"
        spec.mkdir(parents=True, exist_ok=True)
        for name in ("tmp", "tests"):  # connection files are in the former, and hidden from cells
            (base / name).mkdir(exist_ok=True)
        policy.write_text(_POLICY.format(roots=json.dumps(str(base / "tests"))))
        argv = [sys.executable, "-E", "-P", "-m", "cellblock", "-f", "{connection_file}"]
        argv += ["--policy", str(policy), "--allow-unsafe"]
        if executor == "ipykernel":
            argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        kernel = {"argv": argv, "display_name": "Python 3", "language": "python"}
        if executor == "cellblock":
            kernel["interrupt_mode"] = "message"
        (spec / "kernel.json").write_text(json.dumps(kernel))
        variables = {
            "PYTHONPATH": str(extra),
            "JUPYTER_PATH": str(base / "jupyter"),
            "TMPDIR": str(base / "tmp"),
            "HOME": str(base),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        report = base / "junit.xml"
        argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=60"]
        argv += [f"--junit-xml={report}", f"--basetemp={base}/tests/t", "-o", "addopts="]
        argv += ["-o", "asyncio_default_fixture_loop_scope=function", "-W", "default", *tests]
        report.unlink(missing_ok=True)
        subprocess.run(argv, check=False, cwd=folder, env=os.environ | variables, stdout=sys.stderr)
        suite = ET.parse(report).getroot().find("testsuite")
        sums = {name: int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")}
        failed = sums["failures"] + sums["errors"]
        passed = sums["tests"] - failed - sums["skipped"]
        counts[executor] = {"passed": passed, "failed": failed, "skipped": sums["skipped"]}
        print(repository, executor, counts[executor], flush=True)
    return {"commit": commit(folder), "repository": repository, "counts": counts}


def run_nbclient(material: Path | None) -> dict:
    """Run nbclient's suite."""
    return run_suite("jupyter/nbclient", material, "tests")


def run_ipykernel(material: Path | None) -> dict:
    """Run those files of ipykernel's suite that start a kernel, but the debugger's."""
    names = ("async", "kernel", "message_spec", "start_kernel", "subshells")
    return run_suite("ipython/ipykernel", material, *(f"tests/test_{name}.py" for name in names))


SUITES = {
    "redcode": run_redcode,
    "smolagents": run_smolagents,
    "dompurify": run_dompurify,
    "nbclient": run_nbclient,
    "ipykernel": run_ipykernel,
}


# --- the page -------------------------------------------------------------------------------------

REDCODE_FAMILIES = (
    "sends a file away", "downloads a program", "reads a page", "copies a file of the system's",
    "lists a folder", "hides a program in a file", "reads a file of the system's",
    "deletes a file", "changes a shell's start-up file", "opens a shell to a server",
    "watches the machine", "biased code", "path traversal", "evaluates input", "weak pattern",
    "tells users apart", "privileges raised", "ends processes", "weak random", "weak hash",
    "sends too much", "no default case", "no permission asked", "unpickles", "duplicate keys",
    "reads a page", "leaks memory",
)  # fmt: skip
KINDS = ("files", "network", "secrets", "processes")


def redcode_page(result: dict) -> list[str]:
    """Return the section on RedCode."""
    effects = result["effects"]
    lines = [
        "## RedCode-Exec", "",
        f"[RedCode](https://github.com/AI-secure/RedCode) at `{result['commit']}`: {result['cases']} Python programs that harm or are unsound, by 27 families.",
        "Each runs as nobody in a world of its own behind bubblewrap, with files, services, secrets and a server to harm. The same observer looks at all executors,",
        "and counts a case that changed a file outside the executor's folder, reached the server, showed a secret of the world's, or ended a service. Families",
        "without any effect are unsound code that touches nothing. What the observer can't see, such as a secret that is printed encoded, counts for none of them.",
        "Before the cases each executor has to run `print(6 * 7)`. smolagents refuses most by its short list of imports, which agents widen: hence the last column.", "",
    ]  # fmt: skip
    head = ["cases with an effect", *(EXECUTORS[name] for name in effects)]
    lines += [_row(head), _row(["---"] * len(head))]
    for kind in KINDS:
        lines.append(_row([kind, *_with_effect(kind, effects)]))
    totals = [sum(map(bool, found.values())) for found in effects.values()]
    lines += [_row(["**any, of 810**", *(f"**{total}**" for total in totals)]), ""]
    lines += [_row(["family", *head[1:]]), _row(["---"] * len(head))]
    for number, name in enumerate(REDCODE_FAMILIES, 1):
        counts = [
            sum(bool(one) for index, one in found.items() if index.startswith(f"{number}_"))
            for found in effects.values()
        ]
        if any(counts):
            lines.append(_row([f"{number}: {name}", *counts]))
    return [*lines, ""]


def _with_effect(kind: str, effects: dict) -> list[int]:
    """Return how many cases had an effect of this kind, by executor."""
    return [sum(kind in one for one in found.values()) for found in effects.values()]


def dompurify_page(result: dict) -> list[str]:
    """Return the section on DOMPurify's fixtures."""
    effects = result["effects"]
    lines = [
        "## DOMPurify's fixtures", "",
        f"[DOMPurify](https://github.com/cure53/DOMPurify) at `{result['commit']}`: the {len(effects['ipykernel'])} payloads of its `expect.mjs`, as HTML output of a cell, in a page of",
        f"Chromium {result['chromium']} that touches every element but follows no link to a web address: as ipykernel sends it, and as cellblock's gateway does (`display = \"sanitized\"`). smolagents' executor shows no HTML.", "",
        _row(["fixtures that", "cellblock", "ipykernel"]), _row(["---"] * 3),
    ]  # fmt: skip
    for kind, what in (
        ("scripts", "ran a script"),
        ("requests", "asked the network, or left the page"),
    ):
        lines.append(_row([what, *_with_effect(kind, effects)]))
    return [*lines, ""]


def smolagents_page(result: dict) -> list[str]:
    """Return the section on smolagents' security tests."""
    counts = result["counts"]
    lines = [
        "## smolagents' security tests", "",
        f"`TestLocalPythonExecutorSecurity` of [smolagents](https://github.com/huggingface/smolagents) at `{result['commit']}`, run with smolagents {result['release']}: those tests that expect a refusal.",
        "Any error counts as one. The tests are about what an interpreter inside the process has to refuse, since it has nothing else: attributes such as `__class__`, and what modules that",
        "the operator has allowed hand out. cellblock's `safe` refuses fewer of these, as what its cells can reach is confined by the OS layer. So the last rows count what happened: tests that",
        "run a command, given one that leaves a file, and whether it did.", "",
        _row(["tests", *(EXECUTORS[name] for name in counts)]), _row(["---"] * (len(counts) + 1)),
    ]  # fmt: skip
    rows = {"refused": "passed", "not refused": "failed", "skipped": "skipped"}
    rows |= {"try to run a command": "tries", "**ran it**": "ran"}
    lines += [_row([row, *(found[one] for found in counts.values())]) for row, one in rows.items()]
    return [*lines, ""]


def suite_page(result: dict) -> list[str]:
    """Return the section on a suite of Jupyter's."""
    counts, repository = result["counts"], result["repository"]
    which = ": the files that start a kernel, but the debugger's" if "ipy" in repository else ""
    lines = [
        f"## {repository.partition('/')[2]}'s suite", "",
        f"[{repository}](https://github.com/{repository}) at `{result['commit']}`, with cellblock as kernel `python3` and with ipykernel{which}. Which fail and why:",
        "[compatibility](compatibility.md#the-suites-of-ipykernel-and-nbclient). smolagents has no kernel.", "",
        _row(["tests", *counts]), _row(["---"] * (len(counts) + 1)),
    ]  # fmt: skip
    return [*lines, *_outcomes(counts), ""]


SECTIONS = {
    "redcode": redcode_page,
    "smolagents": smolagents_page,
    "dompurify": dompurify_page,
    "nbclient": suite_page,
    "ipykernel": suite_page,
}


def _outcomes(counts: dict[str, dict[str, int]]) -> list[str]:
    outcomes = ("passed", "failed", "skipped")
    return [_row([one, *(found[one] for found in counts.values())]) for one in outcomes]


def _row(cells: list) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def write_page() -> None:
    """Make the page from the results that are there."""
    lines = [
        "# Scorecard", "",
        "What suites that others wrote find, run against cellblock, plain ipykernel and smolagents' local executor: `make scorecard`. Each table says when it was measured. This page is made by",
        "`tests/scorecard/scorecard.py`.", "",
    ]  # fmt: skip
    for name, section in SECTIONS.items():
        file = WORK / f"{name}.json"
        if file.exists():
            result = json.loads(file.read_text())
            lines += section(result)
            lines += [f"Measured {result['measured']} on {result['on']}.", ""]
    PAGE.write_text("\n".join(lines).rstrip() + "\n")


def main() -> None:
    """Run suites, and make the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES))
    parser.add_argument("--material", type=Path, metavar="FOLDER", help="repositories on disk")
    given = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    for name in given.suites or SUITES:
        result = SUITES[name](given.material and given.material.absolute())
        result["measured"] = dt.datetime.now(dt.UTC).date().isoformat()
        result["on"] = f"Python {platform.python_version()}, Linux {platform.release()}"
        (WORK / f"{name}.json").write_text(json.dumps(result, indent=1))
    write_page()


if __name__ == "__main__":
    main()
