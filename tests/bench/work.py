"""Measures what a user of one kernel waits for, beside stock ipykernel: a ratio below 1 is faster.

python tests/bench/work.py [round-trip|start|cells|snapshots|language|network] [options]

- round-trip: milliseconds of requests and of a spawn, and KiB of memory, beside ipykernel
- start: milliseconds of a start behind each backend, beside landlock, and of looking up a proof
- cells: milliseconds of ordinary cells, starts and restarts, beside ipykernel and xeus-python
- snapshots: milliseconds until a copy is ready and until a killed guest serves again, MiB of copies
- language: what the language layer costs in a loop within a cell, beside plain Python
- network: milliseconds of many MiB and of a connection, to a listed address and directly

docs/performance.md has figures.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import platform
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.multikernelmanager import MultiKernelManager
from measuring import (
    PATIENCE,
    STOCK,
    Comparison,
    Part,
    Refused,
    Table,
    UsersWorld,
    run_cell,
    run_parts,
    timed,
)

from cellblock import Policy, Sandbox
from cellblock.backends import container_engine
from cellblock.backends.container_engine import EMPTY_IMAGE, build_image
from support import engine, machines, processes
from support.client import connection
from support.guest_processes import children, guests_and_copies
from support.kernels import ROOT, Kernel, World, argv_for, argv_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping


class UsersKernel(Kernel):
    """A kernel in the user's environment. An interrupt is a message or SIGINT (``by_message``)."""

    def __init__(self, argv: list[str], *, by_message: bool, **options: Any) -> None:
        super().__init__(argv, **options)
        self.by_message = by_message


def time_interrupt(kernel: UsersKernel) -> float:
    """Return the milliseconds from an interrupt to the reply of the interrupted cell."""
    mid = kernel.execute_send("print('go', flush=True)\nwhile True: pass")
    while kernel.recv("iopub")["msg_type"] != "stream":
        pass
    time.sleep(0.05)

    def interrupt() -> None:
        if kernel.by_message:
            kernel.interrupt()
        else:
            kernel.proc.send_signal(signal.SIGINT)
        kernel.reply(mid)

    milliseconds = timed(interrupt)
    kernel.until_idle(mid)
    return milliseconds


# --- round-trip -------------------------------------------------------------------------------

PRINTS = "for i in range(100_000): print(i)"
DISPLAYS = "for i in range(1_000): display(i)"
ERROR = "def f(x):\n    return g(x)\ndef g(x):\n    y = x + 1\n    return y / 0\nf(1)"
LONG = "\n".join(f"v{i} = {i} * 2 + len('{i}')" for i in range(3000))


def time_completion(kernel: Kernel) -> float:
    """Return the milliseconds from a complete_request to its reply and status idle."""

    def complete() -> None:
        content = kernel.ask("complete_request", {"code": "word.upp", "cursor_pos": 8})["content"]
        if not any(match.endswith("upper") for match in content["matches"]):
            raise RuntimeError(content)

    return timed(complete)


def median_of(count: int, measure: Callable[[Kernel], float]) -> Callable[[Kernel], float]:
    """Return a measure that is the median of ``count`` figures of another measure."""
    return lambda kernel: statistics.median(measure(kernel) for _ in range(count))


#: What is measured in a running kernel: milliseconds, and KiB of memory (PSS) of all its processes.
REQUESTS: dict[str, Callable[[Any], float]] = {
    "round trip": median_of(100, lambda kernel: run_cell(kernel, "x = 1")),
    "100k prints": lambda kernel: run_cell(kernel, PRINTS),
    "1k displays": lambda kernel: run_cell(kernel, DISPLAYS),
    "error cell": median_of(10, lambda kernel: run_cell(kernel, ERROR, status="error")),
    "3000 lines": lambda kernel: run_cell(kernel, LONG),
    "completion": median_of(30, time_completion),
    "interrupt": time_interrupt,
    "memory": lambda kernel: kernel.pss(),
}
#: Ratios to stock ipykernel.
ROUND_TRIP_TARGETS = {
    "round trip": 0.7,
    "spawn": 0.9,
    "100k prints": 0.4,
    "1k displays": 0.6,
    "error cell": 0.8,
    "3000 lines": 0.9,
    "completion": 0.7,
    "interrupt": 1.0,
    "memory": 1.3,
}


def round_trip(options: argparse.Namespace) -> object:
    """Measure requests, a spawn and memory beside stock ipykernel: milliseconds, KiB and ratios.

    In each round both kernels are spawned, then take turns at each measure. A figure is the median
    of the rounds.
    """
    names = [options.kernel, options.against]
    comparison = Comparison(options.against)
    for _ in range(options.rounds):
        kernels: dict[str, UsersKernel] = {}
        for name in names:
            kernels[name], milliseconds = spawn(name)
            comparison.add("spawn", name, milliseconds)
        for kernel in kernels.values():
            run_cell(kernel, "word = 'abc'")
            for _ in range(20):
                run_cell(kernel, "x = 1")
        for label, measure in REQUESTS.items():
            if not options.only or label in options.only:
                actions = {name: partial(measure, kernel) for name, kernel in kernels.items()}
                comparison.take_turns(label, actions)
        for kernel in kernels.values():
            kernel.close()
            kernel.world.close()
    table = Table("", *names, "ratio", "target")
    for label, target in ROUND_TRIP_TARGETS.items():
        if label in comparison.figures:
            unit = "KiB" if label == "memory" else "ms"
            medians = [comparison.median(label, name) for name in names]
            table.row(f"{label}, {unit}", *medians, comparison.ratio(label, names[0]), target)
    return comparison.figures


