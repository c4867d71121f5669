# one user_expression of 20 MB
# ends: any
send(done(own_id(), user_expressions={"a": {"status": "ok", "data": {"text/plain": "x" * (20 << 20)}}}))
