# Types.new_class runs the body with a namespace.
import types
got = {}
types.new_class("C", (), {}, lambda ns: got.update(ns=ns))
print("ESCAPED", types.new_class.__globals__)
