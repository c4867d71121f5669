"""What is not there because of the policy, without an error: a line says so, once a session."""

import pytest

from support import machines, reading
from support.kernels import Kernel, World, argv_for

FOUND = "import glob, os, pathlib\nprint({})"
FOLDERS = {
    "a link that leads out": "glob.glob('data/*.csv')",
    "a folder beside the project": "list(glob.iglob('../data/*.csv'))",
    "below it, recursively": "list(pathlib.Path('../other').rglob('*.csv'))",
    "by pathlib": "list(pathlib.Path('../more').glob('a/*.csv'))",
    "by os.walk": "list(os.walk('../walked'))",
}


@pytest.fixture(params=["landlock", "bubblewrap"])
def kernel(request):
    if request.param == "bubblewrap" and (why := machines.no_bubblewrap()):
        pytest.skip(f"no bubblewrap: {why}")
    world = World(backend=request.param)
    outside = world.root / "outside"
    for name in ("data", "other", "more/a", "walked", "work/denied", "work/later"):
        (world.work.parent / name).mkdir(parents=True, exist_ok=True)
        (world.work.parent / name / "x.csv").write_text("a,b")
    outside.mkdir()
    (outside / "x.csv").write_text("a,b")
    (world.work / "data").symlink_to(outside)
    (world.work / ".env").write_text("TOKEN=1")
    (world.work / "pyproject.toml").touch()
    variables = dict.fromkeys(("MY_KEY", "MY_TOKEN", "MY_NAME", "MY_OWN", "PASSED"), "1")
    policy = world.policy(
        'extends = "data"\nenv_var_access = ["PASSED"]\n'
        'add.read_deny_paths = ["{project}/denied"]\n'
    )
    with Kernel(argv_for(policy), world=world, extra_env=variables) as made:
        made.own_world = True
        made.outside = outside
        made.wait_heard()
        made.run("None")
        yield made
    world.close()


def said(kernel, code):
    return reading.notices(kernel.run(code)[1])


def test_what_a_policy_hides_is_said_with_what_to_write_and_once(kernel):
    work = kernel.world.work.parent
    places = dict(zip(FOLDERS, ("", "data", "other", "more/a", "walked"), strict=True))
    for kind, code in FOLDERS.items():
        place = f"{work}/{places[kind]}" if places[kind] else str(kernel.outside)
        line = said(kernel, FOUND.format(code))
        assert f'add.filesystem_read_roots = ["{place}"]' in line, kind
        assert line.count("cellblock notes") == 1, kind
        assert said(kernel, FOUND.format(code)) == "", kind
    _reply, published = kernel.run("open('data/x.csv')")
    (shown,) = reading.cards(published, "refusal")
    assert shown["asked"] == f"{kernel.outside}/x.csv"

    for code, name in (
        ("os.getenv('MY_KEY')", "MY_KEY"),
        ("os.environ['MY_TOKEN']", "MY_TOKEN"),
        ("'MY_NAME' in os.environ", "MY_NAME"),
    ):
        assert f'add.env_var_access = ["{name}"]' in said(kernel, code), name
        assert said(kernel, code) == ""
    line = said(kernel, "def load_dotenv(): pass\nload_dotenv()")
    assert f'add.filesystem_read_roots = ["{kernel.world.work}/.env"]' in line


@pytest.mark.parametrize(
    ("folder", "place"),
    [
        ("denied", "read_deny_paths"),
        ("later", "the %policy narrow line, or the notebook's metadata, that denies it"),
    ],
)
def test_what_is_denied_by_its_path_is_said_to_be_by_the_policy_or_what_narrowed_it(
    kernel, folder, place
):
    path = kernel.world.work / folder
    listing = f"import os\ntry: print(os.listdir({folder!r}))\nexcept OSError: print([])"
    search = f"import glob; print(glob.glob('{folder}/*'))"
    if folder == "later":
        assert reading.stream(kernel.run(listing)[1]) == "['x.csv']\n"
        kernel.run(f"%policy narrow add.read_deny_paths=['{folder}']")
    published = [one for code in (listing, search) for one in kernel.run(code)[1]]
    line = reading.notices(published)
    assert reading.stream(published) == "[]\n[]\n"
    what = f"cells can't use a path that it denies ({path}, read_deny_paths)"
    assert f"{what}. Take {path} out of {place}, and restart" in line
    assert line.count("cellblock notes") == 1
    calls = {
        f"open('{folder}/x.csv')": path / "x.csv",
        f"open('{folder}/nowhere.csv', 'w')": path / "nowhere.csv",
        f"import pandas; pandas.DataFrame([1]).to_csv('{folder}/sub/x.csv')": path / "sub",
    }
    if folder == "later":  # something is mounted over it
        calls[f"os.rename('{folder}', 'renamed')"] = path
    for code, asked in calls.items():
        reply, published = kernel.run(code)
        (shown,) = reading.cards(published, "refusal")
        assert (shown["field"], shown["asked"]) == ("read_deny_paths", str(asked))
        assert shown["instead"] in reply["evalue"]


def test_what_is_nowhere_or_allowed_is_no_word_worth(kernel):
    for code in (
        "import glob, os, pathlib; glob.glob('nowhere/*') + glob.glob('*.csv')",
        "list(pathlib.Path('.').rglob('*.py')), list(os.walk('.')), glob.glob('/usr/lib/x*')",
        "os.getenv('NOWHERE_EITHER'), os.environ['PASSED'], os.getenv('HOME'), os.getenv('DISPLAY')",
        "os.environ.setdefault('MY_OWN', '2'); os.environ['MY_KEY'] = '3'; os.environ['MY_KEY']",
        # A library looks wherever Python imports from; the cell named no such folder.
        "import sys; sys.path.append(os.path.abspath('../walked'))",
        "from matplotlib import font_manager; font_manager.findSystemFonts(['../walked'])",
        "import json, tempfile, logging; tempfile.mkdtemp(); print('load')",
    ):
        assert said(kernel, code) == "", code


def test_below_a_home_that_is_not_staged_a_cell_is_told_what_goes_with_the_session():
    with Kernel(argv_for("unsafe", "--allow-unsafe")) as kernel:
        kernel.wait_heard()
        kernel.run("None")
        code = "import os; _ = open(os.path.expanduser('~/results.csv'), 'w').write('1')"
        assert "removed when the session ends: ~/results.csv. Write to the project" in said(
            kernel, code
        )
        assert said(kernel, code) == ""
        assert said(kernel, "import tempfile; tempfile.mkdtemp(); os.path.expanduser('~')") == ""


def test_a_search_that_found_nothing_is_not_told_where_to_write(kernel):
    line = said(kernel, "import glob; glob.glob('../data/*.csv')")
    folder = kernel.world.work.parent / "data"
    assert line.rstrip("]'\n").endswith(f'add.filesystem_read_roots = ["{folder}"')
