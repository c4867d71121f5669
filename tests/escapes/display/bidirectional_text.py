"""Overrides of direction that turn text around; in a title, a sequence too."""

print("\u202egnp.txt\u202c \u2066a\u2069 \u200f\x1b]0;x\x07")
