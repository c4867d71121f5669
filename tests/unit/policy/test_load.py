"""Loading: what an operator writes becomes one policy, or one error that can be acted on."""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cellblock.analysis import allowlist
from cellblock.analysis.allowlist import GROUPS
from cellblock.errors import PolicyError
from cellblock.policy import schema
from cellblock.policy.load import from_values, load, load_for_check, preset_values
from cellblock.policy.model import Policy, flat_fields
from cellblock.policy.narrowing import narrow
from cellblock.policy.paths import Places
from cellblock.policy.vocabulary import PRESETS, TIERS, size_of, size_text


@pytest.fixture
def operator(tmp_path):
    """Write a policy file and load it."""

    def write(text, *, allow_unsafe=False, scratch=None):
        file = tmp_path / "lab" / "team.toml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, "utf-8")
        return load(str(file), project=tmp_path, scratch=scratch, allow_unsafe=allow_unsafe)

    return write


@pytest.mark.parametrize("name", PRESETS)
def test_a_shipped_preset_is_what_the_schema_makes_of_it(name):
    checked = schema.parse(preset_values(name), file=name)
    shipped = from_values(preset_values(name))
    assert checked == shipped
    assert checked.digest() == shipped.digest()


def test_the_defaults_of_record_are_preset_safe():
    assert schema.parse(preset_values("safe"), file="safe") == Policy()


@pytest.mark.parametrize("name", ["safe", "data"])
def test_a_preset_names_fields_in_their_order_with_a_reason_beside_or_above(name):
    text = (Path(schema.__file__).parent / "presets" / f"{name}.toml").read_text("utf-8")
    keys = re.findall(r"^(?:add\.)?([\w.]+) =", text, re.MULTILINE)
    fields = [field for field in flat_fields(Policy().as_dict()) if field != "name"]
    assert keys == [field for field in fields if field in keys]
    entries = re.findall(r'^    "[^"]+",(.*)$', text, re.MULTILINE)
    assert entries
    assert all(entry.strip().startswith("# ") for entry in entries)


