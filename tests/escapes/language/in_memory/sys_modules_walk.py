# The modules by name: all ways to ask for one.
import sys
names = sys.modules
for ask in (lambda: names.get("os"), lambda: dict(names)["os"], lambda: next(iter(names.values())), lambda: names.copy()["os"], lambda: type(names).get(names, "os")):
    try:
        canary(ask())
    except Exception as error:
        print(type(error))
