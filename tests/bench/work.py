"""Compares ordinary cells under cellblock, ipykernel and xeus-python, as ratios (lower is better).

python tests/bench/work.py [--rounds 5] [--only NAME ...] [--write] [--json FILE]

In each round every kernel is started anew and runs all cells. The kernels take turns at each cell,
so that a machine that slows down slows all of them. Before a timed cell a kernel is idle for a
moment, as when its user reads. A ratio is of one round; printed are the median, the least and the
largest of the rounds. ``--write`` puts the table into docs/performance.md. This is never a timed
test: the numbers are for developers who change a hot path.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.multikernelmanager import MultiKernelManager

from bench import UsersWorld, interrupt
from support import processes
from support.client import connection
from support.kernels import ROOT, Kernel, argv_for, argv_of

PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- made by tests/bench/work.py -->", "<!-- end -->"
NONE = "\N{EN DASH}"
STOCK, XEUS = "ipykernel", "xeus-python"
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
#: Seconds for which a kernel is idle before a timed cell, and that a cell may take.
PAUSE, PATIENCE = 0.15, 120.0
#: Seconds from a kernel's start to the first cell of a user who reads the page first.
READ = 4.0
#: Seconds until a waiting kernel, which the provisioner starts, is fully prepared.
WAITS = 4.0
#: Seconds until the client has surely subscribed to a kernel's iopub.
SUBSCRIBED = 0.2


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


class Refused(Exception):
    """A kernel refused to run a cell. The text says why."""


def run(kernel: Kernel, code: str, *, idle: bool = True) -> float:
    """Run a cell; return the milliseconds until its reply and idle. Raises ``Refused``."""
    began = time.perf_counter()
    mid = kernel.execute_send(code)
    reply = kernel.reply(mid, timeout=PATIENCE)["content"]
    if idle:
        kernel.until_idle(mid, timeout=PATIENCE)
    took = (time.perf_counter() - began) * 1000
    if reply["status"] != "ok":
        raise Refused(f"{reply.get('ename')}: {reply.get('evalue')}".splitlines()[0])
    return took


class Contestant:
    """One kernel of the comparison, in a folder of its own with the files that the cells read."""

    def __init__(self, label: str) -> None:
        self.world = UsersWorld()
        lines = "\n".join(f"{i},{i % 50},{i / 7},name{i % 1000}" for i in range(200_000))
        self.world.write("rows.csv", f"id,key,value,name\n{lines}\n")
        (self.world.work / "small").mkdir()
        for number in range(200):
            (self.world.work / "small" / str(number)).write_text("small")
        self.mode = "message" if label in POLICIES else "signal"
        if label in POLICIES:
            policy = POLICIES[label]
            self.argv = argv_for(self.world.policy(policy) if "\n" in policy else policy)
        else:
            self.argv = argv_of({STOCK: "python3", XEUS: "xpython"}[label])
            if self.argv[0].startswith("python3"):  # xeus-python says python3.11
                self.argv[0] = sys.executable

    def start(self, first: str = "", info: dict[str, Any] | None = None) -> Kernel:
        """Start a kernel and run its first cell; its idle may come before iopub is subscribed."""
        kernel = Kernel(self.argv, world=self.world, info=info or connection())
        kernel.interrupt_mode = self.mode
        if first:
            run(kernel, first, idle=False)
            time.sleep(SUBSCRIBED)
        return kernel

    def spawned(self, first: str, kernel: Kernel | None = None) -> float:
        """Return the milliseconds from spawn, or another kernel's shutdown, to a first cell's end."""
        began = time.perf_counter()
        if kernel:
            kernel.send("shutdown_request", {"restart": True}, "control")
            kernel.proc.wait(PATIENCE)
            kernel.disconnect()
        made = self.start(info=kernel.info if kernel else None)
        try:
            run(made, first, idle=False)
            return (time.perf_counter() - began) * 1000
        finally:
            made.close()

    def read_first(self) -> float:
        """Return the milliseconds of the first cell of a user who has read the page first."""
        kernel = self.start()
        try:
            kernel.wait_heard()
            time.sleep(READ)
            return run(kernel, FIRST_IMPORTS)
        finally:
            kernel.close()

    def provided(self, first: str = "x = 1", *, restarted: bool = False) -> float:
        """Return the milliseconds from a manager's start of a second kernel to its first reply.

        ``restarted``: from the restart of the first kernel instead.
        """
        name = self.world.root / "kernels" / "contestant"
        name.mkdir(parents=True, exist_ok=True)
        metadata = {}
        if self.mode == "message":
            named = {"provisioner_name": "cellblock-provisioner", "config": {"warm_after": 0.0}}
            metadata["kernel_provisioner"] = named
        spec = {"argv": self.argv, "display_name": "x", "language": "python", "metadata": metadata}
        (name / "kernel.json").write_text(json.dumps(spec))
        with mock.patch.dict(os.environ, self.world.environment(), clear=True):
            specs = KernelSpecManager(kernel_dirs=[str(name.parent)])
            run_dir = str(self.world.root / "run")
            manager = MultiKernelManager(kernel_spec_manager=specs, connection_dir=run_dir)
            try:
                self._started(manager, "x = 1")
                time.sleep(WAITS)
                return self._started(manager, first, restarted=restarted)
            finally:
                manager.shutdown_all(now=True)

    def _started(
        self, manager: MultiKernelManager, first: str, *, restarted: bool = False
    ) -> float:
        began = time.perf_counter()
        if restarted:
            (started,) = manager.list_kernel_ids()
            manager.restart_kernel(started)
        else:
            started = manager.start_kernel(kernel_name="contestant", cwd=str(self.world.work))
        client = manager.get_kernel(started).client()
        client.start_channels()
        sent = client.execute(first)
        reply = client.get_shell_msg(timeout=PATIENCE)
        took = (time.perf_counter() - began) * 1000
        client.stop_channels()
        if reply["parent_header"]["msg_id"] != sent or reply["content"]["status"] != "ok":
            raise Refused(str(reply["content"]))
        return took

    def memory(self, count: int) -> float:
        """Return the MiB of so many kernels with pandas; shared pages count once (PSS)."""
        kernels = [self.start("x = 1") for _ in range(count)]
        try:
            for kernel in kernels:
                run(kernel, "import pandas as pd\npd.DataFrame({'a': [1]})")
            time.sleep(1)
            tree = [pid for kernel in kernels for pid in kernel.tree()]
            return processes.proportional_memory(tree) / 1024
        finally:
            for kernel in kernels:
                kernel.close()

    def interrupted(self) -> float:
        kernel = self.start("x = 1")
        try:
            return min(interrupt(kernel) for _ in range(5))
        finally:
            kernel.close()

    def restarted(self, first: str) -> float:
        """Return the milliseconds from a kernel's shutdown to its successor's first reply."""
        return self.spawned(first, self.start(first))


FIRST_IMPORTS = "import numpy as np\nimport pandas as pd\nimport matplotlib.pyplot as plt"
FIRST_PLOT = f"import matplotlib.pyplot as plt\n{PLOT}"
#: The measures that start kernels of their own.
WHOLE = {
    "spawn to first reply": lambda one: one.spawned("x = 1"),
    "spawn to first reply, one waiting": Contestant.provided,
    "spawn to first plot": lambda one: one.spawned(FIRST_PLOT),
    "spawn to first plot, one waiting": lambda one: one.provided(FIRST_PLOT),
    "restart to first reply": lambda one: one.restarted("x = 1"),
    "restart to first reply, one waiting": lambda one: one.provided(restarted=True),
    "restart to first plot": lambda one: one.restarted(FIRST_PLOT),
    "first imports, after reading": Contestant.read_first,
    "interrupt": Contestant.interrupted,
    "memory of one with pandas": lambda one: one.memory(1),
    "memory of ten with pandas": lambda one: one.memory(10),
}
Figures = dict[str, dict[str, list[float]]]


class Table:
    """The figures of all rounds by measure and kernel, and the reasons why cells were refused."""

    def __init__(self, labels: list[str]) -> None:
        self.labels = labels
        self.figures: Figures = {}
        self.reasons: dict[str, set[str]] = {}

    def add(self, name: str, label: str, measure) -> None:
        """Add the figure that ``measure()`` returns, or the reason why it can't be measured."""
        row = self.figures.setdefault(name, {each: [] for each in self.labels})
        try:
            row[label].append(measure())
        except (Refused, TimeoutError) as exc:
            self.reasons.setdefault(f"{name}, {str(exc)[:150]}", set()).add(label)

    def ratios(self, name: str, label: str) -> list[float]:
        """Return a kernel's ratios to ipykernel, one for each round."""
        row = self.figures[name]
        return [a / b for a, b in zip(row[label], row[STOCK], strict=False)]

    def markdown(self) -> str:
        """Return the table, the geometric means, and why cells were not run."""
        others = [label for label in self.labels if label != STOCK]
        lines = [f"| | {STOCK} | " + " | ".join(others) + " |", "|---" * (len(others) + 2) + "|"]
        for name, row in self.figures.items():
            unit = "MiB" if name.startswith("memory") else "ms"
            cells = [_spread(row[STOCK], ".1f", f" {unit}")]
            cells += [_spread(self.ratios(name, label)) for label in others]
            lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
        means = [_mean([self.ratios(name, each) for name in self.figures]) for each in others]
        lines.append("| geometric mean | | " + " | ".join(means) + " |")
        if self.reasons:
            lines += ["", "Not run:", ""]
            lines += [f"- {', '.join(sorted(who))}: {why}" for why, who in self.reasons.items()]
        return "\n".join(lines)


