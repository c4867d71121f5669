# comms opened without end
# ends: any
flood({"type": "comm_out", "kind": "comm_open", "content": {"comm_id": "a", "target_name": "t", "data": {}}})