def spawn(name: str) -> tuple[UsersKernel, float]:
    """Return a kernel, and the milliseconds from its spawn to its first reply."""
    kernel = UsersKernel(argv_of(name), by_message=name != STOCK, world=UsersWorld())
    kernel.reply(kernel.execute_send("x = 1"))
    return kernel, (time.perf_counter() - kernel.started) * 1000


# --- start ------------------------------------------------------------------------------------

#: The starts to measure: the policy's backend, and whether doctor has proved the policy before.
STARTS = {
    "landlock": ("landlock", False),
    "landlock, proved": ("landlock", True),
    "noop": ("noop", False),
    "bubblewrap": ("bubblewrap", False),
    "docker": ("docker", False),
}
#: Ratios to landlock's start.
START_TARGETS = {"bubblewrap": 1.15}
#: Milliseconds that looking up a proof may take.
PROOF_TARGET = 20.0
DOCTOR = "from cellblock.cli.main import main; main()"


class BackendWorld(World):
    """The world in which a kernel behind one backend starts again and again."""

    def __init__(self, backend: str, *, proved: bool) -> None:
        super().__init__(backend=backend)
        image = f'container_image = "{EMPTY_IMAGE}"\n' if backend == "docker" else ""
        self.policy_file = self.policy(f'extends = "safe"\nbackend = "{backend}"\n{image}')
        if proved:
            command = [sys.executable, "-P", "-c", DOCTOR, "doctor", "--policy"]
            subprocess.run(
                [*command, str(self.policy_file)],
                check=True,
                cwd=self.work,
                env=self.environment(),
                stdout=subprocess.DEVNULL,
            )

    def environment(self, **extra: str) -> dict[str, str]:
        engine_address = {k: v for k, v in os.environ.items() if k == "DOCKER_HOST"}
        return super().environment(**engine_address, **extra)

    def start(self) -> float:
        """Start a kernel and end it; return the milliseconds from its spawn to its first reply."""
        kernel = Kernel(argv_for(self.policy_file), world=self)
        kernel.reply(kernel.execute_send("x = 1"))
        milliseconds = (time.perf_counter() - kernel.started) * 1000
        kernel.close()
        return milliseconds


def start(options: argparse.Namespace) -> object:
    """Measure starts behind each backend of this machine: milliseconds, and ratios to landlock's.

    Also the milliseconds for which a start looks up a proof.
    """
    comparison = Comparison("landlock")
    with contextlib.ExitStack() as stack:
        missing = {"bubblewrap": machines.no_bubblewrap()}
        missing["docker"] = stack.enter_context(engine.running())
        if not missing["docker"]:
            build_image(container_engine.find_engine("docker", os.environ))
        worlds = {}
        for label, (backend, proved) in STARTS.items():
            if reason := missing.get(backend):
                print(f"{label}: not measured: {reason}")
            else:
                worlds[label] = BackendWorld(backend, proved=proved)
                stack.callback(worlds[label].close)
                worlds[label].start()  # a first start in a home takes longer
        for _ in range(options.rounds):
            actions = {label: world.start for label, world in worlds.items()}
            comparison.take_turns("start", actions)
    table = Table("start behind", "ms", "ratio", "target")
    for label in comparison.figures["start"]:
        median = comparison.median("start", label)
        table.row(label, median, comparison.ratio("start", label), START_TARGETS.get(label, ""))
    # The quickest of each, since starts vary by more than a look-up costs.
    proved = comparison.least("start", "landlock, proved")
    look_up = proved - comparison.least("start", "landlock")
    table.row("a proof is looked up", look_up, "", f"{PROOF_TARGET:g} ms")
    return comparison.figures


# --- cells ------------------------------------------------------------------------------------

PAGE = ROOT / "docs" / "performance.md"
BEGIN = "<!-- made by tests/bench/work.py -->"
END = "<!-- end -->"
EN_DASH = "\N{EN DASH}"
IPYKERNEL = "ipykernel"
XEUS = "xeus-python"
IMPORTS = "['altair', 'bokeh', 'folium', 'json', 'math', 'matplotlib', 'numpy', 'pandas', 'plotly', 're', 'sklearn']"
#: The policies: a preset, or the text of a policy file. Preset safe needs more modules and a root
#: for these cells.
POLICIES = {
    "data": "data",
    "safe": f"""extends = "safe"
allowed_modules = {IMPORTS}
filesystem_read_roots = ["{{project}}"]
memory_max_bytes = 4_294_967_296
""",
    "data, no snapshots": 'extends = "data"\nsnapshots = "off"\n',
}
#: Seconds for which a kernel is idle before a timed cell, as when its user reads.
PAUSE = 0.15
#: Seconds from a kernel's start to the first cell of a user who reads the page first.
READING = 4.0
#: Seconds until a waiting kernel, which the provisioner starts, is fully prepared.
PREPARING = 4.0
#: Seconds until the client has surely subscribed to a kernel's iopub.
SUBSCRIBING = 0.2


class Cell(NamedTuple):
    """A cell that is timed, after ``setup``, ``times`` times in a session."""

    setup: str
    code: str
    times: int = 3


