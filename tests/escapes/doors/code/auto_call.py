"""P1: IPython's forms of calls without parentheses, with commas and semicolons."""


def attack(door):
    for form in (",open {} w", ";open {}", "/open {!r}, 'w'"):
        door.run(form.format(door.mark))