def _spread(values: list[float], form: str = ".2f", unit: str = "") -> str:
    if not values:
        return NONE
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:{form}}{unit} ({least:{form}}{NONE}{most:{form}})"


def _mean(rows: list[list[float]]) -> str:
    medians = [statistics.median(row) for row in rows if row]
    return f"{statistics.geometric_mean(medians):.2f}" if medians else NONE


def sessions(table: Table, people: dict[str, Contestant], cells: dict[str, Cell]) -> None:
    """Run one round of cells, each kernel in one session."""
    kernels = {label: one.start("x = 1") for label, one in people.items()}
    try:
        for name, cell in cells.items():
            for label, kernel in kernels.items():
                table.add(name, label, lambda kernel=kernel, cell=cell: timed(kernel, cell))
    finally:
        for kernel in kernels.values():
            kernel.close()


def timed(kernel: Kernel, cell: Cell) -> float:
    """Return the median milliseconds of a cell."""
    if cell.setup:
        run(kernel, cell.setup)
    took = []
    for _ in range(cell.times):
        time.sleep(PAUSE)
        took.append(run(kernel, cell.code))
    return statistics.median(took)


def measured(labels: list[str], rounds: int, only: list[str]) -> Table:
    """Measure in rounds. The kernels take turns, and each round begins with another kernel."""
    table = Table(labels)
    cells = {name: cell for name, cell in CELLS.items() if not only or name in only}
    wholes = {name: measure for name, measure in WHOLE.items() if not only or name in only}
    people = {label: Contestant(label) for label in labels}
    try:
        for number in range(rounds):
            turn = number % len(labels)
            order = {label: people[label] for label in labels[turn:] + labels[:turn]}
            sessions(table, order, cells)
            for name, measure in wholes.items():
                for label, one in order.items():
                    table.add(name, label, lambda one=one, measure=measure: measure(one))
            print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    finally:
        for one in people.values():
            one.world.close()
    return table


def written(table: Table, rounds: int) -> None:
    """Write the table into the page, between its two comments."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    load = os.getloadavg()[1]
    where = (
        f"{rounds} rounds on {time.strftime('%Y-%m-%d')}: Python {platform.python_version()}, "
        f"Linux {platform.release()}, {os.cpu_count()} processors, load {load:.1f}."
    )
    PAGE.write_text(f"{before}{BEGIN}\n\n{where}\n\n{table.markdown()}\n\n{END}{after}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[], choices=[*CELLS, *WHOLE])
    parser.add_argument("--kernels", nargs="*", default=[STOCK, XEUS, *POLICIES])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    labels = args.kernels
    if XEUS in labels and "xpython" not in KernelSpecManager().find_kernel_specs():
        print("xeus-python is left out: pip install xeus-python")
        labels.remove(XEUS)
    table = measured(labels, args.rounds, args.only)
    print(table.markdown())
    if args.write:
        written(table, args.rounds)
    if args.json:
        args.json.write_text(json.dumps(table.figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
