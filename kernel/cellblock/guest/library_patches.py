"""Patches of libraries for guests: of the standard library at once, of others when imported.

``setup`` applies them in the zygote. In order:

- *Imports*: ``patch_when_imported`` runs a patch after its module was imported.
- *Prompts and settings* if cells are approved: no debugger or console asks for code that nobody has
  approved (``PROMPTS``), no settings are read from unapproved files (``SETTINGS``), and no Python
  that a cell starts imports from the working folder.
- *Refused calls* (``patch_standard_library``). The system call filter refuses readlink, and mostly
  chmod and utime (``confine.layer.seal`` says where not), because it can't tell which file a call
  is about. Functions that do their work and then copy a mode or a time, or set a mode that is set
  already, or resolve links on the way, go on without. The calls themselves stay refused, and a
  change that a cell asks for still fails. The filter also refuses shared memory without a file,
  which ``mmap.mmap(-1, n)`` asks for by default. It becomes private memory, which is the same if
  there is no process to share it with, or else gets a file.
- *Charts* (``patch_charts``). A library's own notebook support assumes a page that keeps or fetches
  its JavaScript. Under display ``isolated`` each output is a page of its own without network, so
  outputs must bring the library along. If no scripts are shown, libraries that can draw a picture
  themselves do so.
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
    """Finds modules that have a patch on ``sys.path``, and runs the patch after the module."""

    def __init__(self, patches: Mapping[str, Patch]) -> None:
        self._patches = patches

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module that has a patch, None for any other."""
        patch = self._patches.get(fullname)
        spec = PathFinder.find_spec(fullname, path, target) if patch is not None else None
        if patch is None or spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        original = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            original(module)
            # If the patch does not fit this version of the library, the library stays unpatched.
            with contextlib.suppress(Exception):
                patch(module)

        loader.exec_module = exec_module
        return spec


def patch_when_imported(patches: Mapping[str, Patch]) -> None:
    """Patch modules when they are imported. Called in the zygote.

    ``patches`` are by the modules' names.
    """
    sys.meta_path[:0] = [_PatchingFinder(patches), _DistutilsFinder()]


class _DistutilsFinder:
    """Finds ``distutils`` in setuptools, as in a Python that was started with site-packages.

    There, a .pth file of setuptools does this. Python 3.12 and later have no ``distutils``
    themselves.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return setuptools' spec of ``distutils``; None for other names or without setuptools."""
        if fullname != "distutils":
            return None
        with contextlib.suppress(ImportError, AttributeError):
            hack: Any = importlib.import_module("_distutils_hack")
            if hack.enabled():
                spec: ModuleSpec | None = hack.DISTUTILS_FINDER.find_spec(fullname, path, target)
                return spec
        return None


#: Methods by which threadpoolctl looks for libraries: in /proc/self/maps, or by asking the loader.
#: scikit-learn uses it to find thread pools.
_BY_MAPS: Final = "_find_libraries_with_linux"
_BY_LOADER: Final = "_find_libraries_with_dl_iterate_phdr"


def patch_threadpoolctl(module: Any) -> None:
    """Make threadpoolctl ask the loader if /proc/self/maps can't be read.

    It can't in a copy that took over, whose pid is another than the one its Landlock rule names.
    """
    kind = module.ThreadpoolController
    by_maps = getattr(kind, _BY_MAPS)
    by_loader = getattr(kind, _BY_LOADER)

    def find(self: Any) -> None:
        try:
            by_maps(self)
        except PermissionError:
            by_loader(self)

    setattr(kind, _BY_MAPS, find)


#: IPython's debugger, a module that imports ``pdb``.
_DEBUGGER: Final = "IPython.core.debugger"


def _replace_debugger(module: Any) -> None:
    """Replace Python's debugger by IPython's, which an interrupt ends. ipykernel does the same.

    Python's would ask again for ever. ``module`` is ``IPython.core.debugger``.
    """

    def set_trace(*, header: str | None = None, commands: Iterable[str] | None = None) -> None:
        debugger = module.Pdb()
        debugger.rcLines.extend(commands or ())  # Python has this argument from 3.14 on
        if header is not None:
            debugger.message(header)
        frame = inspect.currentframe()
        debugger.set_trace(frame and frame.f_back)

    pdb: Any = sys.modules["pdb"]
    pdb.Pdb = module.Pdb = module.InterruptiblePdb
    pdb.set_trace = set_trace