PLOT = "fig, ax = plt.subplots()\nax.plot(range(100))\nplt.show()"
TABLE = """import numpy as np
import pandas as pd
df = pd.DataFrame({'key': np.arange(200_000) % 50, 'a': np.arange(200_000) * 0.5, 'b': 1})
"""
OBJECTS = """class Point:
    def __init__(self, x):
        self.x = x
        self.y = 1
points = [Point(i) for i in range(200_000)]
"""
BOKEH = "from bokeh.plotting import figure, show\np = figure(height=300)\n"
ALTAIR = """import altair as alt
import pandas as pd
df = pd.DataFrame({'a': range(50), 'b': range(50)})
chart = alt.Chart(df).encode(x='a', y='b')
"""
SHOW = "from IPython.display import display\n"
SKLEARN = """from sklearn.linear_model import LogisticRegression
import numpy as np
X = np.random.default_rng(0).normal(size=(5_000, 20))
y = (X[:, 0] > 0).astype(int)
"""
FORMATS = "template = '{} and {}'\nfor i in range(100_000):\n    template.format(i, 'b')"
STRINGS = "strings = [str(i * 7919 % 300_000) for i in range(300_000)]"
POOL = """from concurrent.futures import ProcessPoolExecutor
with ProcessPoolExecutor(2) as pool:
    print(sum(pool.map(abs, range(10))))"""
CELLS = {
    "import numpy": Cell("", "import numpy as np", 1),
    "import pandas": Cell("import numpy", "import pandas as pd", 1),
    "import pyplot": Cell("import numpy, pandas", "import matplotlib.pyplot as plt", 1),
    "first plot": Cell("import matplotlib.pyplot as plt", PLOT, 1),
    "later plot": Cell(f"import matplotlib.pyplot as plt\n{PLOT}", PLOT),
    "read_csv, 200,000 rows": Cell("import pandas as pd", "rows = pd.read_csv('rows.csv')"),
    "groupby": Cell(TABLE, "df.groupby('key').agg({'a': 'mean', 'b': 'sum'})"),
    "describe": Cell(TABLE, "df.describe()"),
    "merge": Cell(TABLE, "len(df.head(50_000).merge(df.tail(150), on='key'))"),
    "a table": Cell(TABLE, "df.head(20)"),
    "a styled table": Cell(TABLE, "df.head(20).style.background_gradient()"),
    "sklearn fit": Cell(SKLEARN, "LogisticRegression().fit(X, y).score(X, y)"),
    # A first figure carries its library, also when its cell runs again. Timed is a later figure.
    "later plotly": Cell(
        "import plotly.graph_objects as go\ngo.Figure(go.Scatter(y=[1, 2]))",
        "go.Figure(go.Scatter(y=[1, 3, 2]))",
    ),
    "later bokeh": Cell(
        f"{BOKEH}p.line([1, 2], [1, 2])\nshow(p)", f"{BOKEH}p.line([1, 2], [2, 1])\nshow(p)"
    ),
    "later altair": Cell(f"{ALTAIR}chart.mark_line()", "chart.mark_bar()"),
    "later folium": Cell(
        "import folium\nfolium.Map([50, 9])", "folium.Map([50, 10], zoom_start=4)"
    ),
    "matmul": Cell("import numpy as np\nm = np.ones((600, 600))", "(m @ m).sum()"),
    "json": Cell(
        "import json\nrows = [{'a': i, 'b': str(i)} for i in range(50_000)]",
        "len(json.loads(json.dumps(rows)))",
    ),
    "regex": Cell(
        "import re\ntext = 'ab12 cd345 ' * 50_000", "len(re.findall(r'[a-z]+(\\d+)', text))"
    ),
    "getattr in a loop": Cell(
        f"{OBJECTS}p = points[0]", "for i in range(300_000):\n    getattr(p, 'x')"
    ),
    "isinstance + hasattr": Cell(
        f"{OBJECTS}p = points[0]",
        "for i in range(200_000):\n    isinstance(p, Point) and hasattr(p, 'x')",
    ),
    "str.format in a loop": Cell("", FORMATS),
    "sort of 300,000 strings": Cell(STRINGS, "len(sorted(strings))"),
    "loop over objects": Cell(OBJECTS, "for i in range(10):\n    s = sum(p.x for p in points)"),
    "loop over attributes": Cell(
        f"{OBJECTS}p = points[0]",
        "for i in range(2_000_000):\n    p.x = p.y + i",
    ),
    "one pass over 200,000 objects": Cell(OBJECTS, "for p in points:\n    pass"),
    "200 files opened": Cell(
        "import numpy as np", "for i in range(200):\n    np.fromfile(f'small/{i}', 'u1')"
    ),
    "2,000 stats": Cell(
        "from pathlib import Path\nsmall = Path('small/1')",
        "for i in range(2_000):\n    small.stat()",
    ),
    "process pool": Cell("", POOL, 1),
    "print of 0.9 MB": Cell("", "print('x' * 899_999)"),
    "5 MB of text": Cell(SHOW, "display({'text/plain': 'x' * 5_000_000}, raw=True)"),
    "5 MB of HTML": Cell(SHOW, "display({'text/html': '<p>some words</p>' * 300_000}, raw=True)"),
    "5 MB of PNG": Cell(
        f"{SHOW}image = b'\\x89PNG\\r\\n\\x1a\\n' + bytes(range(256)) * 15_000",
        "from IPython.display import Image\nImage(image)",
    ),
    "x = 1 late in a session": Cell(f"{TABLE}{OBJECTS}", "x = 1", 15),
}


