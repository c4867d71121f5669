"""Sequences for a viewer that writes their names into its page."""

show("application/vnd.fasta.fasta", f"><img src=x onerror={JS}>\nACGT\n><script>{JS}</script>\nACGT")
