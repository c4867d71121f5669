# The context of a library's error.
import json
try: json.loads("{")
except ValueError as e:
    while e:
        tb = e.__traceback__
        while tb:
            f = getattr(tb, "tb_frame", None)
            if f: print("ESCAPED", f.f_globals)
            tb = tb.tb_next
        e = e.__context__ or e.__cause__
print("ESCAPED", type(tb).tb_frame)
