"""What other programs run or trust by its name: a cell stages it, and no session keeps it."""

import pytest

from cellblock.errors import ChangesError
from cellblock.host.services.never_kept import IN_FOLDERS, NEVER_KEPT, why_never_kept

#: What programs run or trust, in the spelling that their documentation has.
REFUSED = """
.bash_aliases .bashrc .cargo/config .cargo/config.toml .circleci/config.yml .claude/settings.json
.clinerules .codex/config.toml .condarc .config/fish/config.fish .cursor/mcp.json .cursorrules
.devcontainer/devcontainer.json .envrc .eslintrc.cjs .exrc .gitattributes .gitconfig
.git/hooks/pre-commit .github/copilot-instructions.md .github/workflows/ci.yml .gitlab-ci.yml
.gitmodules .hg/hgrc .hgrc .idea/workspace.xml .ipython/profile_default/startup/0.py
.jupyter/jupyter_server_config.py .latexmkrc .mcp.json .mise.toml .netrc .npmrc .nvim.lua .nvimrc
.pnpmfile.cjs .pre-commit-config.yaml .pylintrc .pypirc .python-version .Rprofile .ssh/config
.travis.yml .venv/bin/python .vimrc .vscode/tasks.json .windsurfrules .yarnrc.yml .zlogin .zshrc
AGENTS.md CLAUDE.md GEMINI.md HEAD Jenkinsfile conftest.py jupyter_server_config.d/evil.json
lab.code-workspace mise.local.toml node_modules/left-pad/index.js pyvenv.cfg sitecustomize.py
usercustomize.py venv/lib/python3.13/site-packages/numpy/__init__.py matplotlibrc dark.mplstyle
lab/index.html.j2 .jupytext.py voila.json nbgrader_config.py gunicorn.conf.py .numba_config.yaml
.gnuplot hie.yaml .bsp/scala.json buildServer.json omnisharp.json .graphqlrc.js graphql.config.js setup.cfg phpstan.neon
phpstan.neon.dist .lintr rust-toolchain rust-toolchain.toml .bazelversion .bazeliskrc .radian_profile .perldb .lfsconfig
eslint.config.mjs tailwind.config.ts jest.config.cjs vite.config.mts .merlin .proverc .jedi/project.json
pytest.toml .pytest.toml .coveragerc.toml x.egg-info/entry_points.txt x-1.dist-info/METADATA lab/base.html.j2 base/display_priority.j2
lab/conf.json latex/null.j2 lab/static/index.css sitecustomize/__init__.py usercustomize/__init__.py mise/config.local.toml renv/activate.R
crush.json CRUSH.md .amp/settings.json .vibe/config.toml .pi/settings.json .sl/config _darcs/prefs/defaults .repo/repo/main.py .arcconfig
.replit .stackblitzrc .codesandbox/tasks.json devfile.yaml pyrefly.toml prek.toml pdm.toml .oxlintrc.json tslint.json .tern-project
.yardopts .erb_lint.yml uv.lock pixi.lock flake.lock job.py.lock gptme.toml .project compose.override.yaml .vimrc.local _exrc
"""
#: Work that people make on purpose, and run or read when they want to.
KEPT = """
templates/page.html.j2 app/conf.json base/static/a.css poetry.lock package-lock.json mise/a.toml lab/lab.json
.gitignore .editorconfig .python/a.py AGENTS.csv Makefile agents/run.py bashrc config/a.toml
data/cargo.csv environment.yml figure.mpl fit.py page.html.j2 git/a.py head/scan.csv model.pth notebook.ipynb
fit.config.json fit.config.py package.json pyproject.toml requirements.txt run.config.weights setup.py src/types.py test_fit.py venv.md
"""


@pytest.mark.parametrize("inside", ["", "sub/deep/"], ids=["top", "deep"])
@pytest.mark.parametrize("spelled", [str, str.upper], ids=["as-is", "upper"])
def test_what_other_programs_run_or_trust_is_refused_with_the_reason(
    upper, staged, inside, spelled
):
    for path in REFUSED.split():
        file = upper / inside / spelled(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("evil")
    assert staged.chosen() == []
    reasons = [change.why_not for change in staged.changes()]
    assert all(reasons)
    with pytest.raises(ChangesError, match="is not kept: "):
        staged.chosen([f"{inside}{spelled('.bashrc')}"])


def test_ordinary_work_is_kept(upper, staged):
    for path in KEPT.split():
        (upper / path).parent.mkdir(parents=True, exist_ok=True)
        (upper / path).write_text("work")
    assert sorted(change.path for change in staged.chosen()) == sorted(KEPT.split())


def test_a_virtual_environment_is_refused_whatever_its_name_is(upper, project, staged):
    for folder in (project / "env", upper / "own"):
        folder.mkdir()
        (folder / "pyvenv.cfg").write_text("home = /usr/bin")
    for name in ("env", "own", "work"):
        (upper / name / "bin").mkdir(parents=True)
        (upper / name / "bin" / "activate").write_text("evil")
    assert [change.path for change in staged.changes() if change.why_not] == ["env", "own"]
    assert [change.path for change in staged.chosen()] == ["work/bin/activate"]


@pytest.mark.parametrize(
    "name",
    [
        ".GIT",
        ".git\ufe0f",
        ".g\u200cit",
        ".\uff47\uff49\uff54",
        ".git. ",
        "git~1",
        ".ba\u017fhrc",
    ],
)
def test_a_name_that_some_file_system_takes_for_another_is_that_other(name):
    assert why_never_kept(name)


def test_the_table_is_sorted_and_each_entry_has_a_reason_and_can_match():
    assert list(NEVER_KEPT) == sorted(NEVER_KEPT)
    for name, reason in NEVER_KEPT.items():
        assert reason
        assert name == name.lower()
        assert why_never_kept(name.replace("*", "x")), name
    for place, reason in IN_FOLDERS.items():
        folder, _, name = place.replace("*", "x").partition("/")
        assert place == place.lower()
        assert why_never_kept(name, within=folder.upper()) == reason, place
        assert not why_never_kept(name, within="other"), place
