"""Libraries patched for what a guest is: the standard library at once, others when imported.

The system call filter refuses readlink everywhere, and chmod and utime but where all else is
mounted read-only (``confine.layer.seal``), because it can't tell inside from outside. Honest code
meets that in functions that do their work and then copy a mode or a time, that make sure of a mode
that is there already, or that resolve links on the way: these go on without. The calls themselves
stay refused, and a change that a cell asks for still fails.

It refuses shared memory without a file too, which ``mmap.mmap(-1, n)`` asks for by default. Where
there is no process to share it with, private memory is the same thing; else it gets a file.

Charts bring their library along: an isolated page has no network to load it from. A library's own
notebook support assumes a page that keeps a copy of its JavaScript, or fetches one. Under display
``isolated`` each output is a page of its own, so the library's default way of showing is replaced
as soon as a cell imports it. Where no script is shown at all, libraries that can draw a picture by
themselves do. Nothing is imported here before that.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import itertools
import json
import mmap
import os
import posixpath
import re
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
from functools import cache, partial
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from IPython import get_ipython
from IPython.display import display

from cellblock.guest.audit_hook import descriptors
from cellblock.guest.loop import own_descriptors
from cellblock.wire.messages import SHARED_MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    #: Takes a module that was just imported.
    Patch = Callable[[Any], None]
    from collections.abc import Callable


class _PatchingFinder:
    """Find what ``sys.path`` has, and run a patch after a module that has one."""

    def __init__(self, patches: Mapping[str, Patch]) -> None:
        self._patches = patches

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module to patch, None for any other."""
        patch = self._patches.get(fullname)
        spec = PathFinder.find_spec(fullname, path, target) if patch is not None else None
        if patch is None or spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            # A version that is made otherwise works as it would have.
            with contextlib.suppress(Exception):
                patch(module)

        loader.exec_module = exec_module
        return spec


def patch_when_imported(patches: Mapping[str, Patch]) -> None:
    """Patch these modules, by name, when they are imported. For the zygote, before any fork."""
    sys.meta_path[:0] = [_PatchingFinder(patches), _DistutilsFinder()]


class _DistutilsFinder:
    """Find ``distutils`` where setuptools has it, as in a Python that was started with its site.

    There a .pth file of setuptools' sees to that; Python 3.12 and later have no other.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return what setuptools says of ``distutils``; None for all else, and without it."""
        if fullname != "distutils":
            return None
        with contextlib.suppress(ImportError, AttributeError):
            hack: Any = importlib.import_module("_distutils_hack")
            if hack.enabled():
                found: ModuleSpec | None = hack.DISTUTILS_FINDER.find_spec(fullname, path, target)
                return found
        return None


#: How threadpoolctl, by which scikit-learn finds its thread pools, looks for libraries: by
#: /proc/self/maps, or by the loader.
_BY_MAPS: Final = "_find_libraries_with_linux"
_BY_LOADER: Final = "_find_libraries_with_dl_iterate_phdr"


def patch_threadpoolctl(module: Any) -> None:
    """Let it ask the loader where the map of a guest that took over can't be read."""
    kind = module.ThreadpoolController
    by_maps, by_loader = getattr(kind, _BY_MAPS), getattr(kind, _BY_LOADER)

    def find(self: Any) -> None:
        try:
            by_maps(self)
        except PermissionError:
            by_loader(self)

    setattr(kind, _BY_MAPS, find)


#: Imports ``pdb``.
_DEBUGGER: Final = "IPython.core.debugger"


def _replace_debugger(module: Any) -> None:
    """Have the debugger of IPython that an interrupt ends, in the place of Python's.

    As ipykernel does: Python's asks again for ever. ``module`` is ``IPython.core.debugger``.
    """

    def set_trace(*, header: str | None = None, commands: Iterable[str] | None = None) -> None:
        debugger = module.Pdb()
        debugger.rcLines.extend(commands or ())  # which Python has from 3.14 on
        if header is not None:
            debugger.message(header)
        frame = inspect.currentframe()
        debugger.set_trace(frame and frame.f_back)

    pdb: Any = sys.modules["pdb"]
    pdb.Pdb = module.Pdb = module.InterruptiblePdb
    pdb.set_trace = set_trace