def test_a_preset_starts_without_pydantic():
    code = (
        "import sys; from pathlib import Path; from cellblock.policy.load import load;"
        "load('data', project=Path('/'), allow_unsafe=False);"
        "sys.exit('pydantic' in sys.modules or 'pydantic_core' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_file_that_pydantic_accepted_starts_without_it(tmp_path):
    file, cache = tmp_path / "team.toml", tmp_path / "cache"
    program = (
        "import sys, pathlib; from cellblock.policy.load import load;"
        "from cellblock.host.files import AcceptedPolicies;"
        "file, cache = map(pathlib.Path, sys.argv[1:]);"
        "loaded = load(str(file), project=file.parent, allow_unsafe=False,"
        " accepted=AcceptedPolicies(cache));"
        "print('pydantic_core' in sys.modules, loaded.digest())"
    )

    def started():
        argv = [sys.executable, "-c", program, str(file), str(cache)]
        done = subprocess.run(argv, capture_output=True, check=False, text=True, timeout=60)
        checked, _, digest = done.stdout.strip().partition(" ")
        return checked, digest or done.stderr

    file.write_text('extends = "data"\ntimeout = 5.5\n[add]\nallowed_modules = ["json"]\n')
    (_, once), (checked, again) = started(), started()
    assert (checked, again) == ("False", once)
    file.write_text('extends = "data"\ntimeout = 5\n')  # 5.0, which is not what stands there
    assert started() == started()
    assert started()[0] == "True"
    file.write_text('extends = "data"\ntimeout = "5.5"\n')
    assert "timeout" in started()[1]
    file.write_text('extends = "data"\nallowed_modules = ["no_such_module"]\n')
    assert "no such module here" in started()[1]
    assert "no such module here" in started()[1]


@pytest.mark.parametrize(("spelling", "preset"), [("pure", "safe"), ("trusted", "unsafe")])
def test_former_names_are_spellings(spelling, preset, tmp_path):
    both = [load(name, project=tmp_path, allow_unsafe=True) for name in (spelling, preset)]
    assert both[0] == both[1]


@pytest.mark.parametrize(
    ("tier", "preset", "backend"), [("local", "safe", "auto"), ("local_unsafe", "unsafe", "auto")]
)
def test_a_tier_is_a_preset_and_a_backend_in_one_word(tier, preset, backend, tmp_path, operator):
    policy, plain = (load(x, project=tmp_path, allow_unsafe=True) for x in (tier, preset))
    assert policy == plain.replace(name=tier, backend=backend)
    extended = operator(f'extends = "{tier}"\ntimeout = 9.0', allow_unsafe=True)
    assert extended == policy.replace(name="team", timeout=9.0)


@pytest.mark.parametrize("tier", [name for name in TIERS if name.startswith("docker")])
def test_a_tier_runs_nothing_elsewhere_than_it_says(tier, tmp_path, operator):
    extended = operator(f'extends = "{tier}"', allow_unsafe=True)
    for policy in (load(tier, project=tmp_path, allow_unsafe=True), extended):
        assert policy.backend == "docker"


def test_unsafe_has_to_be_asked_for_of_a_preset_a_tier_and_a_file(tmp_path, operator):
    with pytest.raises(PolicyError) as refused:
        load("unsafe", project=tmp_path, allow_unsafe=False)
    assert str(refused.value) == (
        "unsafe: mode: mode unsafe has to be asked for (got 'unsafe'). "
        "Start the kernel with --allow-unsafe, or choose a policy of mode confined or safe."
    )
    assert load("unsafe", project=tmp_path, allow_unsafe=True).mode == "unsafe"
    with pytest.raises(PolicyError, match="mode unsafe has to be asked for"):
        load("local_unsafe", project=tmp_path, allow_unsafe=False)

    for text in ('mode = "unsafe"', 'mode = "trusted"', 'extends = "unsafe"'):
        with pytest.raises(PolicyError, match="has to be asked for"):
            operator(text)
        assert operator(text, allow_unsafe=True).mode == "unsafe"


def test_what_each_preset_shows(tmp_path):
    shown = {
        name: load(name, project=tmp_path, allow_unsafe=name == "unsafe").display
        for name in PRESETS
    }
    assert shown == {"safe": "sanitized", "data": "isolated", "unsafe": "isolated"}


def test_unsafe_has_no_language_layer_and_keeps_the_os_layer_of_safe(tmp_path):
    safe, unsafe = (load(n, project=tmp_path, allow_unsafe=True) for n in ("safe", "unsafe"))
    shown = {"display": safe.display, "widget_modules": safe.widget_modules}
    shown["require"] = safe.require
    assert unsafe.replace(name=safe.name, mode=safe.mode, **shown) == safe

    assert load("unsafe", project=tmp_path, allow_unsafe=True).rules().language is False
    assert load("safe", project=tmp_path, allow_unsafe=True).rules().language is True


def test_the_targets_of_widgets_are_no_other_comms(operator):
    with pytest.raises(PolicyError) as caught:
        operator('comm_targets = ["jupyter.widget"]')
    assert caught.value.key == "comm_targets"
    assert caught.value.remedy == "Name modules in widget_modules instead."


def test_data_reads_the_project_and_stages_what_is_written_there(tmp_path):
    data = load("data", project=tmp_path, allow_unsafe=False)
    assert data.filesystem_read_roots == (str(tmp_path),)
    assert data.filesystem_staged_roots == (str(tmp_path),)
    assert data.filesystem_write_roots == ("{scratch}",)


WORK = 'filesystem_write_roots = ["{project}/work?"]'


def test_a_link_in_the_project_gives_cells_nothing_outside_it(tmp_path):
    project, outside = tmp_path / "project", tmp_path / "documents"
    project.mkdir()
    outside.mkdir()
    (project / "work").symlink_to(outside)

    (tmp_path / "own.toml").write_text(WORK)

    with pytest.raises(PolicyError) as failure:
        load(str(tmp_path / "own.toml"), project=project, allow_unsafe=False)

    assert "leads out of the project folder" in str(failure.value)
    assert "filesystem_write_roots" in str(failure.value)
    assert str(outside) in str(failure.value)


def test_a_project_that_is_a_link_and_links_within_it_are_followed(tmp_path):
    (tmp_path / "there" / "results").mkdir(parents=True)
    (tmp_path / "there" / "work").symlink_to(tmp_path / "there" / "results")
    (tmp_path / "project").symlink_to(tmp_path / "there")

    (tmp_path / "own.toml").write_text(WORK)

    policy = load(str(tmp_path / "own.toml"), project=tmp_path / "project", allow_unsafe=False)

    assert str(tmp_path / "there" / "results") in policy.filesystem_write_roots


def test_a_root_that_is_neither_folder_nor_file_is_an_error(operator, tmp_path):
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(PolicyError, match="neither a folder nor a file"):
        operator(f"filesystem_read_roots = ['{tmp_path}/pipe']")


def test_a_root_that_the_user_cannot_read_is_an_error(operator):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        closed = Path(folder, "closed")
        closed.mkdir(mode=0o000)
        with user_for_access(), pytest.raises(PolicyError, match="can't read"):
            operator(f"filesystem_read_roots = ['{closed}']")


@contextlib.contextmanager
def user_for_access():
    """Have access(2) asked for somebody who isn't root; it looks at the real user id."""
    real, effective, saved = os.getresuid()
    os.setresuid(real or 65534, effective, saved)
    try:
        yield
    finally:
        os.setresuid(real, effective, saved)


def test_a_file_whose_name_is_not_text_is_one_error(tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff.toml"
    Path(os.fsdecode(path)).write_text("")
    with pytest.raises(PolicyError, match="not text"):
        load(os.fsdecode(path), project=tmp_path, allow_unsafe=False)


def test_a_file_is_named_after_itself_and_changes_safe_or_what_it_extends_key_by_key(operator):
    assert operator("") == operator('extends = "safe"') == operator('extends = "pure"')
    assert operator("").name == "team"
    assert operator("").replace(name="safe").digest() == _safe().digest()

    replaced = operator('extends = "data"\nallowed_modules = ["sqlite3"]')
    added = operator('extends = "data"\n[add]\nallowed_modules = ["sqlite3"]')
    assert replaced.allowed_modules == ("sqlite3",)
    assert added.allowed_modules == (*preset_values("data")["allowed_modules"], "sqlite3")
    # The preset does not name this list, which is then that of preset safe.
    added = operator('extends = "unsafe"\nmode = "safe"\nadd.magics = ["env"]')
    assert added.magics == (*_safe().magics, "env")

    assert operator('timeout = "none"\nmemory_max_bytes = "none"').timeout is None


def test_relative_paths_are_relative_to_the_policy_file_and_links_are_shown_as_what_they_point_to(
    operator, tmp_path
):
    (tmp_path / "lab" / "in").mkdir(parents=True)
    policy = operator('filesystem_read_roots = ["in", "./in/..", "../lab"]')
    lab = str(tmp_path / "lab")
    assert policy.filesystem_read_roots == (f"{lab}/in", lab)

    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    policy = operator('filesystem_read_roots = ["{project}/link"]')
    assert policy.filesystem_read_roots == (f"{tmp_path}/real",)


def test_home_is_expanded_once(operator, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "~").mkdir()
    policy = operator('filesystem_read_roots = ["~/~"]\nread_deny_paths = ["~/.secret"]')
    assert policy.filesystem_read_roots == (f"{tmp_path}/~",)
    assert policy.read_deny_paths[0] == f"{tmp_path}/.secret"


def test_scratch_stays_as_written_until_there_is_one(operator, tmp_path):
    text = 'filesystem_write_roots = ["{scratch}/out?"]'
    assert operator(text).filesystem_write_roots == ("{scratch}/out",)
    assert operator(text, scratch=tmp_path).filesystem_write_roots == ()


@pytest.mark.parametrize(
    ("text", "message"),
    {
        "timeot = 3": "timeot: no such key. Did you mean timeout?",
        "zzz = 3": "zzz: no such key. See `cellblock policy schema` for the known keys.",
        'timeout = "soon"': "timeout: wrong value (got 'soon'). It should be a number, or \"none\" for no limit.",
        "timeout = nan": 'timeout: wrong value (got nan). It should be a finite number, or "none" for no limit.',
        "timeout = -1": (
            "timeout: wrong value (got -1). It should be greater than or equal to 0.1, "
            'or "none" for no limit.'
        ),
        "cpu_seconds = true": (
            "cpu_seconds: wrong value (got True). It should be a whole number, "
            'or "none" for no limit.'
        ),
        f"max_file_size = {2**70}": (
            f"max_file_size: wrong value (got {2**70}). It should be less than or equal to "
            '9007199254740992, or "none" for no limit.'
        ),
        'mode = "unsave"': "mode: wrong value (got 'unsave'). It should be 'safe', 'confined' or 'unsafe'.",
        "magics = 3": "magics: wrong value (got 3). It should be a list.",
        "magics = [3]": "magics: wrong value (got 3). It should be a text.",
        'magics = ["tiem"]': "magics: no such magic (got 'tiem'). Did you mean time?",
        'magics = ["%time"]': "magics: no such magic (got '%time'). Write it without %.",
        'require = ["network"]': "require: no such capability (got 'network'). Did you mean network_access?",
        'container_runtime = "--privileged"': (
            "container_runtime: not the name of a runtime (got '--privileged'). "
            "Give a name that the engine knows, as in `docker info`."
        ),
        'container_image = "a b"': (
            "container_image: not the name of an image (got 'a b'). "
            "Give a name as in `docker images`: name:tag."
        ),
        'allowed_modules = ["no_such_thing_at_all"]': (
            "allowed_modules: no such module here (got 'no_such_thing_at_all'). "
            "Install it, or remove the entry."
        ),
        'allowed_modules = ["sqlite"]': (
            "allowed_modules: no such module here (got 'sqlite'). "
            "Did you mean sqlite3? Install it, or remove the entry."
        ),
        'allowed_modules = ["os.path"]': (
            "allowed_modules: not a top-level package (got 'os.path'). "
            "Give os: packages come whole."
        ),
        'allowed_modules = ["a b"]': (
            "allowed_modules: not a module name (got 'a b'). Give a name as in an import statement."
        ),
        'pre_imported = ["os.path"]': (
            "pre_imported: not a top-level module (got 'os.path'). "
            "A dotted name binds no single name."
        ),
        'filesystem_read_roots = ["{home}/x"]': (
            "filesystem_read_roots: unknown placeholder (got '{home}/x'). "
            "Begin with one of {checkout}, {project}, {scratch}, or write ./{home}/x for a file."
        ),
        'filesystem_read_roots = [""]': (
            "filesystem_read_roots: not a path (got ''). "
            "Write an absolute path, one relative to this file, or one below ~."
        ),
        'filesystem_read_roots = ["~no_such_user/x"]': (
            "filesystem_read_roots: no such user (got '~no_such_user/x'). "
            "Write an absolute path, one relative to this file, or one below ~."
        ),
        'network_access = ["example.org:443", "*.example.com:443"]': (
            "network_access: a wildcard (got '*.example.com:443'). "
            "List each host: others may run hosts that it would let in."
        ),
        "network_access = 3": (
            "network_access: wrong value (got 3). "
            "It should be true, false or a list of host:port texts."
        ),
        'env_var_access = ["PATH"]': "env_var_access: always has a sandbox value (got 'PATH'). Remove the entry.",
        'env_var_access = ["A=1"]': "env_var_access: not a variable name (got 'A=1'). Give a name as in `env`, without $.",
        'pre_imported = ["gc"]': "pre_imported: not an allowed module (got 'gc'). Add it to allowed_modules.",
        'name = ""': "name: not a name (got ''). Give 1 to 64 printable characters.",
        'extends = "daat"': "extends: no such preset (got 'daat'). Did you mean data?",
        "extends = []": (
            "extends: no such preset (got []). Known presets: data, docker, docker_unsafe, "
            "local, local_unsafe, safe, unsafe."
        ),
        "add = 3": "add: can't be added (got 3). Write a table: [add].",
        "[add]\nmagics = 3": "add.magics: can't be added (got 3). Give a list.",
        'allowed_modules = ["@sience"]': (
            "allowed_modules: no such group (got '@sience'). Did you mean @science?"
        ),
        "[add]\nmagcs = []": "add.magcs: can't be added (got []). Did you mean magics?",
        "[add]\ntimeout = 3": (
            "add.timeout: can't be added (got 3). Put timeout above [add], and above any other [table]."
        ),
        '[ops.http]\nhosts = ["a.org"]\nadd.magics = ["time"]': (
            "ops.http.add: no such key. Put add above the first [table]: "
            "lines below [ops.http] are that table's."
        ),
        f'memory_max_bytes = "{"9" * 400} GiB"': (
            f"memory_max_bytes: wrong value (got '{'9' * 400} GiB'). "
            'It should be a size, as in "8 GiB", or "none" for no limit.'
        ),
        'memory_max_bytes = "8 gigs"': (
            "memory_max_bytes: wrong value (got '8 gigs'). "
            'It should be a size, as in "8 GiB", or "none" for no limit.'
        ),
        'tools = ["no_such_thing_at_all:forecast"]': (
            "tools: no such module here (got 'no_such_thing_at_all'). "
            "Install it, or remove the entry."
        ),
    }.items(),
)
def test_one_error_names_file_key_value_and_remedy(operator, tmp_path, text, message):
    with pytest.raises(PolicyError) as refused:
        operator(text)
    assert str(refused.value) == f"{tmp_path}/lab/team.toml: {message}"


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (
            'timeout = "x"\ncolour = 3\n[ops.http]\nhost = []',
            ["timeout", "colour", "ops.http.host"],
        ),
        (
            """magics = ["nosuch"]
            filesystem_read_roots = ["/no/such", "{here}"]
            tools = ["a"]
            ops.list_dir.roots = ["/no/such"]""",
            [
                "magics",
                "tools",
                "filesystem_read_roots",
                "filesystem_read_roots",
                "ops.list_dir.roots",
            ],
        ),
        ("[add]\nmagics = 3\ntimeout = 3", ["add.magics", "add.timeout"]),
        (
            """network_access = ["*.example.org:1", "example.org"]
            env_var_access = ["PATH"]""",
            ["network_access", "network_access", "env_var_access"],
        ),
    ],
)
def test_all_that_is_wrong_is_said_at_once(operator, text, keys):
    with pytest.raises(PolicyError) as refused:
        operator(text)
    assert sorted(one.key for one in refused.value.all()) == sorted(keys)
    assert str(refused.value).count("team.toml: ") == len(keys)


