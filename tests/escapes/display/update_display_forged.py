"""An update on the wire, with metadata."""

display("a", display_id=NAME)
publish("update_display_data", {"data": {"text/html": f"<script>{JS}</script>"}, "metadata": {"isolated": True},
                                "transient": {"display_id": NAME}})
