# A file written.
%%writefile @@WDIR@@/x
text
