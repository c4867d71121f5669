# bytes, which grow in base64
# ends: any
flood({"type": "display", "data": {"image/png": b"\xff" * (CAP - 100)}}, size=CAP)
