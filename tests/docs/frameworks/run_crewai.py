import json
import os

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true"}

from analyst import ask
from crewai import BaseLLM
from script import CALLS, DONE, TASK, tell


class Scripted(BaseLLM):
    def call(self, messages, *_, **__):
        steps = [str(one["content"]) for one in messages if one["role"] == "assistant"]
        self._read[:] = [one.partition("Observation:")[2] for one in steps]
        if not self._left:
            return f"Thought: I now know the final answer\nFinal Answer: {DONE}"
        name, given = self._left.pop(0)
        return f"Thought: next\nAction: {name}\nAction Input: {json.dumps(given)}"

    def supports_function_calling(self):
        return False


model = Scripted(model="scripted")
model._left, model._read = list(CALLS), []
tell(ask(TASK, model), model._read)