def _import_debugger(_pdb: Any) -> None:
    importlib.import_module(_DEBUGGER)


#: What replaces debuggers, whichever is imported first.
DEBUGGERS: Final[Mapping[str, Patch]] = {
    _DEBUGGER: _replace_debugger,
    "pdb": _import_debugger,
}


#: What is said where a debugger, a console or ``help()`` would ask for code.
NO_PROMPT: Final = (
    "There is no debugger and no other prompt here: what is typed at one is code that nobody "
    'approved. Take out what starts it, or debug under a policy with admission = "any".'
)


def _refuse_prompt(*_args: object, **_options: object) -> None:
    raise RuntimeError(NO_PROMPT)


def forbid_debugger(module: Any) -> None:
    """Have no debugger ask, where cells are approved. ``module`` is ``pdb``.

    IPython's and others derive from its class: whatever starts them, they ask in ``cmdloop``. A
    cell's own call of ``set_trace`` is refused where it stands, not at the next line.
    """
    module.Pdb.set_trace = module.Pdb.interaction = module.Pdb.cmdloop = _refuse_prompt


def forbid_console(module: Any) -> None:
    """Have no console ask, where cells are approved. ``module`` is ``code``."""
    module.InteractiveConsole.interact = _refuse_prompt


def forbid_terminal_shell(module: Any) -> None:
    """Have no shell of IPython's for terminals ask, where cells are approved.

    What ``embed()`` makes derives from it, and asks in the same ``interact``.
    """
    module.TerminalInteractiveShell.interact = _refuse_prompt


def forbid_help_prompt(module: Any) -> None:
    """Have ``help()`` not ask, and import nothing by a name, where cells are approved.

    ``module`` is ``pydoc``. A name that is text may come from anywhere: ``help(input())``.
    """

    def find_imported(path: str, *_: object, **__: object) -> ModuleType | None:
        return sys.modules.get(path)

    module.Helper.interact = _refuse_prompt
    module.safeimport = find_imported


#: What asks for code, by its module, which is patched as imported. That a cell runs a copy of one
#: (``runpy``) was approved with its text, as ``exec(input())`` is.
PROMPTS: Final[Mapping[str, Patch]] = {
    "IPython.terminal.interactiveshell": forbid_terminal_shell,
    "code": forbid_console,
    "pdb": forbid_debugger,
    "pydoc": forbid_help_prompt,
}


#: Groups of matplotlib's settings that say how a figure looks. Others choose backends, windows,
#: servers and programs: ``animation``, ``backend``, ``pgf``, ``ps``, ``toolbar``, ``webagg``, ….
_LOOKS: Final = frozenset(
    """
    agg axes axes3d boxplot contour date errorbar figure font grid hatch hist image keymap legend
    lines markers mathtext patch path pcolor pcolormesh pdf polar savefig scatter svg text timezone
    xaxis xtick yaxis ytick
    """.split()
)
#: Of these groups: functions that each figure calls, and what has TeX run.
_RUNS: Final = re.compile(r"figure\.hooks|savefig\.format|text\.usetex|text\.latex\..*")


def _only_looks(key: str) -> bool:
    return key.partition(".")[0] in _LOOKS and _RUNS.fullmatch(key) is None


