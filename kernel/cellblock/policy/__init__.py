"""The policy: its fields (``model``), how a file becomes one (``load``), the words it may use.

Importing this package imports nothing: kernel start-up is measured.
"""