def _import_debugger(_pdb: Any) -> None:
    importlib.import_module(_DEBUGGER)


#: Patches that replace the debugger, whichever module is imported first.
DEBUGGERS: Final[Mapping[str, Patch]] = {
    _DEBUGGER: _replace_debugger,
    "pdb": _import_debugger,
}


#: The text shown instead of the prompt of a debugger, a console or ``help()``.
NO_PROMPT: Final = (
    "There is no debugger and no other prompt here: what is typed at one is code that nobody "
    'approved. Take out what starts it, or debug under a policy with admission = "any".'
)


def _refuse_prompt(*_args: object, **_options: object) -> None:
    raise RuntimeError(NO_PROMPT)


def forbid_debugger(module: Any) -> None:
    """Refuse debuggers' prompts, if cells are approved. ``module`` is ``pdb``.

    IPython's and other debuggers derive from its class, and ask in ``cmdloop`` however they are
    started. ``set_trace`` is refused, too, so that the error is at a cell's call and not at the
    next line.
    """
    module.Pdb.set_trace = module.Pdb.interaction = module.Pdb.cmdloop = _refuse_prompt


def forbid_console(module: Any) -> None:
    """Refuse consoles' prompts, if cells are approved. ``module`` is ``code``."""
    module.InteractiveConsole.interact = _refuse_prompt


def forbid_terminal_shell(module: Any) -> None:
    """Refuse the prompt of IPython's terminal shell, if cells are approved.

    ``embed()`` makes a shell of a derived class, which asks in the same ``interact``.
    """
    module.TerminalInteractiveShell.interact = _refuse_prompt


def forbid_help_prompt(module: Any) -> None:
    """Refuse the prompt of ``help()``, and keep it from importing, if cells are approved.

    The text that names a module may come from anywhere: ``help(input())``. ``module`` is ``pydoc``.
    """

    def find_imported(path: str, *_: object, **__: object) -> ModuleType | None:
        return sys.modules.get(path)

    module.Helper.interact = _refuse_prompt
    module.safeimport = find_imported


#: By module: patches of everything that asks for code. If a cell runs a copy of such a module
#: (``runpy``), that was approved with its text, as ``exec(input())`` is.
PROMPTS: Final[Mapping[str, Patch]] = {
    "IPython.terminal.interactiveshell": forbid_terminal_shell,
    "code": forbid_console,
    "pdb": forbid_debugger,
    "pydoc": forbid_help_prompt,
}


#: Groups of matplotlib's settings about the looks of a figure. Others choose backends, windows,
#: servers and programs: ``animation``, ``backend``, ``pgf``, ``ps``, ``toolbar``, ``webagg``, ….
_LOOKS: Final = frozenset(
    """
    agg axes axes3d boxplot contour date errorbar figure font grid hatch hist image keymap legend
    lines markers mathtext patch path pcolor pcolormesh pdf polar savefig scatter svg text timezone
    xaxis xtick yaxis ytick
    """.split()
)
#: Settings of these groups that run something: functions that each figure calls, and TeX.
_RUNS: Final = re.compile(r"figure\.hooks|savefig\.format|text\.usetex|text\.latex\..*")


def _only_looks(key: str) -> bool:
    return key.partition(".")[0] in _LOOKS and _RUNS.fullmatch(key) is None


