"""An Output widget that is told HTML with a handler as its outputs."""

made = widget(OUTPUT, "OutputModel", "OutputView", msg_id="", outputs=[])
update(made, outputs=[{"output_type": "execute_result", "execution_count": 1, "metadata": {}, "data": {"text/html": IMG(), "text/plain": "x"}}])
