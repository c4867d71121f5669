# a table as large as a frame, for the sanitiser
# ends: any
data = {"type": "display", "data": {"text/html": "<b>x</b>" * (CAP // 8 - 20)}}
put(frame(data) * 2)
