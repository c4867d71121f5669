"""Handlers that wait for the pointer or a key."""

html(f"<p onmouseover={JS} onpointerenter={JS} onclick={JS} onkeydown={JS} tabindex=0>hover over me</p><button onclick={JS}>press me</button>")
