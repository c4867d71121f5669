"""Names that no session keeps: files that other programs run or trust without being asked to.

A name is in the table if some program acts on such a file because of its name and place, while the
user asked that program for something else: a shell that starts, an editor or an agent that opens
the folder, git that shows a status, a service that builds what was pushed.

A file that only runs when its user asks for just that is work, and can be kept: ``Makefile``,
``setup.py``, ``package.json``, a script, a notebook. So can ``pyproject.toml``, since people edit
it, although linters read it; and the lists from which an installer takes packages when it is asked
to install (``requirements.txt``, ``poetry.lock``). A lock file from which a tool installs packages
before it runs anything is in the table, since nobody reads lock files.

``policy.paths.SECRET_NAMES`` has the names of secrets, which are not kept either. Whether compiled
code and modules are kept depends on their folders: see ``keepable``, which also has the order in
which all reasons count.
"""

from __future__ import annotations

import fnmatch
import re
import unicodedata
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_AGENT: Final = "coding agents follow what it says"
_AGENT_SETTINGS: Final = "coding agents start what it names"
_CI: Final = "a build service runs it when it is pushed"
_COMPOSE: Final = "docker compose starts what it names, beside what it was asked for"
_CONFIG: Final = "its tool runs it when it starts, editors start that when they open the folder"
_EDITOR: Final = "editors run what it names when they open the folder"
_ENTRY_POINTS: Final = "programs load what its entry points name, whatever they were asked for"
_EMACS: Final = "Emacs evaluates it"
_GIT: Final = "git runs what it names"
_INSTALLER: Final = "installers take packages, or run code, as it says"
_JUPYTER: Final = "Jupyter and IPython run it when they start"
_LINTER: Final = "linters load code that it names, editors start them"
_LOCK: Final = "its tool installs what it names before it runs anything: make it in a terminal"
_LOGIN: Final = "a login runs it"
_PLOTS: Final = "matplotlib calls functions, and starts programs, that it names"
#: The reason for virtual environments and folders of packages.
PROGRAMS: Final = "programs run what lies in it, whatever they were asked for"
_PYTEST: Final = "pytest loads plugins that it names, whichever test it was asked for"
_PYTHON: Final = "Python runs it when it starts"
_SHELL: Final = "a shell runs it when it starts"
_TOOL: Final = "its tool runs it, or what it names, when it starts"
_VCS: Final = "a version control system runs what it names"
_VIM: Final = "Vim and its relatives run it"