class Contestant:
    """One kernel of the comparison, in a folder of its own with the files that the cells read."""

    def __init__(self, label: str) -> None:
        self.world = UsersWorld()
        lines = "\n".join(f"{i},{i % 50},{i / 7},name{i % 1000}" for i in range(200_000))
        self.world.write("rows.csv", f"id,key,value,name\n{lines}\n")
        (self.world.work / "small").mkdir()
        for number in range(200):
            (self.world.work / "small" / str(number)).write_text("small")
        self.is_ours = label in POLICIES
        if self.is_ours:
            policy = POLICIES[label]
            self.argv = argv_for(self.world.policy(policy) if "\n" in policy else policy)
        else:
            self.argv = argv_of({IPYKERNEL: STOCK, XEUS: "xpython"}[label])
            if self.argv[0].startswith("python3"):  # xeus-python says python3.11
                self.argv[0] = sys.executable

    def start(self, first: str = "", info: dict[str, Any] | None = None) -> UsersKernel:
        """Start a kernel and run its first cell, whose idle may come before iopub is subscribed."""
        kernel = UsersKernel(
            self.argv, by_message=self.is_ours, world=self.world, info=info or connection()
        )
        if first:
            run_cell(kernel, first, wait_idle=False)
            time.sleep(SUBSCRIBING)
        return kernel

    def time_spawn(self, first: str, predecessor: Kernel | None = None) -> float:
        """Return the milliseconds from spawn, or a predecessor's shutdown, to a cell's reply."""
        began = time.perf_counter()
        if predecessor:
            predecessor.send("shutdown_request", {"restart": True}, "control")
            predecessor.proc.wait(PATIENCE)
            predecessor.disconnect()
        kernel = self.start(info=predecessor.info if predecessor else None)
        try:
            run_cell(kernel, first, wait_idle=False)
            return (time.perf_counter() - began) * 1000
        finally:
            kernel.close()

    def time_restart(self, first: str) -> float:
        """Return the milliseconds from a kernel's shutdown to its successor's first reply."""
        return self.time_spawn(first, self.start(first))

    def time_imports_after_reading(self) -> float:
        """Return the milliseconds of the first cell of a user who has read the page first."""
        kernel = self.start()
        try:
            kernel.wait_heard()
            time.sleep(READING)
            return run_cell(kernel, FIRST_IMPORTS)
        finally:
            kernel.close()

    def time_managed(self, first: str = "x = 1", *, restart: bool = False) -> float:
        """Return the milliseconds from a manager's start of a second kernel to its first reply.

        With ``restart``: from the restart of the first kernel instead.
        """
        folder = self.world.root / "kernels" / "contestant"
        folder.mkdir(parents=True, exist_ok=True)
        metadata = {}
        if self.is_ours:
            metadata["kernel_provisioner"] = {
                "provisioner_name": "cellblock-provisioner",
                "config": {"warm_after": 0.0},
            }
        spec = {"argv": self.argv, "display_name": "x", "language": "python", "metadata": metadata}
        (folder / "kernel.json").write_text(json.dumps(spec))
        with mock.patch.dict(os.environ, self.world.environment(), clear=True):
            manager = MultiKernelManager(
                kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(folder.parent)]),
                connection_dir=str(self.world.root / "run"),
            )
            try:
                self._time_managed_start(manager, "x = 1")
                time.sleep(PREPARING)
                return self._time_managed_start(manager, first, restart=restart)
            finally:
                manager.shutdown_all(now=True)

    def _time_managed_start(
        self, manager: MultiKernelManager, first: str, *, restart: bool = False
    ) -> float:
        began = time.perf_counter()
        if restart:
            (kernel_id,) = manager.list_kernel_ids()
            manager.restart_kernel(kernel_id)
        else:
            kernel_id = manager.start_kernel(kernel_name="contestant", cwd=str(self.world.work))
        client = manager.get_kernel(kernel_id).client()
        client.start_channels()
        mid = client.execute(first)
        reply = client.get_shell_msg(timeout=PATIENCE)
        milliseconds = (time.perf_counter() - began) * 1000
        client.stop_channels()
        if reply["parent_header"]["msg_id"] != mid or reply["content"]["status"] != "ok":
            raise Refused(str(reply["content"]))
        return milliseconds

    def memory(self, count: int) -> float:
        """Return the MiB of ``count`` kernels with pandas; shared pages count once (PSS)."""
        kernels = [self.start("x = 1") for _ in range(count)]
        try:
            for kernel in kernels:
                run_cell(kernel, "import pandas as pd\npd.DataFrame({'a': [1]})")
            time.sleep(1)
            tree = [pid for kernel in kernels for pid in kernel.tree()]
            return processes.proportional_memory(tree) / 1024
        finally:
            for kernel in kernels:
                kernel.close()

    def time_interrupt(self) -> float:
        """Return the least milliseconds of five interrupts."""
        kernel = self.start("x = 1")
        try:
            return min(time_interrupt(kernel) for _ in range(5))
        finally:
            kernel.close()


