"""A link from a list of tags to the outputs of an Output widget."""

tags = control("TagsInput", allowed_tags=[], tag_style="", placeholder="", allow_duplicates=True,
               value=[{"output_type": "display_data", "metadata": {}, "data": {"text/html": IMG()}}])
out = widget(OUTPUT, "OutputModel", "OutputView", msg_id="", outputs=[])
widget(CONTROLS, "DirectionalLinkModel", source=[ref(tags), "value"], target=[ref(out), "outputs"])
