"""P1: a magic in a magic in a magic."""


def attack(door):
    door.run(f"%%time\n%timeit -n1 -r1 get_ipython().system('touch {door.mark}')")
