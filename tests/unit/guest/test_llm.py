"""``llm`` in the zygote: granted, not granted, or a name that the operator's own tool has."""

from cellblock.guest import llm
from cellblock.wire.messages import Tool


def build(*names):
    return llm.build({name: Tool(name=name) for name in names}, 2**20, lambda: None)


def test_a_tool_of_the_operators_may_be_called_llm_where_it_is_not_granted():
    assert build("llm") == {}


def test_what_is_not_granted_is_there_to_say_so_and_is_nobodys_language_model():
    (stub,) = build().values()
    assert [name for name in dir(stub) if not name.startswith("_")] == ["acall", "achat", "chat"]
    assert "does not grant it" in stub.chat.__doc__
    assert llm._made == []
