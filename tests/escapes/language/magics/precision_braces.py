# Braces in the argument of a magic that only sets a number.
%precision {__import__("os").system("uname -r | rev")}