@pytest.mark.parametrize(
    "text", ['add.magics = ["time"]\n[add]\n', "[add]\n[add]\n", "timeout = 1\ntimeout = 2"]
)
def test_a_table_that_is_there_twice_is_said_to_be(operator, text):
    with pytest.raises(PolicyError, match="is there twice: put all of its lines in one place"):
        operator(text)


@pytest.mark.parametrize("value", [1, 1_000, 1_536, 2**20, 3 * 2**29, 5 * 2**30, 2**40])
def test_a_size_is_shown_as_a_file_can_have_it(value):
    assert size_of(size_text(value)) == value


def test_sizes_have_units(operator):
    policy = operator(
        'memory_max_bytes = "1.5 GiB"\nmax_file_size = "2KB"\nscratch_max_bytes = 70000\n'
        '[ops.http]\nhosts = ["a.org"]\nmax_bytes = "64 KiB"\n[audit]\nmax_bytes = "1 GB"\n'
    )
    assert policy.memory_max_bytes == 3 * 2**29
    assert (policy.max_file_size, policy.scratch_max_bytes) == (2_000, 70_000)
    assert (policy.operations.http.max_bytes, policy.audit.max_bytes) == (2**16, 10**9)


def test_a_group_stands_for_its_packages_installed_or_not_and_can_be_narrowed(operator, tmp_path):
    policy = operator('extends = "safe"\nadd.allowed_modules = ["@science", "xml", "numpy"]')
    assert policy.allowed_modules == (*allowlist.SCIENCE, "xml")
    places = Places("cell", tmp_path, tmp_path, None)
    assert narrow(policy, {"allowed_modules": ["numpy"]}, places=places).allowed_modules == (
        "numpy",
    )


