# displays of nothing, as many as go through
# ends: any
flood({"type": "display", "data": {}})
