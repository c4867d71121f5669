# questions by the thousand
# stdin: yes
# ends: protocol
flood({"type": "input_request", "id": own_id(), "prompt": "x" * 1000})
wait()