def test_a_root_that_does_not_exist_is_an_error(operator, tmp_path):
    with pytest.raises(PolicyError) as refused:
        operator('filesystem_read_roots = ["nowhere"]')
    assert refused.value.remedy == (
        f"Create {tmp_path}/lab/nowhere, or end the entry with ? if it may be missing."
    )
    assert operator('filesystem_read_roots = ["nowhere?"]').filesystem_read_roots == ()


def test_cells_cannot_have_a_link_lead_to_another_policy(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "real.toml").write_text(f'filesystem_write_roots = ["{tmp_path}/work"]')
    (tmp_path / "work/link").symlink_to("..")
    (tmp_path / "mine.toml").symlink_to("work/link/real.toml")
    assert load(f"{tmp_path}/real.toml", project=tmp_path, allow_unsafe=False)
    for name in ("work/link/real.toml", "mine.toml"):
        with pytest.raises(PolicyError, match="cells could rewrite this policy file"):
            load(f"{tmp_path}/{name}", project=tmp_path, allow_unsafe=False)


def test_cells_cannot_rewrite_their_own_policy(operator):
    for root in (".", "team.toml", "{project}"):
        with pytest.raises(PolicyError, match="cells could rewrite this policy file"):
            operator(f'filesystem_write_roots = ["{root}"]')


