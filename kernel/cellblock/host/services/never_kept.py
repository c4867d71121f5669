"""Names that no session keeps: what other programs run or trust without being asked to.

A file is in the table if some program acts on it because of its name and place, while its user
asked that program for something else: a shell that starts, an editor or an agent that opens the
folder, git that shows a status, a service that builds what was pushed. What runs when its user asks
for that very thing is work, and is kept by name: ``Makefile``, ``setup.py``, ``package.json``, a
script, a notebook. So is ``pyproject.toml``, though linters read it: people edit theirs.

``policy.paths.SECRET_NAMES`` has the names of secrets, which are not kept either. Compiled code,
and modules in a folder that Python imports from, depend on the place: ``keepable`` refuses them,
and says in which order all reasons count.
"""

from __future__ import annotations

import fnmatch
import re
import unicodedata
from typing import Final

_AGENT: Final = "coding agents follow what it says"
_AGENT_SETTINGS: Final = "coding agents start what it names"
_CI: Final = "a build service runs it when it is pushed"
_EDITOR: Final = "editors run what it names when they open the folder"
_EMACS: Final = "Emacs evaluates it"
_GIT: Final = "git runs what it names"
_INSTALLER: Final = "installers take packages, or run code, as it says"
_JUPYTER: Final = "Jupyter and IPython run it when they start"
_LINTER: Final = "linters load code that it names, editors start them"
_LOGIN: Final = "a login runs it"
_PLOTS: Final = "matplotlib calls functions, and starts programs, that it names"
#: What a virtual environment and folders of packages have in common.
PROGRAMS: Final = "programs run what lies in it, whatever they were asked for"
_PYTEST: Final = "pytest loads plugins that it names, whichever test it was asked for"
_PYTHON: Final = "Python runs it when it starts"
_SHELL: Final = "a shell runs it when it starts"
_TOOL: Final = "its tool runs it, or what it names, when it starts"
_VIM: Final = "Vim and its relatives run it"

