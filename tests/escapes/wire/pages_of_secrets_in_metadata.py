# control characters and markup in every name there is
# ends: ok
odd = "\x1b]0;x\x07\u202e<script>"
send(show(odd, display_id=odd, metadata={odd: odd}))
send({"type": "comm_out", "kind": "comm_open", "content": {"comm_id": odd, "target_name": odd, "data": {odd: odd}}})
