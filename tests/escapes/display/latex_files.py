"""What a TeX engine would read, write or run on PDF export."""

latex(rf"\input{{/etc/passwd}} \immediate\write18{{touch /tmp/{NAME}}} \openin5=/etc/passwd \include{{x}} \lstinputlisting{{/etc/passwd}} \directlua{{os.execute('id')}} \href{{file:///etc/passwd}}{{x}} \catcode`\%=12 \verbatiminput{{/etc/passwd}}")
