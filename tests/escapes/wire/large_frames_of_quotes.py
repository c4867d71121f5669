# a text that grows when it is written as JSON
# ends: any
flood(show('"' * (CAP - 100)), size=CAP)
