# clear_output without end
# ends: any
flood({"type": "clear", "wait": False})
