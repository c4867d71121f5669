# Getter() copies a property.
import pathlib
print("ESCAPED", pathlib.PurePath.name.getter(lambda s: 1).fset or pathlib.PurePath.stem.fget.__code__)
