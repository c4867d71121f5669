"""A message on a comm that the front end was never told of."""

made = comm.create_comm(comm_id="never", primary=False)
made.send({"method": "update", "state": {"value": IMG()}, "buffer_paths": []})
view_of("never")