def keep_settings_to_looks(module: Any) -> None:
    """Take no setting from a file but of how figures look, where cells are approved.

    ``module`` is ``matplotlib``. It reads a ``matplotlibrc`` in the working folder when it is
    imported, and styles later: files that nobody approved. A cell can set all of these, and styles
    that came with matplotlib may.
    """
    read = module._rc_params_in_file  # noqa: SLF001 - all that reads such a file ends there
    own = os.path.join(module.get_data_path(), "")

    def read_settings(fname: Any, *args: Any, **options: Any) -> Any:
        found = read(fname, *args, **options)
        if os.path.abspath(str(fname)).startswith(own):
            return found
        for key in itertools.filterfalse(_only_looks, list(found)):
            value = dict.pop(found, key)
            if value != dict.get(module.rcParamsDefault, key):
                say_left_out(key, fname)
        return found

    def say_left_out(key: str, file: object) -> None:
        text = "%s of %s is not taken where cells are approved: set it in a cell"
        module._log.warning(text, key, file)  # noqa: SLF001

    module._rc_params_in_file = read_settings  # noqa: SLF001
    # The file that was read when it was imported.
    for key, value in dict.items(module.rcParamsDefault):
        if _only_looks(key) or (key == "backend" and os.environ.get("MPLBACKEND")):
            continue
        if dict.get(module.rcParams, key) != value:
            say_left_out(key, module.matplotlib_fname())
        for settings in (module.rcParams, module.rcParamsOrig):
            dict.__setitem__(settings, key, value)


def keep_cycles_from_being_code(module: Any) -> None:
    """Allow no attribute in ``axes.prop_cycle``, which matplotlib before 3.11 evaluates.

    ``module`` is ``matplotlib.rcsetup``. A generator's frames led to the builtins.
    """

    def refuse(_checker: object, node: Any) -> None:
        raise ValueError(f"an attribute in a cycle: {node.attr}")

    module._DunderChecker.visit_Attribute = refuse  # noqa: SLF001


#: What reads settings of files that nobody approved, by its module.
SETTINGS: Final[Mapping[str, Patch]] = {
    "matplotlib": keep_settings_to_looks,
    "matplotlib.rcsetup": keep_cycles_from_being_code,
}


def keep_pythons_to_installed_modules() -> None:
    """Have Pythons that cells start look past the working folder, whatever their environment is.

    Where cells are approved. Those that get the guest's have it from there
    (``setup.keep_to_installed_modules``).
    """
    begin: Any = subprocess.Popen.__init__
    names = list(inspect.signature(begin).parameters)[1:]
    at = names.index("env")

    @functools.wraps(begin)
    def init(self: Any, *args: Any, **options: Any) -> None:
        options |= zip(names[at:], args[at:], strict=False)
        given = options.get("env")
        if given is not None or os.environ.keys().isdisjoint(SAFE_PATH):
            options["env"] = SAFE_PATH | dict(os.environ if given is None else given)
        begin(self, *args[:at], **options)

    subprocess.Popen.__init__ = init  # type: ignore[method-assign]


#: Says to Python 3.11 and later not to look in the folder that it is started in.
SAFE_PATH: Final = {"PYTHONSAFEPATH": "1"}


def patch_start_method(module: Any) -> None:
    """Fork where a server of forks is asked for, or is the default (3.14): it needs a Unix socket.

    For guests that have none.
    """
    contexts = vars(module)["_concrete_contexts"]
    contexts["forkserver"] = contexts["fork"]
    if sys.version_info >= (3, 14):
        vars(module)["_get_platform_default_context"] = lambda: contexts["fork"]


def patch_listeners(module: Any) -> None:
    """Have ``multiprocessing``'s managers listen on the loopback device, not on a Unix socket."""
    module.default_family = "AF_INET"


