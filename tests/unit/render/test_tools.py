"""What ``%tools`` lists, and what it and ``%usage`` say of a session's budgets."""

from cellblock.host.services.llm import tools as offered
from cellblock.policy.model import Llm
from cellblock.render.tables import ModelBudget, UsageRow, UsageTotals, WriteBudget, tools, usage
from cellblock.wire.messages import Tool

SPENT = {
    "llm": ModelBudget(calls=3, max_calls=1_000, tokens=1_200, max_tokens=50_000),
    "ops.write_file": WriteBudget(8_192, 10_000),
}
LEFT = (
    "llm: 997 of 1,000 calls and 48,800 of 50,000 tokens are left for this session.",
    "ops.write_file: 1,808 of 10,000 bytes are left for this session.",
)


def test_the_list_in_a_terminal():
    known = offered(Llm(base_url="http://a", models=("small",)))
    assert tools((Tool(name="f", is_async=True), *known), SPENT)["text/plain"].splitlines() == [
        "1 tool of the policy's, 2 tools of the host's",
        "  async f()",
        "  llm(prompt: str, *, system: str | None = None, model: Literal['small'] =",
        "      'small', temperature: float | None = None, max_tokens: int = 4096, stop:",
        "      str | list[str] | None = None) -> str",
        "      Ask a language model and return what it says.",
        "  llm.chat(messages: list[dict[str, str]], *, model: Literal['small'] = 'small',",
        "      temperature: float | None = None, max_tokens: int = 4096, stop: str |",
        "      list[str] | None = None) -> str",
        "      Continue a conversation with a language model.",
        *LEFT,
        "They run on the host. name? shows more; a call that fails raises ToolError.",
    ]


def test_what_is_left_is_in_every_form():
    rows, totals = [UsageRow(1, "x", 0.1, 0.1, 0, 0, 0)], UsageTotals(1, 0.1, 0.1, 0, 0)
    for bundle in (
        tools(offered(Llm(models=("a",))), SPENT),
        usage(rows, totals, budgets=SPENT),
    ):
        (data,) = (value for kind, value in bundle.items() if kind.endswith("+json"))
        assert data["budgets"] == {name: one._asdict() for name, one in SPENT.items()}
        for line in LEFT:
            assert line in bundle["text/plain"]
            assert line in bundle["text/html"]


def test_of_an_account_that_was_overdrawn_nothing_is_left_and_of_none_nothing_is_said():
    assert str(ModelBudget(5, 4, 900, 100)) == "0 of 4 calls and 0 of 100 tokens are left"

    shown = tools(offered(Llm(models=("a",))))
    assert "budgets" not in shown["application/vnd.cellblock.tools+json"]
