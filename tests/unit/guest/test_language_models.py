"""``llm`` in the zygote: granted, not granted, or a name that the operator's own tool has."""

from cellblock.guest import host_services
from cellblock.wire.messages import Tool


def build(*names):
    return host_services.build_llm({name: Tool(name=name) for name in names}, 2**20, lambda: None)


def test_where_it_is_not_granted_a_tool_may_be_called_llm_or_a_stub_says_so():
    assert build("llm") == {}

    (stub,) = build().values()
    assert [name for name in dir(stub) if not name.startswith("_")] == ["acall", "achat", "chat"]
    assert "does not grant it" in stub.chat.__doc__
    assert host_services._granted_llm == []
