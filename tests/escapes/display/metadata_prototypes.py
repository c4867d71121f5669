"""Keys that are prototypes, and trust that is claimed."""

metadata = {"__proto__": {"isolated": True, "trusted": True}, "constructor": {"prototype": {"trusted": True}},
            "trusted": True, "isTrusted": True, "text/html": {"__proto__": {"isolated": True}}}
publish("display_data", {"data": {"text/html": f"<script>{JS}</script>"}, "metadata": metadata, "transient": {}})
