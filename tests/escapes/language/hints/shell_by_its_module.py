# A class that says it is of the module that has the shell.
import typing
class C:
    __module__ = "IPython.core.interactiveshell"
    x: "InteractiveShell"
print("ESCAPED", typing.get_type_hints(C)["x"].instance())
