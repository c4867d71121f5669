"""Runs small programs under the language layer alone, with the OS layer off.

``run_guarded.py`` runs them in forks of one hardened process. A ``World`` has the secrets, and
judges from a program's report whether it got hold of one.
"""

import json
import platform
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TOKEN = "hcsecrettokenofthisrunzq"
_NOTE = re.compile(r"^# (python|unseen|seen_until): (.+)$", re.MULTILINE)


class World:
    """A folder with secrets and a place that nothing may write to."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir(exist_ok=True)
        self.secret = self.folder / "secret"
        self.secret.write_text(f"[default]\nkey = {TOKEN}\nmachine x login y password {TOKEN}\n")
        secret = str(self.secret)
        self.facts = {
            "LOOT": "print(o.uname().release[::-1], dict(o.environ))",
            "LOOTS": "o = s.modules['os']; print(o.uname().release[::-1], dict(o.environ))",
            "LOOTB": f"print(b.open('{secret}').read(), b.__import__('os').uname().release[::-1])",
            **dict.fromkeys(["AWS", "SSH", "NETRC", "PROJECT"], secret),
            "HOME": str(self.folder),
            "UDP": "9",
            "TCP": "9",
        }

    def fill(self, program):
        """Return the program's cells, with this world's paths and targets filled in."""
        own = self.folder / "canary" / program.name
        own.mkdir(parents=True)
        filled = []
        for cell in program.cells:
            text = cell.replace("@@WDIR@@", str(own)).replace("@@CWD@@", str(own))
            for name, value in self.facts.items():
                text = text.replace(f"@@{name}@@", value)
            filled.append(text)
        return filled

    def run(self, programs, **options):
        """Run attack ``programs`` in this world; return their reports by name."""
        results = run([self.fill(program) for program in programs], **options)
        for program, result in zip(programs, results, strict=True):
            own = self.folder / "canary" / program.name
            result["files"] = list(map(str, own.iterdir())) if own.exists() else [str(own)]
        return {program.name: result for program, result in zip(programs, results, strict=True)}

    def loot(self, result):
        """Return what the program got hold of; empty if nothing."""
        out = result["out"] + " ".join(result["error"] or ())
        if TOKEN in out or TOKEN[::-1] in out:
            return "token"
        if platform.release()[::-1] in out or platform.release() in out:
            return "reached the operating system"
        if result["files"]:
            return "file"
        return next((line for line in out.splitlines() if "ESCAPED" in line), "")

    def breach(self, result):
        """Return what the program got hold of, or that its process hung or died; else empty."""
        if result["timed_out"] or (result["error"] or [""])[0] in ("died", "garbled"):
            return "the process hung or died"
        return self.loot(result)


@dataclass(frozen=True)
class Program:
    """An attack, read from a file: a title, notes, and cells separated by ``# --- cell``.

    ``python``: the oldest Python version for it. ``unseen``: why the attack fails even with the
    layer off, so that there is no positive control. ``seen_until``: the newest version that has
    one.
    """

    name: str
    cells: tuple[str, ...]
    python: str = "3.11"
    unseen: str = ""
    seen_until: str = "3.99"

    @property
    def is_seen(self):
        newest = tuple(map(int, self.seen_until.split(".")))
        return not self.unseen and sys.version_info[:2] <= newest

    @property
    def family(self):
        return self.name.partition("/")[0]

    @property
    def runs_here(self):
        return sys.version_info >= tuple(map(int, self.python.split(".")))


def attacks(folder):
    """Return every attack program in ``folder``, by family and name."""
    found = []
    for path in sorted(Path(folder).glob("*/*.py")):
        text = path.read_bytes().decode()  # a carriage return may be the point
        # Title and notes are removed, since a cell magic must be in the first line.
        program = _NOTE.sub("", text.partition("\n")[2]).lstrip("\n")
        cells = tuple(program.split("# --- cell\n"))
        name = f"{path.parent.name}/{path.stem}"
        found.append(Program(name, cells, **dict(_NOTE.findall(text))))
    return found


def run(programs, *, preset="safe", python=sys.executable, **parts):
    """Run ``programs`` (lists of cells); return a report for each.

    Parts of the layer that can be switched off: ``check`` (the source check), ``guards`` and
    ``arm`` (the audit hook); ``layer`` is all of them.
    """
    work = {
        "package": str(ROOT / "kernel"),
        "preset": preset,
        **dict.fromkeys(("check", "guards", "arm"), parts.pop("layer", True)),
        "environ": {"CANARY_ENV": TOKEN},
        "programs": programs,
    }
    work["layer"] = work["guards"]
    work |= parts
    done = subprocess.run(
        [python, "-I", str(HERE / "run_guarded.py")],
        input=json.dumps(work),
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    if not done.stdout:
        raise AssertionError(done.stderr[-4000:])
    return json.loads(done.stdout)


def cases(folder, pattern="*.toml"):
    """Yield (id, cells, case) of every case in a folder's TOML files."""
    for file in sorted(Path(folder).glob(pattern)):
        with file.open("rb") as stream:
            document = tomllib.load(stream)
        for case in document["case"]:
            cells = list(case.get("cells", []))
            cells += [step["code"] for step in case.get("step", []) if "code" in step]
            yield case["id"], cells, case


def programs(*files):
    """Yield (id, cells) of all programs in text files, each headed ``### id: title``."""
    for file in files:
        text = file.read_text(encoding="utf-8")
        for part in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
            head, _, body = part.partition("\n")
            yield head.partition(":")[0], body.split("# --- cell\n")
