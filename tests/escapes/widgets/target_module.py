"""A comm whose target is to be loaded from a module."""

comm.create_comm(target_name="mine", target_module=f"{URL}/target.js", data={"js": JS})
comm.create_comm(target_name="jupyter.widget", target_module=f"{URL}/target.js", data={"state": {}}, metadata={"version": "2.1.0"})
