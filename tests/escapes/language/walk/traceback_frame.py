# Tb_frame under another spelling.
try:
    1/0
except ZeroDivisionError as e:
    t = e.__traceback__
    print("ESCAPED", getattr(t, "tb_" + "frame"))