#: Name of a file or folder, in lower case, with wildcards as in fnmatch; and why it is not kept.
#: What lies in a folder of that name is not kept either.
NEVER_KEPT: Final = {
    "*.code-workspace": _EDITOR,
    "*.desktop": "desktops start what it names",
    "*.lnk": "desktops start what it names",
    "*.mplstyle": _PLOTS,
    "*.sublime-project": _EDITOR,
    ".agent": _AGENT,
    ".agents": _AGENT,
    ".aider*": _AGENT_SETTINGS,
    ".amazonq": _AGENT_SETTINGS,
    ".appveyor.y*ml": _CI,
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
    ".bazelrc": _TOOL,
    ".build.y*ml": _CI,
    ".buildkite": _CI,
    ".builds": _CI,
    ".bundle": _INSTALLER,
    ".byebugrc": "Ruby's debugger runs it",
    ".bzr": "a version control system runs what it names",
    ".cargo": "cargo runs what it names",
    ".circleci": _CI,
    ".cirrus.*": _CI,
    ".claude": _AGENT_SETTINGS,
    ".cline": _AGENT_SETTINGS,
    ".clinerules*": _AGENT,
    ".codeium": _AGENT_SETTINGS,
    ".codex": _AGENT_SETTINGS,
    ".cody": _AGENT_SETTINGS,
    ".commitlintrc*": _LINTER,
    ".composer": _INSTALLER,
    ".condarc": _INSTALLER,
    ".config": "programs of the desktop and the shell run what it names",
    ".continue": _AGENT_SETTINGS,
    ".continuerc*": _AGENT_SETTINGS,
    ".coveragerc": _LINTER,
    ".credo.exs": _LINTER,
    ".crush*": _AGENT_SETTINGS,
    ".cshrc": _SHELL,
    ".curlrc": "curl does what it says, too",
    ".cursor": _AGENT_SETTINGS,
    ".cursorrules": _AGENT,
    ".devcontainer": _EDITOR,
    ".devcontainer.json": _EDITOR,
    ".dir-locals*.el": _EMACS,
    ".direnv": "direnv runs it",
    ".docker": "docker starts what it names",
    ".drone.*": _CI,
    ".eggs": PROGRAMS,
    ".emacs*": _EMACS,
    ".envrc*": "direnv runs it",
    ".erlang": "Erlang runs it when it starts",
    ".eslintrc*": _LINTER,
    ".exrc": _VIM,
    ".factory": _AGENT_SETTINGS,
    ".flake8": _LINTER,
    ".fleet": _EDITOR,
    ".forgejo": _CI,
    ".formatter.exs": _LINTER,
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
    ".goosehints": _AGENT,
    ".gradle": _TOOL,
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
    ".inputrc": "shells bind keys to commands as it says",
    ".ipython": _JUPYTER,
    ".irbrc": "Ruby's console runs it",
    ".jj": "a version control system runs what it names",
    ".juliarc.jl": "Julia runs it when it starts",
    ".junie": _AGENT,
    ".jupyter": _JUPYTER,
    ".jupytext.py": "Jupyter runs it when it opens the folder, where Jupytext is installed",
    ".jvmopts": _TOOL,
    ".kilocode*": _AGENT,
    ".kiro": _AGENT_SETTINGS,
    ".kshrc": _SHELL,
    ".latexmkrc": "latexmk runs it",
    ".lazy.lua": _VIM,
    ".lefthook*": "git runs what it names",
    ".lessfilter": "less runs it",
    ".lesskey": "less binds keys to commands as it says",
    ".lintstagedrc*": "git runs what it names",
    ".lldbinit": "lldb runs it",
    ".local": "shells, desktops and Python run what lies in it",
    ".local.vimrc": _VIM,
    ".login": _LOGIN,
    ".logout": _LOGIN,
    ".luacheckrc": _LINTER,
    ".luarc.json*": _LINTER,
    ".lvimrc": _VIM,
    ".m2": _TOOL,
    ".mailcap": "programs open files with what it names",
    ".mambarc": _INSTALLER,
    ".markdownlint*": _LINTER,
    ".mcp.json": _AGENT_SETTINGS,
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
    ".ocamlinit": "OCaml's console runs it",
    ".octaverc": "Octave runs it when it starts",
    ".oh-my-zsh": _SHELL,
    ".opencode*": _AGENT_SETTINGS,
    ".openhands": _AGENT,
    ".overcommit.yml": "git runs what it names",
    ".pam_environment": _LOGIN,
    ".pdbrc*": "Python's debugger runs it",
    ".pdm*": _INSTALLER,
    ".php-cs-fixer*": _LINTER,
    ".pip": _INSTALLER,
    ".pipelines": _CI,
    ".pixi": PROGRAMS,
    ".pnp.*": "node runs it when it starts",
    ".pnpmfile.*": _INSTALLER,
    ".pre-commit-config.y*ml": "git runs what it names",
    ".prettierrc*": _LINTER,
    ".profile": _LOGIN,
    ".pryrc": "Ruby's console runs it",
    ".psqlrc*": "psql runs it",
    ".pylintrc*": _LINTER,
    ".pypirc": "uploads go where it says",
    ".pyre_configuration*": _LINTER,
    ".pytest.ini": _PYTEST,
    ".python-version*": "uv and pyenv start the interpreter that it names",
    ".pythonrc*": _PYTHON,
    ".pythonstartup*": _PYTHON,
    ".qwen": _AGENT_SETTINGS,
    ".rdata": "R loads it when it starts",
    ".readthedocs.y*ml": _CI,
    ".renovaterc*": _CI,
    ".renviron": "R takes variables from it when it starts",
    ".roo": _AGENT_SETTINGS,
    ".roomodes": _AGENT,
    ".roorules*": _AGENT,
    ".rprofile": "R runs it when it starts",
    ".rspec": "RSpec loads what it names",
    ".rtx.*": "mise runs what it names",
    ".rubocop*": _LINTER,
    ".rules": _AGENT,
    ".sbtopts": _TOOL,
    ".screenrc": "screen runs it",
    ".semaphore": _CI,
    ".shrc": _SHELL,
    ".sqliterc": "sqlite3 runs it",
    ".ssh": "ssh runs what it names, and trusts its keys",
    ".stylelintrc*": _LINTER,
    ".svn": "Subversion trusts it",
    ".tabnine": _AGENT_SETTINGS,
    ".taskcluster.yml": _CI,
    ".tcshrc": _SHELL,
    ".teamcity": _CI,
    ".tekton": _CI,
    ".terraform": _TOOL,
    ".terraformrc": _TOOL,
    ".theia": _EDITOR,
    ".tmux.conf": "tmux runs it",
    ".tool-versions": "mise and asdf install what it names",
    ".tox": PROGRAMS,
    ".trae": _AGENT_SETTINGS,
    ".travis.y*ml": _CI,
    ".user.ini": "a web server does what it says",
    ".venv": PROGRAMS,
    ".vim": _VIM,
    ".vimrc": _VIM,
    ".vimspector.json": _VIM,
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
    ".yarn": _INSTALLER,
    ".yarnrc*": _INSTALLER,
    ".ycm_extra_conf.py": _EDITOR,
    ".zed": _EDITOR,
    ".zlogin": _SHELL,
    ".zlogout": _SHELL,
    ".zprofile": _SHELL,
    ".zshenv": _SHELL,
    ".zshrc": _SHELL,
    "__pycache__": "compiled code would run in place of the source beside it",
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
    "bunfig.toml": _TOOL,
    "claude.*.md": _AGENT,
    "claude.md": _AGENT,
    "cloudbuild.y*ml": _CI,
    "codeowners": "code hosts ask those whom it names, and no others",
    "commitlint.config.*": _LINTER,
    "conftest.py": "pytest runs it, whichever test it was asked for",
    "copilot-instructions.md": _AGENT,
    "desktop.ini": "desktops load what it names",
    "dist-packages": PROGRAMS,
    "eslint.config.*": _LINTER,
    "gemini.md": _AGENT,
    "git~1": "some file systems have .git under this name",
    "gunicorn.conf.py": "gunicorn runs it when it starts",
    "head": "git takes a folder with it for a repository, and runs what that names",
    "index.*.j2": "nbconvert runs it when it exports any notebook here",
    "ipython*_config.*": _JUPYTER,
    "jenkinsfile*": _CI,
    "jupyter*_config.*": _JUPYTER,
    "latexmkrc": "latexmk runs it",
    "lefthook*.*ml": "git runs what it names",
    "matplotlibrc": _PLOTS,
    "mise.*toml": "mise runs what it names",
    "mypy.ini": _LINTER,
    "nbgrader_config.*": _JUPYTER,
    "netlify.toml": _CI,
    "node_modules": PROGRAMS,
    "nuget.config": _INSTALLER,
    "opencode.json*": _AGENT_SETTINGS,
    "pip.conf": _INSTALLER,
    "pip.ini": _INSTALLER,
    "poetry.toml": _INSTALLER,
    "prettier.config.*": _LINTER,
    "pylintrc*": _LINTER,
    "pytest.ini": _PYTEST,
    "pyvenv.cfg": "Python takes its libraries from where it says",
    "qwen.md": _AGENT,
    "renovate.json*": _CI,
    "site-packages": PROGRAMS,
    "sitecustomize.py": _PYTHON,
    "startup.m": "Octave and MATLAB run it when they start",
    "stylelint.config.*": _LINTER,
    "svelte.config.*": "editors run it when they open the folder",
    "tailwind.config.*": "editors run it when they open the folder",
    "tox.ini": _PYTEST,
    "usercustomize.py": _PYTHON,
    "uv.toml": _INSTALLER,
    "venv": PROGRAMS,
    "vercel.json": _CI,
    "voila.json": _JUPYTER,
    "voila.py": _JUPYTER,
    "warp.md": _AGENT,
    "web.config": "a web server does what it says",
}

