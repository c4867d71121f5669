"""The parts of ipykernel that libraries look for in a guest: application, kernel, modules.

The modules are ipykernel's own. They are in ``sys.modules`` from the start, but are executed only
when a name of theirs is read, because they import zmq, tornado and jupyter_client: 17 MiB that
hardly a notebook needs. When they are executed, some of their classes are replaced by the guest's
(``add_modules``).
"""

from __future__ import annotations

import logging
import sys
import threading
from importlib import import_module
from importlib.util import module_from_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, get_args

import comm
from comm.base_comm import BaseComm, CommManager
from IPython.core import release
from IPython.core.application import BaseIPythonApplication

from cellblock.guest.library_patches import patch_when_imported
from cellblock.guest.output import Publisher, ResultHook, current_cell, plain, set_parent
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec

    from IPython.core.interactiveshell import InteractiveShell

    from cellblock.guest.output import Outlet


# --- modules ------------------------------------------------------------------------------------

_PACKAGE: Final = "ipykernel"
#: Modules of the package that ipykernel's kernel has imported, and that libraries look for.
_MODULES: Final = ("zmqshell", "kernelapp", "ipkernel", "kernelbase", "iostream")
_loading: Final = threading.RLock()


class _Later(ModuleType):
    """A module with its real spec, which is executed when a name of it is read.

    ``importlib.util.LazyLoader`` would also execute it for ``__file__``. Everything that walks
    through ``sys.modules`` reads that: ``inspect``, ``%autoreload``.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        _execute(self)
        return getattr(self, name)

    def __dir__(self) -> Any:
        _execute(self)
        return vars(self).keys()


class _Executing(ModuleType):
    """A module that is being executed, which has the names that are defined so far."""


def _execute(module: ModuleType) -> None:
    with _loading:
        if type(module) is not _Later:
            return  # another thread has executed it, or this thread is executing it
        spec: Any = module.__spec__
        _set_class(module, _Executing)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            _set_class(module, _Later)
            raise
        _set_class(module, ModuleType)


def _set_class(module: Any, kind: type[ModuleType]) -> None:
    module.__class__ = kind


def _find_spec(name: str, folders: list[str] | None) -> ModuleSpec | None:
    specs = (finder.find_spec(name, folders) for finder in sys.meta_path)
    return next((spec for spec in specs if spec is not None), None)


def add_modules(shell_class: type, stream_class: type) -> None:
    """Put ipykernel's modules into ``sys.modules``, not executed yet, if ipykernel is installed.

    ``shell_class`` and ``stream_class`` replace classes of ipykernel. Called once, in the zygote.
    """

    def take_shell(module: Any) -> None:
        module.ZMQInteractiveShell = shell_class
        module.ZMQDisplayPublisher = Publisher
        module.ZMQShellDisplayHook = ResultHook

    def take_app(module: Any) -> None:
        module.IPKernelApp = GuestApp

    def take_stream(module: Any) -> None:
        module.OutStream = stream_class

    patch_when_imported(
        {
            f"{_PACKAGE}.zmqshell": take_shell,
            f"{_PACKAGE}.kernelapp": take_app,
            f"{_PACKAGE}.iostream": take_stream,
            f"{_PACKAGE}.ipkernel": lambda _module: _take_comms(),
            f"{_PACKAGE}.comm.comm": _take_comm_class,
        }
    )
    package = _find_spec(_PACKAGE, None)
    if package is None or not package.submodule_search_locations:
        return
    folders = list(package.submodule_search_locations)
    top = sys.modules[_PACKAGE] = _lazy_module(package)
    for name in _MODULES:
        spec = _find_spec(f"{_PACKAGE}.{name}", folders)
        if spec is not None:
            sys.modules[spec.name] = module = _lazy_module(spec)
            setattr(top, name, module)
    # ipywidgets reads the version. These names are what the package itself has.
    try:
        version = import_module(f"{_PACKAGE}._version")
    except ImportError:  # this version of ipykernel has them elsewhere
        return
    vars(top).update({k: v for k, v in vars(version).items() if "version" in k and k[0] != "_"})
    vars(top)["__version__"] = version.__version__


def _lazy_module(spec: ModuleSpec) -> ModuleType:
    """Make a module that is executed when a name of it is read."""
    module = module_from_spec(spec)
    _set_class(module, _Later)
    return module


# --- application and kernel ---------------------------------------------------------------------


class GuestApp(BaseIPythonApplication):
    """The application that ``Application.instance()`` returns, by name ipykernel's."""

    kernel: Any = None
    shell: Any = None
    connection_dir = ""
    #: The path on the command line. No cell can read the file.
    connection_file = ""


GuestApp.__name__ = GuestApp.__qualname__ = "IPKernelApp"
GuestApp.__module__ = f"{_PACKAGE}.kernelapp"

_COMM_KINDS: Final = frozenset(get_args(messages.CommKind))


