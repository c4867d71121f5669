# as many buffers as a message may have, and messages of them
# ends: any
flood({"type": "comm_out", "kind": "comm_msg", "content": {"comm_id": "a", "data": {}}, "buffers": [b""] * 10_000})
