"""P1: a message to shell is played back to control."""


def attack(door, first="shell", second="control"):
    kernel = door.kernel
    content = {"restart": False}
    msg = kernel.session.msg("kernel_info_request", content)
    frames = kernel.session.serialize(msg)
    getattr(kernel, first).send_multipart(frames)
    kernel.reply(msg["header"]["msg_id"], first)
    getattr(kernel, second).send_multipart(frames)
    return getattr(kernel, second).poll(300)


def control(door):
    """A message of its own is answered there."""
    kernel = door.kernel
    kernel.send("kernel_info_request", {}, "control")
    return kernel.control.poll(2_000)
