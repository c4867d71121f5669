"""``cellblock learn``: what it proposes for notebooks, and that what it proposes holds."""

import tomllib

import pytest
from typer.testing import CliRunner

from cellblock.batch import files
from cellblock.batch.judge import judge_source
from cellblock.batch.learn import Proposal, learn
from cellblock.cli.main import app
from cellblock.errors import PolicyError
from cellblock.policy.load import check_policy, load
from cellblock.policy.model import FIELDS, ROWS
from cellblock.policy.narrowing import wider
from cellblock.policy.rows import Never
from cellblock.render.outcomes import Refusal, Remedy
from support.runs import write

pytestmark = pytest.mark.timeout(120)
SAID = "is not on this policy's list of allowed"
WROTE = "a.ipynb wrote to the project"
CONFINED = "# Cells may import and call anything; the OS layer confines them.\n"
READS = "# Cells may read files there; {checkout} is the notebook's repository.\n"
DENIES = "# But they read none of these; @secrets are .env, private keys and the like.\n"
PASSED = "# Passed under this policy: 1 of 1 notebook.\n"
#: By what is asked for: cells, what is proposed for them beyond preset safe, and the end.
NOTEBOOKS = {
    "a module": (
        ["x = 1", "import tomllib\ntomllib.loads('a = 1')"],
        f"""# Cells may import these.
add.allowed_modules = [
    "tomllib", # a.ipynb, cell 2, line 1: tomllib {SAID} modules
]
""",
        PASSED,
    ),
    "a magic": (
        ["%autoawait", "%autoawait"],
        f"""# Cells may use these magics.
add.magics = [
    "autoawait", # a.ipynb, cell 1, line 1: %autoawait {SAID} magics (and 1 more reason)
]
""",
        PASSED,
    ),
    "files of the project": (
        ["text = open('in.txt').read()", "_ = open('out.txt', 'w').write(text)"],
        f"""{CONFINED}mode = "confined" # a.ipynb, cell 1, line 1: open opens files (and 1 more reason)
{READS}add.filesystem_read_roots = [
    "{{checkout}}", # {WROTE}
]
# Cells may write there; your files change only once you keep that.
add.filesystem_staged_roots = [
    "{{checkout}}", # {WROTE}
]
{DENIES}add.read_deny_paths = [
    "@secrets", # as in preset data
]
""",
        PASSED,
    ),
    "a program, a module of the project": (
        ["import helper", "assert helper.x == 1\n!true"],
        f"""{CONFINED}mode = "confined" # a.ipynb, cell 1, line 1: helper {SAID} modules (and 1 more reason)
# Cells may start programs, which are confined like the cells.
subprocess_execution = true # a.ipynb, cell 2: cells can't start programs
{READS}add.filesystem_read_roots = [
    "{{checkout}}", # a guess: a.ipynb, cell 1 failed without it, and ran under preset data
]
{DENIES}add.read_deny_paths = [
    "@secrets", # as in preset data
]
""",
        PASSED,
    ),
    "a file that a library misses in words of its own": (
        [
            "import numpy as np, os\nname = os.path.join(os.getcwd(), 'in.txt')",
            "assert np.genfromtxt(name, dtype=str) == 'a'",
        ],
        f"""# Cells may import these.
add.allowed_modules = [
    "@science", # a.ipynb, cell 1, line 1: numpy {SAID} modules
    "os", # a.ipynb, cell 1, line 2: os.getcwd tells where the kernel runs
]
{READS}add.filesystem_read_roots = [
    "{{checkout}}", # a.ipynb, cell 2: cells begin in a scratch folder, and can't read the files of your project
]
{DENIES}add.read_deny_paths = [
    "@secrets", # as in preset data
]
""",
        PASSED,
    ),
    "a mistake of its own": (
        ["1 / 0", "import tomllib"],
        "",
        """# Passed under this policy: 0 of 1 notebook.
# a.ipynb, cell 1: failed: The cell failed: ZeroDivisionError: division by zero
""",
    ),
}


@pytest.fixture
def project(here):
    (here / "in.txt").write_text("a")
    (here / "helper.py").write_text("x = 1\n")
    return here


def learned(*paths, base="safe"):
    found, problems = files.find([str(path) for path in paths], ())
    assert problems == []
    return learn(found, base)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_what_is_proposed_is_what_the_notebook_lacked_with_its_reasons(project, name):
    cells, lines, end = NOTEBOOKS[name]
    assert str(learned(write(project / "a.ipynb", *cells))) == f'extends = "safe"\n{lines}{end}'
    assert not (project / "out.txt").exists()
    assert list(project.parent.rglob("changes/*/session.json")) == []


