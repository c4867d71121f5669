# a question in the name of another cell
# stdin: yes
# ends: protocol
send({"type": "input_request", "id": own_id() + 1, "prompt": "password:"})
wait()
