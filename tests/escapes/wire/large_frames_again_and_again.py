# frames of just under the cap, for as long as the cell may run
# ends: any
flood(show("x" * (CAP - 100)), size=CAP)