#: The name of a file or folder, in lower case, with the wildcards of fnmatch, and why it is not
#: kept. Nothing in a folder of such a name is kept either.
NEVER_KEPT: Final = {
    "*.code-workspace": _EDITOR,
    "*.config.cjs": _CONFIG,
    "*.config.cts": _CONFIG,
    "*.config.js": _CONFIG,
    "*.config.mjs": _CONFIG,
    "*.config.mts": _CONFIG,
    "*.config.ts": _CONFIG,
    "*.desktop": "desktops start what it names",
    "*.dist-info": _ENTRY_POINTS,
    "*.egg-info": _ENTRY_POINTS,
    "*.lnk": "desktops start what it names",
    "*.mplstyle": _PLOTS,
    "*.py.lock": _LOCK,
    "*.sublime-project": _EDITOR,
    "*.sublime-workspace": _EDITOR,
    ".actrc": _TOOL,
    ".agent": _AGENT,
    ".agents": _AGENT,
    ".aiassistant": _AGENT,
    ".aider*": _AGENT_SETTINGS,
    ".amazonq": _AGENT_SETTINGS,
    ".amp": _AGENT,
    ".ansible-lint*": _LINTER,
    ".appveyor.y*ml": _CI,
    ".arcconfig": _VCS,
    ".arclint": _VCS,
    ".asdfrc": _TOOL,
    ".augment*": _AGENT,
    ".autoenv*": "a shell runs it in this folder",
    ".azure-pipelines": _CI,
    ".babelrc*": _LINTER,
    ".bash_aliases": _SHELL,
    ".bash_completion": _SHELL,
    ".bash_login": _SHELL,
    ".bash_logout": _SHELL,
    ".bash_profile": _SHELL,
    ".bashrc": _SHELL,
    ".bazeliskrc": _TOOL,
    ".bazelrc": _TOOL,
    ".bazelversion": _TOOL,
    ".bloop": _EDITOR,
    ".bowerrc": _INSTALLER,
    ".bsp": _EDITOR,
    ".buckconfig*": _TOOL,
    ".build.y*ml": _CI,
    ".buildkite": _CI,
    ".builds": _CI,
    ".bundle": _INSTALLER,
    ".byebugrc": "Ruby's debugger runs it",
    ".bzr": _VCS,
    ".cargo": "cargo runs what it names",
    ".circleci": _CI,
    ".cirrus.*": _CI,
    ".claude": _AGENT_SETTINGS,
    ".cline": _AGENT_SETTINGS,
    ".clinerules*": _AGENT,
    ".codebuddy": _AGENT,
    ".codeium": _AGENT_SETTINGS,
    ".coderabbit.y*ml": _AGENT,
    ".codesandbox": _EDITOR,
    ".codex": _AGENT_SETTINGS,
    ".cody": _AGENT_SETTINGS,
    ".commitlintrc*": _LINTER,
    ".composer": _INSTALLER,
    ".condarc": _INSTALLER,
    ".config": "programs of the desktop and the shell run what it names",
    ".continue": _AGENT_SETTINGS,
    ".continuerc*": _AGENT_SETTINGS,
    ".coveragerc": _LINTER,
    ".coveragerc.toml": _LINTER,
    ".credo.exs": _LINTER,
    ".crush*": _AGENT_SETTINGS,
    ".cshrc": _SHELL,
    ".curlrc": "curl does what it says, too",
    ".cursor": _AGENT_SETTINGS,
    ".cursorrules": _AGENT,
    ".devcontainer": _EDITOR,
    ".devcontainer.json": _EDITOR,
    ".devfile.y*ml": _EDITOR,
    ".devin": _AGENT,
    ".dir-locals*.el": _EMACS,
    ".direnv": "direnv runs it",
    ".docker": "docker starts what it names",
    ".drone.*": _CI,
    ".eggs": PROGRAMS,
    ".emacs*": _EMACS,
    ".envrc*": "direnv runs it",
    ".erb-lint.yml": _LINTER,
    ".erb_lint.yml": _LINTER,
    ".erb_linters": _LINTER,
    ".erlang": "Erlang runs it when it starts",
    ".eslintrc*": _LINTER,
    ".exrc*": _VIM,
    ".externaltoolbuilders": _EDITOR,
    ".factory": _AGENT_SETTINGS,
    ".flake8": _LINTER,
    ".fleet": _EDITOR,
    ".forgejo": _CI,
    ".formatter.exs": _LINTER,
    ".fslckout": _VCS,
    ".gdbearlyinit": "gdb runs it",
    ".gdbinit": "gdb runs it",
    ".gemini": _AGENT_SETTINGS,
    ".gemrc": _INSTALLER,
    ".ghci": "ghci runs it",
    ".git": "what git writes is staged: commit in a terminal",
    ".gitattributes": "git passes files through programs as it says",
    ".gitconfig*": _GIT,
    ".gitea": _CI,
    ".githooks": "git runs it",
    ".github": "GitHub runs its workflows, agents follow its instructions",
    ".gitlab": _CI,
    ".gitlab-ci.*": _CI,
    ".gitlint": _LINTER,
    ".gitmodules": "git fetches what it names",
    ".gitpod*": _EDITOR,
    ".gnuplot*": "gnuplot runs it when it starts",
    ".golangci.*": _LINTER,
    ".goosehints": _AGENT,
    ".gradle": _TOOL,
    ".graphqlrc*": _EDITOR,
    ".greptile": _AGENT,
    ".grok": _AGENT_SETTINGS,
    ".gvimrc": _VIM,
    ".helix": _EDITOR,
    ".hg": "Mercurial runs what it names",
    ".hgrc": "Mercurial runs what it names",
    ".hgsub*": "Mercurial fetches what it names",
    ".htaccess": "a web server does what it says",
    ".husky": "git runs it",
    ".huskyrc*": "git runs what it names",
    ".idea": _EDITOR,
    ".ideavimrc": _VIM,
    ".idx": _EDITOR,
    ".iex.exs": "Elixir's console runs it",
    ".iflow": _AGENT,
    ".inputrc": "shells bind keys to commands as it says",
    ".ipython": _JUPYTER,
    ".irbrc": "Ruby's console runs it",
    ".jedi": _EDITOR,
    ".jestrc*": _TOOL,
    ".jj": _VCS,
    ".juliarc.jl": "Julia runs it when it starts",
    ".junie": _AGENT,
    ".jupyter": _JUPYTER,
    ".jupytext.py": "Jupyter runs it when it opens the folder, where Jupytext is installed",
    ".jvmopts": _TOOL,
    ".kateproject": _EDITOR,
    ".kilocode*": _AGENT,
    ".kiro": _AGENT_SETTINGS,
    ".kshrc": _SHELL,
    ".latexmkrc": "latexmk runs it",
    ".lazy.lua": _VIM,
    ".lefthook*": "git runs what it names",
    ".lessfilter": "less runs it",
    ".lesskey": "less binds keys to commands as it says",
    ".lfsconfig": "git-lfs fetches and sends files as it says",
    ".lintr": "R's linter evaluates it, editors start that",
    ".lintstagedrc*": "git runs what it names",
    ".lldbinit": "lldb runs it",
    ".local": "shells, desktops and Python run what lies in it",
    ".local.nvimrc": _VIM,
    ".local.vimrc": _VIM,
    ".login": _LOGIN,
    ".logout": _LOGIN,
    ".lsp": _EDITOR,
    ".luacheckrc": _LINTER,
    ".luarc.json*": _LINTER,
    ".lvimrc": _VIM,
    ".m2": _TOOL,
    ".mailcap": "programs open files with what it names",
    ".mambarc": _INSTALLER,
    ".markdownlint*": _LINTER,
    ".mcp.json": _AGENT_SETTINGS,
    ".mentat_config.json": _AGENT_SETTINGS,
    ".merlin": _EDITOR,
    ".mise": "mise runs what it names",
    ".mise.*": "mise runs what it names",
    ".mkshrc": _SHELL,
    ".mocharc*": _TOOL,
    ".mrconfig": _TOOL,
    ".mvn": _TOOL,
    ".mypy.ini": _LINTER,
    ".nanorc": _EDITOR,
    ".neoconf.json": _VIM,
    ".netrc": "programs log in as it says",
    ".nox": PROGRAMS,
    ".npmrc": _INSTALLER,
    ".nuget": _INSTALLER,
    ".numba_config.yaml": "numba loads libraries that it names, wherever it is imported",
    ".nvim*": _VIM,
    ".nycrc*": _TOOL,
    ".ocamlinit": "OCaml's console runs it",
    ".octaverc": "Octave runs it when it starts",
    ".oh-my-zsh": _SHELL,
    ".opencode*": _AGENT_SETTINGS,
    ".openhands": _AGENT,
    ".openhands_instructions": _AGENT,
    ".overcommit.yml": "git runs what it names",
    ".oxlintrc*": _LINTER,
    ".pam_environment": _LOGIN,
    ".pdbrc*": "Python's debugger runs it",
    ".pdm*": _INSTALLER,
    ".perldb": "Perl's debugger runs it",
    ".php-cs-fixer*": _LINTER,
    ".php_cs*": _LINTER,
    ".phpcs.xml*": _LINTER,
    ".pi": _AGENT,
    ".pijul": _VCS,
    ".pip": _INSTALLER,
    ".pipelines": _CI,
    ".pixi": PROGRAMS,
    ".pnp.*": "node runs it when it starts",
    ".pnpmfile.*": _INSTALLER,
    ".postcssrc*": _CONFIG,
    ".pr_agent.toml": _AGENT,
    ".pre-commit-config.y*ml": "git runs what it names",
    ".prettierrc*": _LINTER,
    ".profile": _LOGIN,
    ".project": _EDITOR,
    ".proverc": "prove loads what it names, whichever test it was asked for",
    ".pryrc": "Ruby's console runs it",
    ".psqlrc*": "psql runs it",
    ".pylintrc*": _LINTER,
    ".pypirc": "uploads go where it says",
    ".pyre_configuration*": _LINTER,
    ".pytest.ini": _PYTEST,
    ".pytest.toml": _PYTEST,
    ".python-version*": "uv and pyenv start the interpreter that it names",
    ".pythonrc*": _PYTHON,
    ".pythonstartup*": _PYTHON,
    ".qodo": _AGENT,
    ".qwen": _AGENT_SETTINGS,
    ".radian_profile": "radian runs it when it starts",
    ".rbenv-vars": "Ruby's tools take variables from it when they start",
    ".rdata": "R loads it when it starts",
    ".readthedocs.y*ml": _CI,
    ".remarkrc*": _LINTER,
    ".renovaterc*": _CI,
    ".renviron": "R takes variables from it when it starts",
    ".replit": _EDITOR,
    ".repo": _VCS,
    ".roo": _AGENT_SETTINGS,
    ".roomodes": _AGENT,
    ".roorules*": _AGENT,
    ".rovodev": _AGENT_SETTINGS,
    ".rprofile": "R runs it when it starts",
    ".rspec": "RSpec loads what it names",
    ".rtx.*": "mise runs what it names",
    ".rubocop*": _LINTER,
    ".rules": _AGENT,
    ".rvmrc": "a shell runs it in this folder",
    ".sbtopts": _TOOL,
    ".sbtrc": _TOOL,
    ".scalafix.conf": _LINTER,
    ".screenrc": "screen runs it",
    ".scss-lint.yml": _LINTER,
    ".semaphore": _CI,
    ".shrc": _SHELL,
    ".simplecov": _TOOL,
    ".sl": _VCS,
    ".solargraph.yml": _EDITOR,
    ".sourcegraph": _AGENT,
    ".sourcery.y*ml": _AGENT,
    ".sqlfluff": _LINTER,
    ".sqliterc": "sqlite3 runs it",
    ".ssh": "ssh runs what it names, and trusts its keys",
    ".stackblitzrc": _EDITOR,
    ".standard.yml": _LINTER,
    ".stylelintrc*": _LINTER,
    ".svn": "Subversion trusts it",
    ".tabnine": _AGENT_SETTINGS,
    ".taprc": _TOOL,
    ".taskcluster.yml": _CI,
    ".tcshrc": _SHELL,
    ".teamcity": _CI,
    ".tekton": _CI,
    ".tern-project": _EDITOR,
    ".terraform": _TOOL,
    ".terraformrc": _TOOL,
    ".textlintrc*": _LINTER,
    ".tflint.hcl": _LINTER,
    ".theia": _EDITOR,
    ".tmux.conf": "tmux runs it",
    ".tool-versions": "mise and asdf install what it names",
    ".tox": PROGRAMS,
    ".trae": _AGENT_SETTINGS,
    ".travis.y*ml": _CI,
    ".user.ini": "a web server does what it says",
    ".venv": PROGRAMS,
    ".versions.conf": "a shell runs it in this folder",
    ".vibe": _AGENT,
    ".vim": _VIM,
    ".vimrc*": _VIM,
    ".vimspector.json": _VIM,
    ".voidrules": _AGENT,
    ".vs": _EDITOR,
    ".vscode": _EDITOR,
    ".vscode-server": _EDITOR,
    ".wgetrc": "wget does what it says, too",
    ".windsurf": _AGENT_SETTINGS,
    ".windsurfrules": _AGENT,
    ".woodpecker*": _CI,
    ".xinitrc": _LOGIN,
    ".xonshrc": _SHELL,
    ".xprofile": _LOGIN,
    ".xsession*": _LOGIN,
    ".yardopts": _TOOL,
    ".yarn": _INSTALLER,
    ".yarnrc*": _INSTALLER,
    ".ycm_extra_conf.py": _EDITOR,
    ".zed": _EDITOR,
    ".zencoder": _AGENT,
    ".zlogin": _SHELL,
    ".zlogout": _SHELL,
    ".zprofile": _SHELL,
    ".zshenv": _SHELL,
    ".zshrc": _SHELL,
    "__pycache__": "compiled code would run in place of the source beside it",
    "_darcs": _VCS,
    "_exrc": _VIM,
    "_fossil_": _VCS,
    "_gvimrc": _VIM,
    "_netrc": "programs log in as it says",
    "_vimrc": _VIM,
    "agent.md": _AGENT,
    "agents.*.md": _AGENT,
    "agents.md": _AGENT,
    "amplify.yml": _CI,
    "ansible.cfg": "Ansible loads what it names",
    "appveyor.y*ml": _CI,
    "autorun.inf": "desktops start what it names",
    "azure-pipelines*.y*ml": _CI,
    "babel.config.*": _LINTER,
    "bitbucket-pipelines.yml": _CI,
    "buildserver.json": _EDITOR,
    "bunfig.toml": _TOOL,
    "claude.*.md": _AGENT,
    "claude.md": _AGENT,
    "cloudbuild.y*ml": _CI,
    "codebuff.json": _AGENT_SETTINGS,
    "codeowners": "code hosts ask those whom it names, and no others",
    "commitlint.config.*": _LINTER,
    "compose.override.y*ml": _COMPOSE,
    "conftest.py": "pytest runs it, whichever test it was asked for",
    "copilot-instructions.md": _AGENT,
    "crush.json": _AGENT_SETTINGS,
    "crush.md": _AGENT,
    "desktop.ini": "desktops load what it names",
    "devfile.y*ml": _EDITOR,
    "dist-packages": PROGRAMS,
    "docker-compose.override.y*ml": _COMPOSE,
    "ellipsis.y*ml": _AGENT,
    "firebender.json": _AGENT_SETTINGS,
    "flake.lock": _LOCK,
    "forge.yaml": _AGENT_SETTINGS,
    "gemini.md": _AGENT,
    "git~1": "some file systems have .git under this name",
    "gptme.toml": _AGENT_SETTINGS,
    "graphql.config.*": _EDITOR,
    "gunicorn.conf.py": "gunicorn runs it when it starts",
    "hatch.toml": _TOOL,
    "head": "git takes a folder with it for a repository, and runs what that names",
    "hie.yaml": _EDITOR,
    "iflow.md": _AGENT,
    "index.*.j2": "nbconvert runs it when it exports any notebook here",
    "ipython*_config.*": _JUPYTER,
    "jenkinsfile*": _CI,
    "jest.config.json": _TOOL,
    "jupyter*_config.*": _JUPYTER,
    "karma.conf.*": _TOOL,
    "latexmkrc": "latexmk runs it",
    "lefthook*.*ml": "git runs what it names",
    "matplotlibrc": _PLOTS,
    "mise.*toml": "mise runs what it names",
    "mypy.ini": _LINTER,
    "nbgrader_config.*": _JUPYTER,
    "netlify.toml": _CI,
    "node_modules": PROGRAMS,
    "nuget.config": _INSTALLER,
    "nx.json": _EDITOR,
    "omnisharp.json": _EDITOR,
    "opencode.json*": _AGENT_SETTINGS,
    "pdm.toml": _INSTALLER,
    "phpcs.xml*": _LINTER,
    "phpstan*.neon*": _LINTER,
    "pip.conf": _INSTALLER,
    "pip.ini": _INSTALLER,
    "pixi.lock": _LOCK,
    "poetry.toml": _INSTALLER,
    "prek.toml": "git runs what it names",
    "prettier.config.*": _LINTER,
    "psalm*.xml*": _LINTER,
    "pylintrc*": _LINTER,
    "pyrefly.toml": _LINTER,
    "pytest.ini": _PYTEST,
    "pytest.toml": _PYTEST,
    "pyvenv.cfg": "Python takes its libraries from where it says",
    "qwen.md": _AGENT,
    "renovate.json*": _CI,
    "replit.md": _AGENT,
    "replit.nix": _EDITOR,
    "rust-toolchain": "rustup starts the tools that it names",
    "rust-toolchain.toml": "rustup starts the tools that it names",
    "setup.cfg": _LINTER,
    "site-packages": PROGRAMS,
    "sitecustomize": _PYTHON,
    "sitecustomize.py": _PYTHON,
    "startup.m": "Octave and MATLAB run it when they start",
    "stylelint.config.*": _LINTER,
    "tox.ini": _PYTEST,
    "tslint.json": _LINTER,
    "usercustomize": _PYTHON,
    "usercustomize.py": _PYTHON,
    "uv.lock": _LOCK,
    "uv.toml": _INSTALLER,
    "venv": PROGRAMS,
    "vercel.json": _CI,
    "vitest.workspace.*": _TOOL,
    "voila.json": _JUPYTER,
    "voila.py": _JUPYTER,
    "warp.md": _AGENT,
    "web.config": "a web server does what it says",
}