def patch_kernelspecs(module: Any) -> None:
    """Have Jupyter's client pass over folders of kernelspecs that guests may not read.

    Their environment may hold credentials. It knows how to start ipykernel without one.
    """
    kind = module.KernelSpecManager
    begin = kind.__init__

    def init(self: Any, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        self.kernel_dirs = [folder for folder in self.kernel_dirs if not _is_closed(folder)]

    kind.__init__ = init


def _is_closed(folder: str) -> bool:
    try:
        os.listdir(folder)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def patch_standard_library(*, processes: bool = False) -> None:
    """Replace functions by ones that go on without. For the zygote, once, before any fork.

    ``processes``: cells may start some, and share memory with them.
    """
    for name in ("copymode", "copystat"):
        setattr(shutil, name, _skip_if_refused(getattr(shutil, name)))
    for name in ("chmod", "fchmod"):
        original = getattr(os, name)
        changed = _succeed_if_unchanged(original)
        for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
            if original in able:
                able.add(changed)
        setattr(os, name, changed)
    # 3.13 does this itself. os.path and posixpath are one module.
    posixpath.realpath = _realpath(posixpath.realpath)
    if processes:
        # This interpreter was started without site-packages, and what cells start is to have them.
        vars(subprocess)["_args_from_interpreter_flags"] = list
    mmap.mmap = _mmap_without_anonymous_sharing(mmap.mmap, processes=processes)  # type: ignore[misc]


def _skip_if_refused(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def copy(*args: Any, **options: Any) -> None:
        with contextlib.suppress(PermissionError):
            original(*args, **options)

    return copy


def _succeed_if_unchanged(original: Callable[..., None]) -> Callable[..., None]:
    """Let a change of mode succeed that changes nothing: dbm.dumb and others make sure of it."""

    @functools.wraps(original)
    def change(path: Any, mode: int, **options: Any) -> None:
        try:
            original(path, mode, **options)
        except PermissionError:
            if stat.S_IMODE(os.stat(path, **options).st_mode) != stat.S_IMODE(mode):
                raise

    return change


def _realpath(original: Callable[..., Any]) -> Any:
    """Resolve links as far as that is allowed."""

    @functools.wraps(original)
    def realpath(filename: Any, *, strict: bool = False) -> Any:
        try:
            return original(filename, strict=strict)
        except OSError:
            if strict:
                raise
            return os.path.abspath(filename)

    return realpath


def _mmap_without_anonymous_sharing(original: Any, *, processes: bool) -> Any:
    """Return a class like ``original`` that maps no shared memory without a file.

    Where there are ``processes`` to share it with, it maps a file that has no name any more, as
    ``multiprocessing`` does; else private memory.
    """
    kinds = mmap.MAP_SHARED | mmap.MAP_PRIVATE

    class Mapping(original):  # type: ignore[misc]
        def __new__(
            cls,
            fileno: int,
            length: int,
            flags: int = mmap.MAP_SHARED,
            prot: int = mmap.PROT_READ | mmap.PROT_WRITE,
            access: int = mmap.ACCESS_DEFAULT,
            offset: int = 0,
            **options: Any,
        ) -> Any:
            anonymous = fileno == -1 and access in (mmap.ACCESS_DEFAULT, mmap.ACCESS_WRITE)
            if not anonymous or flags & kinds != mmap.MAP_SHARED:
                if anonymous:
                    access = mmap.ACCESS_DEFAULT
                return super().__new__(cls, fileno, length, flags, prot, access, offset, **options)
            if not processes or length <= 0:
                flags = flags & ~kinds | mmap.MAP_PRIVATE
                access = mmap.ACCESS_DEFAULT
                return super().__new__(cls, fileno, length, flags, prot, access, offset, **options)
            flags &= ~mmap.MAP_ANONYMOUS
            file = _nameless_file(length)
            try:
                return super().__new__(cls, file, length, flags, prot, access, offset, **options)
            finally:
                os.close(file)

    Mapping.__name__ = Mapping.__qualname__ = original.__name__
    Mapping.__module__, Mapping.__doc__ = original.__module__, original.__doc__
    return Mapping


def _nameless_file(length: int) -> int:
    """Return a descriptor of a file of ``length`` bytes, in memory where there is a /dev/shm.

    Its blocks are there: a page that finds none later would be SIGBUS. Raises OSError.
    """
    try:
        file, name = tempfile.mkstemp(prefix="mmap-", dir=SHARED_MEMORY)
    except OSError:  # the policy's guests have none
        file, name = tempfile.mkstemp(prefix="mmap-")
    try:
        os.unlink(name)
        os.posix_fallocate(file, 0, length)
    except OSError:
        os.close(file)
        raise
    return file


#: Names under which notebooks ask plotly and altair for what they would show anyway.
_PLOTLY: Final = (
    "browser colab iframe iframe_connected jupyterlab notebook notebook_connected nteract "
    "plotly_mimetype vscode"
)
#: How Bokeh tells its own documentation how high a figure is.
_BOKEH_HEIGHT: Final = "_sphinx_height_hint"
_NO_VEGA: Final = (
    "<p>To see this chart, install Vega, which outputs can't fetch from the network: "
    "<code>pip install vl-convert-python</code>, then restart the kernel.</p>"
)
_NO_PICTURES: Final = (
    "[chart not drawn: what draws charts is lost where a session goes on from a copy, as after "
    "a killed cell or %undo. Your variables are here; restarting the kernel, which clears them, "
    "draws charts again]"
)
_NO_MAP: Final = (
    "<p><small>[map left out: it needs a browser, and "
    "display = &quot;isolated&quot; in the policy]</small></p>"
)
_ALTAIR: Final = "browser colab default html jupyter jupyterlab mimetype nteract"


def patch_charts(how: Literal["pages", "stills"], *, vega: bool) -> None:
    """Patch charting libraries when they are imported. For the zygote, before any fork.

    ``vega``: the host has it.
    """
    pages = _PAGES | {"altair": partial(_altair, vega=vega)}
    patch_when_imported(pages if how == "pages" else _STILLS)


def _plotly(module: Any) -> None:
    """Show figures as HTML with plotly.js, or its name. ``module`` is ``plotly.io._renderers``."""
    shared = _is_shared(module.__file__)
    base: Any = import_module("plotly.io._base_renderers").MimetypeRenderer

    class Isolated(base):  # type: ignore[misc]
        def to_mimebundle(self, fig_dict: dict[str, Any]) -> dict[str, str]:
            to_html = import_module("plotly.io").to_html
            options = {"default_width": "100%", "default_height": 450, "full_html": False}
            if not shared:
                return {"text/html": to_html(fig_dict, validate=False, **options)}
            html = to_html(fig_dict, validate=False, include_plotlyjs=False, **options)
            return {"text/html": f"{_library('plotly')}{html}"}

    for name in ("cellblock", *_PLOTLY.split()):
        module.renderers[name] = Isolated()
    module.renderers.default = "cellblock"


def _is_shared(file: str) -> bool:
    """Whether the host has a package's library: it reads where this interpreter's own are."""
    return file.startswith(f"{sys.prefix}/")


def _library(name: str) -> str:
    """Return how a page begins that does not bring its library (host: ``frames``)."""
    return f"<!-- library: {name} -->\n"


def _bokeh(show: Callable[..., None], module: Any) -> None:
    """Make ``show`` display a figure by this function. ``module`` is ``bokeh.io``."""
    install_notebook_hook = import_module("bokeh.io.notebook").install_notebook_hook
    # Nothing is loaded: each output brings its own.
    hooks = {"load": lambda *_, **__: None, "show_doc": show, "show_app": _no_server}
    install_notebook_hook("jupyter", **hooks, overwrite=True)
    module.output_notebook(hide_banner=True)


def _show_bokeh(model: Any, _state: object, notebook_handle: object = None) -> None:
    """Display a page with BokehJS in it."""
    if notebook_handle:
        raise ValueError("push_notebook() can't reach an isolated output: show the figure again")
    inline = import_module("bokeh.resources").INLINE
    page = import_module("bokeh.embed").file_html(model, inline, _always_new=True)
    script = _bokeh_library()
    page = _with_height(page, getattr(model, _BOKEH_HEIGHT)())
    if script and script in page:
        page = _library("bokeh") + page.replace(script, "", 1)
    bundle = {
        "text/html": page,
        "text/plain": repr(model),
    }
    display(bundle, raw=True)  # type: ignore[no-untyped-call]


def _leave_out_bokeh(*_: object) -> None:
    """Send what needs BokehJS to be drawn: the host says that it is not shown, and why."""
    display({"application/vnd.bokehjs_exec.v0+json": {}}, raw=True)  # type: ignore[no-untyped-call]


@cache
def _bokeh_library() -> str:
    """Return BokehJS if the host has it, too; its less usual parts stay in the page."""
    package = import_module("bokeh").__file__ or ""
    file = Path(package).with_name("server") / "static/js/bokeh.min.js"
    return file.read_text("utf-8") if _is_shared(package) else ""


def _no_server(*_: object, **__: object) -> None:
    raise ValueError("Bokeh applications need a server, and cells have no network")


def _altair(module: Any, *, vega: bool) -> None:
    """Show charts as a page, and as a picture too where a program may read it.

    A language model sees no page. ``module`` is ``altair``.
    """
    picture = _altair_picture(module)

    def page(spec: dict[str, Any], **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        shown, metadata = _vega_page(spec, vega=vega, **options), dict[str, Any]()
        if picture is not None and _is_asked() and _has_memory_for_drawing():
            with contextlib.suppress(Exception):  # the page says it all
                drawn, metadata = picture(spec) or ({}, {})
                shown |= drawn
        return shown, metadata

    for name in ("cellblock", *_ALTAIR.split()):
        module.renderers.register(name, page)
    module.renderers.enable("cellblock")


def _vega_page(spec: dict[str, Any], *, vega: bool, **options: Any) -> dict[str, str]:
    """Return a chart as HTML with Vega, or its name where the host has it."""
    if (package := find_spec("vl_convert")) is None:
        return {"text/html": _NO_VEGA}
    shared = vega and _is_shared(package.origin or "")
    options = {"mode": "vega-lite"} | options.get("embed_options", {})
    values = (json.dumps(value).replace("</", "<\\/") for value in (spec, options))
    call = f"vegaEmbed('#vis', {', '.join(values)})"
    own = [call] if shared else [_vega_library(), call]
    scripts = "".join(f"<script>{script}</script>" for script in own)
    wide = ' style="width:100%"' if spec.get("width") == "container" else ""
    page = f'<div id="vis"{wide}></div>{scripts}'
    head = _library("vega") if shared else ""
    return {"text/html": head + _with_height(page, _vega_height(spec))}


@cache
def _vega_library() -> str:
    return str(import_module("vl_convert").javascript_bundle())


_AXES: Final = 70


def _vega_height(spec: dict[str, Any]) -> int | None:
    """Return about how many pixels a chart is high, None if its parts don't say."""
    for key, together in (("vconcat", sum), ("hconcat", max), ("layer", max)):
        if parts := spec.get(key):
            heights = [_vega_height(part) for part in parts]
            known = [height for height in heights if height is not None]
            own = spec.get("height")
            return own + _AXES if isinstance(own, int) else together(known) if known else None
    if "facet" in spec or "repeat" in spec or "concat" in spec:
        return None
    height = spec.get("height", 300)
    return int(height) + _AXES if isinstance(height, int | float) else None


def _branca(module: Any) -> None:
    """Show maps as a page with Leaflet in it. ``module`` is ``branca.element``."""

    def shown(figure: Any, **options: Any) -> str:
        page = _LINKED.sub(_leaflet, figure.render(**options))
        return _with_height(page, _map_height(figure))

    module.Figure._repr_html_ = shown


def _branca_still(module: Any) -> None:
    """Say why maps are not shown: their own words are about trusted notebooks."""
    module.Figure._repr_html_ = lambda *_, **__: _NO_MAP


#: Scripts and style sheets that a folium page asks the network for.
_LINKED: Final = re.compile(
    r"<script src=\"(https:[^\"]+)\"></script>"
    r"|<link rel=\"stylesheet\" href=\"(https:[^\"]+)\"\s*/?>"
)


def _leaflet(found: re.Match[str]) -> str:
    """Return Leaflet itself in place of its address; what else a map may miss, it does without."""
    name = (found[1] or found[2]).rpartition("/")[2]
    if name == "leaflet.js":
        return f"<script>{_file(name)}{_file('folium.js')}</script>"
    if name == "leaflet.css":
        return f"<style>{_file(name)}</style>"
    return "" if name in _DISPENSABLE else found[0]


#: For icons and looks; ``folium.js`` has what calls to them need.
_DISPENSABLE: Final = frozenset(
    {
        "all.min.css",
        "bootstrap-glyphicons.css",
        "bootstrap.bundle.min.js",
        "bootstrap.min.css",
        "jquery-3.7.1.min.js",
        "leaflet.awesome-markers.css",
        "leaflet.awesome-markers.js",
        "leaflet.awesome.rotate.min.css",
    }
)


@cache
def _file(name: str) -> str:
    return (Path(__file__).parent / "leaflet" / name).read_text("utf-8")


def _map_height(figure: Any) -> int:
    """Return how many pixels a map is high; one that fills its page gets as many as a figure."""
    for part in vars(figure)["_children"].values():  # the map itself is among them
        match getattr(part, "height", None):
            case (size, "px"):
                return int(size)
    return 450


def _with_height(page: str, height: int | None) -> str:
    """Return a page that says first how high it is: the host looks there (``frames``)."""
    return page if height is None else f"<!-- height: {height}px -->\n{page}"


def _plotly_still(module: Any) -> None:
    """Make figures send their data without a library, which is not shown either."""
    module.renderers.default = "plotly_mimetype"


def _altair_still(module: Any) -> None:
    """Show charts as pictures where what draws them is installed."""
    picture = _altair_picture(module)
    if picture is None:
        return

    def still(spec: dict[str, Any], **options: Any) -> Any:
        return picture(spec, **options) or {"text/plain": _NO_PICTURES}

    module.renderers.register("cellblock", still)
    module.renderers.enable("cellblock")


def _altair_picture(module: Any) -> Callable[..., Any] | None:
    """Return what draws a chart, None where that is not installed; it returns None where it can't.

    It draws in threads, which a copy does not have: one that took over would wait for ever. So what
    it opens for them is nothing that a copy could go on with either, and brings none.
    """
    if not find_spec("vl_convert"):
        return None
    module.renderers.enable("png")
    draw, drawn_by = module.renderers.get(), list[int]()

    def picture(spec: dict[str, Any], **options: Any) -> Any:
        if drawn_by:
            here = drawn_by == [os.getpid()]
            return draw(spec, **options) if here else None
        drawn_by.append(os.getpid())
        before = {fd for fd, _ in descriptors(256)}
        try:
            return draw(spec, **options)
        finally:
            own_descriptors.update({fd for fd, _ in descriptors(256)} - before)

    return picture


def _is_asked() -> bool:
    """Return whether the cell's value is asked for: by a program, which has no page to show."""
    return bool(getattr(getattr(get_ipython(), "displayhook", None), "is_asked", False))


#: What draws charts reserves about 2 GiB, and ends the interpreter where it can't.
_FOR_DRAWING: Final = 4 << 30


def _has_memory_for_drawing() -> bool:
    most, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return most == resource.RLIM_INFINITY or most >= _FOR_DRAWING


_PAGES: Final[dict[str, Patch]] = {
    "bokeh.io": partial(_bokeh, _show_bokeh),
    "branca.element": _branca,
    "plotly.io._renderers": _plotly,
}

_STILLS: Final[dict[str, Patch]] = {
    "altair": _altair_still,
    "bokeh.io": partial(_bokeh, _leave_out_bokeh),
    "branca.element": _branca_still,
    "plotly.io._renderers": _plotly_still,
}
