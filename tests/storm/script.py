"""What a storm's session runs: cells of many kinds, and a model of the namespace they leave."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

#: Cells that look as if they only assigned and defined, and run code of earlier cells.
SECRETIVE = (
    "best = max(range({k}), key=by_lot)\nprint(best)",
    "order = sorted(range({k}), key=lambda _: dice.random())\nprint(order)",
    "@seen.append\ndef noted():\n    return {k}\nprint(len(seen))",
    "class Told:\n    one = Named()\nprint(len(seen))",
    "drawn = odd + {k}\nprint(drawn)",
    "drawn = odd[{k}]",
    "drawn = f'{{odd:>{k}}}'",
    "odd.x = {k}",
    "drawn = 1 if odd else 2",
    "abs = by_lot\ndrawn = abs(-{k})",
    "first, *drawn = odd",
    "print(odd)",
    "def later(x=odd + {k}, y: odd[1] = 0):\n    return x\nprint(later())",
)
#: Each stands for a family; ``{n}`` is a number of its own, ``{k}`` a small one.
CELLS = (
    "a{n} = {k} * 7",
    "a{n} = a{n} * 3 + {k} if a{n} < 10**30 else 1",
    "total += {k}\ntotal",
    "items.append(({k}, 'x' * {k}))\nprint(len(items))",
    "items += [sum(range({k}))]",
    "del items[:-50]",
    "table['k{n}'] = {{'value': total, 'rest': items[-2:]}}",
    "table.pop('k{n}', None)",
    "def f{n}(x, more={k}):\n    return x * more + total\nprint(f{n}(2))",
    "f{n} = lambda x: x + {k}\nprint(f{n}(total))",
    (
        "class C{n}:\n    kind = {k}\n    def __init__(self, x):\n        self.x = x\n"
        "    def add(self, y):\n        self.x += y\n        return self.x\nc{n} = C{n}({k})"
    ),
    "print(c{n}.add({k}), type(c{n}).kind)",
    "import math, string\nroot = math.isqrt(total * {k})\nprint(string.digits[{k} % 10])",
    "from collections import Counter, defaultdict\ncount = Counter('storm' * {k})\nprint(count['s'])",
    "g{n} = (i * i for i in range({k}, 10_000))",
    "print(next(g{n}), next(g{n}))",
    "it{n} = iter([{k}, *range(100)])\nprint(next(it{n}))",
    "print(next(it{n}, 'over'))",
    (
        "import asyncio\nasync def slow(x):\n    await asyncio.sleep(0.002)\n    return x * {k}\n"
        "waited = await slow(total)\nprint(waited)"
    ),
    "print(await asyncio.gather(slow(1), slow(2), slow({k})))",
    "for i in range({k} * 2_000):\n    steps = steps + 1 & 0xFFFF\nprint(steps)",
    "stop = {k} * 3\nwhile stop:\n    stop -= 1\n    queue.append(stop)\n    queue.popleft()",
    "try:\n    1 / (total - total)\nexcept ZeroDivisionError as exc:\n    said = str(exc)\nsaid",
    "text = ''.join(sorted(set(repr(table))))\nprint(text[:20])",
    "block = bytearray(b'%d' % total) * {k} * 1_000\nprint(len(block), sum(block) % 251)",
    "block[{k} % max(1, len(block))] ^= {k}\nprint(sum(block) % 251)",
    "ring = [items]\nring.append(ring)\nprint(ring[1][1][0] is items)",
    "print(dice.randrange(10**6))",
    "import time\ntime.sleep(0.0{k:02d})\nslept = {k}",
    *SECRETIVE,
)
#: The same under memory pressure: cells that write to every page a copy shares, or ask too much.
PRESSED = (
    *CELLS[:12],
    "for one in heap:\n    one[::4096] = bytes([{k}]) * (len(one) // 4096)",
    "heap[{n}] = bytearray([{k}]) * len(heap[{n}])",
    "print(sum(heap[{n}][::4096]), sum(heap[-{n}][5::4096]))",
    "try:\n    heap.append(bytearray(1 << 40))\nexcept MemoryError:\n    print('too much')",
)
HEAP = "heap = [bytearray(1 << 22) for _ in range(32)]\n"
SETUP = (
    "import asyncio, random\nfrom collections import deque\n"
    "total, steps, items, table, block = 1, 0, [], {}, bytearray(b'0')\n"
    "said, text, root, waited, slept, stop, count = '', '', 0, 0, 0, 0, {}\n"
    "queue, ring, dice = deque(range(50)), [], random.Random(1)\n"
    "async def slow(x):\n    return x\n"
    "seen, drawn, best, order, first = [], 0, 0, [], 0\n"
    "def by_lot(_):\n    return dice.random()\n"
    "class Named:\n    def __set_name__(self, owner, name):\n        seen.append(name)\n"
    "class Odd:\n"
    "    def __add__(self, other):\n        return by_lot(other)\n"
    "    def __getitem__(self, index):\n        return by_lot(index)\n"
    "    def __format__(self, spec):\n        return str(by_lot(spec))\n"
    "    def __bool__(self):\n        return by_lot(0) < 0.5\n"
    "    def __iter__(self):\n        return iter([by_lot(0), by_lot(1)])\n"
    "    def __repr__(self):\n        return str(by_lot(0))\n"
    "    @property\n    def x(self):\n        return by_lot(0)\n"
    "    @x.setter\n    def x(self, value):\n        seen.append(by_lot(value))\n"
    "odd = Odd()\n"
)
#: What each number has from the beginning, so that any cell can come first.
SETUP_EACH = (
    "a{n} = {n}\nf{n} = lambda x: x\ng{n} = iter(range(10_000))\nit{n} = iter(range(1_000))\n"
    "class C{n}:\n    kind = 0\n    def __init__(self, x):\n        self.x = x\n"
    "    def add(self, y):\n        self.x += y\n        return self.x\nc{n} = C{n}(0)\n"
)
NUMBERS = 4
#: Flags of ``compile``, and that this module's own imports from the future are not a cell's.
_COMPILED = (ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
_NAMES = (
    "total steps items table said text root waited slept stop queue count drawn best order first".split()  # noqa: SIM905
    + [f"a{n}" for n in range(NUMBERS)]
)
#: Prints everything there is. What can't be looked at without moving on is moved on.
DIGEST = "\n".join(
    [
        *(f"print({name!r}, {name})" for name in _NAMES),
        *(
            f"print(f{n}(3), c{n}.x, type(c{n}).kind, next(g{n}), next(it{n}, None))"
            for n in range(NUMBERS)
        ),
        "print(dice.random(), len(block), sum(block), len(seen))",
    ],
)


def setup() -> str:
    """Return the first cell."""
    return SETUP + "".join(SETUP_EACH.format(n=n) for n in range(NUMBERS))


def cells(dice: random.Random, families: tuple[str, ...] = CELLS) -> Iterator[str]:
    """Yield cells without end."""
    while True:
        yield dice.choice(families).format(n=dice.randrange(NUMBERS), k=dice.randint(1, 12))


class Model:
    """The namespace as it should be: the same cells, run here, each once, when it was answered."""

    def __init__(self) -> None:
        self._names: dict[str, Any] = {"__name__": "__main__"}

    def run(self, source: str) -> str:
        """Run a cell that the kernel has answered; return what it should have shown."""
        tree = ast.parse(source)
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            self._run(tree)
            value = self._value(last) if last is not None else None
            if value is not None:
                print(repr(value))
        return shown.getvalue()

    def _run(self, tree: ast.Module) -> None:
        self._await(compile(tree, "cell", "exec", *_COMPILED))

    def _value(self, last: ast.Expr) -> Any:
        source = ast.Expression(last.value)
        return self._await(compile(source, "cell", "eval", *_COMPILED))

    def _await(self, code: Any) -> Any:
        value = eval(code, self._names)
        if code.co_flags & inspect.CO_COROUTINE:
            # In a thread of its own: this one may have a running loop, from a browser's tests.
            with ThreadPoolExecutor(1) as thread:
                return thread.submit(asyncio.run, value).result()
        return value