def keep_settings_to_looks(module: Any) -> None:
    """Take only settings about looks from files, if cells are approved. ``module`` is matplotlib.

    matplotlib reads a ``matplotlibrc`` in the working folder when it is imported, and styles later:
    files that nobody has approved. Cells may set everything, and so may matplotlib's own styles.
    """
    read_file = module._rc_params_in_file  # noqa: SLF001 - the function by which all files are read
    data_folder = os.path.join(module.get_data_path(), "")

    def read_settings(fname: Any, *args: Any, **options: Any) -> Any:
        settings = read_file(fname, *args, **options)
        if os.path.abspath(str(fname)).startswith(data_folder):
            return settings
        for key in itertools.filterfalse(_only_looks, list(settings)):
            value = dict.pop(settings, key)
            if value != dict.get(module.rcParamsDefault, key):
                warn_of_setting(key, fname)
        return settings

    def warn_of_setting(key: str, file: object) -> None:
        text = "%s of %s is not taken where cells are approved: set it in a cell"
        module._log.warning(text, key, file)  # noqa: SLF001

    module._rc_params_in_file = read_settings  # noqa: SLF001
    # Undo what was taken from the file that was read by the import.
    for key, value in dict.items(module.rcParamsDefault):
        if _only_looks(key) or (key == "backend" and os.environ.get("MPLBACKEND")):
            continue
        if dict.get(module.rcParams, key) != value:
            warn_of_setting(key, module.matplotlib_fname())
        for settings in (module.rcParams, module.rcParamsOrig):
            dict.__setitem__(settings, key, value)


def keep_cycles_from_being_code(module: Any) -> None:
    """Refuse attributes in the setting ``axes.prop_cycle``, which matplotlib before 3.11 evaluates.

    Through a generator's frames, code in it could reach the builtins. ``module`` is
    ``matplotlib.rcsetup``.
    """

    def refuse(_checker: object, node: Any) -> None:
        raise ValueError(f"an attribute in a cycle: {node.attr}")

    module._DunderChecker.visit_Attribute = refuse  # noqa: SLF001


#: By module: patches of everything that reads settings from unapproved files.
SETTINGS: Final[Mapping[str, Patch]] = {
    "matplotlib": keep_settings_to_looks,
    "matplotlib.rcsetup": keep_cycles_from_being_code,
}


def keep_pythons_to_installed_modules() -> None:
    """Keep Python processes that cells start from importing from the working folder.

    Used if cells are approved. Programs that inherit the guest's environment have the variable from
    there (``setup.keep_to_installed_modules``). This adds it to any other environment.
    """
    original: Any = subprocess.Popen.__init__
    names = list(inspect.signature(original).parameters)[1:]
    index = names.index("env")

    @functools.wraps(original)
    def init(self: Any, *args: Any, **options: Any) -> None:
        options |= zip(names[index:], args[index:], strict=False)
        environment = options.get("env")
        if environment is not None or os.environ.keys().isdisjoint(SAFE_PATH):
            options["env"] = SAFE_PATH | dict(os.environ if environment is None else environment)
        original(self, *args[:index], **options)

    subprocess.Popen.__init__ = init  # type: ignore[method-assign]


#: Tells Python 3.11 and later not to import from the folder in which it is started.
SAFE_PATH: Final = {"PYTHONSAFEPATH": "1"}


def patch_start_method(module: Any) -> None:
    """Make multiprocessing fork instead of starting a fork server, for guests without Unix sockets.

    The server, which is the default from Python 3.14 on, needs one.
    """
    contexts = vars(module)["_concrete_contexts"]
    contexts["forkserver"] = contexts["fork"]
    if sys.version_info >= (3, 14):
        vars(module)["_get_platform_default_context"] = lambda: contexts["fork"]


def patch_listeners(module: Any) -> None:
    """Make ``multiprocessing``'s managers listen on the loopback device, not on a Unix socket."""
    module.default_family = "AF_INET"


