"""P6: a cell ends the kernel through the messages that it can send."""

POLICY = "unsafe"


CODE = """
import comm
for kind in ("shutdown_reply", "shutdown_request", "status", "execute_reply", "input_request"):
    comm.create_comm(target_name="t").publish_msg(kind, {"restart": False, "execution_state": "dead"})
"""


def attack(door):
    kernel = door.kernel
    kernel.run(CODE)
    door.heard()
    kinds = {m["msg_type"] for _, m in kernel.log} | {
        str(m["content"].get("execution_state")) for _, m in kernel.log
    }
    return kinds & {"shutdown_reply", "shutdown_request", "dead", "input_request"}


def control(door):
    """Comm messages do go out."""
    door.run("import comm; comm.create_comm(target_name='jupyter.widget').send({})")
    return door.run("1")