FIRST_IMPORTS = "import numpy as np\nimport pandas as pd\nimport matplotlib.pyplot as plt"
FIRST_PLOT = f"import matplotlib.pyplot as plt\n{PLOT}"
#: The measures that start kernels of their own.
SESSIONS: dict[str, Callable[[Contestant], float]] = {
    "spawn to first reply": lambda contestant: contestant.time_spawn("x = 1"),
    "spawn to first reply, one waiting": Contestant.time_managed,
    "spawn to first plot": lambda contestant: contestant.time_spawn(FIRST_PLOT),
    "spawn to first plot, one waiting": lambda contestant: contestant.time_managed(FIRST_PLOT),
    "restart to first reply": lambda contestant: contestant.time_restart("x = 1"),
    "restart to first reply, one waiting": lambda contestant: contestant.time_managed(restart=True),
    "restart to first plot": lambda contestant: contestant.time_restart(FIRST_PLOT),
    "first imports, after reading": Contestant.time_imports_after_reading,
    "interrupt": Contestant.time_interrupt,
    "memory of one with pandas": lambda contestant: contestant.memory(1),
    "memory of ten with pandas": lambda contestant: contestant.memory(10),
}


class CellComparison(Comparison):
    """Figures of all rounds, and the reasons why kernels refused cells."""

    def __init__(self, labels: list[str]) -> None:
        super().__init__(IPYKERNEL)
        self.labels = labels
        self.refusals: dict[str, set[str]] = {}

    def take_turns(self, measure: str, actions: Mapping[str, Callable[[], float]]) -> None:
        """Add one figure of each kernel, or the reason why the kernel has none."""
        for label, action in actions.items():
            try:
                self.add(measure, label, action())
            except (Refused, TimeoutError) as exc:
                self.refusals.setdefault(f"{measure}, {str(exc)[:150]}", set()).add(label)

    def markdown(self) -> str:
        """Return the table, the geometric means, and why cells were not run."""
        others = [label for label in self.labels if label != IPYKERNEL]
        lines = [
            f"| | {IPYKERNEL} | " + " | ".join(others) + " |",
            "|---" * (len(others) + 2) + "|",
        ]
        for measure, row in self.figures.items():
            unit = "MiB" if measure.startswith("memory") else "ms"
            columns = [spread(row.get(IPYKERNEL, []), ".1f", f" {unit}")]
            columns += [spread(self.ratios(measure, label)) for label in others]
            lines.append(f"| `{measure}` | " + " | ".join(columns) + " |")
        means = [
            geometric_mean([self.ratios(measure, label) for measure in self.figures])
            for label in others
        ]
        lines.append("| geometric mean | | " + " | ".join(means) + " |")
        if self.refusals:
            lines += ["", "Not run:", ""]
            lines += [f"- {', '.join(sorted(who))}: {why}" for why, who in self.refusals.items()]
        return "\n".join(lines)


def spread(values: list[float], form: str = ".2f", unit: str = "") -> str:
    """Return median, least and largest of values as text."""
    if not values:
        return EN_DASH
    median = statistics.median(values)
    return f"{median:{form}}{unit} ({min(values):{form}}{EN_DASH}{max(values):{form}})"


def geometric_mean(rows: list[list[float]]) -> str:
    """Return the geometric mean of the rows' medians as text."""
    medians = [statistics.median(row) for row in rows if row]
    return f"{statistics.geometric_mean(medians):.2f}" if medians else EN_DASH


def cells(options: argparse.Namespace) -> object:
    """Measure ordinary cells beside ipykernel and xeus-python: milliseconds, and ratios.

    In each round every kernel is started anew and runs all cells. The kernels take turns at each
    cell, and each round begins with another kernel. Before a timed cell a kernel is idle for a
    moment, as when its user reads. A ratio is of one round; printed are the median, the least and
    the largest of the rounds. ``--write`` puts the table into docs/performance.md.
    """
    labels = options.kernels
    if XEUS in labels and "xpython" not in KernelSpecManager().find_kernel_specs():
        print("xeus-python is left out: pip install xeus-python")
        labels = [label for label in labels if label != XEUS]
    comparison = CellComparison(labels)
    only = options.only or [*CELLS, *SESSIONS]
    contestants = {label: Contestant(label) for label in labels}
    try:
        for number in range(options.rounds):
            first = number % len(labels)
            order = {label: contestants[label] for label in labels[first:] + labels[:first]}
            run_sessions(comparison, order, only)
            for name, measure in SESSIONS.items():
                if name in only:
                    actions = {label: partial(measure, each) for label, each in order.items()}
                    comparison.take_turns(name, actions)
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    finally:
        for contestant in contestants.values():
            contestant.world.close()
    print(comparison.markdown())
    if options.write:
        write_page(comparison, options.rounds)
    return comparison.figures


def run_sessions(
    comparison: CellComparison, contestants: dict[str, Contestant], only: list[str]
) -> None:
    """Run one round of cells, each kernel in one session."""
    kernels = {label: contestant.start("x = 1") for label, contestant in contestants.items()}
    try:
        for name, cell in CELLS.items():
            if name in only:
                actions = {
                    label: partial(time_cell, kernel, cell) for label, kernel in kernels.items()
                }
                comparison.take_turns(name, actions)
    finally:
        for kernel in kernels.values():
            kernel.close()


def time_cell(kernel: Kernel, cell: Cell) -> float:
    """Return the median milliseconds of a cell."""
    if cell.setup:
        run_cell(kernel, cell.setup)
    took = []
    for _ in range(cell.times):
        time.sleep(PAUSE)
        took.append(run_cell(kernel, cell.code))
    return statistics.median(took)


