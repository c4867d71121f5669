# as deep as the decoder goes, again and again
# ends: any
flood(json(b"\x91" * 150 + b"\0"))
