"""Links to files of the machine, blobs and the browser."""

html("<a href='file:///etc/passwd'>a</a> <a href='blob:http://127.0.0.1/x'>b</a> <a href='chrome://settings'>c</a> <a href='about:blank'>d</a> <a href='vscode://x'>e</a> <a href='intent://x'>f</a>")
