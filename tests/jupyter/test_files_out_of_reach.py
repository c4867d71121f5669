"""Files that a policy keeps away: whichever library asks, the user reads what to write."""

import pytest

from cellblock.backends.layers import receives_mounts
from support import machines, reading
from support.kernels import Kernel, argv_for, world_and_prefix

#: Calls that write, by the library; ``{out}`` is a folder outside of what cells use.
WRITES = {
    "pandas, csv": "df.to_csv('{out}/x.csv')",
    "pandas, parquet": "df.to_parquet('{out}/x.parquet')",
    "pandas, pickle": "df.to_pickle('{out}/x.pkl')",
    "numpy": "import numpy; numpy.save('{out}/x.npy', [1])",
    "matplotlib": "import matplotlib.pyplot as p; p.plot([1]); p.savefig('{out}/x.png')",
    "joblib": "import joblib; joblib.dump(1, '{out}/x')",
    "pillow": "from PIL import Image; Image.new('L', (1, 1)).save('{out}/x.png')",
    "arrow": "import pyarrow, pyarrow.parquet as pq\n"
    "pq.write_table(pyarrow.table(dict(a=[1])), '{out}/x.parquet')",
    "sqlite": "import sqlite3; sqlite3.connect('{out}/x.db')",
    "sqlite, by URI": "import sqlite3; sqlite3.connect('file:{out}/x.db', uri=True)",
    "zipfile": "import zipfile; zipfile.ZipFile('{out}/x.zip', 'w')",
    "tarfile": "import tarfile; tarfile.open('{out}/x.tgz', 'w:gz')",
    "shutil": "import shutil; shutil.copy('in.csv', '{out}/x.csv')",
    "shutil, into the folder": "import shutil; shutil.copy('in.csv', '{out}')",
    "pathlib": "from pathlib import Path; Path('{out}/x').write_text('1')",
    "os.mkdir": "import os; os.mkdir('{out}/x')",
    "os.makedirs": "import os; os.makedirs('{out}/x/y')",
    "os.rename": "import os; os.rename('in.csv', '{out}/in.csv')",
    "os.rename, from there": "import os; os.rename('{out}/f.csv', 'f.csv')",
    "%%writefile": "%%writefile {out}/x.py\n1",
}
READS = {
    "pandas": "import pandas; pandas.read_csv('{out}/f.csv')",
    "polars": "import polars; polars.read_csv('{out}/f.csv')",
    "polars, lazily": "import polars; polars.scan_csv('{out}/f.csv').collect()",
    "arrow": "import pyarrow.parquet as pq; pq.read_table('{out}/f.csv')",
    "pathlib": "from pathlib import Path; Path('{out}/f.csv').read_text()",
    "a program": "import subprocess; subprocess.run(['{out}/f.csv'])",
}
#: Failures with which the policy has nothing to do.
OTHERS = {
    "pandas": "df.to_csv('nowhere/x.csv')",
    "sqlite": "import sqlite3; sqlite3.connect('nowhere/x.db')",
    "sqlite, read only": "import sqlite3; sqlite3.connect('own.db').execute('create table t(a)')\n"
    "sqlite3.connect('file:own.db?mode=ro', uri=True).execute('insert into t values (1)')",
    "a key": "{{}}['{out}']",
    "an error that names a path": "raise RuntimeError('{out} is no table')",
    "a program": "import subprocess; subprocess.run(['./nowhere'])",
    "a program that is none": "import subprocess; subprocess.run(['/usr/share'])",
}


@pytest.fixture(
    scope="module",
    params=[f"{user}, {name}" for user in machines.users() for name in ("landlock", "bubblewrap")],
)
def kernel(request):
    """A kernel under preset data, as root and as nobody, behind either backend."""
    user, name = request.param.split(", ")
    if name == "bubblewrap":
        user = f"{user} in namespaces"
    world, prefix = world_and_prefix(user)
    outside = world.root / "outside"
    outside.mkdir()
    (outside / "f.csv").write_text("a,b\n1,2")
    world.give(outside), world.give(outside / "f.csv")
    world.write("in.csv", "a,b\n1,2")
    with Kernel(argv_for("data"), world=world, prefix=prefix) as made:
        made.own_world = True
        made.out = outside
        made.wait_heard()
        made.run("import pandas as pd; df = pd.DataFrame({'a': [1]})")
        yield made


def refused(kernel, code):
    """Return the card of a cell that fails, and what a runner reads of its error."""
    reply, published = kernel.run(code.format(out=kernel.out))
    assert reply["status"] == "error", code
    return reading.cards(published, "refusal"), reply["evalue"]


@pytest.mark.parametrize("library", WRITES)
def test_whatever_writes_is_told_which_folder_to_allow(kernel, library):
    (shown,), evalue = refused(kernel, WRITES[library])
    assert shown["field"] == "filesystem_write_roots"
    assert shown["write"][-1] == f'add.filesystem_write_roots = ["{kernel.out}"]'
    assert shown["write"][-1] in evalue


@pytest.mark.parametrize("library", READS)
def test_whatever_reads_is_told_which_file_to_allow(kernel, library):
    (shown,), evalue = refused(kernel, READS[library])
    assert shown["field"] == "filesystem_read_roots"
    assert shown["write"][-1] == f'add.filesystem_read_roots = ["{kernel.out}/f.csv"]'
    assert shown["write"][-1] in evalue


