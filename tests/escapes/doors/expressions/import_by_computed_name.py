"""P1: the import function out of the builtins, its name put together."""


def attack(door):
    door.value(
        "vars(__builtins__)['__imp' + 'ort__']('os').environ['CANARY'] if hasattr(__builtins__, 'open') else __builtins__['__imp' + 'ort__']('os').environ['CANARY']"
    )