def write_page(comparison: CellComparison, rounds: int) -> None:
    """Write the table into the page, between its two comments."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    load = os.getloadavg()[1]
    circumstances = (
        f"{rounds} rounds on {time.strftime('%Y-%m-%d')}: Python {platform.python_version()}, "
        f"Linux {platform.release()}, {os.cpu_count()} processors, load {load:.1f}."
    )
    table = comparison.markdown()
    PAGE.write_text(f"{before}{BEGIN}\n\n{circumstances}\n\n{table}\n\n{END}{after}")


# --- snapshots --------------------------------------------------------------------------------

#: A cell that makes ``size`` bytes of data. An int and its slot in a list take about 40.
FILL = {
    "numpy": "import numpy\ndata = numpy.ones({size} // 8)\nprint(data.nbytes)",
    "objects": "data = [i + 10**6 for i in range({size} // 40)]\nprint(len(data))",
}
SNAPSHOT_POLICY = 'extends = "{base}"\nsnapshots = "{mode}"\nundo_depth = {depth}\n'
SNAPSHOT_LIMITS = "memory_max_bytes = {most}\ntimeout = 300.0\n"
TRIVIAL = "x = 1"
CALLING = "y = [str(i).rjust(5) for i in range(10)]; f = hash(str(y))"
GIB = 1 << 30


def snapshots(options: argparse.Namespace) -> object:
    """Measure what snapshots cost and save: milliseconds, and MiB of the copies' own memory.

    For each amount of data: from a cell's reply until its copy is ready; a cell that follows at
    once and waits for the copy; from SIGKILL to the next result; and the memory of the copies. Then
    a round trip with ``snapshots`` auto beside off, in turns, and a killed session's recovery
    beside ipykernel, which is restarted and runs its cells again.
    """
    processes.adopt_orphans()
    table = Table("data", "copy ready, ms", "next cell, ms", "restored, ms", "copies, MiB")
    sizes = {}
    for kind in options.kinds.split(","):
        for gigabytes in map(float, options.sizes.split(",")):
            label = f"{kind}, {gigabytes:g} GiB"
            sizes[label] = measure_copies(kind, int(gigabytes * GIB))
            table.row(label, *sizes[label])

    trips = compare_trips(options.trips)
    table = Table("round trip, by snapshots", "auto, ms", "off, ms", "ratio")
    for label in trips.figures:
        ours, base = (trips.median(label, mode) for mode in ("auto", "off"))
        table.row(label, ours, base, trips.ratio(label, "auto"))

    recoveries = {
        "cellblock, a snapshot takes over": recover_snapshot(options.seconds),
        "ipykernel, restart and rerun": recover_ipykernel(options.seconds),
    }
    table = Table(f"recovery of a session of {options.seconds:g} s", "ms")
    for label, milliseconds in recoveries.items():
        table.row(label, milliseconds)
    return {"copies": sizes, "round_trips_ms": trips.figures, "recovery_ms": recoveries}


def start_with_snapshots(
    world: World, base: str = "safe", mode: str = "auto", most: int = 0, depth: int = 1
) -> Kernel:
    """Start a kernel whose policy has ``snapshots`` set to ``mode``, and at most ``most`` bytes."""
    text = SNAPSHOT_POLICY.format(base=base, mode=mode, depth=depth)
    if most:
        text += SNAPSHOT_LIMITS.format(most=most)
    path = world.policy(text, f"{base}-{mode}-{depth}")
    return Kernel(argv_for(path), world=world).wait_ready()


def serving_guest(kernel: Kernel) -> int:
    """Return the pid of the guest that serves."""
    return guests_and_copies(kernel.zygote())[0][-1]


def wait_until_copied(kernel: Kernel, known: set[int]) -> None:
    """Wait until the guest has a copy that is not among ``known``."""
    deadline = time.perf_counter() + PATIENCE
    while not set(children(serving_guest(kernel))) - known:
        if time.perf_counter() > deadline:
            raise RuntimeError("there is no snapshot")
        time.sleep(0.0002)


def measure_copies(kind: str, size: int) -> list[float]:
    """Return the four figures of a guest that holds ``size`` bytes of one kind of data."""
    world = World()
    base = "data" if kind == "numpy" else "safe"
    kernel = start_with_snapshots(world, base, "always", 6 * size + 2 * GIB)
    try:
        run_cell(kernel, FILL[kind].format(size=size))
        time.sleep(0.5)
        ready = statistics.median(time_copy(kernel) for _ in range(5))
        following = statistics.median(time_following_cell(kernel) for _ in range(5))
        time.sleep(1)  # copies that were let go take their time to go
        own = sum(map(own_memory, children(serving_guest(kernel))))
        restored = statistics.median(time_restore(kernel) for _ in range(3))
    finally:
        kernel.close()
        world.close()
    return [ready, following, restored, own]


def time_copy(kernel: Kernel) -> float:
    """Return the milliseconds from a cell's reply until its copy is ready."""
    known = set(children(serving_guest(kernel)))
    mid = kernel.execute_send("z = hash('a')")
    kernel.reply(mid)
    milliseconds = timed(lambda: wait_until_copied(kernel, known))
    kernel.until_idle(mid)
    time.sleep(0.1)
    return milliseconds


def time_following_cell(kernel: Kernel) -> float:
    """Return the milliseconds of a cell that is sent as soon as the cell before is answered."""
    run_cell(kernel, "z = hash('a')")
    milliseconds = run_cell(kernel, "z = hash('b')")
    time.sleep(0.1)
    return milliseconds