@pytest.mark.parametrize("library", OTHERS)
def test_what_fails_without_the_policy_too_is_not_put_down_to_it(kernel, library):
    shown, evalue = refused(kernel, OTHERS[library])
    assert shown == []
    assert "cellblock" not in evalue


def test_a_refusal_that_reads_as_a_disks_fault_is_explained_in_the_traceback_too(kernel):
    code = f"open('{kernel.out}/x', 'w')"
    shown = reading.traceback(kernel.run(code, allow_stdin=True)[1])
    # Where later mounts of the user propagate, no mount is read-only, and Landlock says EACCES.
    reads_as_refusal = "[Errno 13] Permission denied" in shown
    assert not reads_as_refusal or receives_mounts()
    last = shown.splitlines()[-1]
    explained = last.startswith("[cellblock: under policy data cells can write only to")
    assert explained != reads_as_refusal


#: Programs that write, and others; ``{out}`` is a path outside of what cells use, of its own.
WRITING = {
    "touch": "!touch {out}",
    "a redirection": "!echo 1 > {out}",
    "subprocess": "import subprocess; subprocess.run(['mkdir', '{out}'])",
    "%%bash": "%%bash\ncp in.csv {out}",
}
READING = {
    "cat": "!cat {out}",
    "a pipeline": "!cat {out} | wc -l",
    "its output": "lines = !cat {out}",
    "subprocess": "import subprocess; subprocess.run(['cat', '{out}'], capture_output=True)",
    "a shell": "import subprocess; subprocess.run('cat {out}', shell=True)",
    "os.system": "import os; os.system('cat {out}')",
    "%%sh": "%%sh\ncat {out}",
    "Python": "!python -c \"open('{out}')\"",
}
QUIET = (
    "!cat in.csv nowhere.csv; false",
    "!grep /api in.csv",
    "!sed -e '/pattern/d' nowhere.csv",
    "!test -d /kaggle/input",
    "!mkdir own && mkdir own",
    "!python -c 'import sys; sys.exit(3)'",
    "!cat in.csv; grep nothing ../work/in.csv /usr/lib/os-release",
    "!test -e {out}/quiet || true",
    "import os; os.path.exists('/kaggle/input'), os.path.isdir('/usr/lib/nowhere')",
    "import os, pathlib; os.path.isfile('nowhere'), pathlib.Path('in.csv').exists()",
    "import sklearn.linear_model, matplotlib.pyplot, polars, pyarrow.parquet, joblib",
    "import shutil, tempfile; shutil.which('nothing'), tempfile.mkdtemp()",
    "import multiprocessing as m, os\nwith m.Pool(1) as pool: pool.map(os.path.exists, ['x'])",
)


def notes(kernel, code, name="x"):
    """Return how much is said in lines below a cell, and what."""
    _, published = kernel.run(code.format(out=f"{kernel.out}/{name}"))
    said = reading.notices(published)
    return said.count("[cellblock"), said


@pytest.mark.parametrize("program", WRITING)
def test_a_program_that_can_not_write_is_told_of_once(kernel, program):
    name = f"written {program}".translate({ord(each): "_" for each in " %."})
    number, said = notes(kernel, WRITING[program], name)
    assert number == 1
    assert f"({kernel.out}/{name}, filesystem_write_roots)" in said
    assert f'add.filesystem_write_roots = ["{kernel.out}"]' in said
    assert notes(kernel, WRITING[program], name)[0] == 0


@pytest.mark.parametrize("program", READING)
def test_a_program_that_can_not_read_is_told_of_once(kernel, program):
    name = f"read {program}".translate({ord(each): "_" for each in " %."})
    (kernel.out / name).touch()
    kernel.world.give(kernel.out / name)
    number, said = notes(kernel, READING[program], name)
    assert number == 1
    assert f'add.filesystem_read_roots = ["{kernel.out}/{name}"]' in said
    assert notes(kernel, READING[program], name)[0] == 0


@pytest.mark.parametrize("code", QUIET)
def test_with_what_the_policy_has_nothing_to_do_nothing_is_said(kernel, code):
    assert notes(kernel, code)[0] == 0


def test_a_secret_file_that_a_program_is_given_by_its_name_is_said_to_be_denied(kernel):
    assert "cells can't read files of this name" in notes(kernel, "!cat .env")[1]


@pytest.mark.parametrize(
    "question", ["os.path.exists(p)", "os.path.isfile(p)", "Path(p).exists()", "Path(p).is_file()"]
)
def test_a_file_that_seems_not_to_be_there_is_said_to_be_out_of_reach(kernel, question):
    folder = kernel.out.parent / "asked" / question.translate({ord(each): "_" for each in ".()"})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "f.csv").touch()
    code = f"import os; from pathlib import Path; p = '{folder}/f.csv'; print({question})"
    _, published = kernel.run(code)
    said = reading.notices(published)
    if reading.stream(published) == "True\n":  # Landlock: names can be seen
        assert said == ""
        return
    assert said.count("[cellblock notes") == 1
    assert f'add.filesystem_read_roots = ["{folder}/f.csv"]' in said
    assert reading.notices(kernel.run(code.replace("f.csv", "g.csv"))[1]) == ""


def test_a_folder_that_cd_does_not_find_is_said_to_be_out_of_reach(kernel):
    folder = kernel.out.parent / "entered"
    folder.mkdir(exist_ok=True)
    _, published = kernel.run(f"%cd {folder}")
    said, shown = reading.notices(published), reading.stream(published)
    kernel.run(f"%cd {kernel.world.work}")
    assert f'add.filesystem_read_roots = ["{folder}"]' in said or "No such file" not in shown
