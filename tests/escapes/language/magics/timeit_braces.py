# Braces in what %timeit gets.
# unseen: what it changes or prints is out of the witnesses' sight
x = "__import__('os').uname().release[::-1]"
%timeit -n1 -r1 print({x})
