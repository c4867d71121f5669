"""Unknown tags with attributes that need no value."""

markdown(f"<x, contenteditable autofocus>type</x> <Foo contenteditable, autofocus> <y onclick> <List, popover> <img, src=x onerror={JS}>")
