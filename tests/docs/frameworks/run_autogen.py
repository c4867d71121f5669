import asyncio
import json

from analyst import ask
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, FunctionExecutionResultMessage, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient
from script import CALLS, DONE, TASK, tell


def said(content, reason):
    usage = RequestUsage(prompt_tokens=0, completion_tokens=0)
    return CreateResult(content=content, finish_reason=reason, usage=usage, cached=False)


calls = [FunctionCall(str(n), json.dumps(given), name) for n, (name, given) in enumerate(CALLS)]
model = ReplayChatCompletionClient(
    [*(said([call], "function_calls") for call in calls), said(DONE, "stop")],
    model_info={
        "vision": False,
        "function_calling": True,
        "json_output": False,
        "structured_output": False,
        "family": "unknown",
    },
)
answer = asyncio.run(ask(TASK, model))
last = model.create_calls[-1]["messages"]
results = [one for one in last if isinstance(one, FunctionExecutionResultMessage)]
tell(answer, [one.content[0].content for one in results])