def patch_kernelspecs(module: Any) -> None:
    """Make Jupyter's client skip folders of kernelspecs that guests may not read.

    A kernelspec's environment may contain credentials, so guests can't read them. The client can
    start ipykernel without one.
    """
    kind = module.KernelSpecManager
    original = kind.__init__

    def init(self: Any, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        self.kernel_dirs = [folder for folder in self.kernel_dirs if not _is_closed(folder)]

    kind.__init__ = init


def _is_closed(folder: str) -> bool:
    """Return whether a folder may not be listed."""
    try:
        os.listdir(folder)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def patch_standard_library(*, processes: bool = False) -> None:
    """Replace functions that would fail because of a refused system call. Called in the zygote.

    ``processes`` says that cells may start programs, and share memory with them.
    """
    for name in ("copymode", "copystat"):
        setattr(shutil, name, _skip_if_refused(getattr(shutil, name)))
    for name in ("chmod", "fchmod"):
        original = getattr(os, name)
        replacement = _succeed_if_unchanged(original)
        for functions in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
            if original in functions:
                functions.add(replacement)
        setattr(os, name, replacement)
    # Python 3.13 does this itself. os.path and posixpath are the same module.
    posixpath.realpath = _realpath(posixpath.realpath)
    if processes:
        # multiprocessing passes the flags of this interpreter on. It was started without
        # site-packages, which the processes of cells must have.
        vars(subprocess)["_args_from_interpreter_flags"] = list
    mmap.mmap = _mmap_without_anonymous_sharing(mmap.mmap, processes=processes)  # type: ignore[misc]


def _skip_if_refused(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def copy(*args: Any, **options: Any) -> None:
        with contextlib.suppress(PermissionError):
            original(*args, **options)

    return copy


def _succeed_if_unchanged(original: Callable[..., None]) -> Callable[..., None]:
    """Make a refused change of mode succeed if the file has that mode already.

    dbm.dumb and others make sure of a mode in this way.
    """

    @functools.wraps(original)
    def change(path: Any, mode: int, **options: Any) -> None:
        try:
            original(path, mode, **options)
        except PermissionError:
            if stat.S_IMODE(os.stat(path, **options).st_mode) != stat.S_IMODE(mode):
                raise

    return change


def _realpath(original: Callable[..., Any]) -> Any:
    """Make ``realpath`` return an absolute path if links can't be resolved, unless ``strict``."""

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
    """Return a class like ``original`` that never maps shared memory without a file.

    If there may be other ``processes`` to share the memory with, it maps a file without a name, as
    ``multiprocessing`` does. Otherwise it maps private memory.
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
    """Return a descriptor of a nameless file of ``length`` bytes, in /dev/shm if there is one.

    All its blocks are allocated, since writing to a page without one would be SIGBUS. Raises
    OSError.
    """
    try:
        file, name = tempfile.mkstemp(prefix="mmap-", dir=SHARED_MEMORY)
    except OSError:  # guests of this policy have no /dev/shm
        file, name = tempfile.mkstemp(prefix="mmap-")
    try:
        os.unlink(name)
        os.posix_fallocate(file, 0, length)
    except OSError:
        os.close(file)
        raise
    return file


#: Renderers of plotly that notebooks ask for by name. All show figures in the same way here.
_PLOTLY: Final = (
    "browser colab iframe iframe_connected jupyterlab notebook notebook_connected nteract "
    "plotly_mimetype vscode"
)
#: Bokeh's method that returns the height of a figure, made for its own documentation.
_BOKEH_HEIGHT: Final = "_sphinx_height_hint"
_NO_VEGA: Final = (
    "<p>To see this chart, install Vega, which outputs can't fetch from the network: "
    "<code>pip install vl-convert-python</code>, then restart the kernel.</p>"
)
_NO_PICTURES: Final = (
    "[chart not drawn: after a killed cell or %undo this session goes on from a copy, which can't "
    "draw charts. Your variables are here; to draw charts again, restart the kernel, which clears "
    "them]"
)
_NO_MAP: Final = (
    "<p><small>[map left out: it needs a browser, and "
    "display = &quot;isolated&quot; in the policy]</small></p>"
)
#: The same for altair.
_ALTAIR: Final = "browser colab default html jupyter jupyterlab mimetype nteract"


def patch_charts(form: Literal["pages", "stills"], *, vega: bool) -> None:
    """Patch charting libraries when they are imported. Called in the zygote.

    ``form`` is ``pages`` for pages with scripts, ``stills`` for pictures. ``vega`` says that the
    host has Vega, so that pages need not contain it.
    """
    pages = _PAGES | {"altair": partial(_altair, vega=vega)}
    patch_when_imported(pages if form == "pages" else _STILLS)


def _plotly(module: Any) -> None:
    """Show figures as HTML with plotly.js, or with its name if the host has it.

    ``module`` is ``plotly.io._renderers``.
    """
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
    """Return whether the host has a package's library: it has this interpreter's packages."""
    return file.startswith(f"{sys.prefix}/")


def _library(name: str) -> str:
    """Return the first line of a page without its library, which the host adds (``frames``)."""
    return f"<!-- library: {name} -->\n"


def _bokeh(show: Callable[..., None], module: Any) -> None:
    """Make Bokeh's ``show`` call the function ``show``. ``module`` is ``bokeh.io``."""
    install_notebook_hook = import_module("bokeh.io.notebook").install_notebook_hook
    # "load" does nothing, as each output brings BokehJS along.
    hooks = {"load": lambda *_, **__: None, "show_doc": show, "show_app": _no_server}
    install_notebook_hook("jupyter", **hooks, overwrite=True)
    module.output_notebook(hide_banner=True)


def _show_bokeh(model: Any, _state: object, notebook_handle: object = None) -> None:
    """Display a figure as a page with BokehJS, or with its name if the host has it."""
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
    """Display a mime type that needs BokehJS. The host shows why the figure is left out."""
    display({"application/vnd.bokehjs_exec.v0+json": {}}, raw=True)  # type: ignore[no-untyped-call]


@cache
def _bokeh_library() -> str:
    """Return BokehJS if the host has it, else "". Its rarely used parts stay in the page."""
    package = import_module("bokeh").__file__ or ""
    file = Path(package).with_name("server") / "static/js/bokeh.min.js"
    return file.read_text("utf-8") if _is_shared(package) else ""


def _no_server(*_: object, **__: object) -> None:
    raise ValueError("Bokeh applications need a server, and cells have no network")


def _altair(module: Any, *, vega: bool) -> None:
    """Show charts as a page, and also as a picture if a program asks for the cell's value.

    A language model can't see a page. ``module`` is ``altair``.
    """
    picture = _altair_picture(module)

    def page(spec: dict[str, Any], **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        bundle = _vega_page(spec, vega=vega, **options)
        metadata = dict[str, Any]()
        if picture is not None and _is_asked() and _has_memory_for_drawing():
            with contextlib.suppress(Exception):  # the page is enough
                image, metadata = picture(spec) or ({}, {})
                bundle |= image
        return bundle, metadata

    for name in ("cellblock", *_ALTAIR.split()):
        module.renderers.register(name, page)
    module.renderers.enable("cellblock")


def _vega_page(spec: dict[str, Any], *, vega: bool, **options: Any) -> dict[str, str]:
    """Return a chart as HTML with Vega, or with its name if the host has it."""
    if (package := find_spec("vl_convert")) is None:
        return {"text/html": _NO_VEGA}
    shared = vega and _is_shared(package.origin or "")
    options = {"mode": "vega-lite"} | options.get("embed_options", {})
    values = (json.dumps(value).replace("</", "<\\/") for value in (spec, options))
    call = f"vegaEmbed('#vis', {', '.join(values)})"
    own_scripts = [call] if shared else [_vega_library(), call]
    scripts = "".join(f"<script>{script}</script>" for script in own_scripts)
    wide = ' style="width:100%"' if spec.get("width") == "container" else ""
    page = f'<div id="vis"{wide}></div>{scripts}'
    head = _library("vega") if shared else ""
    return {"text/html": head + _with_height(page, _vega_height(spec))}


@cache
def _vega_library() -> str:
    return str(import_module("vl_convert").javascript_bundle())


#: Pixels that axes add to the height of a chart.
_AXES: Final = 70


def _vega_height(spec: dict[str, Any]) -> int | None:
    """Return the approximate height of a chart in pixels, None if its parts don't say."""
    for key, combine in (("vconcat", sum), ("hconcat", max), ("layer", max)):
        if parts := spec.get(key):
            heights = [_vega_height(part) for part in parts]
            known_heights = [height for height in heights if height is not None]
            own_height = spec.get("height")
            return (
                own_height + _AXES
                if isinstance(own_height, int)
                else combine(known_heights)
                if known_heights
                else None
            )
    if "facet" in spec or "repeat" in spec or "concat" in spec:
        return None
    height = spec.get("height", 300)
    return int(height) + _AXES if isinstance(height, int | float) else None


def _branca(module: Any) -> None:
    """Show maps as a page that contains Leaflet. ``module`` is ``branca.element``."""

    def to_html(figure: Any, **options: Any) -> str:
        page = _LINKED.sub(_leaflet, figure.render(**options))
        return _with_height(page, _map_height(figure))

    module.Figure._repr_html_ = to_html


def _branca_still(module: Any) -> None:
    """Show why maps are left out. Their own text is about trusted notebooks."""
    module.Figure._repr_html_ = lambda *_, **__: _NO_MAP


#: Scripts and style sheets that a page of folium would load from the network.
_LINKED: Final = re.compile(
    r"<script src=\"(https:[^\"]+)\"></script>"
    r"|<link rel=\"stylesheet\" href=\"(https:[^\"]+)\"\s*/?>"
)


def _leaflet(match: re.Match[str]) -> str:
    """Return Leaflet itself in place of a link to it, and nothing for dispensable files."""
    name = (match[1] or match[2]).rpartition("/")[2]
    if name == "leaflet.js":
        return f"<script>{_file(name)}{_file('folium.js')}</script>"
    if name == "leaflet.css":
        return f"<style>{_file(name)}</style>"
    return "" if name in _DISPENSABLE else match[0]


#: Files for icons and looks. Our ``folium.js`` has the functions that pages call of them.
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
    """Return a map's height in pixels. A map that fills its page gets the height of a figure."""
    for child in vars(figure)["_children"].values():  # the map is one of the children
        match getattr(child, "height", None):
            case (size, "px"):
                return int(size)
    return 450


def _with_height(page: str, height: int | None) -> str:
    """Return a page with its height in a first line, which the host reads (``frames``)."""
    return page if height is None else f"<!-- height: {height}px -->\n{page}"


def _plotly_still(module: Any) -> None:
    """Make figures send their data only, which the host does not show either."""
    module.renderers.default = "plotly_mimetype"


def _altair_still(module: Any) -> None:
    """Show charts as pictures if vl-convert, which draws them, is installed."""
    picture = _altair_picture(module)
    if picture is None:
        return

    def still(spec: dict[str, Any], **options: Any) -> Any:
        return picture(spec, **options) or {"text/plain": _NO_PICTURES}

    module.renderers.register("cellblock", still)
    module.renderers.enable("cellblock")


def _altair_picture(module: Any) -> Callable[..., Any] | None:
    """Return a function that draws a chart, or None if vl-convert is not installed.

    vl-convert draws in threads. A fork lacks them, and vl-convert would wait for them for ever. So
    the function returns None in a process that was forked after the first drawing. The descriptors
    that vl-convert opens for its threads count as the guest's own: a copy can't use them, so they
    must not keep cells from being run again.
    """
    if not find_spec("vl_convert"):
        return None
    module.renderers.enable("png")
    draw = module.renderers.get()
    # The pid of the process that has vl-convert's threads.
    drawn_by = list[int]()

    def picture(spec: dict[str, Any], **options: Any) -> Any:
        if drawn_by:
            is_same_process = drawn_by == [os.getpid()]
            return draw(spec, **options) if is_same_process else None
        drawn_by.append(os.getpid())
        before = {fd for fd, _ in descriptors(256)}
        try:
            return draw(spec, **options)
        finally:
            own_descriptors.update({fd for fd, _ in descriptors(256)} - before)

    return picture


def _is_asked() -> bool:
    """Return whether the host wants the cell's value: for a program, which shows no pages."""
    return bool(getattr(getattr(get_ipython(), "displayhook", None), "is_asked", False))


#: Memory limit below which no chart is drawn: vl-convert reserves about 2 GiB, and ends the process
#: if it can't.
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
