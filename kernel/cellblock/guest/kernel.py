"""What libraries find of ipykernel in a guest: its application, its kernel, its modules.

The modules are ipykernel's own, in ``sys.modules`` from the start and executed when somebody asks
one of them for a name: they bring zmq, tornado and jupyter_client along, 17 MiB that hardly a
notebook looks at. A class of theirs whose place the guest takes is the guest's then.
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
#: Of the package: what a kernel of ipykernel's has imported, and libraries look for.
_MODULES: Final = ("zmqshell", "kernelapp", "ipkernel", "kernelbase", "iostream")
_loading: Final = threading.RLock()


class _Later(ModuleType):
    """A module with its real spec, which is executed when somebody asks it for a name.

    ``importlib.util.LazyLoader`` would execute it for ``__file__``, too, which everything asks that
    walks through ``sys.modules``: ``inspect``, ``%autoreload``.
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
    """A module that is being executed: it has the names that it has by now."""


def _execute(module: ModuleType) -> None:
    with _loading:
        if type(module) is not _Later:
            return  # another thread has, or this one is about to
        spec: Any = module.__spec__
        _become(module, _Executing)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            _become(module, _Later)
            raise
        _become(module, ModuleType)


def _become(module: Any, kind: type[ModuleType]) -> None:
    module.__class__ = kind


def _find(name: str, places: list[str] | None) -> ModuleSpec | None:
    specs = (finder.find_spec(name, places) for finder in sys.meta_path)
    return next((spec for spec in specs if spec is not None), None)


def add_modules(shell_class: type, stream_class: type) -> None:
    """Put ipykernel's modules into ``sys.modules``, not executed yet, if it is installed.

    ``shell_class`` and ``stream_class`` take the place of theirs. For the zygote, once.
    """

    def take_shell(module: Any) -> None:
        module.ZMQInteractiveShell = shell_class
        module.ZMQDisplayPublisher, module.ZMQShellDisplayHook = Publisher, ResultHook

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
    package = _find(_PACKAGE, None)
    if package is None or not package.submodule_search_locations:
        return
    places = list(package.submodule_search_locations)
    top = sys.modules[_PACKAGE] = _later(package)
    for name in _MODULES:
        spec = _find(f"{_PACKAGE}.{name}", places)
        if spec is not None:
            sys.modules[spec.name] = module = _later(spec)
            setattr(top, name, module)
    # ipywidgets asks for the version; these are the package's own.
    try:
        version = import_module(f"{_PACKAGE}._version")
    except ImportError:  # a version that keeps it elsewhere
        return
    vars(top).update({k: v for k, v in vars(version).items() if "version" in k and k[0] != "_"})
    vars(top)["__version__"] = version.__version__


def _later(spec: ModuleSpec) -> ModuleType:
    module = module_from_spec(spec)
    _become(module, _Later)
    return module


# --- application and kernel ---------------------------------------------------------------------


class GuestApp(BaseIPythonApplication):
    """What ``Application.instance()`` is in a notebook: ipykernel's application by name."""

    kernel: Any = None
    shell: Any = None
    connection_dir = ""
    #: As on the command line; no cell can read it.
    connection_file = ""


GuestApp.__name__ = GuestApp.__qualname__ = "IPKernelApp"
GuestApp.__module__ = f"{_PACKAGE}.kernelapp"

_COMM_KINDS: Final = frozenset(get_args(messages.CommKind))


class GuestKernel:
    """What libraries look for in ``get_ipython().kernel``: the comms, and which request runs.

    An Output widget captures the output of a message id. The host puts the real one in place of
    what is named here: a guest knows none.
    """

    implementation, implementation_version = "ipython", release.version
    #: No event loop of a window system turns between cells.
    eventloop = None
    #: As ``send_response`` and others pass them on; there is no socket.
    iopub_socket = shell_stream = session = None
    _supports_kernel_subshells = False
    log = logging.getLogger(_PACKAGE)

    def __init__(self, shell: InteractiveShell, out: Outlet, runs_cell: Callable[[], bool]) -> None:
        self.shell, self.comm_manager = shell, CommManager()
        self.request = self.cell = 0
        self._out, self._runs_cell = out, runs_cell
        self.open_comms()

    @property
    def banner(self) -> str:
        """IPython's greeting."""
        return str(self.shell.banner)

    @property
    def user_ns(self) -> dict[str, Any]:
        """The namespace of cells."""
        found: dict[str, Any] = self.shell.user_ns
        return found

    @property
    def execution_count(self) -> int:
        """The number of the next cell."""
        return int(self.shell.execution_count)

    def get_parent(self, _channel: str | None = None) -> dict[str, Any]:
        """Return a stand-in for the message that is being answered."""
        header = {"msg_id": f"request-{self.request}", "cell": current_cell.get() or self.cell}
        return {"header": header}

    def set_parent(self, _identity: Any, parent: Any, _channel: str | None = None) -> None:
        """Have what the calling thread or task shows belong to the cell of ``parent``."""
        set_parent(parent)

    def do_shutdown(self, restart: bool) -> dict[str, Any]:
        """Say who ends or restarts a session; return what ipykernel's kernel returns.

        Under ipykernel this ends the process. Here what runs in a guest ends no session: its
        variables are the user's, and so are the states that they can go back to.
        """
        if restart:
            said = "To restart, use Restart Kernel of the front end; %reset -f drops the variables."
        else:
            said = "To end the session, put exit into a cell of its own."
        sys.stderr.write(f"{said}\n")
        return {"status": "ok", "restart": restart}

    def deliver(self, message: messages.CommIn) -> None:
        """Hand a front end's message to the comm it names; unknown kinds are dropped."""
        if message.kind in _COMM_KINDS:
            content, metadata = message.content, message.metadata
            envelope = {"content": content, "metadata": metadata, "buffers": message.buffers}
            # The manager's methods have the kinds' names.
            getattr(self.comm_manager, message.kind)(None, "", envelope)

    def publish_comm(
        self, comm_id: str, kind: Any, data: Any, metadata: Any, buffers: Any, keys: Any
    ) -> None:
        """Send a comm's message to the front end. Raises ValueError for any other."""
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
        """Have ``comm.create_comm`` make comms of this kernel's."""
        runs_cell = self._runs_cell

        class GuestComm(BaseComm):
            publish_msg = _publish

            def handle_msg(self, msg: Any) -> None:
                # IPython's hooks would show what a cell that runs beside this has plotted so far.
                if runs_cell() and self._msg_callback:
                    self._msg_callback(msg)
                else:
                    super().handle_msg(msg)

        _comms.update(create_comm=GuestComm, get_comm_manager=lambda: self.comm_manager)
        _comms["kernel"] = self
        _take_comms()


#: The guest's kernel, and what the package ``comm`` makes comms with.
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
    """Have comms made here; ``ipykernel.ipkernel`` takes that for itself when it is imported."""
    if _comms:
        comm.create_comm, comm.get_comm_manager = (
            _comms["create_comm"],
            _comms["get_comm_manager"],
        )


def _take_comm_class(module: Any) -> None:
    """Have ipykernel's own comms, which older libraries make, send what they say."""
    module.BaseComm.publish_msg = _publish
