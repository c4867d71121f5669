# error, findings and values at once
# ends: any
send(done(own_id(), error={"ename": "E", "evalue": "v", "traceback": []}, refused=[{"rule": 1, "line": "x"}] * 1000, user_expressions={"a": {}}))