@pytest.mark.parametrize(
    "content", [b"a = [", b"\0", b"a = " + b"[" * 5000, b"a = " + b"9" * 5000, b'name = "\xff"']
)
def test_what_is_not_toml_is_one_error(tmp_path, content):
    (tmp_path / "p.toml").write_bytes(content)
    with pytest.raises(PolicyError, match=r"not TOML|Exceeds the limit"):
        load(str(tmp_path / "p.toml"), project=tmp_path, allow_unsafe=False)


@pytest.mark.parametrize("spec", ["/", "a\0b", "~no_such_user/x", "x" * 5000, "/dev/zero"])
def test_a_spec_that_is_no_file_is_one_error(tmp_path, spec):
    with pytest.raises(PolicyError, match="not a regular file" if spec == "/dev/zero" else None):
        load(spec, project=tmp_path, allow_unsafe=False)


@pytest.mark.parametrize("spec", ["/nowhere/lab.toml", "lab.toml", "./safe"])
def test_a_path_is_not_taken_for_a_misspelt_preset(tmp_path, monkeypatch, spec):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PolicyError) as refused:
        load(spec, project=tmp_path, allow_unsafe=False)
    assert str(refused.value) == f"{spec}: no such file. Check the path."


def test_a_policy_of_a_long_file_name_is_called_by_its_beginning(tmp_path):
    (tmp_path / f"{'lab-' * 30}.toml").write_text('extends = "data"')
    policy = load(str(tmp_path / f"{'lab-' * 30}.toml"), project=tmp_path, allow_unsafe=False)
    assert policy.name == "lab-" * 16


