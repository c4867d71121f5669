"""A model's module that is an address to load it from."""

widget(f"{URL}/module.js", "M", "V", version="*")