_TEMPLATE: Final = "nbconvert takes it for its own, whichever notebook it exports here"
#: Folders of nbconvert's templates, which it also looks for in the folder that it runs in; the
#: second have styles, too.
_TEMPLATES: Final = ("asciidoc", "base", "latex", "markdown", "python", "rst", "script")
_STYLED: Final = ("basic", "classic", "lab", "reveal", "webpdf")
#: FOLDER/NAME: names that are not kept in a folder of that name. Elsewhere people use them for
#: other things.
IN_FOLDERS: Final = {
    "mise/config*.toml": "mise runs what it names",
    "renv/activate.r": "R runs it when it starts",
    **{f"{folder}/*.j2": _TEMPLATE for folder in (*_TEMPLATES, *_STYLED)},
    **{f"{folder}/conf.json": _TEMPLATE for folder in (*_TEMPLATES, *_STYLED)},
    **{f"{folder}/static": _TEMPLATE for folder in _STYLED},
}

#: Names in the table that count for files only, since people give them to folders of their own.
FILES_ALONE: Final = frozenset({"head"})

#: The file that makes a folder a virtual environment, which is not kept whatever its name is.
ENVIRONMENT: Final = "pyvenv.cfg"

_EXACT: Final = {name: why for name, why in NEVER_KEPT.items() if "*" not in name}
_WILD: Final = {name: why for name, why in NEVER_KEPT.items() if "*" in name}
_ANY_WILD: Final = re.compile("|".join(map(fnmatch.translate, _WILD)))
_ANY_PLACE: Final = re.compile("|".join(map(fnmatch.translate, IN_FOLDERS)))