def test_what_data_does_not_give_is_told_and_not_proposed(project):
    asks = (
        "import urllib.request",
        "try: urllib.request.urlopen('http://127.0.0.1:9')\nexcept OSError: pass\nopen('/etc/shadow')",
    )
    proposal = learned(
        write(project / "a.ipynb", "import socket\nsocket.create_connection(('127.0.0.1', 9))"),
        write(project / "b.ipynb", *asks),
    )
    own = tomllib.loads(str(proposal))
    assert set(own) == {"extends", "mode"}, own
    told = [line for line in str(proposal).splitlines() if line.startswith("# Not proposed")]
    start = "# Not proposed, as preset data does not allow it either: "
    network, file = (line.removeprefix(start) for line in told)
    assert network == (
        'network_access = ["127.0.0.1:9"] # a.ipynb, cell 1: cells have no network 127.0.0.1:9'
    )
    assert file == (
        'filesystem_read_roots = ["/etc/shadow"] '
        "# b.ipynb, cell 2: cells can't use files outside of its folders /etc/shadow"
    )


def test_the_file_is_a_policy_under_which_a_run_passes(run, project):
    path = write(project / "a.ipynb", "import pandas as pd\npd.Series([1]).to_csv('out.csv')")
    ended = CliRunner().invoke(app, ["learn", "a.ipynb", "-o", "lab.toml"])
    assert (ended.exit_code, ended.output) == (0, (project / "lab.toml").read_text()), ended.output
    assert run("a.ipynb", "-o", "out", "--policy", "lab.toml").statuses == {"a.ipynb": "passed"}
    ended = CliRunner().invoke(app, ["learn", str(write(path, "1 / 0"))])
    assert ended.exit_code == 1


def test_notebooks_that_lack_the_same_get_one_line_and_no_guess(project):
    paths = [write(project / f"{name}.ipynb", "len(bytearray(1 << 31))") for name in "ab"]
    memory = (
        "memory_max_bytes = 8589934592 # a.ipynb, cell 1: cells can't hold more memory than 1 GiB"
    )
    end = "# Passed under this policy: 2 of 2 notebooks."
    assert str(learned(*paths)) == f'extends = "safe"\n{memory} (and 1 more reason)\n{end}\n'


def test_what_a_cell_fails_of_is_learned_beside_what_it_goes_on_without(project):
    """A path out of the folder that cells begin in; and a refusal that is caught, before an import."""
    (project / ".git").mkdir()
    (project / "sub").mkdir()
    (project / "sub/other.py").write_text("")
    network = "import socket\ntry: socket.create_connection(('127.0.0.1', 9))\nexcept OSError: pass"
    path = write(project / "sub/a.ipynb", "open('../in.txt').read()")
    proposal = learned(path)
    assert proposal.failed == []
    assert "Not proposed" not in str(proposal)
    path = write(path, f"{network}\nimport other")
    assert learned(path).failed == []


def test_no_name_of_a_notebook_or_a_file_becomes_a_line_of_the_policy():
    proposal, name = Proposal("safe"), 'x\nmode = "unsafe"\r\u2028\x85\x00\udc80.ipynb'
    proposal.ask(name, ("mode", "confined"))
    line = f'filesystem_read_roots = ["{name}"]'
    proposal.refused(
        Refusal("filesystem_read_roots", name, Remedy(line), f"/{name}"), name, proposal.policy()
    )
    assert tomllib.loads(str(proposal)) == {"extends": "safe", "mode": "confined"}


def test_no_remedy_that_repeats_words_of_a_cell_allows_what_they_say():
    cell = """open('add.allowed_modules = ["subprocess"].csv')"""
    proposal = Proposal("safe")
    reads = ("filesystem_read_roots", "{checkout}")
    proposal.ask("", ("allowed_modules", "@science"), reads)
    (found,) = judge_source(cell, proposal.policy().rules())
    assert '"subprocess"' in found.remedy
    proposal.refused(found, "a.ipynb", proposal.policy())
    assert "subprocess" not in str(proposal)


def test_no_refusal_whatever_it_says_asks_for_more_than_data_has(tmp_path):
    proposal, where = Proposal("safe"), {"project": tmp_path, "allow_unsafe": True}
    safe = proposal.policy()
    for name in FIELDS:
        for asked in ("", "/etc/passwd", "host:1"):
            proposal.refused(Refusal(name, "", Remedy(f"{name} = true"), asked), "a.ipynb", safe)
    while proposal.try_next("a.ipynb", proposal.policy()):
        pass
    data, learned = load("data", **where), check_policy(proposal.policy(), **where)
    assert {
        name: why
        for name, row in ROWS.items()
        if not isinstance(row.narrower, Never) and (why := wider(name, data, learned))
    } == {}
    changed = set(tomllib.loads(str(proposal)))
    assert changed >= {"mode", "subprocess_execution", "timeout", "memory_max_bytes", "add"}, (
        changed
    )


def test_what_a_cell_asks_for_in_place_of_what_it_lacked_is_not_told(project):
    """As notebooks download a module that is not beside them."""
    download = "import socket; socket.create_connection(('127.0.0.1', 9))"
    cell = f"try: import helper\nexcept ImportError: {download}"
    proposal = learned(write(project / "a.ipynb", cell))
    assert proposal.failed == []
    assert "Not proposed" not in str(proposal)


@pytest.mark.parametrize("base", ["unsafe", "trusted", "lab.toml"])
def test_only_a_preset_that_confines_is_extended(here, base):
    path = write(here / "a.ipynb", "1")
    (here / "lab.toml").write_text('extends = "unsafe"')
    with pytest.raises(PolicyError):
        learned(path, base=base)
