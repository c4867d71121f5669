"""P1: code that captures what it prints, shown afterwards."""


def attack(door):
    door.run("%%capture out\nimport os\nprint(os.environ)")
    door.run("out.show()")
