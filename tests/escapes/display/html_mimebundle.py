"""A bundle with metadata of its own."""

class Bundle:
    def _repr_mimebundle_(self, include=None, exclude=None):
        return ({"text/plain": "b", "application/javascript": JS, "text/html": f"<script>{JS}</script>"},
                {"text/html": {"isolated": True}, "isolated": True, "trusted": True})
Bundle()