#: Names that people also give to folders of their own: those can be kept.
FILES_ALONE: Final = frozenset({"head"})

#: What makes a folder a virtual environment, which is not kept whatever its name is.
ENVIRONMENT: Final = "pyvenv.cfg"

_EXACT: Final = {name: why for name, why in NEVER_KEPT.items() if "*" not in name}
_WILD: Final = {name: why for name, why in NEVER_KEPT.items() if "*" in name}
_ANY_WILD: Final = re.compile("|".join(map(fnmatch.translate, _WILD)))

#: Characters without a picture that are letters to Unicode; ext4 passes over them (UAX #44).
_FILLERS: Final = dict.fromkeys(map(ord, "\u115f\u1160\u3164\uffa0"))
#: Marks and format characters, of which some are passed over as well.
_PASSED_OVER: Final = frozenset({"Mn", "Me", "Cf"})


def folded(name: str) -> str:
    """Return the form of a name, or of a path, that all names have which file systems take for it.

    ext4 and those of macOS and Windows find a file in any case. They fold more than letters: ext4
    and HFS+ pass over characters that have no picture, Windows over dots and spaces at the end.
    """
    if not name.isascii():
        whole = unicodedata.normalize("NFKD", name.translate(_FILLERS)).casefold()
        name = "".join(one for one in whole if unicodedata.category(one) not in _PASSED_OVER)
    return name.lower().rstrip(". ")


def why_never_kept(name: str, *, is_folder: bool = False) -> str:
    """Return why nothing of this name is kept, nor anything in it; empty where it can be."""
    name = folded(name)
    if is_folder and name in FILES_ALONE:
        return ""
    if name in _EXACT:
        return _EXACT[name]
    if _ANY_WILD.fullmatch(name) is None:
        return ""
    return next(why for pattern, why in _WILD.items() if fnmatch.fnmatchcase(name, pattern))
