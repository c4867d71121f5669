import asyncio
import json

from agents import Model, ModelResponse, Usage, set_tracing_disabled
from analyst import ask
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)
from script import CALLS, DONE, TASK, tell


class Scripted(Model):
    def __init__(self):
        self.left, self.read = list(CALLS), []

    async def get_response(self, **given):
        self.read = [one["output"] for one in given["input"] if "output" in one]
        if self.left:
            name, arguments = self.left.pop(0)
            said = ResponseFunctionToolCall(
                type="function_call",
                call_id=f"call{len(self.left)}",
                name=name,
                arguments=json.dumps(arguments),
            )
        else:
            text = ResponseOutputText(type="output_text", text=DONE, annotations=[])
            said = ResponseOutputMessage(
                type="message", id="last", role="assistant", status="completed", content=[text]
            )
        return ModelResponse(output=[said], usage=Usage(), response_id=None)

    def stream_response(self, *_, **__):
        raise NotImplementedError


set_tracing_disabled(True)
model = Scripted()
tell(asyncio.run(ask(TASK, model)), [one[0]["text"] for one in model.read])
