"""Small programs under the language layer alone: what they are, how they run, what they reached.

The OS layer is off. ``run_guarded.py`` runs them in forks of one hardened process; a ``World`` has
the secrets and judges by witnesses what came back.
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
        """Return the program's cells with paths and loot of this world."""
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
        """Run attack ``programs`` here; return each one's report by its name, as ``run`` does."""
        results = run([self.fill(program) for program in programs], **options)
        for program, result in zip(programs, results, strict=True):
            own = self.folder / "canary" / program.name
            result["files"] = list(map(str, own.iterdir())) if own.exists() else [str(own)]
        return {program.name: result for program, result in zip(programs, results, strict=True)}

    def loot(self, result):
        """Name what the program got hold of, if anything."""
        out = result["out"] + " ".join(result["error"] or ())
        if TOKEN in out or TOKEN[::-1] in out:
            return "token"
        if platform.release()[::-1] in out or platform.release() in out:
            return "reached the operating system"
        if result["files"]:
            return "file"
        return next((line for line in out.splitlines() if "ESCAPED" in line), "")

    def breach(self, result):
        """Name the witness that fired, if any; a process that hung or died counts too."""
        if result["timed_out"] or (result["error"] or [""])[0] in ("died", "garbled"):
            return "the process hung or died"
        return self.loot(result)


@dataclass(frozen=True)
class Program:
    """An attack: a file with the attack's title, notes, and cells divided by ``# --- cell``.

    ``python``: the oldest version that has what it uses. ``unseen``: why the attack gets nothing
    where the whole layer is off, so that there is no positive control; ``seen_until``: the newest
    version in which there is one.
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
        # A cell magic has to stand first: the title and the notes don't belong to the program.
        program = _NOTE.sub("", text.partition("\n")[2]).lstrip("\n")
        cells = tuple(program.split("# --- cell\n"))
        name = f"{path.parent.name}/{path.stem}"
        found.append(Program(name, cells, **dict(_NOTE.findall(text))))
    return found


def run(programs, *, preset="safe", python=sys.executable, **parts):
    """Run ``programs`` (lists of cells), return a report for each.

    Parts of the layer that can be left out: ``check`` (of the source), ``guards``, ``arm`` (the
    audit hook); ``layer`` is all of them.
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
    """Yield (id, cells) of every program in text files: ``### id: title``, cells divided."""
    for file in files:
        text = file.read_text(encoding="utf-8")
        for part in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
            head, _, body = part.partition("\n")
            yield head.partition(":")[0], body.split("# --- cell\n")
