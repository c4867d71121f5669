# A submodule's own imports.
import json.decoder
print("ESCAPED", json.decoder.scanner)
