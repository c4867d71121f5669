"""An Output widget that is born with a script among its outputs."""

widget(OUTPUT, "OutputModel", "OutputView", msg_id="", outputs=[
    {"output_type": "display_data", "metadata": {}, "data": {"application/javascript": JS, "text/plain": "script"}}])
