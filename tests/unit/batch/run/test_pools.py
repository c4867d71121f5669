"""A pool for each policy that notebooks have: shared, opened once, few kept, and none of more."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from cellblock.api.sandbox import AsyncSandboxPool
from cellblock.batch.run.execution import MAX_IDLE, Job, PolicyPools
from cellblock.batch.run.notebook import read
from cellblock.errors import BackendError, PolicyError, WideningError
from cellblock.policy.model import Policy
from support.runs import notebook


class Operators:
    """Stands for the operator's pool: what narrower ones are made of it is noted, none is opened."""

    def __init__(self, policy, folder, made=None):
        self.policy, self.folder = policy, folder
        self.made = [] if made is None else made
        self.opened = self.closed = 0
        self.config = self

    prepare = property(lambda self: self)
    scratch = property(lambda self: str(self.folder / "scratch"))
    project = property(lambda self: self.folder)

    def narrowed(self, policy):
        self.made.append(Operators(policy, self.folder, self.made))
        return self.made[-1]

    async def open(self):
        await asyncio.sleep(0)
        self.opened += 1

    async def close(self):
        self.closed += 1


@pytest.fixture
def operators(tmp_path):
    return Operators(Policy(filesystem_read_roots=(str(tmp_path),)), tmp_path)


def test_notebooks_of_one_policy_have_one_pool_and_the_operators_is_not_made_anew(operators):
    async def run():
        pools, less = PolicyPools(operators), operators.policy.replace(timeout=1.0)

        async def one(policy):
            async with pools.use(policy) as pool:
                await asyncio.sleep(0.01)
                return pool

        return await asyncio.gather(one(less), one(operators.policy), one(less.replace()))

    first, second, third = asyncio.run(run())
    assert (second, first) == (operators, third)
    assert len(operators.made) == 1
    assert first.closed == operators.closed == 0


def test_few_pools_that_nobody_uses_are_kept_and_none_that_is_used_is_closed(operators):
    async def run():
        pools = PolicyPools(operators)
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(
                pools.use(operators.policy.replace(timeout=0.5))
            )
            for number in range(1, 20):
                async with pools.use(operators.policy.replace(timeout=float(number))):
                    left = [pool for pool in operators.made if not pool.closed]
                    assert len(left) <= MAX_IDLE + 2
            assert not first.closed
        async with pools.use(operators.policy.replace(timeout=19.0)) as again:
            assert again is operators.made[-1]
        await pools.close()

    asyncio.run(run())
    assert len(operators.made) == 20
    assert [pool.closed for pool in operators.made] == [1] * 20


def left_to(operators, asks, folder):
    made = read(notebook("1", metadata={"cellblock": asks}))
    return asyncio.run(PolicyPools(operators).policy_of(made, Job("nb/a.ipynb", b"", str(folder))))


def test_a_notebook_has_less_and_paths_of_its_folder(operators, tmp_path):
    (tmp_path / "nb/data").mkdir(parents=True)
    left = left_to(operators, {"policy": {"filesystem_read_roots": ["data"]}}, tmp_path / "nb")
    assert left == operators.policy.replace(filesystem_read_roots=(str(tmp_path / "nb/data"),))


@pytest.mark.parametrize("asks", [{"policy": {"timeout": 100}}, {"policy": {"backend": "noop"}}])
def test_a_notebook_never_has_more(operators, tmp_path, asks):
    with pytest.raises(WideningError):
        left_to(operators, asks, tmp_path)


def test_a_folder_that_was_moved_meanwhile_opens_no_pool(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    (tmp_path / "other").mkdir()
    policy = Policy.preset("safe", filesystem_read_roots=(str(tmp_path),), backend="noop")
    policy = policy.replace(on_unsupported="ignore")
    data = str(Path(tmp_path, "data").resolve())

    def moved():
        Path(data).rename(tmp_path / "was")
        Path(data).symlink_to(tmp_path / "other")

    async def run():
        async with AsyncSandboxPool(policy, project=tmp_path) as operators:
            less = operators.config.policy.replace(filesystem_read_roots=(data,))
            async with PolicyPools(operators) as pools:
                async with pools.use(less) as pool:
                    assert pool.config.policy.filesystem_read_roots == (data,)
                    assert pool.config.operators.filesystem_read_roots == (str(tmp_path),)
                await pools.close()
                moved()
                with pytest.raises(PolicyError, match="was moved meanwhile"):
                    async with pools.use(less):
                        pass

    asyncio.run(run())


def test_a_narrower_policy_that_is_not_enforced_opens_no_pool(operators):
    async def refuse(_pool):
        raise BackendError("can't be enforced here")

    async def run():
        async with PolicyPools(operators, check=refuse) as pools:
            async with pools.use(operators.policy) as pool:
                assert pool is operators
            for _ in range(2):
                with pytest.raises(BackendError):
                    async with pools.use(operators.policy.replace(timeout=1.0)):
                        pass
            assert [(pool.opened, pool.closed) for pool in operators.made] == [(2, 2)]

    asyncio.run(run())