#: Invisible characters that Unicode counts as letters, and that ext4 ignores in names (UAX #44).
_FILLERS: Final = dict.fromkeys(map(ord, "\u115f\u1160\u3164\uffa0"))
#: Categories of marks and format characters, some of which file systems ignore as well.
_IGNORED: Final = frozenset({"Mn", "Me", "Cf"})


def folded(name: str) -> str:
    """Return a name or path in a form that is the same for all names of the same file.

    ext4 (in folders that fold case) and the file systems of macOS and Windows find a file by names
    in any case, and fold more than case: ext4 and HFS+ ignore characters that are invisible,
    Windows ignores dots and spaces at the end.
    """
    if not name.isascii():
        whole = unicodedata.normalize("NFKD", name.translate(_FILLERS)).casefold()
        name = "".join(char for char in whole if unicodedata.category(char) not in _IGNORED)
    return name.lower().rstrip(". ")


def why_never_kept(name: str, *, is_folder: bool = False, within: str = "") -> str:
    """Return why a file of this name, or a folder and all in it, is never kept; empty if it may be.

    ``within`` is the name of the folder that holds it.
    """
    name = folded(name)
    if is_folder and name in FILES_ALONE:
        return ""
    if name in _EXACT:
        return _EXACT[name]
    if _ANY_WILD.fullmatch(name) is not None:
        return _first(_WILD, name)
    place = f"{folded(within)}/{name}"
    return _first(IN_FOLDERS, place) if _ANY_PLACE.fullmatch(place) is not None else ""


def _first(table: Mapping[str, str], name: str) -> str:
    return next(why for pattern, why in table.items() if fnmatch.fnmatchcase(name, pattern))
