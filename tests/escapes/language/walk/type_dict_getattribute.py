# Object's own attribute lookup, out of its namespace.
g = object.__dict__["__getattribute__"]
b = g(len, "__self__")
@@LOOTB@@