def test_a_preset_is_not_shadowed_by_a_file_of_its_name(tmp_path, monkeypatch):
    (tmp_path / "safe").write_text('network_access = true\nname = "evil"')
    monkeypatch.chdir(tmp_path)
    assert load("safe", project=tmp_path, allow_unsafe=False) == _safe()


def _safe():
    return load("safe", project=Path("/"), allow_unsafe=False)


def test_the_group_of_science_and_the_presets_agree_on_what_is_offered(tmp_path):
    (tmp_path / "own.toml").write_text('[add]\nallowed_modules = ["@science", "sqlite3"]')
    data = load("data", project=Path("/"), allow_unsafe=False)
    assert set(data.magics) - set(_safe().magics) == {"matplotlib"}
    safe, science = (
        load(spec, project=Path("/"), allow_unsafe=False)
        for spec in ("safe", str(tmp_path / "own.toml"))
    )
    assert science.allowed_modules == (*GROUPS["@science"], "sqlite3")
    assert safe.rules().modules == science.rules().modules == allowlist.MODULES
    assert list(GROUPS["@science"]) == sorted(GROUPS["@science"])
    (tmp_path / "own.toml").write_text('allowed_modules = ["@sciense"]')
    with pytest.raises(PolicyError, match="no such group"):
        load(str(tmp_path / "own.toml"), project=Path("/"), allow_unsafe=False)