def time_restore(kernel: Kernel) -> float:
    """Return the milliseconds from SIGKILL to the next result."""
    run_cell(kernel, "z = hash('a')")
    return time_kill(kernel, "len(data)")


def time_kill(kernel: Kernel, code: str) -> float:
    """Kill the guest when it has a copy; return the milliseconds until a next cell's result."""
    wait_until_copied(kernel, set())
    time.sleep(0.2)
    guest = serving_guest(kernel)

    def kill_and_run() -> None:
        os.kill(guest, signal.SIGKILL)
        run_cell(kernel, code)

    return timed(kill_and_run)


def own_memory(pid: int) -> float:
    """Return the MiB of a copy's own: pages that it does not share, and its page tables."""
    pages = Path(f"/proc/{pid}/smaps_rollup").read_text()
    tables = Path(f"/proc/{pid}/status").read_text()
    sizes = re.findall(r"^(?:Private_\w+|VmPTE):\s+(\d+) kB", pages + tables, re.MULTILINE)
    return sum(map(int, sizes)) / 1024


def compare_trips(count: int) -> Comparison:
    """Compare a cell's milliseconds with snapshots and without; a quarter as often after pauses."""
    world = World()
    comparison = Comparison("off")
    kernels = {mode: start_with_snapshots(world, mode=mode, depth=5) for mode in ("auto", "off")}

    def run_after(pause: float, kernel: Kernel, code: str) -> float:
        time.sleep(pause)
        return run_cell(kernel, code)

    try:
        for name, code in (("trivial", TRIVIAL), ("with calls", CALLING)):
            for label, pause, rounds in (
                (f"{name}, at once", 0.0, count),
                (f"{name}, after 50 ms", 0.05, max(count // 4, 1)),
            ):
                actions = {
                    mode: partial(run_after, pause, kernel, code)
                    for mode, kernel in kernels.items()
                }
                for _ in range(rounds):
                    comparison.take_turns(label, actions)
    finally:
        for kernel in kernels.values():
            kernel.close()
        world.close()
    return comparison


#: A session's only cell, and the cell that shows that its variable is there again.
SESSION = "import time\ntime.sleep({seconds})\nkept = 41"
SESSION_RESULT = "kept + 1"


def recover_snapshot(seconds: float) -> float:
    """Return the milliseconds until a killed session has its variables again."""
    world = World()
    kernel = start_with_snapshots(world)
    try:
        run_cell(kernel, SESSION.format(seconds=seconds))
        return time_kill(kernel, SESSION_RESULT)
    finally:
        kernel.close()
        world.close()


def recover_ipykernel(seconds: float) -> float:
    """Return the milliseconds until a killed ipykernel is restarted and has run its cell again."""
    first = Kernel(argv_of(STOCK), world=UsersWorld())
    run_cell(first, SESSION.format(seconds=seconds))
    began = time.perf_counter()
    os.kill(first.proc.pid, signal.SIGKILL)
    first.proc.wait()
    second = Kernel(argv_of(STOCK), world=UsersWorld())
    try:
        run_cell(second, SESSION.format(seconds=seconds))
        run_cell(second, SESSION_RESULT)
        return (time.perf_counter() - began) * 1000
    finally:
        for kernel in (first, second):
            kernel.close()
            kernel.world.close()


# --- language ---------------------------------------------------------------------------------

#: Iterations of a loop.
LOOP = 10_000
LANGUAGE_LINES = {
    "attribute": "x.value",
    "call of a method": "x.method()",
    "isinstance": "isinstance(x, C)",
    "getattr": 'getattr(x, "value")',
    "getattr with a default": 'getattr(x, "nothing", None)',
    "getattr, computed": "getattr(x, name)",
    "hasattr": 'hasattr(x, "value")',
    "hasattr, not there": 'hasattr(x, "nothing")',
    "hasattr, computed": "hasattr(x, name)",
    "setattr": 'setattr(x, "value", 1)',
    "str.format": "template.format(1, i)",
    "str.format of a literal": '"{} {}".format(1, i)',
    "sorted by a key": "sorted(numbers, key=C.negative)",
    "re.sub": "re.sub(pattern, 'b', text)",
    "match by position": "match_by_position(x)",
}
LANGUAGE_SETUP = """
import re
class C:
    __match_args__ = ("value",)
    def __init__(self):
        self.value = 1
    def method(self): pass
    @staticmethod
    def negative(number): return -number
def match_by_position(x):
    match x:
        case C(1): pass
x = C()
name = "value"
template = "{} {}"
text = "aaaa"
pattern = re.compile("a")
numbers = list(range(10))
"""
LANGUAGE_TIMED = """
took = []
for _ in range({runs}):
    began = perf_counter()
    {run}
    took.append(perf_counter() - began)
times.append(min(took))
"""


def language(options: argparse.Namespace) -> object:
    """Measure lines in a loop within a cell, as ratios to plain Python, and its nanoseconds.

    Each figure is the least of many runs, which both sides make in turns in one session: in a
    function, and at the cell's top level.
    """
    cell = language_cell(options.runs)
    guarded = []
    plain = []
    with Sandbox("safe") as sandbox:
        for _ in range(options.rounds):
            result = sandbox.execute(cell, timeout=120)
            if result.error or result.denials:
                raise SystemExit(f"not run: {result.error} {result.denials}")
            guarded.append(ast.literal_eval(result.output))
            ran = subprocess.run(
                [sys.executable, "-c", cell], check=True, capture_output=True, text=True
            )
            plain.append(ast.literal_eval(ran.stdout))
    guarded_least, plain_least = (
        list(map(min, zip(*times, strict=True))) for times in (guarded, plain)
    )
    table = Table("", "function", "cell", "plain, ns")
    figures = {}
    for number, label in enumerate(LANGUAGE_LINES):
        function = 2 * number
        top = function + 1
        figures[label] = {
            "function": guarded_least[function] / plain_least[function],
            "cell": guarded_least[top] / plain_least[top],
            "plain_ns": plain_least[function] / LOOP * 1e9,
        }
        table.row(label, *figures[label].values())
    return figures


def language_cell(runs: int) -> str:
    """Return the cell, which times each line in a loop within a function and in a loop without."""
    parts = [LANGUAGE_SETUP, "from time import perf_counter", "times = []"]
    for number, line in enumerate(LANGUAGE_LINES.values()):
        loop = f"for i in range({LOOP}): {line}"
        parts.append(f"def f{number}():\n    {loop}\n")
        parts += [LANGUAGE_TIMED.format(runs=runs, run=run) for run in (f"f{number}()", loop)]
    return "\n".join([*parts, "print(times)"])


DIRECT = "direct"
NETWORK_CELL = """
import socket, time
def connected():
    began = time.perf_counter()
    with socket.create_connection(("127.0.0.1", {port})) as to:
        to.sendall((0).to_bytes(8, "big"))
        assert to.recv(1) == b""
    return (time.perf_counter() - began) * 1000
def received(size):
    with socket.create_connection(("127.0.0.1", {port})) as to:
        began = time.perf_counter()
        to.sendall(size.to_bytes(8, "big"))
        buffer = bytearray(1 << 20)
        while size > 0:
            size -= to.recv_into(buffer)
    return (time.perf_counter() - began) * 1000
"""


def network(options: argparse.Namespace) -> object:
    """Measure milliseconds for many MiB and for a connection, to a listed address and directly.

    This process serves both. A cell under ``network_access = true`` connects directly.
    """
    comparison = Comparison(DIRECT)
    size = options.size << 20
    with served() as port:
        listed = Policy.preset("data", network_access=(f"127.0.0.1:{port}",))
        direct = Policy.preset("data", network_access=True)
        with Sandbox(direct) as open_to_all, Sandbox(listed) as relayed:
            contestants = {DIRECT: open_to_all, "listed": relayed}
            for sandbox in contestants.values():
                assert sandbox.execute(NETWORK_CELL.format(port=port)).success

            def figure(sandbox: Sandbox, call: str) -> float:
                return float(ast.literal_eval(sandbox.execute(call).result))

            def figures(call: str) -> dict[str, Callable[[], float]]:
                return {
                    name: partial(figure, sandbox, call) for name, sandbox in contestants.items()
                }

            for _ in range(options.rounds):
                comparison.take_turns(f"{options.size} MiB", figures(f"received({size})"))
                comparison.take_turns(
                    "a connection", figures("min(connected() for _ in range(20))")
                )
    table = Table("", "direct, ms", "listed, ms", "ratio")
    for measure in comparison.figures:
        medians = [comparison.median(measure, name) for name in contestants]
        table.row(measure, *medians, comparison.ratio(measure, "listed"))
    return comparison.figures


@contextlib.contextmanager
def served() -> Iterator[int]:
    """Serve on a port of the loopback: each connection gets as many bytes as its request says."""
    piece = bytes(1 << 20)

    def answer(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            left = int.from_bytes(connection.recv(8, socket.MSG_WAITALL), "big")
            while left > 0:
                left -= connection.send(piece[:left])

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=answer, args=[listener.accept()[0]], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


PARTS = {
    "round-trip": Part(
        round_trip,
        {
            "--kernel": {"default": "cellblock", "help": "a kernelspec"},
            "--against": {"default": STOCK, "help": "the kernelspec to compare with"},
            "--rounds": {"type": int, "default": 5},
            "--only": {"nargs": "*", "default": [], "choices": [*REQUESTS]},
        },
    ),
    "start": Part(start, {"--rounds": {"type": int, "default": 5}}),
    "cells": Part(
        cells,
        {
            "--rounds": {"type": int, "default": 5},
            "--only": {"nargs": "*", "default": [], "choices": [*CELLS, *SESSIONS]},
            "--kernels": {"nargs": "*", "default": [IPYKERNEL, XEUS, *POLICIES]},
            "--write": {"action": "store_true", "help": "write docs/performance.md"},
        },
    ),
    "snapshots": Part(
        snapshots,
        {
            "--sizes": {"default": "0,0.1,1,4", "help": "GiB of data"},
            "--kinds": {"default": "numpy,objects", "help": "of data"},
            "--trips": {"type": int, "default": 200, "help": "round trips"},
            "--seconds": {"type": float, "default": 2.0, "help": "of the killed session's cell"},
        },
    ),
    "language": Part(
        language,
        {
            "--rounds": {"type": int, "default": 5},
            "--runs": {"type": int, "default": 30, "help": "loops, of which the quickest counts"},
        },
    ),
    "network": Part(
        network,
        {
            "--rounds": {"type": int, "default": 7},
            "--size": {"type": int, "default": 256, "help": "MiB that a cell receives"},
        },
    ),
}

if __name__ == "__main__":
    sys.exit(run_parts(__doc__, PARTS))
