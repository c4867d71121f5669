# An exception group's derive is handed its parts.
class G(ExceptionGroup):
    def derive(self, excs):
        for e in excs:
            if e.__traceback__: print("ESCAPED", e.__traceback__.tb_frame)
        return G("x", excs)
try:
    try: 1/0
    except ZeroDivisionError as e: raise G("g", [e])
except* ZeroDivisionError: pass
