# A class that says it is of each loaded module in turn, those without a spec included.
import sys, typing
for name in list(sys.modules):
    text = "print('' if __name__ in ('__main__', 'builtins') else 'ESCAPED ' + __name__) or int"
    C = type("C", (), {"__module__": name, "__annotations__": {"x": text}})
    try:
        typing.get_type_hints(C)
    except Exception as error:
        pass