class GuestKernel:
    """The object ``get_ipython().kernel``, where libraries look for comms and the running request.

    An Output widget captures the output of the request with some message id. A guest knows no
    message ids: ``get_parent`` makes one up, which the host replaces by the real one.
    """

    implementation, implementation_version = "ipython", release.version
    #: No event loop of a window system runs between cells.
    eventloop = None
    #: Arguments that libraries pass to ``send_response`` and others. There are no sockets.
    iopub_socket = shell_stream = session = None
    _supports_kernel_subshells = False
    log = logging.getLogger(_PACKAGE)

    def __init__(self, shell: InteractiveShell, out: Outlet, runs_cell: Callable[[], bool]) -> None:
        self.shell = shell
        self.comm_manager = CommManager()
        #: The request that is being answered, and the number of its cell.
        self.request = self.cell = 0
        self._out = out
        self._runs_cell = runs_cell
        self.open_comms()

    @property
    def banner(self) -> str:
        """IPython's greeting."""
        return str(self.shell.banner)

    @property
    def user_ns(self) -> dict[str, Any]:
        """The namespace of cells."""
        namespace: dict[str, Any] = self.shell.user_ns
        return namespace

    @property
    def execution_count(self) -> int:
        """The number of the next cell."""
        return int(self.shell.execution_count)

    def get_parent(self, _channel: str | None = None) -> dict[str, Any]:
        """Return a stand-in for the message that is being answered, with the cell's number."""
        header = {"msg_id": f"request-{self.request}", "cell": current_cell.get() or self.cell}
        return {"header": header}

    def set_parent(self, _identity: Any, parent: Any, _channel: str | None = None) -> None:
        """Make output of the calling thread or task belong to the cell that ``parent`` names."""
        set_parent(parent)

    def do_shutdown(self, restart: bool) -> dict[str, Any]:
        """Tell the user how to end or restart the session; return what ipykernel's kernel returns.

        ipykernel ends the process here. In cellblock, code in a guest can't end a session, because
        the user would lose its variables, and the states that the user can go back to.
        """
        if restart:
            text = "To restart, use Restart Kernel of the front end; %reset -f drops the variables."
        else:
            text = "To end the session, put exit into a cell of its own."
        sys.stderr.write(f"{text}\n")
        return {"status": "ok", "restart": restart}

    def deliver(self, message: messages.CommIn) -> None:
        """Pass a front end's message to the comm that it names; drop unknown kinds."""
        if message.kind in _COMM_KINDS:
            content, metadata = message.content, message.metadata
            envelope = {"content": content, "metadata": metadata, "buffers": message.buffers}
            # The manager has a method for each kind, by its name.
            getattr(self.comm_manager, message.kind)(None, "", envelope)

    def publish_comm(
        self, comm_id: str, kind: Any, data: Any, metadata: Any, buffers: Any, keys: Any
    ) -> None:
        """Send a comm's message to the front end. Raises ValueError for an unknown kind."""
        if kind not in _COMM_KINDS:
            raise ValueError(f"{kind!r} is no comm message")
        self._out.send(
            messages.CommOut(
                kind=kind,
                content=plain({"data": data or {}, "comm_id": comm_id, **keys}),
                metadata=plain(metadata or {}),
                buffers=[bytes(b) for b in buffers or ()],
            ),
        )

    def open_comms(self) -> None:
        """Make ``comm.create_comm`` create comms of this kernel."""
        runs_cell = self._runs_cell

        class GuestComm(BaseComm):
            publish_msg = _publish

            def handle_msg(self, msg: Any) -> None:
                # The base class runs IPython's hooks around the handler, which would show what a
                # running cell has plotted so far.
                if runs_cell() and self._msg_callback:
                    self._msg_callback(msg)
                else:
                    super().handle_msg(msg)

        _comms.update(create_comm=GuestComm, get_comm_manager=lambda: self.comm_manager)
        _comms["kernel"] = self
        _take_comms()


#: The guest's kernel, and the functions by which the package ``comm`` makes comms.
_comms: Final[dict[str, Any]] = {}


def _publish(
    self: Any,
    msg_type: Any,
    data: Any = None,
    metadata: Any = None,
    buffers: Any = None,
    **keys: Any,
) -> None:
    _comms["kernel"].publish_comm(self.comm_id, msg_type, data, metadata, buffers, keys)


def _take_comms() -> None:
    """Make the package ``comm`` use this module's functions.

    Done again after ``ipykernel.ipkernel`` is imported, which replaces them.
    """
    if _comms:
        comm.create_comm, comm.get_comm_manager = (
            _comms["create_comm"],
            _comms["get_comm_manager"],
        )


def _take_comm_class(module: Any) -> None:
    """Make ipykernel's own comms, which older libraries use, send through this kernel."""
    module.BaseComm.publish_msg = _publish
