# large metadata, small data
# ends: any
flood(show("x", metadata={"a": "x" * 60_000}))
