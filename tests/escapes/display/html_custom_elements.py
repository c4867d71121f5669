"""Unknown elements with handlers, custom elements, built-ins by name."""

html(f"<x-y onclick={JS} tabindex=1 onfocus={JS} autofocus style='display:block'>z</x-y><jp-button onclick={JS}>x</jp-button><img is=x-z src=x onerror={JS}>")
