"""The same cut by tags that typesetting joins."""

html(rf"<p>$\hr<wbr>ef{{javascript:{JS}}}{{x}}$ $\hr<!-- -->ef{{javascript:{JS}}}{{x}}$ $\<br>href{{javascript:{JS}}}{{x}}$ $\hr<b></b>ef{{javascript:{JS}}}{{x}}$ $\hr<script></script>ef{{javascript:{JS}}}{{x}}$</p>")
