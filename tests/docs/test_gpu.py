"""GPUs: the page's policy is one that this version reads."""

from cellblock.policy.load import load

PAGE = "howto/gpu.md"


def test_the_pages_policy_is_read_and_its_commands_run(follow, world):
    follow(PAGE)
    policy = load(world.work / "gpu.toml", project=world.work, allow_unsafe=False)
    assert (policy.devices, policy.require) == (("nvidia:0",), ("devices",))
    assert policy.memory_max_bytes == 16 << 30
