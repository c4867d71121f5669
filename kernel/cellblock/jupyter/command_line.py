"""The kernel's command line, parsed by hand because argparse would add 6 ms to each start."""

from __future__ import annotations

from cellblock.jupyter.ipykernel_options import OptionsError, read

TYPE_CHECKING = False  # a zygote is started before typing is imported
if TYPE_CHECKING:
    from cellblock.jupyter.ipykernel_options import IPKernelOptions


USAGE = (
    "usage: python -E -P -m cellblock -f CONNECTION_FILE"
    " [--policy NAME|FILE] [--input FILE] [--allow-unsafe] [options of ipykernel's]"
)
#: ipykernel's other names for ``-f``.
CONNECTION_FILE = ("--f", "--IPKernelApp.connection_file")
#: Options with a value.
_OWN = ("-f", "--policy", "--input")
#: The option of a kernel that waits for its launch, which the provisioner gives.
WARM = "--warm"


class Options:
    """The kernel's command line.

    ``inputs`` names the file whose values cells find in ``inputs``; empty for none. ``warm``: the
    kernel waits for its launch (``jupyter.warm``). ``ipykernel`` are ipykernel's own options.
    """

    __slots__ = ("allow_unsafe", "connection_file", "inputs", "ipykernel", "policy", "warm")

    def __init__(
        self,
        connection_file: str,
        policy: str,
        *,
        allow_unsafe: bool,
        inputs: str,
        ipykernel: IPKernelOptions,
        warm: bool = False,
    ) -> None:
        self.connection_file = connection_file
        self.policy = policy
        self.allow_unsafe = allow_unsafe
        self.inputs = inputs
        self.ipykernel = ipykernel
        self.warm = warm


def parse(argv: list[str]) -> Options:
    """Parse the command line.

    Raises ``SystemExit`` with the usage for an option that is unknown or given twice, since an
    option that is ignored might have been a restriction. ipykernel's options are known.
    """
    values: dict[str, str] = {}
    allow = False
    warm = False
    rest = list(argv)
    ipykernel_words = list[str]()
    while rest:
        word = rest.pop(0)
        name, _, value = word.partition("=")
        name = "-f" if name in CONNECTION_FILE else name
        if name == "--allow-unsafe" and not value:
            allow = True
        elif name == WARM and not value:
            warm = True
        elif name in _OWN and name not in values and (value or rest):
            values[name] = value or rest.pop(0)
        elif name in _OWN:
            raise SystemExit(f"cellblock: unknown argument {name!r}\n{USAGE}")
        else:
            ipykernel_words.append(word)
    try:
        ipykernel = read(ipykernel_words)
    except OptionsError as error:
        raise SystemExit(f"cellblock: {error}\n{USAGE}") from None
    if "-f" not in values:
        raise SystemExit(USAGE)
    policy = values.get("--policy", "safe")
    inputs = values.get("--input", "")
    return Options(
        values["-f"], policy, allow_unsafe=allow, inputs=inputs, ipykernel=ipykernel, warm=warm
    )


def options_of(argv: list[str]) -> Options | None:
    """Return the options in a kernelspec's command; None if it starts another kernel."""
    for index in range(1, len(argv)):
        if argv[index - 1 : index + 1] == ["-m", "cellblock"]:
            return parse(argv[index + 1 :])
    return None