def test_source_is_judged_by_a_policy_of_another_machine(tmp_path):
    (tmp_path / "there.toml").write_text(
        """
        filesystem_read_roots = ["/nowhere/at/all"]
        preload = ["a_package_of_theirs"]
        [add]
        allowed_modules = ["@science", "a_package_of_theirs"]
        """
    )
    rules = load_for_check(str(tmp_path / "there.toml")).rules()
    assert rules.is_raw("a_package_of_theirs")
    assert rules.is_raw("numpy")
    with pytest.raises(PolicyError):
        load(str(tmp_path / "there.toml"), project=tmp_path, allow_unsafe=True)


def test_source_is_judged_where_what_its_host_needs_is_not_installed(tmp_path, monkeypatch):
    (tmp_path / "there.toml").write_text(
        """
        llm = { base_url = "https://llm.example.org/v1", models = ["a"] }
        [ops.http]
        hosts = ["example.org"]
        [ops.install]
        index = "https://example.org/simple"
        allow = ["tabulate"]
        """
    )
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setattr("shutil.which", lambda _name, **_where: None)
    rules = load_for_check(str(tmp_path / "there.toml")).rules()
    assert rules.operations == {"llm", "ops.http", "ops.install"}
    with pytest.raises(PolicyError, match="is not installed"):
        load(str(tmp_path / "there.toml"), project=tmp_path, allow_unsafe=True)


@pytest.mark.parametrize("name", ["safe", "pure", "data", "local", "docker"])
def test_source_is_judged_by_a_shipped_policy_as_the_kernel_judges_it(tmp_path, name):
    (tmp_path / "work").mkdir()
    shipped = load(name, project=tmp_path, allow_unsafe=True)
    assert load_for_check(name).rules() == shipped.rules()


@pytest.mark.parametrize("name", ["unsafe", "trusted", "local_unsafe", "docker_unsafe"])
def test_source_is_not_judged_by_a_policy_that_has_no_language_layer(name):
    with pytest.raises(PolicyError) as refused:
        load_for_check(name)
    assert str(refused.value) == (
        f"{name}: mode: no source is checked under this policy (got 'unsafe'). "
        "Choose a policy of mode safe or confined."
    )


def test_what_is_wrong_with_a_policy_is_said_to_who_judges_by_it_too(tmp_path):
    (tmp_path / "bad.toml").write_text('magics = ["tmie"]')
    with pytest.raises(PolicyError) as refused:
        load_for_check(str(tmp_path / "bad.toml"))
    assert "Did you mean time?" in str(refused.value)
